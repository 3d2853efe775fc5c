package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// criteria are match constraints with the defaults of the API server.
type criteria struct {
	admissionregistrationv1.MatchResources
}

func criteriaOf(m *admissionregistrationv1.MatchResources) criteria {
	var c criteria
	if m != nil {
		m.DeepCopyInto(&c.MatchResources)
	}
	if c.NamespaceSelector == nil {
		c.NamespaceSelector = &metav1.LabelSelector{}
	}
	if c.ObjectSelector == nil {
		c.ObjectSelector = &metav1.LabelSelector{}
	}
	c.MatchPolicy = new(admissionregistrationv1.Equivalent)
	return c
}

// GetParsedNamespaceSelector returns the selector of namespaces.
func (c criteria) GetParsedNamespaceSelector() (k8slabels.Selector, error) {
	return metav1.LabelSelectorAsSelector(c.NamespaceSelector)
}

// GetParsedObjectSelector returns the selector of objects.
func (c criteria) GetParsedObjectSelector() (k8slabels.Selector, error) {
	return metav1.LabelSelectorAsSelector(c.ObjectSelector)
}

// GetMatchResources returns the constraints.
func (c criteria) GetMatchResources() admissionregistrationv1.MatchResources { return c.MatchResources }

// Namespaces of the test.
const (
	governed  = "governed"  // a tenant's, with parameters
	unlabeled = "unlabeled" // nobody's
	fresh     = "fresh"     // a tenant's, without parameters yet
	nameless  = "unnamed"   // with an empty label
)

// matcher is the API server's own, which knows the namespaces of the test.
func matcher(t *testing.T) *matching.Matcher {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for name, l := range map[string]map[string]string{
		governed:  {v1alpha1.LabelTenant: "dev", v1alpha1.LabelParameters: "true"},
		fresh:     {v1alpha1.LabelTenant: "dev"},
		unlabeled: nil,
		nameless:  {v1alpha1.LabelTenant: ""},
	} {
		if err := indexer.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: l}}); err != nil {
			t.Fatal(err)
		}
	}
	return matching.NewMatcher(listersv1.NewNamespaceLister(indexer), fake.NewClientset())
}

// policiesOf returns the names of the policies that the API server evaluates for the
// creation of an object, once for each binding.
func policiesOf(t *testing.T, m *matching.Matcher, namespace string, resource schema.GroupVersionResource) []string {
	t.Helper()
	attributes := admission.NewAttributesRecord(&metav1.PartialObjectMetadata{}, nil, resource.GroupVersion().WithKind("X"), namespace, "x",
		resource, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: "dora"})
	matches := func(m *matching.Matcher, constraints *admissionregistrationv1.MatchResources) bool {
		yes, _, _, err := m.Matches(attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()), criteriaOf(constraints))
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	policies, bindings := Policies()
	var met []string
	for _, p := range policies {
		for _, b := range bindings {
			if b.Spec.PolicyName == p.Name && matches(m, p.Spec.MatchConstraints) && (b.Spec.MatchResources == nil || matches(m, b.Spec.MatchResources)) {
				met = append(met, p.Name)
			}
		}
	}
	return met
}

// What tenants create most meets as few policies as can be.
func TestPoliciesOfRequest(t *testing.T) {
	t.Parallel()
	m := matcher(t)
	const (
		manager = Prefix + "manager"
		first   = Prefix + "new-namespaces"
	)
	objects, pods, fluxObjects := partOfOthers.policy(Objects), partOfPods.policy(Objects), partOfFlux.policy(Objects)
	for _, tc := range []struct {
		reason, namespace, group, resource string
		want                               []string
	}{
		{"a Pod", governed, "", "pods", []string{pods}},
		{"a Deployment", governed, "apps", "deployments", []string{objects}},
		{"a ConfigMap", governed, "", "configmaps", []string{objects}},
		{"a kind that nobody knows", governed, "example.com", "things", []string{objects}},
		{"a Kustomization", governed, groupKustomize, "kustomizations", []string{fluxObjects}},
		{"a Pod before the parameters", fresh, "", "pods", []string{Objects, first}},
		{"a Deployment before the parameters", fresh, "apps", "deployments", []string{Objects, first}},
		{"a Service before the parameters", fresh, "", "services", []string{Objects, first}},
		{"a Lease before the parameters", fresh, "coordination.k8s.io", "leases", []string{first}},
		{"a Kustomization before the parameters", fresh, groupKustomize, "kustomizations", []string{Objects, Shared, manager, first}},
		{"a Pod of nobody", unlabeled, "", "pods", nil},
		{"a Kustomization of nobody", unlabeled, groupKustomize, "kustomizations", []string{manager}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			got := policiesOf(t, m, tc.namespace, schema.GroupVersionResource{Group: tc.group, Version: "v1", Resource: tc.resource})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("its creation meets other policies (-want, +got):\n%s\neach policy costs such a request as much as a hundred expressions: "+
					"make the rule one of %s (objects) or %s (shared), see the comment of the package", diff, Objects, Shared)
			}
		})
	}
}

