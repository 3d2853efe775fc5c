package load

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// posture is what the tenants of the benchmark may do.
const posture = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    sources:
      git: ["https://git.example.com/acme/*", "ssh://git@git.example.com/acme/**"]
`

// BenchmarkAdmission compares the dry-run creation of a Kustomization and of a
// GitRepository in a tenant's namespace, where the rules hold, with the same in a
// namespace where none does, one after the other, at 10 and at 2,000 tenants, of
// which each has parameters of its own: the median of what the rules take, and
// how that grows.
func BenchmarkAdmission(b *testing.B) {
	cluster, err := localcluster.Start(b.Context(), localcluster.Options{Name: "bench", Root: stateRoot(b), BinDir: binDir(b)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	})
	fast := rest.CopyConfig(cluster.REST)
	fast.QPS = -1
	fast.WarningHandlerWithContext = rest.NoWarnings{}
	admin, err := client.New(fast, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	prepareRules(b, admin, fast)
	added := map[int]float64{}
	made := 0
	for _, tenants := range []int{10, 2000} {
		makeTenants(b, admin, made, tenants)
		made = tenants
		awaitRules(b, admin, tenants-1)
		free, ruled := measure(b, admin, tenants)
		added[tenants] = ruled - free
		b.ReportMetric(free, fmt.Sprintf("ms-free-%d", tenants))
		b.ReportMetric(ruled, fmt.Sprintf("ms-ruled-%d", tenants))
		b.ReportMetric(ruled-free, fmt.Sprintf("ms-added-%d(max=0.5)", tenants))
	}
	b.ReportMetric(added[2000]-added[10], "ms-growth")
	b.ReportMetric(0, "ns/op")
}

// prepareRules installs Flux's kinds, Tenure's, the rules and a profile.
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

// makeTenants makes the namespaces of tenants with their parameters.
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

// awaitRules waits until the rules hold in the namespace that was made last.
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

// measure returns the medians, in milliseconds, of creating an object where no
// rule holds and where all do.
func measure(b *testing.B, admin client.Client, tenants int) (free, ruled float64) {
	b.Helper()
	var took [2][]time.Duration
	for i := range 1000 {
		name := tenantName(i * 7 % tenants)
		// Who is first changes, so that neither has the warmer cache.
		for j := range 2 {
			side := (i + j) % 2
			namespace := "free"
			if side == 1 {
				namespace = name
			}
			u := delivering(namespace, name)[i/2%2]
			began := time.Now()
			if err := admin.Create(b.Context(), u, client.DryRunAll); err != nil {
				b.Fatal(err)
			}
			took[side] = append(took[side], time.Since(began))
		}
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2]) / float64(time.Millisecond)
	}
	return median(took[0]), median(took[1])
}

// delivering are the objects that a tenant delivers with.
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
