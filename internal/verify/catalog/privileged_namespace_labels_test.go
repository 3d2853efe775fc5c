package catalog

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestJoins lets the tenant put other labels on its namespace.
func TestJoins(t *testing.T) {
	t.Parallel()
	const policy = `ValidatingAdmissionPolicy 'tenure-namespaces' with binding 'b' denied request: no`
	labelled := map[string]any{"matchLabels": map[string]any{"access": "yes"}}
	network := func(namespace, selector string) client.Object {
		parsed, err := metav1.ParseToLabelSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "doors"},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: parsed}}}}},
		}
	}
	gateway := object("gateway.networking.k8s.io/v1", "Gateway", "infra", "shared", map[string]any{"spec": map[string]any{"listeners": []any{
		map[string]any{"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "Same"}}},
		map[string]any{"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "Selector", "selector": labelled}}},
	}}})
	image := object("image.toolkit.fluxcd.io/v1", "ImageRepository", "infra", "app", map[string]any{"spec": map[string]any{
		"accessFrom": map[string]any{"namespaceSelectors": []any{labelled}},
	}})
	profile := object("tenure.dev/v1alpha1", "TenancyProfile", "", "default", map[string]any{"spec": map[string]any{
		"namespaceMetadata": map[string]any{"labels": []any{"acc*"}},
	}})
	for _, tc := range []struct {
		reason, accepted string
		objects          []client.Object
		want             Outcome
		words            string
	}{
		{"no label can be changed", "", []client.Object{network("other", "access=yes")}, Stopped, "tenure-namespaces"},
		{"a NetworkPolicy of others", `"access":"yes"`, []client.Object{network("other", "access=yes")}, GotThrough, "be selected by the NetworkPolicy other/doors"},
		{"its own NetworkPolicy", `"access":"yes"`, []client.Object{network("team", "access=yes")}, Stopped, "tenure-namespaces"},
		{"a NetworkPolicy that selects it already", `"stage"`, []client.Object{network("other", "stage=test")}, Stopped, "tenure-namespaces"},
		{"several labels", `{"access":"yes","stage":null}`, []client.Object{network("other", "access in (yes, you),!stage")}, GotThrough, "NetworkPolicy other/doors"},
		{"a namespace by its name", `"access":"yes"`, []client.Object{network("other", "access=yes,kubernetes.io/metadata.name=infra")}, Stopped, "tenure-namespaces"},
		{"a Gateway", `"access":"yes"`, []client.Object{gateway}, GotThrough, "be selected by the Gateway infra/shared"},
		{"an ImageRepository", `"access":"yes"`, []client.Object{image}, GotThrough, "be selected by the ImageRepository infra/app"},
		{"owners choose the label", `"access":"yes"`, []client.Object{gateway, profile}, Stopped, "tenure-namespaces"},
		{"owners choose one of two labels", `"b":"tenure-attack-i18"`, []client.Object{network("other", "access=yes,b"), profile}, GotThrough, "NetworkPolicy other/doors"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"stage": "test", "kubernetes.io/metadata.name": "team"}}}
			e := newFakeEnv(interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
					if data, err := p.Data(o); err != nil || tc.accepted != "" && strings.Contains(string(data), tc.accepted) {
						return err
					}
					return forbidden(policy)
				},
			}, append(slices.Clone(tc.objects), ns)...)
			f := joinsSelections(request{what: "use a gateway", aimed: patchNamespace("", `{"metadata":{"labels":{"x":"y"}}}`)})(t.Context(), e)
			if said := f.Control + f.Evidence + f.Reason; f.Outcome != tc.want || !strings.Contains(said, tc.words) {
				t.Errorf("got %+v, want %s with %q", f, tc.want, tc.words)
			}
		})
	}
}

// FuzzLabelChanges applies the changes of labels to a namespace: a change to leave takes it out of the
// selector, and the changes to join take it in.
func FuzzLabelChanges(f *testing.F) {
	for _, selector := range []string{"a=b", "a", "!a", "a notin (b)", "a in (b, c),d", "!b,a!=c", "kubernetes.io/metadata.name=x"} {
		f.Add(selector, "a", "b")
		f.Add(selector, "b", "")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		selector, err := metav1.ParseToLabelSelector(text)
		if err != nil {
			return
		}
		matching, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return
		}
		current := labels.Set{key: value, corev1.LabelMetadataName: "team"}
		after := func(changes ...labelChange) labels.Set {
			set := labels.Merge(current, nil)
			for _, c := range changes {
				delete(set, c.key)
				if c.value != nil {
					set[c.key] = *c.value
				}
			}
			return set
		}
		for _, c := range changesToLeave(selector, current) {
			if !matching.Matches(current) || matching.Matches(after(c)) || c.key == corev1.LabelMetadataName {
				t.Errorf("%q, %v: %s does not leave it", text, current, patchOf([]labelChange{c}))
			}
		}
		if changes := changesToJoin(selector, current); len(changes) > 0 {
			if set := after(changes...); matching.Matches(current) || !matching.Matches(set) || set[corev1.LabelMetadataName] != "team" {
				t.Errorf("%q, %v: %s does not join it", text, current, patchOf(changes))
			}
		}
	})
}
