package failureevents

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of ClusterRoleBindings in a page of the list.
const pageSize = 500

// bound returns the namespaces in which the platform has given an account rights. It
// returns none for an account with rights in the whole cluster, which belongs to no
// tenant. It ignores bindings that tenants created: with these, a tenant could get the
// events of what another tenant delivers, or keep events from the other.
func (r *Reconciler) bound(ctx context.Context, namespace, account string, profile *v1alpha1.TenancyProfileSpec) ([]string, error) {
	var bindings rbacv1.RoleBindingList
	if err := r.Client.List(ctx, &bindings, client.MatchingFields{IndexSubject: namespace + "/" + account}); err != nil {
		return nil, fmt.Errorf("cannot list role bindings: %w", err)
	}
	if len(bindings.Items) == 0 {
		return nil, nil
	}
	wide, err := r.wideAccounts(ctx)
	if err != nil || wide.has(namespace, account) {
		return nil, err
	}
	var namespaces []string
	for i := range bindings.Items {
		made, err := r.platformMade(ctx, &bindings.Items[i], profile, wide)
		if err != nil {
			return nil, err
		}
		if made {
			namespaces = append(namespaces, bindings.Items[i].Namespace)
		}
	}
	return namespaces, nil
}

// platformMade reports whether the manager or a sync of the platform created a
// RoleBinding. The rule tenure-managed prevents other users from setting these labels. A
// sync whose account has no rights in the whole cluster may apply a tenant's objects, and
// does not count.
func (r *Reconciler) platformMade(ctx context.Context, b *rbacv1.RoleBinding, profile *v1alpha1.TenancyProfileSpec, wide accounts) (bool, error) {
	if b.Labels[tenancy.LabelManaged] == tenancy.ManagedValue {
		return true, nil
	}
	for _, kind := range []schema.GroupVersionKind{Kustomization, HelmRelease} {
		namespace, name := b.Labels[kind.Group+"/namespace"], b.Labels[kind.Group+"/name"]
		if !slices.Contains(profile.PlatformNamespaces, namespace) || slices.ContainsFunc(profile.DelegatedSyncs, func(d v1alpha1.DelegatedSync) bool {
			return d.Namespace == namespace && d.Name == name
		}) {
			continue
		}
		sync := Object(kind)
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, sync); apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("cannot read %s %s/%s, which made RoleBinding %s/%s: %w", kind.Kind, namespace, name, b.Namespace, b.Name, err)
		}
		// Without spec.serviceAccountName, Flux applies the sync as itself or as the
		// account in its flag.
		account, _, _ := unstructured.NestedString(sync.Object, "spec", "serviceAccountName")
		if account == "" || wide.has(namespace, account) {
			return true, nil
		}
	}
	return false, nil
}

// accounts is a set of service accounts, as NAMESPACE/NAME, or NAMESPACE/* for all
// accounts of a namespace.
type accounts map[string]bool

func (a accounts) has(namespace, name string) bool { return a[namespace+"/"+name] || a[namespace+"/*"] }

// wideAccounts returns the accounts with rights in the whole cluster, beyond the rights
// that the manager gives the owners of Tenants and Kubernetes gives all users.
func (r *Reconciler) wideAccounts(ctx context.Context) (accounts, error) {
	found := accounts{}
	for next := ""; ; {
		var page rbacv1.ClusterRoleBindingList
		if err := r.APIReader.List(ctx, &page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("cannot list cluster role bindings: %w", err)
		}
		for i := range page.Items {
			if page.Items[i].Labels[tenancy.LabelManaged] == tenancy.ManagedValue {
				continue
			}
			for _, s := range page.Items[i].Subjects {
				switch s.Kind {
				case rbacv1.ServiceAccountKind:
					found[s.Namespace+"/"+s.Name] = true
				case rbacv1.UserKind:
					if account, ok := strings.CutPrefix(s.Name, "system:serviceaccount:"); ok {
						found[strings.Replace(account, ":", "/", 1)] = true
					}
				case rbacv1.GroupKind:
					if namespace, ok := strings.CutPrefix(s.Name, "system:serviceaccounts:"); ok {
						found[namespace+"/*"] = true
					}
				}
			}
		}
		if next = page.Continue; next == "" {
			return found, nil
		}
	}
}
