package credentials

import (
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// AnnotationRenew on a Secret is the time at which the manager replaces its token, in
	// RFC 3339.
	AnnotationRenew = "tenure.dev/renew"
	// AnnotationExpires on a Secret is the time at which its token expires, in RFC 3339.
	AnnotationExpires = "tenure.dev/expires"
	// AnnotationInputs on a Secret is the hash of the kubeconfig's content: see [Inputs].
	AnnotationInputs = "tenure.dev/inputs"
)

// Record returns the RoleBinding that gives the manager its rights in a namespace of the
// plan. If placed is true, the manager has created the Secret there and the binding names
// it: only then may Flux's objects refer to the Secret.
func (p *Plan) Record(namespace string, manager rbacv1.Subject, placed bool) *rbacv1.RoleBinding {
	role := CopyRole
	if namespace == p.Account.Namespace {
		role = HomeRole
	}
	b := p.binding(namespace, RecordName(p.Account), "ClusterRole", role, manager)
	if placed {
		b.Annotations[tenancy.AnnotationSecret] = p.Secret
	}
	return b
}

// Impersonator returns the Role and the RoleBinding that allow the account of a namespace to
// impersonate itself and no other account. Flux needs this right: it impersonates the
// account of a Kustomization even if the kubeconfig belongs to the same account. The API
// server checks impersonation of an account in the account's namespace, so a Role suffices.
func (p *Plan) Impersonator(namespace string) (*rbacv1.Role, *rbacv1.RoleBinding) {
	name := ImpersonatorName(p.Account)
	role := &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"},
		ObjectMeta: p.meta(namespace, name),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, ResourceNames: []string{p.Account.Name}, Verbs: []string{"impersonate"},
		}},
	}
	return role, p.binding(namespace, name, "Role", name, p.subject(namespace))
}

// Stand returns the account of the same name for another namespace of the tenant. Package
// tenancy binds the tenant's role to it there.
func (p *Plan) Stand(namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: p.meta(namespace, p.Account.Name),
	}
}

// Rights returns the RoleBinding that gives the account the tenant's role in its own
// namespace, for a plan with [Plan.Bound].
func (p *Plan) Rights() *rbacv1.RoleBinding {
	return p.binding(p.Account.Namespace, p.Account.Name, "ClusterRole", tenancy.Role, p.subject(p.Account.Namespace))
}

// Filled returns the Secret for a namespace. If kubeconfig is nil, the Secret is empty: the
// manager creates it first, since a token can only be bound to an existing Secret.
func (p *Plan) Filled(namespace string, kubeconfig []byte, token Token, inputs string) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: p.meta(namespace, p.Secret),
		Type:       corev1.SecretTypeOpaque,
	}
	if kubeconfig == nil {
		return s
	}
	s.Data = map[string][]byte{Key: kubeconfig}
	s.Annotations[AnnotationRenew] = token.Renew().UTC().Format(time.RFC3339)
	s.Annotations[AnnotationExpires] = token.Expires.UTC().Format(time.RFC3339)
	s.Annotations[AnnotationInputs] = inputs
	return s
}

// Ours reports whether the manager created an object for the account.
func Ours(object metav1.Object, account types.NamespacedName) bool {
	labels := object.GetLabels()
	return labels[tenancy.LabelManaged] == tenancy.ManagedValue && labels[Label] != "" && object.GetAnnotations()[tenancy.AnnotationAccount] == key(account)
}

func (p *Plan) subject(namespace string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: p.Account.Name}
}

func (p *Plan) binding(namespace, name, kind, role string, subject rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: p.meta(namespace, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func (p *Plan) meta(namespace, name string) metav1.ObjectMeta {
	where := Copy
	if namespace == p.Account.Namespace {
		where = Home
	}
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{tenancy.LabelManaged: tenancy.ManagedValue, Label: where},
		Annotations: map[string]string{tenancy.AnnotationAccount: key(p.Account)},
	}
}
