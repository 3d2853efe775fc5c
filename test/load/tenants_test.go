package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// tenantPatience is the maximum time for the largest number of tenants on a busy
	// machine.
	tenantPatience = 30 * time.Minute
	// quiet is the time without writes after all objects are in place.
	quiet = time.Minute
	// sizedTenant is a Tenant with all kinds of objects.
	sizedTenant = `{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: "%[1]s"}, spec: {
 owners: [{kind: User, name: "%[1]s"}, {kind: Group, name: "%[1]s-team"}],
 namespaces: {create: ["%[1]s-a", "%[1]s-b", "%[1]s-c"], quota: 5, labels: {team: "%[1]s"}},
 quotas: [{name: each, scope: Namespace, hard: {secrets: "50"}}],
 limitRanges: [{limits: [{type: Container, max: {cpu: "1"}}]}],
 networkPolicies: [{podSelector: {}, ingress: [{ports: [{port: 80}]}]}],
 sync: [{name: app, namespace: "%[1]s-a", git: {url: "https://git.example.com/%[1]s/app"}}]}}
`
)

// BenchmarkTenants measures a manager that runs as in a cluster, from the first of many
// applied Tenants until each Tenant has its three namespaces with all their objects:
// seconds, writes for each wanted object, and the processor time and memory of the manager.
// After the smallest number of Tenants, a proxy starts and the cluster is idle for a minute, in which
// the API server may receive no writes except for Leases and nodes, and the processor time and the
// memory of the manager and the proxy are measured as well. MB is the resident memory, which counts
// the pages of the program's file, too: the kernel shares these between processes, and drops them
// first. working-MB is what kubelet counts against a container, and `kubectl top` prints; Go-MB is what
// Go has from the system. The figures with "empty" are of a manager without Tenants. The slope is the
// time for each Tenant, divided by the time for each Tenant of the smallest number in the same run.
// With 200 Tenants, s/bare is what a cluster without Tenure takes for the same objects. The number of
// Tenants is in the name of the benchmark: -bench BenchmarkTenants/tenants=100$ is quick, and has no
// slope.
func BenchmarkTenants(b *testing.B) {
	perTenant := 0.0
	for _, size := range []int{100, 200, 1000, 3000} {
		b.Run(fmt.Sprintf("tenants=%d", size), func(b *testing.B) {
			for b.Loop() {
				took, objects := manyTenants(b, size)
				if size == 200 {
					bare := bareObjects(b, objects)
					b.ReportMetric(bare.Seconds(), "s/bare")
					b.ReportMetric(took.Seconds()/bare.Seconds(), "ratio-bare")
				}
				each := took.Seconds() / float64(size)
				if size == 100 {
					perTenant = each
				}
				if perTenant > 0 && size != 100 {
					b.ReportMetric(each/perTenant, "slope")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// manyTenants returns the time and, for 200 Tenants, the objects that the manager wrote. With 100
// Tenants it measures an idle minute as well.
func manyTenants(b *testing.B, size int) (time.Duration, []*unstructured.Unstructured) {
	b.Helper()
	idle := size == 100
	cluster, err := localcluster.Start(b.Context(), localcluster.Options{Name: "bench", Root: stateRoot(b), BinDir: binDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	}()
	fast := unbounded(cluster.REST)
	prepareManager(b, fast)
	m := startManager(b, fast)
	defer m.stop()
	before := m.samples()
	if idle {
		b.ReportMetric(before.memory, "empty-MB")
		b.ReportMetric(before.workingSet, "empty-working-MB(max=50)")
		b.ReportMetric(before.goMemory, "empty-Go-MB")
	}
	began := time.Now()
	all := awaitAll(b, fast, size)
	applyTenants(b, fast, size)
	applied := time.Since(began)
	peak := m.await(all)
	took := time.Since(began)
	awaitQuiet(b, fast)
	used := m.samples().since(before)
	used.writes += tenantUpdates(apiWrites(b, fast))
	objects := managedObjects(b, fast)
	wanted := float64(len(objects))
	if testing.Verbose() {
		for labels, n := range apiWrites(b, fast) {
			if n >= float64(size) {
				b.Logf("%6.0f %s", n, labels)
			}
		}
	}
	unit := "s/tenants"
	if size == 200 {
		unit += "(max=12)"
	}
	b.ReportMetric(took.Seconds(), unit)
	b.ReportMetric(applied.Seconds(), "s/apply")
	b.ReportMetric(used.writes/wanted, "writes/object(max=1.5)")
	b.ReportMetric(wanted, "objects")
	b.ReportMetric(used.cpu, "cpu-s")
	b.ReportMetric(peak, "MB(max=150)")
	if idle {
		proxy := startProxy(b, fast)
		defer proxy.stop()
		awaitQuiet(b, fast)
		before, proxyBefore := m.samples(), proxy.samples()
		b.ReportMetric(idleWrites(b, fast), "idle-writes(max=0)")
		reportIdle(b, "idle", m.samples().since(before))
		reportIdle(b, "proxy-idle", proxy.samples().since(proxyBefore))
	}
	return took, objects
}

// bareObjects measures how long a cluster without Tenure takes to accept the same objects from
// clients that know them: the time that the manager cannot fall below.
func bareObjects(b *testing.B, objects []*unstructured.Unstructured) time.Duration {
	b.Helper()
	fast := unbounded(startBare(b).REST)
	var kinds []*unstructured.Unstructured
	for _, manifests := range [][]byte{config.FluxComponents(), config.CRDs()} {
		read, err := flux.ReadObjects(manifests)
		if err != nil {
			b.Fatal(err)
		}
		for _, o := range read {
			if o.GetKind() == "CustomResourceDefinition" {
				kinds = append(kinds, o)
			}
		}
	}
	if err := flux.ApplyManifests(b.Context(), fast, kinds); err != nil {
		b.Fatal(err)
	}
	admin, err := client.New(fast, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	// A quota is last: it refuses the kinds that it counts until it has counted them once.
	order := map[string]int{"Namespace": -1, "ResourceQuota": 1}
	for _, place := range []int{-1, 0, 1} {
		group := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return order[o.GetKind()] != place })
		eachOf(4, group, func(o *unstructured.Unstructured) {
			o = o.DeepCopy()
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "ownerReferences", "finalizers"} {
				unstructured.RemoveNestedField(o.Object, "metadata", field)
			}
			if err := admin.Create(b.Context(), o); err != nil {
				b.Error(err)
			}
		})
	}
	return time.Since(began)
}

// eachOf calls f for each item, with as many calls at a time as there are workers.
func eachOf[T any](workers int, items []T, f func(T)) {
	next := make(chan T)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for item := range next {
				f(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	group.Wait()
}

// reportIdle reports the processor time and the memory of a process after an idle minute.
func reportIdle(b *testing.B, name string, used usage) {
	b.Helper()
	b.ReportMetric(1000*used.cpu/quiet.Seconds(), name+"-millicores(max=5)")
	b.ReportMetric(used.memory, name+"-MB")
	b.ReportMetric(used.workingSet, name+"-working-MB(max=50)")
	b.ReportMetric(used.goMemory, name+"-Go-MB")
}

// prepareManager installs the CRDs of Flux, the rules and the objects that the manager
// needs. It returns when quotas can count these kinds: a new cluster needs a minute for
// this.
func prepareManager(b *testing.B, restConfig *rest.Config) {
	b.Helper()
	counts := corev1.ResourceList{}
	for _, manifests := range [][]byte{[]byte("{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}"), config.FluxComponents(), config.CRDs(), config.Roles(), config.Manager(), config.Proxy(), []byte(posture), config.Policies(), config.Defaults()} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			b.Fatal(err)
		}
		var wanted []*unstructured.Unstructured
		for _, o := range objects {
			if o.GetKind() == "CustomResourceDefinition" || (o.GetLabels()["app.kubernetes.io/part-of"] != "flux" && o.GetKind() != "Deployment") {
				wanted = append(wanted, o)
			}
			if o.GetKind() == "CustomResourceDefinition" && strings.HasSuffix(o.GetName(), ".toolkit.fluxcd.io") {
				counts[corev1.ResourceName("count/"+o.GetName())] = resource.MustParse("1")
			}
		}
		if err := flux.ApplyManifests(b.Context(), restConfig, wanted); err != nil {
			b.Fatal(err)
		}
	}
	admin, err := client.New(restConfig, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "counts"}, Spec: corev1.ResourceQuotaSpec{Hard: counts}}
	if err := admin.Create(b.Context(), quota); err != nil {
		b.Fatal(err)
	}
	testwait.For(b, "Kubernetes to count Flux's kinds", time.Minute, func() (bool, string) {
		err := admin.Get(b.Context(), client.ObjectKeyFromObject(quota), quota)
		return err == nil && len(quota.Status.Used) == len(counts), fmt.Sprint(quota.Status.Used, err)
	})
	if err := admin.Delete(b.Context(), quota); err != nil {
		b.Fatal(err)
	}
}

// process is a running manager or proxy. Its group is the folder of its own group of processes, or
// empty on a machine without such groups.
type process struct {
	b       *testing.B
	cmd     *exec.Cmd
	log     string
	metrics string
	group   string
}

// startManager runs the manager as its service account, and returns when the manager has
// filled its caches and holds the Lease.
func startManager(b *testing.B, restConfig *rest.Config) *process {
	b.Helper()
	return startServer(b, restConfig, "tenure-manager", config.Manager(),
		"manager", "--enable-leader-election", "--log-level=error", "--webhook-addr=127.0.0.1:"+freePort(b))
}

// startProxy runs the proxy as its service account, and returns when it has filled its caches.
func startProxy(b *testing.B, restConfig *rest.Config) *process {
	b.Helper()
	return startServer(b, restConfig, "tenure-proxy", config.Proxy(), "proxy", "--listen=127.0.0.1:"+freePort(b), "--tls-dir="+b.TempDir())
}

// startServer runs tenure-server as a service account, with the memory limit of the Deployment in
// the manifests, and returns when it is ready.
func startServer(b *testing.B, restConfig *rest.Config, account string, manifests []byte, args ...string) *process {
	b.Helper()
	dir := b.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	writeAccount(b, restConfig, account, kubeconfig)
	health, metrics := freePort(b), freePort(b)
	p := &process{b: b, log: filepath.Join(dir, "log"), metrics: "http://127.0.0.1:" + metrics + "/metrics"}
	log, err := os.Create(p.log)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	command := append([]string{unreadProgram(b)}, append(args, "--health-addr=127.0.0.1:"+health, "--metrics-addr=127.0.0.1:"+metrics)...)
	if p.group = newGroup(account); p.group != "" {
		command = append([]string{"sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, p.group}, command...)
	}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "RUNTIME_NAMESPACE=flux-system", "GOMEMLIMIT="+memoryLimit(b, manifests))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	testwait.For(b, account+" to be ready", time.Minute, func() (bool, string) {
		response, err := http.Get("http://127.0.0.1:" + health + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
	return p
}

// memoryLimit returns the memory limit for Go's runtime in the Deployment of the manifests.
func memoryLimit(b *testing.B, manifests []byte) string {
	b.Helper()
	objects, err := flux.ReadObjects(manifests)
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			limit, ok, _ := unstructured.NestedString(c.(map[string]any), "resources", "limits", "memory")
			if bytes, err := resource.ParseQuantity(limit); ok && err == nil {
				return strconv.FormatInt(bytes.Value(), 10)
			}
		}
	}
	b.Fatal("the Deployment has no limit of memory")
	return ""
}

// writeAccount writes a kubeconfig with a token of a service account in flux-system.
func writeAccount(b *testing.B, restConfig *rest.Config, account, file string) {
	b.Helper()
	admin, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		b.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("flux-system").CreateToken(b.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "bench",
		Contexts:       map[string]*clientcmdapi.Context{"bench": {Cluster: "bench", AuthInfo: "bench"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"bench": {Server: restConfig.Host, CertificateAuthorityData: restConfig.CAData, CertificateAuthority: restConfig.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bench": {Token: token.Status.Token}},
	}, file)
	if err != nil {
		b.Fatal(err)
	}
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	if p.group != "" {
		_ = os.Remove(p.group)
	}
}

// await waits until all objects are in place, and returns the maximum memory of the
// manager, in megabytes.
func (p *process) await(all <-chan error) float64 {
	p.b.Helper()
	peak := 0.0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-all:
			if err != nil {
				log, _ := os.ReadFile(p.log)
				p.b.Fatalf("not all tenants are in place: %v\n%s", err, log[max(0, len(log)-4000):])
			}
			return max(peak, p.samples().memory)
		case <-tick.C:
			peak = max(peak, p.samples().memory)
		}
	}
}

// awaitQuiet waits until the API server receives no more writes.
func awaitQuiet(b *testing.B, restConfig *rest.Config) {
	b.Helper()
	writes, at := 0.0, time.Now()
	testwait.For(b, "everything to have been written", tenantPatience, func() (bool, string) {
		now := 0.0
		for _, n := range apiWrites(b, restConfig) {
			now += n
		}
		if now != writes {
			writes, at = now, time.Now()
		}
		return time.Since(at) > 3*time.Second, fmt.Sprint(writes)
	})
}

// tenantUpdates returns the number of updates of the status of Tenants, which only the
// manager sends.
func tenantUpdates(writes map[string]float64) float64 {
	sum := 0.0
	for labels, n := range writes {
		if strings.Contains(labels, `resource="tenants"`) && strings.Contains(labels, `verb="PUT"`) {
			sum += n
		}
	}
	return sum
}

// usage holds the own metrics of a process: writes other than updates, seconds of processor
// time, and megabytes of resident memory and of memory that Go has from the system.
type usage struct{ writes, cpu, memory, goMemory, workingSet float64 }

func (s usage) since(before usage) usage {
	return usage{s.writes - before.writes, s.cpu - before.cpu, s.memory, s.goMemory, s.workingSet}
}

func (p *process) samples() usage {
	p.b.Helper()
	response, err := http.Get(p.metrics)
	if err != nil {
		p.b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.b.Fatal(err)
	}
	var s usage
	if p.group != "" {
		s.workingSet = groupMemory(p.group) / (1 << 20)
	}
	eachMetric(string(text), func(name, labels string, value float64) {
		switch {
		// Updates of the Lease and of the status of Tenants use PUT: see [tenantUpdates].
		case name == "rest_client_requests_total" && !strings.Contains(labels, `method="GET"`) && !strings.Contains(labels, `method="PUT"`):
			s.writes += value
		case name == "process_cpu_seconds_total":
			s.cpu = value
		case name == "process_resident_memory_bytes":
			s.memory = value / (1 << 20)
		case name == "go_memstats_sys_bytes":
			s.goMemory += value / (1 << 20)
		case name == "go_memstats_heap_released_bytes":
			s.goMemory -= value / (1 << 20)
		}
	})
	return s
}

// eachMetric calls f for each metric in the text format of Prometheus.
func eachMetric(text string, f func(name, labels string, value float64)) {
	for line := range strings.Lines(text) {
		series, number, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok {
			series, number, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		name, labels, _ := strings.Cut(series, "{")
		if value, err := strconv.ParseFloat(number, 64); err == nil {
			f(name, labels, value)
		}
	}
}

// applyTenants creates all Tenants as fast as the API server accepts them.
func applyTenants(b *testing.B, restConfig *rest.Config, size int) {
	b.Helper()
	admin, err := client.New(restConfig, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, size)
	for i := range names {
		names[i] = tenantName(i)
	}
	eachOf(4, names, func(name string) {
		objects, err := flux.ReadObjects(fmt.Appendf(nil, sizedTenant, name))
		if err == nil {
			err = admin.Create(b.Context(), objects[0])
		}
		if err != nil {
			b.Error(err)
		}
	})
}

// awaitAll returns a channel that receives a value when all Tenants are ready and the
// policies of all their namespaces read their own parameters.
func awaitAll(b *testing.B, restConfig *rest.Config, size int) <-chan error {
	b.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), metav1.AddMetaToScheme(scheme)); err != nil {
		b.Fatal(err)
	}
	kube, err := client.NewWithWatch(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), tenantPatience)
	b.Cleanup(cancel)
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"})
	done := make(chan error, 2)
	both := make(chan error, 1)
	go func() { done <- watchUntil(ctx, kube, &v1alpha1.TenantList{}, size) }()
	go func() { done <- watchUntil(ctx, kube, namespaces, 3*size, client.HasLabels{v1alpha1.LabelParameters}) }()
	go func() { both <- errors.Join(<-done, <-done) }()
	return both
}

// watchUntil waits until there are size objects. Tenants count once they are provisioned.
func watchUntil(ctx context.Context, kube client.WithWatch, list client.ObjectList, size int, opts ...client.ListOption) error {
	watch, err := kube.Watch(ctx, list, opts...)
	if err != nil {
		return err
	}
	defer watch.Stop()
	ready := map[string]bool{}
	message := ""
	for len(ready) < size {
		event, ok := <-watch.ResultChan()
		if !ok {
			return fmt.Errorf("%d of %d %T: %s: %w", len(ready), size, list, message, cmp.Or(context.Cause(ctx), io.ErrUnexpectedEOF))
		}
		switch o := event.Object.(type) {
		case *v1alpha1.Tenant:
			c := apimeta.FindStatusCondition(o.Status.Conditions, "Provisioned")
			if c != nil && c.Reason == "InPlace" && o.Status.Size == 3 {
				ready[o.Name] = true
			} else if c != nil {
				message = o.Name + ": " + c.Message
			}
		case *metav1.PartialObjectMetadata:
			ready[o.Name] = true
		}
	}
	return nil
}

// managedObjects returns the objects that the manager keeps for all Tenants.
func managedObjects(b *testing.B, restConfig *rest.Config) []*unstructured.Unstructured {
	b.Helper()
	kube, err := client.New(restConfig, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	var found []*unstructured.Unstructured
	for _, kind := range []struct{ group, version, kind, label string }{
		{"", "v1", "Namespace", v1alpha1.LabelParameters},
		{"", "v1", "ServiceAccount", ""},
		{"", "v1", "ResourceQuota", ""},
		{"", "v1", "LimitRange", ""},
		{"networking.k8s.io", "v1", "NetworkPolicy", ""},
		{"rbac.authorization.k8s.io", "v1", "RoleBinding", ""},
		{"rbac.authorization.k8s.io", "v1", "ClusterRole", ""},
		{"rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", ""},
		{"tenure.dev", "v1alpha1", "TenantParameters", ""},
		{"source.toolkit.fluxcd.io", "v1", "GitRepository", ""},
		{"kustomize.toolkit.fluxcd.io", "v1", "Kustomization", ""},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.group, Version: kind.version, Kind: kind.kind + "List"})
		if err := kube.List(b.Context(), list, client.HasLabels{cmp.Or(kind.label, "tenure.dev/managed-by")}); err != nil {
			b.Fatal(err)
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found
}

// idleWrites returns the number of writes in an idle minute, without Leases and nodes.
func idleWrites(b *testing.B, restConfig *rest.Config) float64 {
	b.Helper()
	before := apiWrites(b, restConfig)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.Context().Done():
	}
	sum := 0.0
	for labels, n := range apiWrites(b, restConfig) {
		if n > before[labels] {
			b.Logf("%.0f requests while nothing happened: %s", n-before[labels], labels)
			sum += n - before[labels]
		}
	}
	return sum
}

// apiWrites returns the numbers of writes that the API server has counted, by their labels,
// without Leases and nodes.
func apiWrites(b *testing.B, restConfig *rest.Config) map[string]float64 {
	b.Helper()
	admin, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		b.Fatal(err)
	}
	text, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	found := map[string]float64{}
	eachMetric(string(text), func(name, labels string, value float64) {
		if name != "apiserver_request_total" || strings.Contains(labels, `resource="leases"`) || strings.Contains(labels, `resource="nodes"`) {
			return
		}
		for _, verb := range []string{"APPLY", "PATCH", "POST", "PUT", "DELETE"} {
			if strings.Contains(labels, `verb="`+verb+`"`) && !strings.Contains(labels, `dry_run="All"`) {
				found[labels] += value
			}
		}
	})
	return found
}