// While the API server has not found the kind of a policy's parameters, it refuses every request
// that the policy matches. Leases are among them if the policy is about every kind, and without them
// Kubernetes' controllers and the manager end. Nor must the Pods, Secrets, service accounts and syncs
// of Kubernetes and Flux wait for the kind.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	policies, _ := Policies()
	for _, p := range policies {
		if p.Spec.ParamKind == nil {
			continue
		}
		selector, err := criteriaOf(p.Spec.MatchConstraints).GetParsedNamespaceSelector()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Spec.MatchConstraints.ResourceRules {
			if selector.Empty() && (slices.Contains(r.Resources, "*") || slices.Contains(r.Resources, "leases")) {
				t.Errorf("%s matches Leases of every namespace, whatever its binding selects", p.Name)
			}
			for _, namespace := range []string{metav1.NamespaceSystem, "flux-system"} {
				needed := slices.ContainsFunc([]string{"*", "*/*", "pods", "secrets", "serviceaccounts", "kustomizations", "gitrepositories"}, func(kind string) bool { return slices.Contains(r.Resources, kind) })
				if needed && selector.Matches(k8slabels.Set{corev1.LabelMetadataName: namespace}) {
					t.Errorf("%s matches %v of namespace %s, whatever its binding selects", p.Name, r.Resources, namespace)
				}
			}
		}
	}
}

// A match condition does not see the namespace, so the policy for the manager's requests in the
// namespaces of Tenants must not ask for the tenant's name there.
func TestManagerInTenants(t *testing.T) {
	t.Parallel()
	policies, bindings := Policies()
	i := slices.IndexFunc(policies, func(p admissionregistrationv1.ValidatingAdmissionPolicy) bool {
		return p.Name == Prefix+"manager"+fromParameters
	})
	for _, condition := range policies[i].Spec.MatchConditions {
		for _, word := range []string{"variables.", "namespaceObject"} {
			if strings.Contains(condition.Expression, word) {
				t.Errorf("the match condition has %s, which it does not see", word)
			}
		}
	}
	// In each namespace exactly one binding is for a frequent request.
	m := matcher(t)
	for namespace, want := range map[string]string{governed: "-own", fresh: "-own", unlabeled: "-without-tenant", nameless: "-without-name"} {
		attributes := admission.NewAttributesRecord(&metav1.PartialObjectMetadata{}, nil, schema.GroupVersionKind{Group: groupRBAC, Version: "v1", Kind: "RoleBinding"}, namespace, "x",
			schema.GroupVersionResource{Group: groupRBAC, Version: "v1", Resource: "rolebindings"}, "", admission.Create, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: ManagerUser})
		var got []string
		for _, b := range bindings {
			if suffix, ok := strings.CutPrefix(b.Name, Prefix+"manager"); !ok || suffix == "-parameters" {
				continue
			}
			yes, _, _, err := m.Matches(attributes, admission.NewObjectInterfacesFromScheme(runtime.NewScheme()), criteriaOf(b.Spec.MatchResources))
			if err != nil {
				t.Fatal(err)
			}
			if yes {
				got = append(got, strings.TrimPrefix(b.Name, Prefix+"manager"))
			}
		}
		if diff := cmp.Diff([]string{want}, got); diff != "" {
			t.Errorf("other bindings decide in namespace %s (-want, +got):\n%s", namespace, diff)
		}
	}
}

// The API server parses the namespace selector of each policy for each request of the
// cluster, before it looks at anything else.
func TestNamespaceSelectors(t *testing.T) {
	t.Parallel()
	policies, _ := Policies()
	var selecting []string
	for _, p := range policies {
		if p.Spec.MatchConstraints.NamespaceSelector != nil {
			selecting = append(selecting, p.Name)
		}
	}
	const shards = Prefix + "shards"
	// takeover is about every kind, so that its binding would have to be looked at as well.
	// So is new-namespaces, and most requests are in namespaces with parameters.
	// images is about Pods, and is not to refuse those of Kubernetes: see TestUnknownParameters.
	want := []string{Objects, partOfOthers.policy(Objects), partOfPods.policy(Objects), partOfFlux.policy(Objects), Shared, Prefix + "images", Prefix + "new-namespaces", shards, shards + fromParameters, Prefix + "takeover"}
	if diff := cmp.Diff(want, selecting); diff != "" {
		t.Errorf("other policies have a namespace selector (-want, +got):\n%s\nit costs every request of the cluster: put it into the binding", diff)
	}
}
