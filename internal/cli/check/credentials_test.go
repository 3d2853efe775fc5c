package check

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Check names the tokens and the Pods of protected accounts that are older than the rules, with the command that
// removes each.
func TestEarlierCredentials(t *testing.T) {
	t.Parallel()
	tenants := []discovery.Tenant{
		{Name: "team", Namespaces: []string{"team", "apps"}, Accounts: []discovery.Account{{Namespace: "team", Name: "deployer"}, {Namespace: "flux-system", Name: "team"}}},
		{Name: "boss", Owners: []discovery.Owner{{Kind: rbacv1.ServiceAccountKind, Namespace: "apps", Name: "boss"}, {Kind: rbacv1.UserKind, Namespace: "apps", Name: "ann"}}},
	}
	token := func(namespace, name, account string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}, Type: corev1.SecretTypeServiceAccountToken}
	}
	pod := func(name, account string, phase corev1.PodPhase) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name}, Spec: corev1.PodSpec{ServiceAccountName: account}, Status: corev1.PodStatus{Phase: phase}}
	}
	ordinary := token("apps", "x", "boss").(*corev1.Secret)
	ordinary.Type = corev1.SecretTypeOpaque
	for _, tc := range []struct {
		reason    string
		object    client.Object
		forbidden string
		want      string
		wrong     bool
	}{
		{"nothing", nil, "", "no Secret and no Pod", false},
		{"a reconciler's token", token("team", "old", "deployer"), "", "Secret team/old keeps a token of team/deployer, as which Flux applies tenant team: kubectl delete secret -n team old", true},
		{"a token of an owner of another tenant", token("apps", "old", "boss"), "", "Secret apps/old keeps a token of apps/boss, which owns tenant boss: kubectl delete secret -n apps old", true},
		{"an account of the same name elsewhere", token("apps", "old", "deployer"), "", "no Secret and no Pod", false},
		{"an account of the platform's namespace, which no tenant reads", token("flux-system", "old", "team"), "", "no Secret and no Pod", false},
		{"a person of the same name", token("apps", "old", "ann"), "", "no Secret and no Pod", false},
		{"a Secret of another type", ordinary, "", "no Secret and no Pod", false},
		{"a Pod", pod("job", "boss", corev1.PodRunning), "", "Pod apps/job runs as apps/boss, which owns tenant boss: kubectl delete pod -n apps job", true},
		{"a Pod that has ended", pod("job", "boss", corev1.PodFailed), "", "no Secret and no Pod", false},
		{"a Pod of another account", pod("job", "default", corev1.PodRunning), "", "no Secret and no Pod", false},
		{"a user who may not list Secrets", token("team", "old", "deployer"), "secrets", "not read: ", false},
	} {
		kube := fake.NewClientBuilder().
			WithIndex(&corev1.Secret{}, "type", func(client.Object) []string {
				secret, _ := tc.object.(*corev1.Secret) // the metadata, which the fake client gives, has no type
				return []string{string(secret.Type)}
			}).
			WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if tc.forbidden != "" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: tc.forbidden}, "", nil)
				}
				return c.List(ctx, list, opts...)
			}})
		if tc.object != nil {
			kube = kube.WithObjects(tc.object)
		}
		got := earlierCredentials(t.Context(), kube.Build(), tenants)
		if got.OK == tc.wrong || !strings.HasPrefix(got.Message, tc.want) {
			t.Errorf("%s: got %v %q, want %q", tc.reason, got.OK, got.Message, tc.want)
		}
	}
}
