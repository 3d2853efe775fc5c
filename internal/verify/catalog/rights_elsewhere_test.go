package catalog

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// withRules is an environment in which the tenant has rules in one namespace.
func withRules(namespace string, rules []authorizationv1.ResourceRule, objects ...client.Object) *Scenario {
	return newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		review, ok := o.(*authorizationv1.SelfSubjectRulesReview)
		if !ok {
			return forbidden("no")
		}
		if review.Spec.Namespace == namespace {
			review.Status.ResourceRules = rules
		}
		return nil
	}}, objects...)
}

// TestHoldsNone checks which rules in the namespace of Flux are ways out.
func TestHoldsNone(t *testing.T) {
	t.Parallel()
	rule := func(group, resource, verb string, names ...string) []authorizationv1.ResourceRule {
		return []authorizationv1.ResourceRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}}
	}
	for name, tc := range map[string]struct {
		reason  string
		rules   []authorizationv1.ResourceRule
		through bool
	}{
		"nothing":                 {"no rule is no way", nil, false},
		"everything":              {"stars cover all", rule("*", "*", "*"), true},
		"reads":                   {"reading Flux objects changes nothing", rule("kustomize.toolkit.fluxcd.io", "kustomizations", "get"), false},
		"a token":                 {"any account's token is one", rule("", "serviceaccounts/token", "create"), true},
		"one token":               {"one account's token is one, too", rule("", "serviceaccounts/token", "create", "kustomize-controller"), true},
		"one Deployment":          {"a change of a controller runs a Pod as its account", rule("apps", "deployments", "patch", "helm-controller"), true},
		"a subresource of others": {"a right to scale runs nothing else", rule("apps", "deployments/scale", "patch"), false},
		"a name nobody can give":  {"requests to create have no name", rule("apps", "deployments", "create", "x"), false},
		"debugging":               {"an ephemeral container runs as the Pod's account", rule("", "pods/ephemeralcontainers", "patch"), true},
		"another group":           {"a kind of another group is another kind", rule("example.com", "deployments", "patch"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := withRules("flux-system", tc.rules)
			f := judge(holdsNone("flux-system", actingRights("flux-system")...)(t.Context(), e), "")
			if got := f.Outcome == GotThrough; got != tc.through || !got && f.Control != rbac {
				t.Errorf("%s: got %+v", tc.reason, f)
			}
		})
	}
}

// TestClusterRights checks that the right to one kind of a team is none to those of others.
func TestClusterRights(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule    authorizationv1.ResourceRule
		through bool
	}{
		"mutations":      {authorizationv1.ResourceRule{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingadmissionpolicybindings"}, Verbs: []string{"create"}}, true},
		"every kind":     {authorizationv1.ResourceRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"patch"}}, true},
		"its own kind":   {authorizationv1.ResourceRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"patch"}, ResourceNames: []string{"x"}}, false},
		"reads of kinds": {authorizationv1.ResourceRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"list"}}, false},
	} {
		e := withRules("anywhere", []authorizationv1.ResourceRule{tc.rule})
		f := judge(holdsNone("anywhere", clusterRights...)(t.Context(), e), "")
		if got := f.Outcome == GotThrough; got != tc.through {
			t.Errorf("%s: got %+v", name, f)
		}
	}
}

// distinct returns marks, each once.
func distinct(all []mark) []mark {
	var once []mark
	for _, m := range all {
		if !slices.Contains(once, m) {
			once = append(once, m)
		}
	}
	return once
}

// TestMarks checks which labels and annotations of a policy an attack tries.
func TestMarks(t *testing.T) {
	t.Parallel()
	spec := func(selector *metav1.LabelSelector, condition string) admissionv1.ValidatingAdmissionPolicySpec {
		s := admissionv1.ValidatingAdmissionPolicySpec{MatchConstraints: &admissionv1.MatchResources{ObjectSelector: selector}}
		if condition != "" {
			s.MatchConditions = []admissionv1.MatchCondition{{Expression: condition}}
		}
		return s
	}
	using := func(variable, expression string) admissionv1.ValidatingAdmissionPolicySpec {
		s := spec(nil, "")
		s.Variables = []admissionv1.Variable{{Name: "v", Expression: variable}}
		s.Validations = []admissionv1.Validation{{Expression: expression}}
		return s
	}
	for name, tc := range map[string]struct {
		spec admissionv1.ValidatingAdmissionPolicySpec
		want []mark
	}{
		"a list in a variable":   {using(`['skip']`, `object.metadata.labels.exists(k, k in variables.v)`), []mark{{"exists", "skip"}, {"exists", "true"}, {"skip", "true"}}},
		"labels in a variable":   {using(`object.metadata.labels`, `!('skip' in variables.v)`), []mark{{"skip", "true"}}},
		"texts of the parameter": {spec(nil, `object.metadata.labels.tier in params.data.tiers.split(',')`), []mark{{"tier", ","}, {"tier", "gold"}, {"tier", "true"}, {"gold", ","}, {"gold", "true"}}},
		"any owner":              {spec(nil, `!has(object.metadata.ownerReferences)`), []mark{{ownerMark, "example.com/v1 Owner"}}},
		"an owner of a kind":     {spec(nil, `object.metadata.ownerReferences.exists(o, o.kind == 'ReplicaSet' && o.apiVersion == "apps/v1")`), []mark{{ownerMark, "apps/v1 ReplicaSet"}}},
		"no marks":               {spec(nil, "object.spec.url.startsWith('https://example.com/')"), nil},
		"a selector":             {spec(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpDoesNotExist}}}, ""), []mark{{"skip", "true"}}},
		"values":                 {spec(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"a"}}}}, ""), []mark{{"k", "a"}}},
		"must have":              {spec(&metav1.LabelSelector{MatchLabels: map[string]string{"k": "a"}}, ""), nil},
		"a condition":            {spec(nil, `object.metadata.annotations["example.com/ok"] != "yes it is"`), []mark{{"example.com/ok", "yes it is"}, {"example.com/ok", "true"}}},
		"a field":                {spec(nil, `!has(object.metadata.labels.skip)`), []mark{{"skip", "true"}}},
	} {
		if diff := cmp.Diff(tc.want, distinct(marksOf(tc.spec, "gold")), cmp.AllowUnexported(mark{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	owned := mark{ownerMark, "apps/v1 ReplicaSet"}.on(configMap("team", "x"))
	if owners := owned.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "ReplicaSet" || !(mark{ownerMark, "v1 Pod"}).clashesWith(owned) {
		t.Errorf("got the owners %v", owners)
	}
	u := mark{"example.com/ok", "yes it is"}.on(configMap("team", "x"))
	if len(u.GetLabels()) != 0 || u.GetAnnotations()["example.com/ok"] != "yes it is" {
		t.Errorf("a value that is no label's is set as %v and %v", u.GetLabels(), u.GetAnnotations())
	}
}
