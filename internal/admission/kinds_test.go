package admission_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A tenant with Tenure's role, in a namespace with parameters of its own and in one
// that the profile governs. Its binding is the platform's.
const kindsTenant = `
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {LABELS, pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: NAMESPACE}
spec:
  tenant: kinds
  platformNamespaces: [flux-system]
  breakGlass: [firefighters]
  tenants:
    sources:
      git: ["https://git.example.com/acme/*"]
      helm: ["https://charts.example.com"]
      oci: ["oci://registry.example.com/acme/*"]
      buckets: [{endpoint: s3.example.com, bucketName: acme-*, region: eu}]
    flagger: {addresses: ["https://prometheus.example.com"]}
    kubeConfigs: [generated]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenure-reconciler, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenure-tenant}
subjects: [{kind: ServiceAccount, name: kinds, namespace: NAMESPACE}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: platform, namespace: NAMESPACE, labels: {tenure.dev/managed-by: manager}}
spec: {podSelector: {}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: platform, namespace: NAMESPACE, labels: {kustomize.toolkit.fluxcd.io/name: tenants, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
`

// kind is a namespaced kind that the role of tenants lets them write.
type kind struct {
	resource schema.GroupResource
	// scales is set if the kind has the subresource scale.
	scales bool
}

var roleServed sync.Once

// serve applies manifests.
func serve(t *testing.T, restConfig *rest.Config, all ...[]byte) {
	t.Helper()
	for _, manifests := range all {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			t.Fatal(err)
		}
		if err := flux.ApplyManifests(t.Context(), restConfig, objects); err != nil {
			t.Fatal(err)
		}
	}
}

// tenantOfKinds returns a client of the tenant's in a new namespace, whose rules and
// rights are in force. The role of tenants is there.
func tenantOfKinds(t *testing.T, restConfig *rest.Config, namespace, labels string) client.Client {
	t.Helper()
	admin := newClient(t, restConfig, rest.ImpersonationConfig{})
	makeAll(t, admin, strings.Split(strings.NewReplacer("NAMESPACE", namespace, "LABELS", labels).Replace(kindsTenant), "---\n"))
	tenant := inNamespace(t, restConfig, namespace, "kinds")
	testwait.For(t, "the tenant to have its rights and the rules to be in force", patience, func() (bool, string) {
		broken := parse(t, "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: x, namespace: "+namespace+", annotations: {kubernetes.io/service-account.name: kinds}}}")
		err := tenant.Create(t.Context(), broken, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "tenure-tokens"), fmt.Sprint(err)
	})
	return tenant
}

// writableKinds reads the role of tenants and asks the API server about its kinds. A
// kind that the API server of the test does not serve fails the test.
func writableKinds(t *testing.T, admin client.Client, restConfig *rest.Config) []kind {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "tenure-tenant"}, role); err != nil {
		t.Fatal(err)
	}
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(restConfig).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[schema.GroupResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			served[schema.GroupResource{Group: gv.Group, Resource: r.Name}] = r.Namespaced
		}
	}
	writing := []string{"create", "update", "patch", "delete", "deletecollection"}
	var kinds []kind
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				gr := schema.GroupResource{Group: group, Resource: resource}
				writes := slices.ContainsFunc(rule.Verbs, func(v string) bool { return slices.Contains(append(writing, "*"), v) })
				if writes && (strings.HasSuffix(resource, "/status") || strings.Contains(resource, "*") || group == "*") {
					t.Errorf("the role of tenants may write %s", gr)
				}
				if !writes || strings.Contains(resource, "/") {
					continue
				}
				if !served[gr] {
					t.Errorf("the API server of this test does not serve %s, which the role of tenants may write: add its definition to hack/testcrds", gr)
				}
				for _, verb := range writing {
					if !slices.Contains(rule.Verbs, verb) {
						t.Errorf("the role of tenants may not %s %s, but others of %v", verb, gr, writing)
					}
				}
				kinds = append(kinds, kind{gr, allows(role, group, resource+"/scale")})
			}
		}
	}
	return kinds
}

func allows(role *rbacv1.ClusterRole, group, resource string) bool {
	return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "update")
	})
}

