package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// posture is the TenancyProfile of the benchmarks.
const posture = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    sources:
      git: ["https://git.example.com/acme/*", "ssh://git@git.example.com/acme/**"]
`

// pairs is the number of pairs of requests for a median, and warmUp the number of earlier
// pairs that fill the caches of the API server.
const pairs, warmUp = 4000, 500

// BenchmarkAdmission compares the dry-run creation of a Kustomization and of a
// GitRepository in a tenant's namespace, where the admission rules apply, with the same
// creation in a namespace without rules, one after the other, with 10 and with 2,000
// tenants that have parameters of their own. It reports the median time of the rules, and
// its growth.
func BenchmarkAdmission(b *testing.B) {
	fast := unbounded(startBare(b).REST)
	fast.WarningHandlerWithContext = rest.NoWarnings{}
	admin, err := client.New(fast, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	prepareRules(b, admin, fast)
	var added []estimate
	made := 0
	for _, tenants := range []int{10, 2000} {
		makeTenants(b, admin, made, tenants)
		made = tenants
		awaitRules(b, admin, tenants-1)
		settle(b, admin)
		free, more := measure(b, admin, tenants)
		added = append(added, more)
		b.Logf("%d tenants: %.3f ms without rules, which add %.3f ms (95 %%: %.3f to %.3f)", tenants, free.median, more.median, more.low, more.high)
		b.ReportMetric(free.median, fmt.Sprintf("ms-free-%d", tenants))
		b.ReportMetric(more.median, fmt.Sprintf("ms-added-%d(max=0.3)", tenants))
	}
	growth := added[1].median - added[0].median
	b.Logf("from 10 to 2,000 tenants: %+.3f ms (95 %%: at least between %+.3f and %+.3f)", growth, added[1].low-added[0].high, added[1].high-added[0].low)
	b.ReportMetric(growth, "ms-growth")
	b.ReportMetric(0, "ns/op")
}

// prepareRules installs the CRDs of Flux and Tenure, the rules and a profile.
func prepareRules(b *testing.B, admin client.Client, restConfig *rest.Config) {
	b.Helper()
	for _, manifests := range [][]byte{config.FluxComponents(), config.CRDs(), []byte(posture), config.Policies()} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			b.Fatal(err)
		}
		objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetLabels()["app.kubernetes.io/part-of"] == "flux" && o.GetKind() != "CustomResourceDefinition"
		})
		if err := flux.ApplyManifests(b.Context(), restConfig, objects); err != nil {
			b.Fatal(err)
		}
	}
	if err := admin.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "free"}}); err != nil {
		b.Fatal(err)
	}
}

// makeTenants creates the namespaces of tenants and their parameters.
func makeTenants(b *testing.B, admin client.Client, from, to int) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := from; i < to; i++ {
		group.Go(func() error {
			name := tenantName(i)
			if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"tenure.dev/tenant": name, "tenure.dev/parameters": "true"},
			}}); err != nil {
				return err
			}
			parameters := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "tenure.dev/v1alpha1", "kind": "TenantParameters",
				"metadata": map[string]any{"name": "tenure", "namespace": name},
				"spec": map[string]any{"tenant": name, "tenants": map[string]any{"sources": map[string]any{
					"git": []any{"https://git.example.com/acme/*", "ssh://git@git.example.com/acme/**"},
				}}},
			}}
			return admin.Create(ctx, parameters)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%04d", i) }

// awaitRules waits until the rules apply in the last created namespace.
func awaitRules(b *testing.B, admin client.Client, last int) {
	b.Helper()
	testwait.For(b, "the rules to be in force", time.Minute, func() (bool, string) {
		bad := delivering(tenantName(last), tenantName(last))[0]
		unstructured.RemoveNestedField(bad.Object, "spec", "serviceAccountName")
		refused := admin.Create(b.Context(), bad, client.DryRunAll)
		for _, u := range delivering(tenantName(last), tenantName(last)) {
			if err := admin.Create(b.Context(), u, client.DryRunAll); err != nil {
				return false, err.Error()
			}
		}
		return refused != nil, "nothing is refused"
	})
}

// settle waits until the controllers of Kubernetes write no more. After the creation of
// thousands of namespaces they continue for a while, and the benchmark would measure their
// work.
func settle(b *testing.B, admin client.Client) {
	b.Helper()
	// The remaining writes are Leases and events, a few in ten seconds.
	const window, few = 5 * time.Second, 5
	revision, since := int64(-1), time.Now()
	testwait.For(b, "the cluster to be quiet", 5*time.Minute, func() (bool, string) {
		if revision >= 0 && time.Since(since) < window {
			return false, "it was not quiet for long enough"
		}
		list := &corev1.NamespaceList{}
		if err := admin.List(b.Context(), list, client.Limit(1)); err != nil {
			return false, err.Error()
		}
		now, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		written := now - revision
		quiet := revision >= 0 && written <= few
		revision, since = now, time.Now()
		return quiet, fmt.Sprintf("%d writes in %s", written, window)
	})
}

// estimate is a median and the bounds of its 95 % confidence interval, in milliseconds.
type estimate struct{ median, low, high float64 }

// medianOf returns the median of values of any distribution. The bounds are order
// statistics, and their ranks follow from the binomial distribution.
func medianOf(values []time.Duration) estimate {
	sorted := slices.Sorted(slices.Values(values))
	n := float64(len(sorted))
	at := func(rank float64) float64 {
		i := min(max(int(rank), 0), len(sorted)-1)
		return float64(sorted[i]) / float64(time.Millisecond)
	}
	half := 1.96 * math.Sqrt(n) / 2
	return estimate{at(n / 2), at(n/2 - half), at(math.Ceil(n/2 + half))}
}

// measure creates objects in pairs, one in a namespace without rules and one in a tenant's.
// It returns the median time without rules, and the median of the differences.
func measure(b *testing.B, admin client.Client, tenants int) (free, added estimate) {
	b.Helper()
	// Exclude the garbage collection of this process from the measurement.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	random := rand.New(rand.NewPCG(1, 2)) // the same order each time
	var without, differences []time.Duration
	for i := range warmUp + pairs {
		name := tenantName(random.IntN(tenants))
		kind := i % 2
		// The order is random, so that neither side has the warmer cache.
		var took [2]time.Duration
		first := random.IntN(2)
		for _, side := range []int{first, 1 - first} {
			namespace := []string{"free", name}[side]
			u := delivering(namespace, name)[kind]
			began := time.Now()
			if err := admin.Create(b.Context(), u, client.DryRunAll); err != nil {
				b.Fatal(err)
			}
			took[side] = time.Since(began)
		}
		if i >= warmUp {
			without, differences = append(without, took[0]), append(differences, took[1]-took[0])
		}
	}
	return medianOf(without), medianOf(differences)
}

// delivering returns the Flux objects of a tenant.
func delivering(namespace, account string) []*unstructured.Unstructured {
	object := func(apiVersion, kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind,
			"metadata": map[string]any{"name": "app", "namespace": namespace}, "spec": spec,
		}}
	}
	return []*unstructured.Unstructured{
		object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", map[string]any{
			"interval": "10m", "timeout": "2m", "path": "./", "prune": true, "wait": true, "serviceAccountName": account,
			"sourceRef": map[string]any{"kind": "GitRepository", "name": "app"},
		}),
		object("source.toolkit.fluxcd.io/v1", "GitRepository", map[string]any{
			"interval": "1m", "url": "https://git.example.com/acme/app", "ref": map[string]any{"branch": "main"},
		}),
	}
}
