package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// administers reports whether the user of a request is an administrator of Capsule Tenants who assigns
// namespaces.
func (h *Handler) administers(ctx context.Context, q *question, profile *v1alpha1.TenancyProfile) (bool, error) {
	if h.Administers == nil || profile.Spec.Capsule.Administrators != v1alpha1.AdministratorsNamespaces {
		return false, nil
	}
	return h.Administers(ctx, q.owner)
}

// unassigned decides about a new namespace without a label that names a tenant. It returns nil if the user
// is no administrator, because then the namespace is an owner's.
func (h *Handler) unassigned(ctx context.Context, q *question, profile *v1alpha1.TenancyProfile) (*corev1.Namespace, error) {
	if _, named := tenancy.TenantOf(q.namespace.Labels); named {
		return nil, nil //nolint:nilnil // See the doc comment.
	}
	if is, err := h.administers(ctx, q, profile); err != nil || !is {
		return nil, err
	}
	if r := ofPlatform(profile, q.namespace.Name); r != nil {
		return nil, r
	}
	return q.namespace, nil
}

// assign decides about an administrator's change of a namespace that has no tenant, or that gets another
// tenant or none. It returns nil for every other change. It removes references to Capsule Tenants, and the
// manager adds the reference to the new Tenant. A namespace that loses only the label and keeps the
// reference keeps its tenant, as with Capsule.
func (h *Handler) assign(ctx context.Context, q *question, before *corev1.Namespace, profile *v1alpha1.TenancyProfile) (*corev1.Namespace, error) {
	from, assigned := tenancy.TenantOf(before.Labels)
	to, moves := movesTo(before.Labels, q.namespace.Labels)
	if assigned && !moves {
		return nil, nil //nolint:nilnil // See the doc comment.
	}
	if is, err := h.administers(ctx, q, profile); err != nil || !is {
		return nil, err
	}
	if r := ofPlatform(profile, before.Name); r != nil {
		return nil, r
	}
	after := q.namespace.DeepCopy()
	if !moves {
		return after, nil
	}
	if to == "" && slices.ContainsFunc(after.OwnerReferences, ofCapsule) {
		for _, label := range tenantLabels {
			restore(after, before, label)
		}
		after.OwnerReferences = before.DeepCopy().OwnerReferences
		return after, nil
	}
	if assigned {
		if _, err := h.assignable(ctx, q, from); err != nil {
			return nil, err
		}
	}
	if to != "" {
		if err := h.receives(ctx, q, to, profile); err != nil {
			return nil, err
		}
	}
	maps.DeleteFunc(after.Labels, func(label, _ string) bool { return slices.Contains(tenantLabels, label) })
	if to != "" {
		metav1.SetMetaDataLabel(&after.ObjectMeta, v1alpha1.LabelTenant, to)
		metav1.SetMetaDataLabel(&after.ObjectMeta, v1alpha1.LabelCapsuleTenant, to)
	}
	after.OwnerReferences = slices.DeleteFunc(after.OwnerReferences, ofCapsule)
	delete(after.Annotations, admission.CapsuleReference)
	return after, nil
}

// movesTo returns the tenant that a namespace gets, or "" for none, and whether a label with the tenant
// changes. It prefers Capsule's label, since clients of Capsule change only this label.
func movesTo(before, after map[string]string) (to string, moves bool) {
	for _, label := range []string{v1alpha1.LabelCapsuleTenant, v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant} {
		if before[label] != after[label] {
			return after[label], true
		}
	}
	return "", false
}

// restore gives a label its former value.
func restore(after, before *corev1.Namespace, label string) {
	delete(after.Labels, label)
	if value, had := before.Labels[label]; had {
		metav1.SetMetaDataLabel(&after.ObjectMeta, label, value)
	}
}

// assignable returns a Tenant if an administrator may add namespaces to it and remove namespaces from it.
// Otherwise it returns a [*Refusal], or an error if it cannot read the Tenant.
func (h *Handler) assignable(ctx context.Context, q *question, name string) (*v1alpha1.Tenant, error) {
	t := &v1alpha1.Tenant{}
	err := h.APIReader.Get(ctx, client.ObjectKey{Name: name}, t)
	switch {
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err):
		return nil, fmt.Errorf("cannot read the tenant %s: %w", name, err)
	case err != nil, t.Labels[tenancy.LabelManaged] != tenancy.CapsuleValue, !owns(q.owner, t):
		return nil, refuse("namespace %s: administrators assign namespaces to Tenants of Capsule, and there is none named %q that is ready for it; ask the platform team", q.namespace.Name, name)
	case t.Spec.Cordoned:
		return nil, refuse("namespace %s must stay where it is, since the tenant %s is cordoned: ask the platform team", q.namespace.Name, name)
	}
	return t, nil
}

// receives returns the reason why a tenant cannot get an existing namespace, or nil. Concurrent requests
// can exceed the tenant's quota of namespaces.
func (h *Handler) receives(ctx context.Context, q *question, name string, profile *v1alpha1.TenancyProfile) error {
	t, err := h.assignable(ctx, q, name)
	if err != nil {
		return err
	}
	s := Situation{Tenant: t, Profile: profile, Owner: q.owner, Now: h.Now()}
	if s.Another, err = h.another(ctx, q, name); err != nil {
		return err
	}
	if s.Existing, err = namespaces(ctx, h.APIReader, name, client.MatchingLabels{v1alpha1.LabelTenant: name}); err != nil {
		return err
	}
	for _, r := range []*Refusal{mayAsk(s, q.namespace), mayBeNamed(s, q.namespace), full(s, q.namespace.Name)} {
		if r != nil {
			return refuse("tenant %s: %s", name, r.message)
		}
	}
	return nil
}

// ofPlatform returns a refusal of names that belong to the platform, or nil.
func ofPlatform(profile *v1alpha1.TenancyProfile, name string) *Refusal {
	reserved := admission.ReservedNamespace(name) || slices.Contains(profile.Spec.PlatformNamespaces, name)
	if !reserved && !slices.ContainsFunc(profile.Spec.ProtectedNamespaces, func(p v1alpha1.ValuePattern) bool { return matches(p, name) }) {
		return nil
	}
	return refuse("namespace %s has a name that is the platform's: ask the platform team", name)
}
