package manager

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BenchmarkTrim measures what the cache takes for a tenant with three namespaces,
// alone, without the garbage of requests: bytes, and processor time to make it small.
// What a tenant takes must not grow with their number.
func BenchmarkTrim(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, way := range []struct {
			name      string
			transform cache.TransformFunc
		}{{"trimmed", trimForCache}, {"whole", func(o any) (any, error) { return o, nil }}} {
			b.Run(fmt.Sprintf("tenants=%d/%s", size, way.name), func(b *testing.B) {
				kept := 0.0
				for b.Loop() {
					kept = fill(b, size, way.transform)
				}
				b.ReportMetric(kept/float64(size), "B/tenant")
			})
		}
	}
}

// fill returns how many bytes the caches of so many tenants take.
func fill(b *testing.B, size int, transform cache.TransformFunc) float64 {
	b.Helper()
	before := heap()
	caches := map[string]cache.Indexer{}
	for i := range size {
		for _, o := range ofTenant(b, fmt.Sprintf("tenant-%04d", i)) {
			got, err := transform(received(b, o))
			if err != nil {
				b.Fatal(err)
			}
			kind := fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind().Kind)
			if caches[kind] == nil {
				caches[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			}
			if err := caches[kind].Add(got); err != nil {
				b.Fatal(err)
			}
		}
	}
	taken := heap() - before
	runtime.KeepAlive(caches)
	return taken
}

func heap() float64 {
	runtime.GC()
	runtime.GC() // what the first one finds is free after the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// ofTenant is what the API server has of one tenant.
func ofTenant(b *testing.B, name string) []client.Object {
	b.Helper()
	bounds := corev1.ResourceList{"secrets": resource.MustParse("50")}
	tenant := &v1alpha1.Tenant{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Tenant"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TenantSpec{
			Owners:          []v1alpha1.Owner{{Kind: "User", Name: name}, {Kind: "Group", Name: name + "-team"}},
			Namespaces:      v1alpha1.TenantNamespaces{Create: []string{name + "-a", name + "-b", name + "-c"}, Labels: map[string]string{"team": name}},
			Quotas:          []v1alpha1.TenantQuota{{Name: "each", Scope: "Namespace", Hard: v1alpha1.Quantities(bounds)}},
			LimitRanges:     []v1alpha1.LimitRange{{Limits: []v1alpha1.LimitRangeItem{{Type: "Container", Max: v1alpha1.Quantities(bounds)}}}},
			NetworkPolicies: []networkingv1.NetworkPolicySpec{{Ingress: []networkingv1.NetworkPolicyIngressRule{{}}}},
			Sync:            []v1alpha1.Sync{{Name: "app", Namespace: name + "-a", Git: &v1alpha1.GitSource{URL: "https://git.example.com/" + name + "/app"}}},
		},
	}
	profile := &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{"flux-system"}}}
	profile.Spec.Tenants.Bounds.MaxObjects = 100
	objects := append([]client.Object{tenant}, tenancy.Cluster(tenant, &v1alpha1.TenancyProfile{}, nil)...)
	for _, namespace := range tenant.Spec.Namespaces.Create {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{v1alpha1.LabelTenant: name, "team": name}}}
		desired, err := tenancy.Desired(tenancy.Namespace{
			Name: namespace, Labels: ns.Labels, Tenant: tenant, Siblings: tenant.Spec.Namespaces.Create, Kinds: tenancy.CountedKinds(),
		}, profile)
		if err != nil {
			b.Fatal(err)
		}
		objects = append(objects, ns)
		for _, o := range desired.List() {
			if q, ok := o.(*corev1.ResourceQuota); ok {
				q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: q.Spec.Hard}
			}
			objects = append(objects, o)
		}
	}
	return objects
}

// received is an object as it comes from the API server: with what that adds, and
// with nothing in common with any other.
func received(b *testing.B, o client.Object) client.Object {
	b.Helper()
	o.SetUID(uuid.NewUUID())
	o.SetResourceVersion("123456")
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: tenantnamespace.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:tenure.dev/managed-by":{},"f:toolkit.fluxcd.io/tenant":{}}}}`),
	}})
	content, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	empty, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if _, untyped := o.(*unstructured.Unstructured); !ok || untyped {
		empty = &unstructured.Unstructured{}
	}
	if err := json.Unmarshal(content, empty); err != nil {
		b.Fatal(err)
	}
	return empty
}
