package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// transferCluster is a cluster with managers whose webhooks move parts of quotas.
type transferCluster struct {
	admin  client.Client
	lowest *rest.Config
	// replicas are the options of the managers. The API server reaches their webhooks at
	// one address, as by a Service.
	replicas []Options
}

// freeAddress is one on which nobody serves.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func startMoving(t *testing.T) *transferCluster {
	t.Helper()
	restConfig := testcluster.Start(t, localcluster.Options{}).REST
	m := &transferCluster{lowest: install(t, restConfig)}
	all := newScheme()
	if err := errors.Join(scheme.AddToScheme(all), appsv1.AddToScheme(all)); err != nil {
		t.Fatal(err)
	}
	restConfig.QPS = -1
	var err error
	if m.admin, err = client.New(restConfig, client.Options{Scheme: all}); err != nil {
		t.Fatal(err)
	}
	backends := []string{freeAddress(t), freeAddress(t)}
	address := balance(t, backends)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := m.admin.Get(t.Context(), client.ObjectKey{Name: admission.QuotaWebhookName}, configuration); err != nil {
		t.Fatal(err)
	}
	for i := range configuration.Webhooks {
		configuration.Webhooks[i].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + admission.QuotaWebhookPath)}
	}
	if err := m.admin.Update(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	// The rule lets the manager change the path of a Service, and not of an address.
	rule := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: admission.Prefix + "manager"}}
	if err := m.admin.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	for i, backend := range backends {
		m.replicas = append(m.replicas, Options{
			MetricsAddr: "0", HealthAddr: "0", WebhookAddr: backend, Namespace: "flux-system", Instance: fmt.Sprint("test-", i), LeaderElection: true,
			ProxyURL: restConfig.Host, ProxyCA: "tenure-proxy-ca", TokenLifetime: time.Hour, webhookNames: []string{"127.0.0.1"}, another: true,
		})
	}
	return m
}

// balance forwards connections to the backends in turn, and to the next one if a backend
// does not listen. It returns its address.
func balance(t *testing.T, backends []string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for turn := 0; ; turn++ {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			for i := range backends {
				to, err := net.Dial("tcp", backends[(turn+i)%len(backends)])
				if err != nil {
					continue
				}
				forward(from, to)
				forward(to, from)
				break
			}
		}
	}()
	return listener.Addr().String()
}

// forward copies from one connection to another until one of them ends.
func forward(from, to net.Conn) {
	go func() {
		_, _ = io.Copy(to, from)
		_, _ = from.Close(), to.Close()
	}()
}

// run runs a manager until the test ends or it is stopped. A test may stop it before, and looks at
// the error itself.
func (m *transferCluster) run(t *testing.T, options Options) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, m.lowest, options) }()
	stopped := false
	stop = sync.OnceValue(func() error {
		cancel()
		stopped = true
		return <-done
	})
	t.Cleanup(func() {
		if stopped {
			return
		}
		if err := stop(); err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	return stop
}

// called waits until the API server is told by which path to call the webhook, and the
// webhook answers.
func (m *transferCluster) called(t *testing.T) {
	t.Helper()
	testwait.For(t, "the webhook's path to be published", patience, func() (bool, string) {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := m.admin.Get(t.Context(), client.ObjectKey{Name: admission.QuotaWebhookName}, configuration); err != nil {
			return false, err.Error()
		}
		url := *configuration.Webhooks[0].ClientConfig.URL
		return strings.Contains(url, admission.QuotaWebhookPath+"/"), url
	})
	for _, replica := range m.replicas {
		testwait.For(t, "the webhook of replica "+replica.Instance+" to listen", patience, func() (bool, string) {
			connection, err := net.Dial("tcp", replica.WebhookAddr)
			if err != nil {
				return false, err.Error()
			}
			return connection.Close() == nil, ""
		})
	}
}

// tenant makes a Tenant with a quota of processors over namespaces, and waits until it
// is divided.
func (m *transferCluster) tenant(t *testing.T, name string, cpus, namespaces int) (names []string) {
	t.Helper()
	for i := range namespaces {
		names = append(names, fmt.Sprintf("%s-%c", name, 'a'+i))
	}
	create(t, m.admin, tenantManifest(name, fmt.Sprintf(`{owners: [{kind: User, name: ann}], namespaces: {create: [%s]}, quotas: [{name: compute, hard: {requests.cpu: "%d"}}]}`, strings.Join(names, ", "), cpus)))
	m.divided(t, name, namespaces)
	for _, ns := range names {
		testwait.For(t, "the account of "+ns, patience, func() (bool, string) {
			err := m.admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "default"}, &corev1.ServiceAccount{})
			return err == nil, fmt.Sprint(err)
		})
	}
	return names
}

