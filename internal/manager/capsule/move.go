package capsule

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// bindingPrefix is the prefix of the names of Capsule's RoleBindings.
	bindingPrefix = "capsule:managed:"
	// retryInterval is the retry interval while objects of Capsule remain: no event
	// announces that Tenure's replacements exist.
	retryInterval = 5 * time.Second
)

// move migrates the objects of Capsule's controller. It labels the namespaces of the tenant; once
// Tenure's replacements exist there, it deletes Capsule's objects. left describes the objects that
// remain for other reasons.
func (r *TenantReconciler) move(ctx context.Context, s *state, left, platform []string) error {
	var namespaces corev1.NamespaceList
	if err := r.Client.List(ctx, &namespaces, client.MatchingLabels{v1alpha1.LabelCapsuleTenant: s.theirs.Name}); err != nil {
		return fmt.Errorf("cannot list the namespaces of Tenant %s: %w", s.theirs.Name, err)
	}
	found := len(left) > 0
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		// A label alone does not prove that Capsule assigned the namespace to the tenant.
		if !ownedBy(ns, s.theirs) || referred(ns, s.theirs) || !ns.DeletionTimestamp.IsZero() {
			continue
		}
		found = true
		rest, err := r.moveNamespace(ctx, s, ns, platform)
		if err != nil {
			return err
		}
		left = append(left, rest...)
	}
	if !found {
		return nil
	}
	s.moved = &metav1.Condition{Type: conditionMoved, Status: metav1.ConditionTrue, Reason: reasonAll, Message: "Tenure's objects have replaced those of Capsule's controller"}
	if len(left) > 0 {
		s.again = retryInterval
		s.moved.Status, s.moved.Reason = metav1.ConditionFalse, reasonLeft
		s.moved.Message = "kept: " + strings.Join(left[:min(len(left), maxNotes)], "; ")
	}
	return nil
}

// moveNamespace migrates one namespace and returns descriptions of the objects that remain.
func (r *TenantReconciler) moveNamespace(ctx context.Context, s *state, ns *corev1.Namespace, platform []string) ([]string, error) {
	tenant, labelled := ns.Labels[v1alpha1.LabelTenant]
	switch {
	case slices.Contains(platform, ns.Name) || ns.Name == metav1.NamespaceDefault || strings.HasPrefix(ns.Name, "kube-"):
		return []string{"namespace " + ns.Name + " is the platform's and no tenant's"}, nil
	case !labelled:
		before := ns.DeepCopy()
		ns.Labels[v1alpha1.LabelTenant] = s.theirs.Name
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, ns, patch, client.FieldOwner(FieldManager)); err != nil {
			return nil, fmt.Errorf("cannot label namespace %s: %w", ns.Name, err)
		}
		return []string{"namespace " + ns.Name + ", which is not ready yet"}, nil
	case tenant != s.theirs.Name:
		return []string{"namespace " + ns.Name + " has label " + v1alpha1.LabelTenant + "=" + tenant}, nil
	}
	ready := s.oursReady()
	if ready == nil || ready.Status != metav1.ConditionTrue || !slices.Contains(s.ours.Status.Namespaces, ns.Name) {
		return []string{"Capsule's objects in namespace " + ns.Name + ", until the Tenant of tenure.dev is ready there"}, nil
	}
	return r.clean(ctx, s, ns)
}

