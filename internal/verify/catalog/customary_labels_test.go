package catalog

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// A policy that demands a label of every object of a kind stops no attack, and another policy stops it also behind such a
// policy. The labels are those of the tenant's own objects, or those that policies name.
func TestCustomaryLabels(t *testing.T) {
	t.Parallel()
	const refusal = "ValidatingAdmissionPolicy '%s' with binding 'b' denied request: %s"
	refuse := func(policy, why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", forbiddenText(fmt.Sprintf(refusal, policy, why)))
	}
	costs := regexp.MustCompile(`^CC-\d{4}$`)
	foreign := func(u *unstructured.Unstructured) bool {
		namespace, _, _ := unstructured.NestedString(u.Object, "spec", "sourceRef", "namespace")
		return namespace != ""
	}
	demanding := func(key string, good func(string) bool) func(*unstructured.Unstructured) error {
		return func(u *unstructured.Unstructured) error {
			if !good(u.GetLabels()[key]) {
				return refuse("labels", "label "+key+" is missing")
			}
			return nil
		}
	}
	is := func(want string) func(string) bool { return func(got string) bool { return got == want } }
	for _, tc := range []struct {
		reason     string
		expression string
		answers    []func(*unstructured.Unstructured) error
		object     *unstructured.Unstructured
		want       string
		labels     map[string]string
	}{
		{
			"the tenant's own object of another kind has the label", "object.metadata.labels['example.com/cost'].matches('^CC-[0-9]{4}$')",
			[]func(*unstructured.Unstructured) error{demanding("example.com/cost", costs.MatchString)},
			(&Scenario{Namespace: "team"}).suspended("x", nil), "", map[string]string{"example.com/cost": "CC-1000"},
		},
		{
			"the label is the one of the namespace", "object.metadata.labels['owner'] == namespaceObject.metadata.labels['owner']",
			[]func(*unstructured.Unstructured) error{demanding("owner", is("blue"))},
			configMap("team", "x"), "", map[string]string{"owner": "blue"},
		},
		{
			"the policy names the values, and no object has one", "has(object.metadata.labels.tier) && object.metadata.labels.tier in ['gold', 'silver']",
			[]func(*unstructured.Unstructured) error{demanding("tier", is("silver"))},
			(&Scenario{Namespace: "team"}).suspended("x", nil), "", map[string]string{"tier": "silver"},
		},
		{
			"two labels, one after the other", "object.metadata.labels['example.com/cost'] != '' && has(object.metadata.labels.tier)",
			[]func(*unstructured.Unstructured) error{demanding("tier", func(s string) bool { return s != "" }), demanding("example.com/cost", costs.MatchString)},
			(&Scenario{Namespace: "team"}).suspended("x", nil), "", map[string]string{"example.com/cost": "CC-1000", "tier": "team"},
		},
		{
			"the policy that is about the attack", "has(object.metadata.labels.owner)",
			[]func(*unstructured.Unstructured) error{demanding("owner", is("blue")), func(u *unstructured.Unstructured) error {
				if foreign(u) {
					return refuse("sources", "no foreign source")
				}
				return nil
			}},
			(&Scenario{Namespace: "team"}).suspended("x", func(spec map[string]any) { spec["sourceRef"].(map[string]any)["namespace"] = "flux-system" }),
			fmt.Sprintf(refusal, "sources", "no foreign source"), nil,
		},
		{
			"a label that exempts an object of an attack is not added in silence", "has(object.metadata.labels.free) || !has(object.spec.sourceRef.namespace)",
			[]func(*unstructured.Unstructured) error{func(u *unstructured.Unstructured) error {
				if foreign(u) && u.GetLabels()["free"] == "" {
					return refuse("sources", "no foreign source")
				}
				return nil
			}},
			(&Scenario{Namespace: "team"}).suspended("x", func(spec map[string]any) { spec["sourceRef"].(map[string]any)["namespace"] = "flux-system" }),
			fmt.Sprintf(refusal, "sources", "no foreign source"), nil,
		},
		{
			"a label that an attack chooses remains", "object.metadata.labels.owner == 'blue'",
			[]func(*unstructured.Unstructured) error{demanding("owner", is("blue"))},
			mark{"owner", "red"}.on(configMap("team", "x")), fmt.Sprintf(refusal, "labels", "label owner is missing"), nil,
		},
	} {
		cost := configMap("team", "settings")
		cost.SetLabels(map[string]string{"example.com/cost": "CC-1000", "unrelated": "x"})
		e := newFakeEnv(interceptor.Funcs{}, cost, &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "labels"},
			Spec:       admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{{Expression: tc.expression}}},
		})
		e.namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"owner": "blue"}}}}
		exemptions, err := exemptingMarks(t.Context(), e.Admin)
		if err != nil {
			t.Fatal(err)
		}
		with := &customs{tenants: []*Scenario{e}}
		if err := with.readCustoms(t.Context(), e.Admin, exemptions); err != nil {
			t.Fatal(err)
		}
		c := interceptor.NewClient(interceptor.NewClient(e.Admin, interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				for _, answer := range tc.answers {
					if err := answer(o.(*unstructured.Unstructured)); err != nil {
						return err
					}
				}
				return nil
			},
		}), asRecommended(with))
		u, got := tc.object.DeepCopy(), ""
		if err := c.Create(t.Context(), u); err != nil {
			_, got, _ = strings.Cut(err.Error(), "is forbidden: ")
		}
		if got != tc.want {
			t.Errorf("%s: want %q, got %q", tc.reason, tc.want, got)
		}
		if diff := cmp.Diff(tc.labels, u.GetLabels()); tc.labels != nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// The templates of workloads, and the charts of releases, get the labels too.