// divided waits until each namespace has its part, and its label.
func (m *transferCluster) divided(t *testing.T, tenant string, namespaces int) {
	t.Helper()
	testwait.For(t, "the quota to be divided", patience, func() (bool, string) {
		parts, limit := m.parts(t, tenant), int64(0)
		for _, q := range parts {
			hard, enforced := q.Spec.Hard["requests.cpu"], q.Status.Hard["requests.cpu"]
			if hard.Cmp(enforced) != 0 {
				return false, "a part is not enforced yet"
			}
			limit += hard.Value()
		}
		var list corev1.NamespaceList
		err := m.admin.List(t.Context(), &list, client.MatchingLabels{"divided-quota.tenure.dev/pods": "true", v1alpha1.LabelTenant: tenant})
		return len(parts) == namespaces && len(list.Items) == namespaces && limit > 0, fmt.Sprint(len(parts), len(list.Items), err)
	})
}

func (m *transferCluster) parts(t *testing.T, tenant string) []corev1.ResourceQuota {
	t.Helper()
	var list corev1.ResourceQuotaList
	err := m.admin.List(t.Context(), &list, client.MatchingLabels{"tenure.dev/quota-scope": "Tenant", v1alpha1.LabelFluxTenant: tenant})
	if err != nil && t.Context().Err() == nil {
		t.Error(err)
	}
	return list.Items
}

// guard looks at the parts of a tenant all the time, until the test ends or it is stopped: neither
// the sum of their limits nor what is used may exceed the tenant's limit.
func (m *transferCluster) guard(t *testing.T, tenant string, cpus int64) (stop func()) {
	t.Helper()
	return m.guardParts(t, tenant, cpus, cpus)
}

// guardParts is guard with two limits in processors: cpus for the sum of the parts, usable for the usage.
func (m *transferCluster) guardParts(t *testing.T, tenant string, cpus, usable int64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan string, 1)
	go func() {
		defer close(over)
		first := ""
		for ctx.Err() == nil {
			sum, used := int64(0), int64(0)
			for _, q := range m.parts(t, tenant) {
				hard, enforced, uses := q.Spec.Hard["requests.cpu"], q.Status.Hard["requests.cpu"], q.Status.Used["requests.cpu"]
				sum += max(hard.MilliValue(), enforced.MilliValue())
				used += uses.MilliValue()
			}
			if first == "" && (sum > 1000*cpus || used > 1000*usable) {
				first = fmt.Sprintf("namespaces of %s may use %dm and use %dm of %d", tenant, sum, used, cpus)
			}
		}
		over <- first
	}()
	return func() {
		cancel()
		if first := <-over; first != "" {
			t.Error(first)
		}
	}
}

func pod(namespace, name string, cpus string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "registry.example.com/app:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}},
		}}},
	}
}

// pods returns how many Pods a namespace has.
func (m *transferCluster) pods(t *testing.T, namespaces ...string) int {
	t.Helper()
	count := 0
	for _, ns := range namespaces {
		var list corev1.PodList
		if err := m.admin.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		count += len(list.Items)
	}
	return count
}

