package catalog

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A token, or a Pod, of an account from before it became an owner or a reconciler gets through, and the evidence
// names it.
func TestEarlierCredentials(t *testing.T) {
	t.Parallel()
	token := func(namespace, name, account string, kind corev1.SecretType) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}}, Type: kind}
	}
	pod := func(name, account string, phase corev1.PodPhase) client.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}, Spec: corev1.PodSpec{ServiceAccountName: account}, Status: corev1.PodStatus{Phase: phase}}
	}
	protected := regexp.MustCompile(`(serviceAccountName|service-account[.]name):(boss|team)\b`)
	const kept = corev1.SecretTypeServiceAccountToken
	rbac := forbidden(`User "x" cannot create resource "pods/exec"`)
	for _, tc := range []struct {
		reason string
		attack func(context.Context, *Scenario) Finding
		there  client.Object
		// exec and get are the answers to the tenant.
		exec, get error
		want      Outcome
		evidence  string
	}{
		{"nothing is there", wearsOwnersAccount, nil, rbac, nil, Stopped, ""},
		{"an owner's token", wearsOwnersAccount, token("team", "old", "boss", kept), rbac, nil, GotThrough, "read Secret team/old, which keeps a token of team/boss, which owns a tenant"},
		{"an owner's token that RBAC hides", wearsOwnersAccount, token("team", "old", "boss", kept), rbac, forbidden(`User "x" cannot get resource "secrets"`), Stopped, ""},
		{"a Secret with the annotation that Kubernetes writes no token to", wearsOwnersAccount, token("team", "old", "boss", corev1.SecretTypeOpaque), rbac, nil, Stopped, ""},
		{"a token of an account that owns nothing", wearsOwnersAccount, token("team", "old", "default", kept), rbac, nil, Stopped, ""},
		{"a token of the same name elsewhere", wearsOwnersAccount, token("other", "old", "boss", kept), rbac, nil, Stopped, ""},
		{"an owner's Pod", wearsOwnersAccount, pod("job", "boss", corev1.PodRunning), apierrors.NewBadRequest("Upgrade request required"), nil, GotThrough, "run commands in Pod team/job, which runs as team/boss, which owns a tenant"},
		{"an owner's Pod without a node", wearsOwnersAccount, pod("job", "boss", corev1.PodPending), apierrors.NewBadRequest("pod job does not have a host assigned"), nil, GotThrough, "Pod team/job"},
		{"an owner's Pod that RBAC keeps shut", wearsOwnersAccount, pod("job", "boss", corev1.PodRunning), rbac, nil, Stopped, ""},
		{"an owner's Pod that a policy keeps shut", wearsOwnersAccount, pod("job", "boss", corev1.PodRunning), forbidden("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no"), nil, Stopped, ""},
		{"an owner's Pod that has ended", wearsOwnersAccount, pod("job", "boss", corev1.PodSucceeded), nil, nil, Stopped, ""},
		{"a Pod of an account that owns nothing", wearsOwnersAccount, pod("job", "default", corev1.PodRunning), nil, nil, Stopped, ""},
		{"the reconciler's token", keepsToken, token("team", "old", "team", kept), rbac, nil, GotThrough, "read Secret team/old, which keeps a token of team/team, as which Flux applies"},
		{"no token of the reconciler", keepsToken, token("team", "old", "default", kept), rbac, nil, Stopped, ""},
	} {
		const policy = "ValidatingAdmissionPolicy 'accounts' with binding 'accounts' denied request: no"
		objects := []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "boss"}}}
		if tc.there != nil {
			objects = append(objects, tc.there)
		}
		e := newFakeEnv(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if protected.MatchString(fmt.Sprint(o)) {
					return forbidden(policy)
				}
				return c.Create(ctx, o, opts...)
			},
			Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
				if o.GetName() == "boss" {
					return forbidden(policy)
				}
				return nil
			},
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return forbidden(policy)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if tc.get != nil {
					return tc.get
				}
				return c.Get(ctx, key, o, opts...)
			},
			SubResourceCreate: func(_ context.Context, _ client.Client, name string, _, _ client.Object, _ ...client.SubResourceCreateOption) error {
				if name == "exec" {
					return tc.exec
				}
				return forbidden(policy)
			},
		}, objects...)
		e.tenants = []discovery.Tenant{{Name: "team", Owners: []discovery.Owner{{Kind: rbacv1.ServiceAccountKind, Namespace: "team", Name: "boss"}}}}
		if f := tc.attack(t.Context(), e); f.Outcome != tc.want || !strings.Contains(f.Evidence, tc.evidence) {
			t.Errorf("%s: got %s: %s %s %s, want %s %s", tc.reason, f.Outcome, f.Evidence, f.Reason, f.Message, tc.want, tc.evidence)
		}
	}
}
