package load

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The size of the benchmark's cluster.
const (
	proxyTenants    = 1000
	proxyNamespaces = 3 // of each tenant
	proxyWatches    = 1000
)

// BenchmarkProxy compares requests through the proxy, a separate process, with requests for
// the same answer to the API server, one after the other and with eight clients, as a
// tenant with 3 of 3,000 namespaces. It then opens 1,000 watches and measures the memory of
// the proxy and the delay of events, through the proxy and at the API server.
func BenchmarkProxy(b *testing.B) {
	p := startProxied(b)
	ofTenant := v1alpha1.LabelTenant + " in (" + tenantName(0) + ")"
	list := pair{
		through: p.request("/api/v1/namespaces", p.proxy, p.owner),
		direct:  p.request("/api/v1/namespaces?labelSelector="+url.QueryEscape(ofTenant), p.server, p.reader),
	}
	get := pair{
		through: p.request("/api/v1/namespaces/"+proxyHome+"/configmaps/one", p.proxy, p.owner),
		direct:  p.request("/api/v1/namespaces/"+proxyHome+"/configmaps/one", p.server, p.owner),
	}
	b.ReportMetric(p.residentMB(b), "MB-idle(max=150)")
	for name, pair := range map[string]pair{"list": list, "get": get} {
		through, direct := p.medians(b, pair)
		bound := map[string]string{"list": "1.5", "get": "1.4"}[name]
		b.ReportMetric(through, "ms-"+name)
		b.ReportMetric(direct, "ms-"+name+"-direct")
		b.ReportMetric(through/direct, "ratio-"+name+"(max="+bound+")")
		var slow, fast float64
		for range rounds {
			slow += p.throughput(b, pair.through) / rounds
			fast += p.throughput(b, pair.direct) / rounds
		}
		b.ReportMetric(slow, name+"/s")
		b.ReportMetric(slow/fast, "share-"+name+"(min=0.6)")
	}
	before := p.residentMB(b)
	first, others, again := p.watchAll(b, p.request("/api/v1/namespaces?watch=true", p.proxy, p.owner), func() {
		b.ReportMetric(1000*(p.residentMB(b)-before)/proxyWatches, "KB-per-watch")
	})
	b.ReportMetric(again, "watches-again")
	b.ReportMetric(first, "ms-event-first-p99")
	b.ReportMetric(others, "ms-event-p99(max=100)")
	_, others, again = p.watchAll(b, p.request("/api/v1/namespaces?watch=true&labelSelector="+url.QueryEscape(ofTenant), p.server, p.reader), func() {})
	b.ReportMetric(again, "watches-again-direct")
	b.ReportMetric(others, "ms-event-p99-direct")
	b.ReportMetric(0, "ns/op")
}

// rounds is the number of throughput measurements of each side.
const rounds = 5

const proxyHome = "tenant-0000-0"

// pair sends requests for the same answer through the proxy and to the API server.
type pair struct {
	through, direct func(context.Context) (*http.Response, error)
}

// proxied is a cluster behind a proxy.
type proxied struct {
	admin         client.Client
	http          *http.Client
	proxy, server string
	owner, reader string // tokens
	process       *exec.Cmd
}

// startProxied starts a cluster with the tenants, and the proxy before it.
func startProxied(b *testing.B) *proxied {
	b.Helper()
	cluster := startBare(b)
	fast := unbounded(cluster.REST)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	p := &proxied{server: cluster.REST.Host, http: &http.Client{}}
	var err error
	if p.admin, err = client.New(fast, client.Options{Scheme: scheme}); err != nil {
		b.Fatal(err)
	}
	objects, err := flux.ReadObjects([]byte("{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}\n---\n" + string(config.CRDs()) + "---\n" + string(config.Proxy())))
	if err != nil {
		b.Fatal(err)
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	if err := flux.ApplyManifests(b.Context(), fast, objects); err != nil {
		b.Fatal(err)
	}
	p.fill(b)
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		b.Fatal(err)
	}
	p.http.Transport = &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 16}
	p.start(b, cluster.REST)
	return p
}