func (m *transferCluster) remove(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := m.admin.Delete(t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// TestQuotaMoves uses a tenant's quota from namespaces that have too small a part of it.
// Two replicas of the manager serve the webhook, and one of them leads.
func TestQuotaMoves(t *testing.T) {
	t.Parallel()
	m := startMoving(t)
	stop := m.run(t, m.replicas[0])
	m.run(t, m.replicas[1])
	m.called(t)
	t.Run("Deployment", func(t *testing.T) { m.deployment(t) })
	t.Run("Tries", func(t *testing.T) { m.tries(t) })
	t.Run("Race", func(t *testing.T) { m.race(t) })
	t.Run("Refusal", func(t *testing.T) { m.refusals(t) })
	t.Run("DryRun", func(t *testing.T) { m.dryRuns(t) })
	start := func() (stop func() error) { return m.run(t, m.replicas[0]) }
	t.Run("Killed", func(t *testing.T) { m.killed(t, stop, start) })
	t.Run("Away", func(t *testing.T) { m.away(t) })
}

// deployment is of six Pods of a processor, with eight for four namespaces.
func (m *transferCluster) deployment(t *testing.T) {
	names := m.tenant(t, "deploys", 8, 4)
	defer m.guard(t, "deploys", 8)()
	began := time.Now()
	template := pod("", "", "1")
	template.Labels = map[string]string{"app": "six"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: names[2], Name: "six"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(6)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
		},
	}
	if err := m.admin.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "all six Pods", patience, func() (bool, string) {
		return m.pods(t, names[2]) == 6, fmt.Sprint(m.pods(t, names[2]))
	})
	t.Logf("six of six after %s", time.Since(began))
}

// tries makes a Pod in one namespace right after another one gave up what it needs.
func (m *transferCluster) tries(t *testing.T) {
	const tries = 100
	names := m.tenant(t, "tries", 4, 4)
	defer m.guard(t, "tries", 4)()
	for i := range 4 {
		if err := m.admin.Create(t.Context(), pod(names[i], fmt.Sprint("first-", i), "1")); err != nil {
			t.Fatal(err)
		}
	}
	last, refused, longest := pod(names[0], "first-0", "1"), 0, time.Duration(0)
	for n := range tries {
		m.remove(t, last)
		last = pod(names[(n+1)%4], fmt.Sprint("try-", n), "1")
		began := time.Now()
		err := m.admin.Create(t.Context(), last)
		longest = max(longest, time.Since(began))
		if err != nil {
			refused++
			t.Logf("try %d: %v", n, err)
			testwait.For(t, "the Pod to be taken", patience, func() (bool, string) {
				err := m.admin.Create(t.Context(), last)
				return err == nil, fmt.Sprint(err)
			})
		}
	}
	if t.Logf("%d of %d were refused, the longest took %s", refused, tries, longest); refused > tries/100 {
		t.Errorf("%d of %d were refused the first time", refused, tries)
	}
}

// isRetryable reports whether a client that repeats a request may have success: the API server
// gives up after three conflicts with others that change the quota, and it refuses by the
// part that it knows when it learns late of one that has moved.
func isRetryable(err error) bool {
	return apierrors.IsConflict(err) || err != nil && strings.Contains(err.Error(), "exceeded quota: tenure-compute")
}

