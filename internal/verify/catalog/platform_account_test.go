package catalog

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The wait for a binding asks for a right of its role, and not for one that every role has.
func TestAwaitRights(t *testing.T) {
	t.Parallel()
	view := []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/version"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/scale"}, ResourceNames: []string{"shop"}, Verbs: []string{"get"}},
	}
	asked := authorizationv1.ResourceAttributes{Namespace: "team", Verb: "get", Group: "apps", Resource: "deployments", Subresource: "scale", Name: "shop"}
	for name, tc := range map[string]struct {
		reason, kind, role string
		want               []authorizationv1.ResourceAttributes
	}{
		"ClusterRole": {"it asks until the right is there", "ClusterRole", "view", []authorizationv1.ResourceAttributes{asked, asked, asked}},
		"Role":        {"so it does for a role of the namespace", "Role", "view", []authorizationv1.ResourceAttributes{asked, asked, asked}},
		"no rights":   {"there is nothing to wait for", "ClusterRole", "empty", nil},
		"no role":     {"nor here", "Role", "none", nil},
	} {
		var got []authorizationv1.ResourceAttributes
		e := newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			review := o.(*authorizationv1.SelfSubjectAccessReview)
			got = append(got, *review.Spec.ResourceAttributes)
			review.Status.Allowed = len(got) == 3
			return nil
		}},
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}, Rules: view},
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "view"}, Rules: view})
		binding := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": "team"}, "roleRef": map[string]any{"kind": tc.kind, "name": tc.role},
		}}
		if err := e.awaitRights(t.Context(), binding); err != nil {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
		if len(got) != len(tc.want) || len(got) > 0 && got[0] != tc.want[0] {
			t.Errorf("%s: %s: asked %+v", name, tc.reason, got)
		}
	}
}

// The flag --no-remote-bases stops no file: its refusal hides why the file did not come.
func TestOfFile(t *testing.T) {
	t.Parallel()
	const base = "accumulating resources from 'https://bases.tenure.invalid/files/s15.yaml': "
	for message, want := range map[string]Finding{
		base + "proxyconnect tcp: dial tcp 127.0.0.1:9: connect: connection refused: fs-security-constraint abs /tmp/kustomize-1": {Outcome: Stopped, Control: noProxyThere},
		base + "503 Service Unavailable: fs-security-constraint abs /tmp/kustomize-1":                                             {Outcome: NotProven},
	} {
		control, _ := controlOf(message)
		if got := ofFile(stopped(control, message)); got.Outcome != want.Outcome || got.Control != want.Control {
			t.Errorf("%s: got %s by %q", message, got.Outcome, got.Control)
		}
	}
}
