package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// edit decides about a change of a namespace's metadata, and returns the namespace with the changes of the
// webhook. Before it refuses the change, it reads the Tenant from the API server.
func (h *Handler) edit(ctx context.Context, q *question, before *corev1.Namespace) (*corev1.Namespace, error) {
	profile, err := h.profile(ctx, q)
	if err != nil {
		return nil, err
	}
	if profile == nil {
		return q.namespace, nil
	}
	if assigned, err := h.assign(ctx, q, before, profile); err != nil || assigned != nil {
		return assigned, err
	}
	name := before.Labels[v1alpha1.LabelTenant]
	if name == "" {
		return nil, refuse("namespace %s belongs to no tenant that you own: owners change the labels and annotations of their own namespaces only", before.Name)
	}
	if who := h.flowDistinguisher(ctx, name, q); !h.limits.Allow(who) {
		return nil, fmt.Errorf("%w: %s asks for more than %d namespaces a second; try again in a moment", errTooMany, who, TenantRate)
	}
	if err := h.alone(ctx, before, q.namespace); err != nil {
		return nil, err
	}
	var edited *corev1.Namespace
	for _, from := range []client.Reader{h.Client, h.APIReader} {
		t := &v1alpha1.Tenant{}
		if err := from.Get(ctx, client.ObjectKey{Name: name}, t); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cannot read the tenant %s: %w", name, err)
		} else if apierrors.IsNotFound(err) {
			t.Name = name
		}
		edited, err = Edit(Situation{Tenant: t, Profile: profile, Owner: q.owner}, before, q.namespace)
		if refusal := (*Refusal)(nil); !errors.As(err, &refusal) {
			break
		}
	}
	return edited, err
}

// alone refuses to add a reference to another Capsule Tenant to the owner references of a namespace, as
// Capsule does. [Edit] undoes other changes of the owner references.
func (h *Handler) alone(ctx context.Context, before, wanted *corev1.Namespace) error {
	if before.Labels[v1alpha1.LabelCapsuleTenant] != wanted.Labels[v1alpha1.LabelCapsuleTenant] {
		return nil
	}
	for _, ref := range wanted.OwnerReferences {
		if !ofCapsule(ref) || slices.ContainsFunc(before.OwnerReferences, func(old metav1.OwnerReference) bool { return old.UID == ref.UID }) {
			continue
		}
		err := h.Client.Get(ctx, client.ObjectKey{Name: ref.Name}, &v1alpha1.Tenant{}, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot read the tenant %s: %w", ref.Name, err)
		}
		if err == nil {
			return refuse("namespace %s must not have the owner Tenant %s: leave metadata.ownerReferences as they are", before.Name, ref.Name)
		}
	}
	return nil
}

// Edit decides whether an owner may change the labels and annotations of a namespace, and returns the
// namespace in which the values of the Tenant replace other values. The owner references of a namespace of
// a Capsule Tenant stay unchanged: Capsule, too, admits such a change and undoes it. Edit does not undo a
// change after which no label and no reference names a Tenant, because the policies refuse it. It does not
// change its arguments. An error is always a [*Refusal].
func Edit(s Situation, before, wanted *corev1.Namespace) (*corev1.Namespace, error) {
	edited := wanted.DeepCopy()
	for _, entries := range []*map[string]string{&edited.Labels, &edited.Annotations} {
		if *entries == nil {
			*entries = map[string]string{}
		}
	}
	if slices.ContainsFunc(before.OwnerReferences, ofCapsule) && !leaves(wanted) {
		edited.OwnerReferences = before.DeepCopy().OwnerReferences
	}
	r := mayEdit(s, before)
	for i, rules := range metadataRules(s, edited) {
		old := []map[string]string{before.Labels, before.Annotations}[i]
		if r == nil {
			r = rules.change(old)
		}
	}
	if r != nil {
		r.message = fmt.Sprintf("tenant %s: %s", s.Tenant.Name, r.message)
		return nil, r
	}
	return edited, nil
}

// ofCapsule reports whether a reference is to a Tenant of Capsule.
func ofCapsule(ref metav1.OwnerReference) bool {
	return ref.Kind == "Tenant" && strings.HasPrefix(ref.APIVersion, v1beta2.GroupVersion.Group+"/")
}

// leaves reports whether neither a label nor a reference of a namespace names a Tenant of Capsule.
func leaves(ns *corev1.Namespace) bool {
	return ns.Labels[v1alpha1.LabelCapsuleTenant] == "" && !slices.ContainsFunc(ns.OwnerReferences, ofCapsule)
}

// mayEdit checks that the user is an owner of the tenant, and that owners may change the namespace.
func mayEdit(s Situation, before *corev1.Namespace) *Refusal {
	switch {
	case !owns(s.Owner, s.Tenant):
		return refuse("namespace %s must not be changed: you are not one of the owners of its tenant", before.Name)
	case s.Tenant.Spec.Cordoned:
		return refuse("namespace %s must not be changed, since the tenant is cordoned: ask the platform team", before.Name)
	case before.Labels[v1alpha1.LabelMadeBy] != v1alpha1.MadeByOwner:
		return refuse("namespace %s was not made by an owner, so its labels and annotations are the platform's: ask the platform team to change them", before.Name)
	}
	return nil
}

// change returns the reason why a change of the entries is refused, or nil. It sets the entries of the
// Tenant to the Tenant's values. A protected entry of the Tenant keeps its old value: the policies refuse
// any change of it, and the manager writes it.
func (m *metadata) change(old map[string]string) *Refusal {
	for _, key := range changedKeys(old, m.entries) {
		if own, ok := m.own[key]; ok {
			value, had := old[key]
			if !admission.ProtectedKey(key) {
				value, had = own, true
			}
			delete(m.entries, key)
			if had {
				m.entries[key] = value
			}
			continue
		}
		if m.cordon && key == v1alpha1.LabelCapsuleCordoned {
			continue
		}
		if ofTenure(key) {
			return refuse("namespace %s must keep the %s %s, which assigns it to a tenant", m.namespace, m.kind, key)
		}
		if r := m.choose(key); r != nil {
			return r
		}
		if r := m.demand(key); r != nil {
			return r
		}
	}
	return nil
}

// changedKeys returns the sorted keys of the entries that were added, removed or changed.
func changedKeys(old, entries map[string]string) []string {
	var keys []string
	for key, value := range entries {
		if before, had := old[key]; !had || before != value {
			keys = append(keys, key)
		}
	}
	for key := range old {
		if _, has := entries[key]; !has {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
