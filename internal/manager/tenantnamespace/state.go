package tenantnamespace

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contents are the objects of a namespace of the kinds that the manager creates. Their field
// kind is empty, since lists leave it out.
type contents struct {
	all        []client.Object
	accounts   []*corev1.ServiceAccount
	bindings   []*rbacv1.RoleBinding
	quotas     []*corev1.ResourceQuota
	parameters *v1alpha1.TenantParameters
	syncs      []*unstructured.Unstructured
}

func (r *Reconciler) read(ctx context.Context, namespace string) (*contents, error) {
	lists := []client.ObjectList{
		&corev1.ServiceAccountList{}, &rbacv1.RoleBindingList{}, &v1alpha1.TenantParametersList{}, &corev1.ResourceQuotaList{},
		&corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{},
	}
	for _, kind := range syncKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		lists = append(lists, list)
	}
	c := &contents{}
	for _, list := range lists {
		err := r.Client.List(ctx, list, client.InNamespace(namespace))
		if apimeta.IsNoMatchError(err) {
			continue // Flux is not there yet, and nothing of its kinds
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the objects in namespace %s: %w", namespace, err)
		}
		if err := apimeta.EachListItem(list, c.add); err != nil {
			return nil, fmt.Errorf("cannot read the objects in namespace %s: %w", namespace, err)
		}
	}
	return c, nil
}

func (c *contents) add(item runtime.Object) error {
	object, ok := item.(client.Object)
	if !ok {
		return fmt.Errorf("%T is not an object", item)
	}
	c.all = append(c.all, object)
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		c.accounts = append(c.accounts, o)
	case *rbacv1.RoleBinding:
		c.bindings = append(c.bindings, o)
	case *corev1.ResourceQuota:
		c.quotas = append(c.quotas, o)
	case *v1alpha1.TenantParameters:
		c.parameters = o // its schema allows one name
	case *unstructured.Unstructured:
		c.syncs = append(c.syncs, o)
	}
	return nil
}

// ours returns the objects that this reconciler owns. As long as the Tenant exists, its
// reconciler owns the parts of its quotas; ours returns the parts of a Tenant that had the
// namespace before. The credentials reconciler removes credentials, for which it needs their
// RoleBindings.
func (c *contents) ours(tenant *v1alpha1.Tenant) []client.Object {
	var ours []client.Object
	for _, o := range c.all {
		if o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue && o.GetLabels()[tenancy.LabelCredentials] == "" && (tenant == nil || !isShareOf(o, tenant)) {
			ours = append(ours, o)
		}
	}
	return ours
}

// isShare reports whether an object is a namespace's part of a quota of a Tenant.
func isShare(o client.Object) bool {
	_, quota := o.(*corev1.ResourceQuota)
	return quota && o.GetLabels()[tenancy.LabelQuotaScope] == tenancy.QuotaScopeTenant
}

// isShareOf reports whether an object is a namespace's part of a quota of this Tenant.
func isShareOf(o client.Object, tenant *v1alpha1.Tenant) bool {
	return isShare(o) && o.GetLabels()[v1alpha1.LabelFluxTenant] == tenant.Name
}

// find returns the object of the same kind and name, or nil.
func (c *contents) find(wanted client.Object) client.Object {
	for _, o := range c.all {
		if keyOf(o) == keyOf(wanted) {
			return o
		}
	}
	return nil
}

func keyOf(o client.Object) key {
	kind := fmt.Sprintf("%T", o)
	if u, ok := o.(*unstructured.Unstructured); ok {
		kind = u.GetKind()
	}
	return key{kind: kind, NamespacedName: client.ObjectKeyFromObject(o)}
}