// race makes Pods in all namespaces at once, until the quota is used up, and deletes them.
// In the first rounds it waits until the deleted Pods are not counted any more, and then the
// quota is used up exactly. In later rounds Kubernetes still recounts: the tenant may get less, and, as
// with a quota of Kubernetes alone, rarely more. The sum of the parts is within the limit in all rounds.
func (m *transferCluster) race(t *testing.T) {
	names := m.tenant(t, "race", 8, 4)
	defer m.guardParts(t, "race", 8, 16)() // 16 Pods are asked for: what is used is compared below
	const settled, rounds = 5, 15
	for round := range rounds {
		var group sync.WaitGroup
		var made atomic.Int32
		for i := range 16 {
			group.Go(func() {
				err := retry.OnError(retry.DefaultBackoff, isRetryable, func() error {
					return m.admin.Create(t.Context(), pod(names[i%len(names)], fmt.Sprintf("p-%d-%d", round, i), "1"))
				})
				switch {
				case err == nil:
					made.Add(1)
				case !strings.Contains(err.Error(), "exceeded quota: compute of all namespaces of tenant race") && (round < settled || !isRetryable(err)):
					t.Error(err)
				}
			})
		}
		group.Wait()
		switch there := m.pods(t, names...); {
		case round < settled && (made.Load() != 8 || there != 8):
			t.Errorf("round %d: %d were admitted, and %d are there", round, made.Load(), there)
		case there > 8:
			t.Logf("round %d: %d are there, as it also happens with a quota of Kubernetes alone (docs/design/quotas.md)", round, there)
		}
		for _, ns := range names {
			if err := m.admin.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		}
		if round >= settled && round < rounds-1 {
			continue
		}
		testwait.For(t, "deleted Pods to be subtracted", patience, func() (bool, string) {
			var used resource.Quantity
			for _, part := range m.parts(t, "race") {
				used.Add(part.Status.Used["requests.cpu"])
			}
			return used.IsZero(), used.String()
		})
	}
}

// refusals says what the tenant has, and to whom by which namespaces.
func (m *transferCluster) refusals(t *testing.T) {
	names := m.tenant(t, "refuses", 4, 2)
	if err := m.admin.Create(t.Context(), pod(names[0], "three", "3")); err != nil {
		t.Fatal(err)
	}
	const message = "exceeded quota: compute of all namespaces of tenant refuses, requested: requests.cpu=2, used: requests.cpu=3 (%s), limited: requests.cpu=4"
	for _, tc := range []struct{ reason, user, by string }{
		{"an owner may know the namespaces", "ann", "refuses-a 3"},
		{"who has one namespace may not", "guest", "other namespaces 3"},
		{"what Kubernetes' controllers are told is in the namespace", "system:serviceaccount:kube-system:replicaset-controller", "refuses-a 3"},
	} {
		as := newClient(t, m.lowest, rest.ImpersonationConfig{UserName: tc.user, Groups: []string{"system:masters"}})
		for _, options := range [][]client.CreateOption{nil, {client.DryRunAll}} {
			err := as.Create(t.Context(), pod(names[1], "two", "2"), options...)
			if want := fmt.Sprintf(message, tc.by); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v\nwant %s", tc.reason, err, want)
			}
		}
	}
}

// killed ends managers while Pods are made and deleted, and starts others, of which the
// last one stays.
func (m *transferCluster) killed(t *testing.T, stop func() error, start func() (stop func() error)) {
	names := m.tenant(t, "killed", 8, 4)
	defer m.guard(t, "killed", 8)()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	var made atomic.Int32
	for i := range 4 {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p := pod(names[(i+n)%4], fmt.Sprintf("p-%d-%d", i, n), "2")
				err := m.admin.Create(ctx, p)
				if err != nil {
					continue // what the namespace has decides while no manager is there
				}
				made.Add(1)
				if err := m.admin.Delete(ctx, p, client.GracePeriodSeconds(0)); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range 3 {
		before := made.Load()
		testwait.For(t, "some Pods to be made", patience, func() (bool, string) { return made.Load() >= before+4, fmt.Sprint(made.Load()) })
		if err := stop(); err != nil {
			t.Logf("a manager that is stopped while it has requests may leave some without an answer: %v", err)
		}
		stop = start()
	}
	cancel()
	group.Wait()
}

// away lets what namespaces have decide, without the webhook.
func (m *transferCluster) away(t *testing.T) {
	if err := m.admin.Delete(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: admission.QuotaWebhookName}}); err != nil {
		t.Fatal(err)
	}
	names := m.tenant(t, "away", 4, 2)
	if err := m.admin.Create(t.Context(), pod(names[0], "two", "2")); err != nil {
		t.Error(err)
	}
	err := m.admin.Create(t.Context(), pod(names[1], "three", "3"))
	if err == nil || !strings.Contains(err.Error(), "exceeded quota: tenure-compute, requested: requests.cpu=3") {
		t.Errorf("without the webhook more than a part is not refused by the part: %v", err)
	}
}
