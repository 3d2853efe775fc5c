package ablation

import (
	"context"
	"errors"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scope selects the namespaces in which a right is granted.
type scope int

const (
	// within is the tenant's namespaces, by RoleBindings.
	within scope = iota
	// platform is the platform's namespace, by a RoleBinding.
	platform
	// neighbour is a namespace of another tenant, by a RoleBinding.
	neighbour
	// everywhere is the whole cluster, by a ClusterRoleBinding.
	everywhere
)

// role returns the control that the tenant's role lacks a right. An additional role with the right removes
// the control, which has the same effect.
func role(right string, where scope, rules ...rbacv1.PolicyRule) Control {
	how := "in the tenant's namespaces"
	if where == everywhere {
		how = "by a ClusterRoleBinding"
	}
	return Control{
		Name: "role without the right to " + right,
		Away: "the tenant's account is given the right " + how,
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: sentinel}, Rules: rules}
			if err := t.admin.Create(ctx, r); err != nil {
				return func(context.Context) error { return nil }, err
			}
			unbind, err := t.bind(ctx, where, sentinel, rules[len(rules)-1])
			restore := func(ctx context.Context) error {
				return errors.Join(t.admin.Delete(ctx, r), unbind(ctx))
			}
			return restore, err
		},
	}
}

// bound returns the control that the tenant's role is bound only in the tenant's namespaces.
func bound(place string, where scope) Control {
	return Control{
		Name: "tenant's role not bound " + place,
		Away: "the role is bound there, too",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			for _, r := range t.tenant.Rights {
				if name, ok := strings.CutPrefix(r.Role, "ClusterRole/"); ok && r.Subject == "ServiceAccount "+t.account.String() {
					return t.bind(ctx, where, name, allow([]string{"create"}, "", "configmaps"))
				}
			}
			return func(context.Context) error { return nil }, errors.New("the tenant's account has no ClusterRole")
		},
	}
}

// privileged returns the control that no account in the tenant's namespaces has more rights than the
// tenant.
func privileged() Control {
	return Control{
		Name: "no privileged account in the tenant's namespace",
		Away: "an account there gets cluster-admin in the whole cluster",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: t.account.Namespace, Name: sentinel}}
			binding := &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: sentinel},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
			}
			restore := func(ctx context.Context) error {
				return errors.Join(client.IgnoreNotFound(t.admin.Delete(ctx, binding)), client.IgnoreNotFound(t.admin.Delete(ctx, account)))
			}
			return restore, errors.Join(t.admin.Create(ctx, account), t.admin.Create(ctx, binding))
		},
	}
}

// bind binds the tenant's account to a cluster role, and waits until a rule of the role takes effect. The
// returned function removes the binding.
func (t *target) bind(ctx context.Context, where scope, clusterRole string, rule rbacv1.PolicyRule) (func(context.Context) error, error) {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: t.account.Namespace, Name: t.account.Name}}
	var bindings []client.Object
	namespace := t.home()
	switch where {
	case everywhere:
		namespace = metav1.NamespaceDefault
		bindings = append(bindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: sentinel}, RoleRef: ref, Subjects: subjects})
	case platform:
		namespace = t.opts.Attack.Platform
		bindings = append(bindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sentinel}, RoleRef: ref, Subjects: subjects})
	case neighbour:
		if namespace = t.neighbour; namespace == "" {
			return func(context.Context) error { return nil }, errors.New("there is no other tenant")
		}
		bindings = append(bindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sentinel}, RoleRef: ref, Subjects: subjects})
	case within:
		for _, ns := range t.tenant.Namespaces {
			bindings = append(bindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: sentinel}, RoleRef: ref, Subjects: subjects})
		}
	}
	undo := func(ctx context.Context) error {
		var errs []error
		for _, b := range bindings {
			errs = append(errs, client.IgnoreNotFound(t.admin.Delete(ctx, b)))
		}
		return errors.Join(append(errs, t.mayNow(ctx, namespace, rule, false))...)
	}
	for _, b := range bindings {
		if err := t.admin.Create(ctx, b); err != nil {
			return undo, err
		}
	}
	return undo, t.mayNow(ctx, namespace, rule, true)
}

// mayNow waits until the tenant's account has the right of a rule in a namespace, or no longer has it.
func (t *target) mayNow(ctx context.Context, namespace string, rule rbacv1.PolicyRule, want bool) error {
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	return poll(ctx, "the rights to be in force", func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: t.account.User(), Groups: t.account.Groups(),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
			},
		}}
		err := t.admin.Create(ctx, review)
		return err == nil && review.Status.Allowed == want, err
	})
}
