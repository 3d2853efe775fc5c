package catalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Helm deletes and runs what a record lists with the rights of the HelmRelease, so a tenant must not write the
// record of a release of the platform, wherever the HelmRelease is.
func TestEditsRecords(t *testing.T) {
	t.Parallel()
	release := func(namespace, account, storage string) client.Object {
		return object("helm.toolkit.fluxcd.io/v2", "HelmRelease", namespace, "agent", map[string]any{
			"spec":   map[string]any{"serviceAccountName": account},
			"status": map[string]any{"storageNamespace": storage, "history": []any{map[string]any{"name": "agent"}}},
		})
	}
	record := func(namespace string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sh.helm.release.v1.agent.v1", Labels: map[string]string{"owner": "helm", "name": "agent"}}}
	}
	subject := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: name}}
	}
	bindings := []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Subjects: subject("root")},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "agent"}, Subjects: subject("agent")},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "helm-controller"}},
	}
	for reason, tc := range map[string]struct {
		release client.Object
		storage string
		want    int
	}{
		"the release has all rights":                    {release("flux-system", "root", "team"), "team", 1},
		"it is the controller's":                        {release("flux-system", "", "team"), "team", 1},
		"its account has rights in the namespace alone": {release("flux-system", "agent", "team"), "team", 0},
		"the record is in the platform's namespace":     {release("flux-system", "root", "flux-system"), "flux-system", 0},
		"the release is the tenant's":                   {release("team", "root", "team"), "team", 0},
	} {
		e := newFakeEnv(interceptor.Funcs{}, append([]client.Object{tc.release, record(tc.storage)}, bindings...)...)
		all, err := e.editsRecords(t.Context())
		if err != nil || len(all) != tc.want {
			t.Errorf("%s: got %d requests, %v, want %d", reason, len(all), err, tc.want)
			continue
		}
		if tc.want == 0 {
			continue
		}
		if !strings.Contains(all[0].what, "Secret team/sh.helm.release.v1.agent.v1, which HelmRelease flux-system/agent") {
			t.Errorf("%s: the evidence is %q", reason, all[0].what)
		}
		if err := all[0].aimed(t.Context(), e); err != nil {
			t.Errorf("%s: the tenant may not change the record: %v", reason, err)
		}
	}
}

// A sync of the platform may break a rule about the specs of tenants, which then refuses each change of its spec.
// This is no proof, but the refusal of a change of its labels is one.
func TestEditsUnboundedSync(t *testing.T) {
	t.Parallel()
	refusal := func(rule string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "kustomizations"}, "team", fmt.Errorf("ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no (rule %s)", rule))
	}
	for reason, tc := range map[string]struct {
		relabeled error
		want      string
	}{
		"the rule about objects of the platform": {refusal("tenure-managed"), "tenure-managed"},
		"no rule about them":                     {nil, "tenure-bounds"},
	} {
		c := interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, p client.Patch, _ ...client.PatchOption) error {
			if patch, _ := p.Data(nil); strings.Contains(string(patch), "labels") {
				return tc.relabeled
			}
			return refusal("tenure-bounds")
		}}
		err := tryPatch(withAttack(t.Context(), Attack{ID: "I10"}), newFakeEnv(c), configMap("team", "team"), `{"spec":{"suspend":true}}`)
		if !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: got %v, want the refusal of %s", reason, err, tc.want)
		}
	}
}