// Each namespaced kind that the role of tenants lets them write can be created, changed,
// scaled and deleted with an ordinary manifest, while all rules hold: a new kind in the
// role needs a manifest here.
func TestOrdinaryObjects(t *testing.T) {
	t.Parallel()
	// The kinds of Flagger have other definitions here than on the shared cluster.
	restConfig := testcluster.Start(t, localcluster.Options{}).REST
	prepare(t, restConfig)
	admin := newClient(t, restConfig, rest.ImpersonationConfig{})
	flagger := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tenants":{"flagger":{"addresses":["https://prometheus.example.com"]},"kubeConfigs":["generated"]}}}`))
	if err := admin.Patch(t.Context(), parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}}"), flagger); err != nil {
		t.Fatal(err)
	}
	serve(t, restConfig, config.FluxSourceWatcherCRDs(), testcrds.GatewayAPI(), testcrds.Flagger(), config.Roles())
	eachParameters(t, "kinds", func(t *testing.T, namespace, labels string) {
		tenant := tenantOfKinds(t, restConfig, namespace, labels)
		// They name the break-glass groups.
		parameters := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: "+namespace+"}}")
		if err := tenant.Get(t.Context(), client.ObjectKeyFromObject(parameters), parameters); !apierrors.IsForbidden(err) {
			t.Errorf("the tenant reads its parameters: got %v, want forbidden", err)
		}
		kinds := writableKinds(t, admin, restConfig)
		var allowed []string
		for _, k := range kinds {
			allowed = append(allowed, k.resource.String())
		}
		slices.Sort(allowed)
		if diff := cmp.Diff(allowed, slices.Sorted(maps.Keys(ordinaries))); diff != "" {
			t.Fatalf("the kinds of the role are not those with a manifest (-role +manifests):\n%s", diff)
		}
		for _, k := range kinds {
			t.Run(k.resource.String(), func(t *testing.T) {
				t.Parallel()
				w := &writer{t: t, tenant: tenant, namespace: namespace, kind: k, ordinary: ordinaries[k.resource.String()]}
				w.run()
			})
		}
		t.Run("refusals", func(t *testing.T) {
			t.Parallel()
			refusesEveryRequest(t, restConfig, namespace)
		})
	})
}

// writer does with a kind what tenants do.
type writer struct {
	t         *testing.T
	tenant    client.Client
	namespace string
	kind      kind
	ordinary
}

func (w *writer) run() {
	ctx := w.t.Context()
	created, applied := w.object("created"), w.object("applied")
	w.may("create it", w.tenant.Create(ctx, created.DeepCopy()))
	w.may("apply it", w.tenant.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied.DeepCopy()), client.FieldOwner("kustomize-controller"), client.ForceOwnership))
	for _, made := range w.makes {
		w.await("a "+made+" to be made of it", func() (bool, string) { return w.owns(created, made) })
	}
	w.may("update it", w.update(created))
	w.may("patch it", w.tenant.Patch(ctx, created.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(w.change))))
	w.may("apply it again", w.tenant.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied.DeepCopy()), client.FieldOwner("kustomize-controller"), client.ForceOwnership))
	w.may("change what was applied", w.tenant.Patch(ctx, applied.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(w.change))))
	if w.kind.scales {
		for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
			w.may("scale it", w.tenant.SubResource("scale").Patch(ctx, created.DeepCopy(), client.RawPatch(kind, []byte(`{"spec":{"replicas":3}}`))))
		}
	}
	w.may("delete it", w.tenant.Delete(ctx, created.DeepCopy()))
	w.may("delete a collection", w.tenant.DeleteAllOf(ctx, applied.DeepCopy(), client.InNamespace(w.namespace), client.MatchingLabels(applied.GetLabels()),
		client.PropagationPolicy(metav1.DeletePropagationForeground)))
	for _, object := range []*unstructured.Unstructured{created, applied} {
		w.await(object.GetName()+" to be gone", func() (bool, string) {
			err := w.tenant.Get(ctx, client.ObjectKeyFromObject(object), object)
			return apierrors.IsNotFound(err), fmt.Sprintf("its finalizers are %v, %v", object.GetFinalizers(), err)
		})
	}
}

// object makes the manifest of an object.
func (w *writer) object(name string) *unstructured.Unstructured {
	name += "-" + w.kind.resource.Resource
	u := parse(w.t, strings.NewReplacer("NAMESPACE", w.namespace, "NAME", name).Replace(w.manifest))
	u.SetNamespace(w.namespace)
	u.SetName(name)
	u.SetLabels(map[string]string{"test": name})
	return u
}

func (w *writer) may(what string, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("the tenant cannot %s: %v", what, err)
	}
}

func (w *writer) await(what string, done func() (bool, string)) {
	w.t.Helper()
	testwait.For(w.t, what, patience, done)
}

// update writes the whole object, which another client may have changed in the meantime.
func (w *writer) update(object *unstructured.Unstructured) error {
	for {
		current := object.DeepCopy()
		if err := w.tenant.Get(w.t.Context(), client.ObjectKeyFromObject(object), current); err != nil {
			return err
		}
		labels := maps.Clone(current.GetLabels())
		labels["updated"] = "true"
		current.SetLabels(labels)
		if err := w.tenant.Update(w.t.Context(), current); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// owns reports whether the namespace has an object of a kind that Kubernetes created for the owner, or for
// one of its Pods.
func (w *writer) owns(owner *unstructured.Unstructured, kind string) (bool, string) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(map[string]string{"ReplicaSet": "apps/v1", "ControllerRevision": "apps/v1"}[kind])
	if list.GetAPIVersion() == "" {
		list.SetAPIVersion("v1")
	}
	list.SetKind(kind + "List")
	if err := w.tenant.List(context.WithoutCancel(w.t.Context()), list, client.InNamespace(w.namespace)); err != nil {
		return false, err.Error()
	}
	for _, item := range list.Items {
		if strings.Contains(item.GetName(), owner.GetName()) {
			return true, ""
		}
	}
	return false, fmt.Sprintf("there are %d of the kind, and none of %s", len(list.Items), owner.GetName())
}