// fill creates the tenants and their service accounts.
func (p *proxied) fill(b *testing.B) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := range proxyTenants {
		group.Go(func() error {
			name := tenantName(i)
			owner := v1alpha1.Owner{Kind: "ServiceAccount", Namespace: name + "-0", Name: "owner"}
			if err := p.admin.Create(ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{owner}}}); err != nil {
				return err
			}
			for j := range proxyNamespaces {
				namespace := fmt.Sprintf("%s-%d", name, j)
				if err := p.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{v1alpha1.LabelTenant: name}}}); err != nil {
					return err
				}
				if err := p.admin.Create(ctx, &rbacv1.RoleBinding{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"},
					RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
					Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: name + "-0", Name: "owner"}},
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	p.owner, p.reader = p.account(b, proxyHome, "owner"), p.account(b, "flux-system", "reader")
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: proxyHome, Name: "one"}, Data: map[string]string{"key": "value"}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "flux-system", Name: "reader"}},
		},
	} {
		if err := p.admin.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

func (p *proxied) account(b *testing.B, namespace, name string) string {
	b.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := client.IgnoreAlreadyExists(p.admin.Create(b.Context(), sa)); err != nil {
		b.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := p.admin.SubResource("token").Create(b.Context(), sa, request); err != nil {
		b.Fatal(err)
	}
	return request.Status.Token
}

// start starts the proxy and waits until it is ready.
func (p *proxied) start(b *testing.B, server *rest.Config) {
	b.Helper()
	dir := b.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.Host, CertificateAuthority: server.CAFile, CertificateAuthorityData: server.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: p.account(b, "flux-system", "tenure-proxy")}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		b.Fatal(err)
	}
	listen, health := "127.0.0.1:"+freePort(b), "127.0.0.1:"+freePort(b)
	p.process = exec.CommandContext(b.Context(), filepath.Join(binDir(b), "tenure-server"), "proxy", "--listen="+listen, "--health-addr="+health, "--metrics-addr=0", "--tls-dir="+dir, "--max-watches=2000")
	p.process.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.process.Stderr = os.Stderr
	if err := p.process.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
	})
	p.proxy = "https://" + listen
	testwait.For(b, "the proxy to be ready", time.Minute, func() (bool, string) {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK, response.Status
	})
}

func (p *proxied) request(path, host, token string) func(context.Context) (*http.Response, error) {
	return func(ctx context.Context) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
		return p.http.Do(r)
	}
}

// do sends a request and returns the whole body of the answer.
func do(ctx context.Context, send func(context.Context) (*http.Response, error)) (string, error) {
	response, err := send(ctx)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// medians returns the median times of both sides, in milliseconds.
func (p *proxied) medians(b *testing.B, ways pair) (through, direct float64) {
	b.Helper()
	var took [2][]time.Duration
	for i := range 1000 {
		for j := range 2 {
			side := (i + j) % 2
			began := time.Now()
			if _, err := do(b.Context(), []func(context.Context) (*http.Response, error){ways.through, ways.direct}[side]); err != nil {
				b.Fatal(err)
			}
			took[side] = append(took[side], time.Since(began))
		}
	}
	return quantile(took[0], 0.5), quantile(took[1], 0.5)
}

// quantile returns a quantile in milliseconds.
func quantile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return float64(all[int(float64(len(all)-1)*q)]) / float64(time.Millisecond)
}