// clean deletes the objects that Capsule created in a namespace, each once its replacement
// exists. It returns descriptions of the objects that remain.
func (r *TenantReconciler) clean(ctx context.Context, s *state, ns *corev1.Namespace) ([]string, error) {
	namespace := ns.Name
	var bindings rbacv1.RoleBindingList
	var quotas corev1.ResourceQuotaList
	var limits corev1.LimitRangeList
	var networks networkingv1.NetworkPolicyList
	for _, list := range []client.ObjectList{&bindings, &quotas, &limits, &networks} {
		if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("cannot read the objects in namespace %s: %w", namespace, err)
		}
	}
	var old []client.Object
	var left []string
	for i := range bindings.Items {
		b := &bindings.Items[i]
		if !madeFrom(b, s.theirs) || !strings.HasPrefix(b.Name, bindingPrefix) {
			continue
		}
		if who, ok := covered(*b, bindings.Items); !ok {
			left = append(left, fmt.Sprintf("RoleBinding %s/%s, since no binding of Tenure gives %s the role %s there", namespace, b.Name, who, b.RoleRef.Name))
			continue
		}
		old = append(old, b)
	}
	for _, kind := range []struct {
		name    string
		objects []client.Object
		wanted  int
	}{
		{"ResourceQuota", pointers(quotas.Items), len(tenancy.QuotasOf(s.ours, namespace, ns.Labels))},
		{"LimitRange", pointers(limits.Items), len(s.ours.Spec.LimitRanges)},
		{"NetworkPolicy", pointers(networks.Items), len(s.ours.Spec.NetworkPolicies)},
	} {
		theirs, ours := split(kind.objects, s.theirs)
		if len(theirs) > 0 && ours < kind.wanted {
			left = append(left, fmt.Sprintf("every %s of Capsule in namespace %s, since those of Tenure do not all exist", kind.name, namespace))
			continue
		}
		old = append(old, theirs...)
	}
	for _, o := range old {
		// Delete no object that changed in the meantime: it may be Tenure's now.
		uid, version := o.GetUID(), o.GetResourceVersion()
		if err := r.Client.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cannot remove %s of Capsule in namespace %s: %w", o.GetName(), namespace, err)
		}
	}
	return left, nil
}

// pointers returns pointers to the items of a list.
func pointers[T any, P interface {
	*T
	client.Object
}](items []T) []client.Object {
	var all []client.Object
	for i := range items {
		all = append(all, P(&items[i]))
	}
	return all
}

// split returns the objects that Capsule created for a tenant, and the number of objects that
// Tenure created for the fields of the Tenant. The isolation of a namespace replaces none of
// Capsule's.
func split(objects []client.Object, tenant *v1beta2.Tenant) (theirs []client.Object, ours int) {
	generated := regexp.MustCompile(`^capsule-` + regexp.QuoteMeta(tenant.Name) + `-[0-9]+$`)
	for _, o := range objects {
		switch {
		case o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue:
			if o.GetName() != tenancy.IsolationName {
				ours++
			}
		case madeFrom(o, tenant) && generated.MatchString(o.GetName()):
			theirs = append(theirs, o)
		}
	}
	return theirs, ours
}

// madeFrom reports whether Capsule created an object for a tenant.
func madeFrom(o client.Object, tenant *v1beta2.Tenant) bool {
	return ownedBy(o, tenant) && o.GetLabels()[tenancy.LabelManaged] == "" && o.GetDeletionTimestamp().IsZero()
}

// ownedBy reports whether an object has an owner reference to a Tenant of Capsule. The UID
// distinguishes Tenants that had the same name one after the other.
func ownedBy(o client.Object, tenant *v1beta2.Tenant) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == tenant.UID && ref.Kind == "Tenant" && strings.HasPrefix(ref.APIVersion, v1beta2.GroupVersion.Group+"/")
	})
}

// covered reports whether Tenure's RoleBindings grant the role of Capsule's RoleBinding, or
// its replacement, to every subject of that RoleBinding. If not, it returns a subject without
// the role.
func covered(old rbacv1.RoleBinding, all []rbacv1.RoleBinding) (string, bool) {
	role := capsule.Role(old.RoleRef.Name)
	for _, subject := range old.Subjects {
		has := slices.ContainsFunc(all, func(b rbacv1.RoleBinding) bool {
			return b.Labels[tenancy.LabelManaged] == tenancy.ManagedValue && b.DeletionTimestamp.IsZero() &&
				b.RoleRef.Kind == old.RoleRef.Kind && b.RoleRef.Name == role &&
				slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return user(s) == user(subject) })
		})
		if !has {
			return user(subject), false
		}
	}
	return "", true
}

// user returns the kind and name of a subject. A service account is represented by its user
// name.
func user(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return "User system:serviceaccount:" + s.Namespace + ":" + s.Name
	}
	return s.Kind + " " + s.Name
}