func TestCustomaryLabelsInside(t *testing.T) {
	t.Parallel()
	e := &Scenario{Namespace: "team"}
	demanded := custom{labels: map[string]string{"owner": "blue"}}
	objects := []*unstructured.Unstructured{e.suspendedRelease("x", nil)}
	at := map[string][]string{"HelmRelease": {"spec", "chart", "metadata", "labels", "owner"}, "CronJob": {"spec", "jobTemplate", "spec", "template", "metadata", "labels", "owner"}}
	for _, w := range workloads {
		objects = append(objects, w.of(hardenedPod("x", nil)(e)))
	}
	for _, u := range objects {
		fields := at[u.GetKind()]
		if fields == nil {
			fields = []string{"spec", "template", "metadata", "labels", "owner"}
		}
		added := demanded.addTo(u)
		if inside, _, _ := unstructured.NestedString(u.Object, fields...); !added || inside != "blue" || u.GetLabels()["owner"] != "blue" {
			t.Errorf("%s: added %t, labels %v, inside %q", u.GetKind(), added, u.GetLabels(), inside)
		}
		if demanded.addTo(u) {
			t.Errorf("%s: it lacks nothing, and something was added", u.GetKind())
		}
	}
}

// What a pattern of Kyverno demands, and not what it forbids or selects.
func TestMarksOfPatterns(t *testing.T) {
	t.Parallel()
	var rule map[string]any
	if err := yaml.Unmarshal([]byte(`
match: {any: [{resources: {selector: {matchLabels: {selected: "true"}}}}]}
validate:
  anyPattern:
    - metadata:
        labels: {owner: "?*", "=(tier)": gold | silver, "X(legacy)": "null"}
    - metadata: {=(annotations): {example.com/contact: "*@example.com"}}
`), &rule); err != nil {
		t.Fatal(err)
	}
	want := []mark{{"tier", "gold"}, {"owner", "x"}, {"example.com/contact", "x@example.com"}}
	if diff := cmp.Diff(want, marksOfPatterns([]any{rule}), cmp.AllowUnexported(mark{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An identity that may not create an object does not find out what policies demand of it. The next one does.
func TestCustomaryLabelsWithoutRight(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{}, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       admissionv1.ValidatingAdmissionPolicySpec{Validations: []admissionv1.Validation{{Expression: "has(object.metadata.labels.owner)"}}},
	})
	e.namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"owner": "blue"}}}}
	with := &customs{tenants: []*Scenario{e}}
	if err := with.readCustoms(t.Context(), e.Admin, nil); err != nil {
		t.Fatal(err)
	}
	labelled := func(o client.Object) error {
		if o.GetLabels()["owner"] == "" {
			return forbidden(errPolicy.Error())
		}
		return nil
	}
	identity := func(creates bool) client.Client {
		return interceptor.NewClient(interceptor.NewClient(e.Admin, interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if !creates {
					return forbidden(errRefused.Error())
				}
				return labelled(o)
			},
			Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
				return labelled(o)
			},
		}), asRecommended(with))
	}
	if err := identity(false).Update(t.Context(), configMap("team", "x")); !refusedByPolicy(err) {
		t.Errorf("without the right to create: %v", err)
	}
	if err := identity(true).Update(t.Context(), configMap("team", "x")); err != nil {
		t.Errorf("with the right to create: %v", err)
	}
}