// throughput returns the number of answers a second that eight clients get.
func (p *proxied) throughput(b *testing.B, send func(context.Context) (*http.Response, error)) float64 {
	b.Helper()
	const clients, duration = 8, time.Second
	var done atomic.Int64
	deadline := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(b.Context())
	for range clients {
		group.Go(func() error {
			for time.Now().Before(deadline) {
				if _, err := do(ctx, send); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return float64(done.Load()) / duration.Seconds()
}

// watchTime is the maximum time until all watches have seen all events. The benchmark
// causes an event when all watches have seen the event before.
const (
	watchTime   = 3 * time.Minute
	proxyEvents = 101
)

// event is a change that all watches show.
type event struct {
	made   atomic.Int64    // since 1970, in nanoseconds
	delays []time.Duration // of each watch
	seen   sync.WaitGroup
}

// watchAll opens the watches, calls opened, and repeatedly changes a namespace that all
// watches show. It returns the 99th percentile of the delay of the first event, which
// coincides with remaining work of the opening, and of all other events, in milliseconds,
// and the number of times that a watch was opened again.
func (p *proxied) watchAll(b *testing.B, open func(context.Context) (*http.Response, error), opened func()) (first, others, again float64) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), watchTime)
	defer cancel()
	events := make([]*event, proxyEvents)
	for i := range events {
		events[i] = &event{delays: make([]time.Duration, proxyWatches)}
		events[i].seen.Add(proxyWatches)
	}
	var ready sync.WaitGroup
	ready.Add(proxyWatches)
	var reopened atomic.Int64
	watches, ctx := errgroup.WithContext(ctx)
	// Ignore events of an earlier call.
	mark := strconv.FormatInt(time.Now().UnixNano(), 36)
	for i := range proxyWatches {
		watches.Go(func() error {
			begun := sync.OnceFunc(ready.Done)
			defer begun() // also after an error, so that no goroutine waits for it
			next := 0
			// A watch that was opened again begins with the newest event.
			saw := func(newest int) bool {
				for ; next <= newest; next++ {
					events[next].delays[i] = time.Since(time.Unix(0, events[next].made.Load()))
					events[next].seen.Done()
				}
				return next == len(events)
			}
			defer saw(len(events) - 1)
			for {
				err := watchOne(ctx, open, mark, begun, saw)
				if err == nil {
					return nil
				}
				reopened.Add(1)
				if err := pause(ctx, err); err != nil {
					return err
				}
			}
		})
	}
	ready.Wait()
	opened()
	for i, e := range events {
		e.made.Store(time.Now().UnixNano())
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"bench":"%s-%d."}}}`, mark, i)
		if err := p.admin.Patch(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: proxyHome}}, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			b.Fatal(err)
		}
		e.seen.Wait()
	}
	if err := watches.Wait(); err != nil {
		b.Fatalf("a watch has not seen an event: %v", err)
	}
	var delays []time.Duration
	for _, e := range events[1:] {
		delays = append(delays, e.delays...)
	}
	return quantile(events[0].delays, 0.99), quantile(delays, 0.99), float64(reopened.Load())
}

// pause waits as client-go does before it opens a watch again: an overloaded API server
// refuses some watches with 429, or ends them with an ERROR event.
func pause(ctx context.Context, why error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("no watch until the end: %w", why)
	case <-time.After(time.Second): // the value of Retry-After
		return nil
	}
}

// watchOne opens a watch. It calls begun after the initial objects, and saw for each event
// with the mark until saw returns true.
func watchOne(ctx context.Context, open func(context.Context) (*http.Response, error), mark string, begun func(), saw func(int) bool) error {
	response, err := open(ctx)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	lines, shown, last := bufio.NewScanner(response.Body), 0, response.Status
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		last = lines.Text()
		if shown++; shown == proxyNamespaces {
			begun()
		}
		_, number, marked := strings.Cut(last, `"bench":"`+mark+"-")
		if !marked {
			continue
		}
		number, _, _ = strings.Cut(number, ".")
		n, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		if saw(n) {
			return nil
		}
	}
	return fmt.Errorf("a watch ended after %d events: %w, the last one %s", shown, cmp.Or(lines.Err(), io.EOF), last)
}

// residentMB returns the resident memory of the proxy's process, in megabytes.
func (p *proxied) residentMB(b *testing.B) float64 {
	b.Helper()
	out, err := exec.CommandContext(b.Context(), "ps", "-o", "rss=", "-p", fmt.Sprint(p.process.Process.Pid)).Output()
	if err != nil {
		b.Fatal(err)
	}
	var kib float64
	if _, err := fmt.Sscan(string(out), &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}
