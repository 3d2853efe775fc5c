package tenantnamespace

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applyKeys writes the Secrets with the platform's public keys, and deletes earlier ones that
// are no longer desired. It runs before the parameters are written, which name the existing
// Secrets: the manager may read Secrets of these names only, and so cannot list them.
//
// A Secret with other content is replaced, not merged: Flux trusts each key in it, also one
// that the tenant added before the rule tenure-signature-keys was in force.
func (r *Reconciler) applyKeys(ctx context.Context, namespace string, desired []*corev1.Secret, have *contents) error {
	if err := r.removeKeys(ctx, namespace, desired, have); err != nil {
		return err
	}
	for _, want := range desired {
		existing := &corev1.Secret{}
		err := r.Secrets.Get(ctx, client.ObjectKeyFromObject(want), existing)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("cannot read the keys in Secret %s/%s: %w", namespace, want.Name, err)
		case err == nil && tenancy.SameKeys(existing, want):
			continue
		case err == nil:
			if err := r.removeSecret(ctx, existing); err != nil {
				return err
			}
		}
		if err := Apply(ctx, r.Client, want); err != nil {
			return fmt.Errorf("cannot write the keys in Secret %s/%s: %w", namespace, want.Name, err)
		}
	}
	return nil
}

// removeKeys deletes the Secrets with keys that the parameters name and that are not desired.
func (r *Reconciler) removeKeys(ctx context.Context, namespace string, desired []*corev1.Secret, have *contents) error {
	if have.parameters == nil {
		return nil
	}
	for _, name := range have.parameters.Spec.KeySecrets {
		if slices.ContainsFunc(desired, func(s *corev1.Secret) bool { return s.Name == name }) {
			continue
		}
		existing := &corev1.Secret{}
		if err := r.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, existing); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return fmt.Errorf("cannot read the keys in Secret %s/%s: %w", namespace, name, err)
		}
		if existing.Labels[tenancy.LabelManaged] != tenancy.ManagedValue {
			continue
		}
		if err := r.removeSecret(ctx, existing); err != nil {
			return err
		}
	}
	return nil
}

// removeSecret deletes a Secret, unless it was changed or replaced since it was read.
func (r *Reconciler) removeSecret(ctx context.Context, s *corev1.Secret) error {
	uid, version := s.UID, s.ResourceVersion
	err := r.Client.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot remove the keys in Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}