// input reads what the desired objects of a namespace depend on. It returns the requeue delay for
// a kind that Kubernetes does not count yet.
func (r *Reconciler) input(ctx context.Context, ns *corev1.Namespace, profile *v1alpha1.TenancyProfile, have *contents) (in tenancy.Namespace, later time.Duration, err error) {
	tenant, _ := tenancy.TenantOf(ns.Labels)
	platform := profile.Spec.PlatformNamespaces
	in = tenancy.Namespace{
		Name: ns.Name, Labels: ns.Labels, Credentials: tenancy.CredentialsIn(ns.Name, have.bindings),
		OwnLevel: owned(ns, "f:labels")[podSecurityLabel], Manager: &r.Manager, Layer: r.Layer,
	}
	for _, a := range have.accounts {
		in.OwnAccount = in.OwnAccount || (a.Name == tenant && tenancy.Brought(a, platform))
	}
	for _, b := range have.bindings {
		in.OwnBinding = in.OwnBinding || (b.Name == tenancy.FluxBindingName(tenant) && tenancy.Brought(b, platform))
	}
	if in.Tenant, in.Siblings, err = r.tenant(ctx, ns); err != nil {
		return in, 0, err
	}
	if in.Kinds, later, err = r.countObjects(ctx, have); err != nil {
		return in, 0, err
	}
	if in.OwnerAccounts, err = r.ownerAccounts(ctx, ns.Name); err != nil {
		return in, 0, err
	}
	in.PlatformWorkloads, in.PlatformSelectors, err = r.platformWorkloads(ctx, ns, &profile.Spec)
	return in, later, err
}

// tenant returns the Tenant that a namespace belongs to and the names of all its namespaces,
// or nil if there is no Tenant.
func (r *Reconciler) tenant(ctx context.Context, ns *corev1.Namespace) (*v1alpha1.Tenant, []string, error) {
	name := ns.Labels[v1alpha1.LabelTenant]
	if name == "" {
		return nil, nil, nil
	}
	tenant := &v1alpha1.Tenant{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, tenant); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("cannot read tenant %s: %w", name, err)
	}
	siblings := []string{ns.Name}
	if len(tenant.Spec.Sync) > 0 {
		var list corev1.NamespaceList
		if err := r.Client.List(ctx, &list, client.MatchingFields{IndexTenant: name}); err != nil {
			return nil, nil, fmt.Errorf("cannot read the namespaces of tenant %s: %w", name, err)
		}
		for i := range list.Items {
			siblings = append(siblings, list.Items[i].Name)
		}
		slices.Sort(siblings)
		siblings = slices.Compact(siblings)
	}
	return tenant, siblings, nil
}

// ownerAccounts returns the accounts of a namespace that own any Tenant.
func (r *Reconciler) ownerAccounts(ctx context.Context, namespace string) ([]string, error) {
	var owned v1alpha1.TenantList
	if err := r.Client.List(ctx, &owned, client.MatchingFields{IndexOwnerNamespace: namespace}); err != nil {
		return nil, fmt.Errorf("cannot read the Tenants with owner accounts in namespace %s: %w", namespace, err)
	}
	return tenancy.OwnerAccounts(owned.Items, namespace), nil
}

// syncKinds are the kinds of a Tenant's sync.
var syncKinds = []schema.GroupVersionKind{tenancy.GitRepositoryKind, tenancy.OCIRepositoryKind, tenancy.KustomizationKind}

// key is an object's kind and name.
type key struct {
	kind string
	types.NamespacedName
}

// owned returns the names of the labels or annotations that the manager wrote last.
func owned(ns *corev1.Namespace, field string) map[string]bool {
	names := map[string]bool{}
	for _, m := range ns.ManagedFields {
		if m.Manager != FieldManager || m.FieldsV1 == nil || m.Subresource != "" {
			continue
		}
		var fields struct {
			Metadata map[string]map[string]json.RawMessage `json:"f:metadata"`
		}
		// An unreadable value is replaced.
		if json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for name := range fields.Metadata[field] {
			if name, ok := strings.CutPrefix(name, "f:"); ok {
				names[name] = true
			}
		}
	}
	return names
}
