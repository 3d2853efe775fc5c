package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/tenancy"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForgedIdentity(register func(...Attack)) {
	register(Attack{
		ID: "I12", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"*"},
		Title:      "is mistaken for another tenant's account with the same name, or with a name that looks the same",
		Controls:   []string{"RBAC (subjects are a namespace and a name)"},
		References: []string{"CVE-2023-46254"},
		Fix:        Fix{Advice: "set the namespace of the intended tenant in every subject of a RoleBinding, bind no group of all accounts, and never join namespace and name into one string"},
		Run:        passesForAnother,
	})
}

func passesForAnother(ctx context.Context, e *Scenario) Finding {
	if e.Owner != nil {
		return ownsAnother(ctx, e)
	}
	// If a program joined namespace and name by a hyphen, the bound account and the tenant's account
	// collider would have the same name.
	bound := discovery.Account{Namespace: e.Namespace + "-tenure", Name: "canary"}
	collider := discovery.Account{Namespace: e.Namespace, Name: "tenure-canary"}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Victim.Namespace, Name: name("i12-" + e.Namespace)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: bound.Namespace, Name: bound.Name}},
	}
	if err := e.Admin.Create(ctx, binding); err != nil {
		return notProven("cannot bind the other tenant's account: " + firstLine(err.Error()))
	}
	defer func() { _ = e.Admin.Delete(context.WithoutCancel(ctx), binding) }()
	all := []request{
		{
			what:  "write to another tenant's namespace as an account of the same name",
			aimed: e.writesAs(discovery.Account{Namespace: e.Namespace, Name: e.Victim.Account}),
			own:   e.writesAs(discovery.Account{Namespace: e.Victim.Namespace, Name: e.Victim.Account}),
		},
		{
			what:  "write to another tenant's namespace as an account that reads the same when joined",
			aimed: e.writesAs(collider),
			own:   retryUntilSeen(e.writesAs(bound)),
		},
	}
	misbound, err := e.boundElsewhere(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	return requests(append(all, misbound...)...)(ctx, e)
}

// maxSimilarTenants is the maximum number of other tenants that an owner's requests name: the tenants whose
// names share the longest prefix with the owner's tenant.
const maxSimilarTenants = 8

// ownsAnother tries requests that only owners of other tenants may send.
func ownsAnother(ctx context.Context, e *Scenario) Finding {
	all := []request{{what: "write to a namespace of another tenant", aimed: creating(func(e *Scenario) *unstructured.Unstructured {
		return configMap(e.Victim.Namespace, name("i12"))
	})}}
	others := slices.DeleteFunc(slices.Clone(e.tenants), func(t discovery.Tenant) bool {
		return t.Name == e.Tenant.Name || len(t.Owners) == 0 || slices.ContainsFunc(t.Owners, func(o discovery.Owner) bool {
			return o.User() == e.Owner.User() || o.Kind == rbacv1.GroupKind && slices.Contains(e.Owner.Groups(), o.Name)
		})
	})
	alike := func(t discovery.Tenant) int {
		n := 0
		for n < min(len(t.Name), len(e.Tenant.Name)) && t.Name[n] == e.Tenant.Name[n] {
			n++
		}
		return n
	}
	slices.SortStableFunc(others, func(a, b discovery.Tenant) int { return cmp.Compare(alike(b), alike(a)) })
	for _, other := range others[:min(maxSimilarTenants, len(others))] {
		all = append(all, request{what: "own tenant " + other.Name + ", which does not name it", aimed: func(ctx context.Context, e *Scenario) error {
			right := authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "tenants", Name: other.Name, Verb: v1alpha1.VerbOwn}
			allowed, err := e.isAllowed(ctx, right)
			if err != nil || allowed {
				return err
			}
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("tenants").GroupResource(), other.Name, fmt.Errorf("user %q cannot own resource \"tenants\"", e.who.user))
		}})
	}
	return requests(all...)(ctx, e)
}

// writesAs tries to write to the victim's namespace with an account's identity.
func (e *Scenario) writesAs(account discovery.Account) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		as, err := asAccount(e.config, account, e.customs)
		if err != nil {
			return err
		}
		return as.Create(ctx, configMap(e.Victim.Namespace, name("i12")), client.DryRunAll)
	}
}

// retryUntilSeen repeats a request until the API server accepts it: a new binding takes effect after a
// moment.
func retryUntilSeen(try func(context.Context, *Scenario) error) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		ctx, cancel := context.WithTimeout(ctx, rightsPatience)
		defer cancel()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			err := try(ctx, e)
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return err
			case <-tick.C:
			}
		}
	}
}

// boundElsewhere returns a request for each namespace of another tenant in which a binding names the
// tenant's account, as happens when an admin copies a binding from one tenant to the next.
func (e *Scenario) boundElsewhere(ctx context.Context) ([]request, error) {
	var namespaces corev1.NamespaceList
	if err := e.Admin.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("cannot list the namespaces: %w", err)
	}
	var bindings rbacv1.RoleBindingList
	if err := e.Admin.List(ctx, &bindings); err != nil {
		return nil, fmt.Errorf("cannot list the bindings: %w", err)
	}
	var all []request
	for _, b := range misbindings(e.tenants, e.Tenant, e.Account, namespaces.Items, bindings.Items) {
		as := "as " + e.Account.String() + ", by RoleBinding " + b.Namespace + "/" + b.Name
		all = append(all,
			request{what: "write to " + b.Namespace + " " + as, aimed: func(ctx context.Context, e *Scenario) error {
				return e.tryCreate(ctx, configMap(b.Namespace, name("i12")))
			}},
			request{what: "read the Secrets of " + b.Namespace + " " + as, aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.List(ctx, &corev1.SecretList{}, client.InNamespace(b.Namespace), client.Limit(1))
			}},
			request{what: "read the ConfigMaps of " + b.Namespace + " " + as, aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.List(ctx, &corev1.ConfigMapList{}, client.InNamespace(b.Namespace), client.Limit(1))
			}},
		)
		changed, err := e.changesIn(ctx, b.Namespace)
		if err != nil {
			return nil, err
		}
		for _, r := range changed {
			r.what += " " + as
			all = append(all, r)
		}
	}
	return all, nil
}

// misbindings returns the bindings in namespaces of other tenants with an account of this tenant as a
// subject.
func misbindings(tenants []discovery.Tenant, t discovery.Tenant, account discovery.Account, namespaces []corev1.Namespace, bindings []rbacv1.RoleBinding) []rbacv1.RoleBinding {
	foreign := map[string]bool{}
	for _, ns := range namespaces {
		tenant, labelled := tenancy.TenantOf(ns.Labels)
		foreign[ns.Name] = labelled && tenant != t.Name && !slices.Contains(t.Namespaces, ns.Name)
	}
	// These are namespaces of tenants without a label.
	for _, other := range tenants {
		for _, namespace := range other.Namespaces {
			foreign[namespace] = !slices.Contains(t.Namespaces, namespace)
		}
	}
	var found []rbacv1.RoleBinding
	for _, b := range bindings {
		inGroup := slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.GroupKind && slices.Contains(account.Groups(), s.Name)
		})
		if foreign[b.Namespace] && (inGroup || bindsAccount(b.Subjects, account)) {
			found = append(found, b)
		}
	}
	return found
}
