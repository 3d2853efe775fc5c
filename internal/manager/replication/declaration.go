package replication

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// kindOfCapsule holds the differences between Capsule's two kinds.
type kindOfCapsule struct {
	name  string
	empty func() client.Object
	list  func() client.ObjectList
	read  func(client.Object) *declaration
	set   func(client.Object, *declaration)
}

// declaration holds the fields that both kinds have.
type declaration struct {
	spec   v1beta2.ReplicationSpec
	status v1beta2.TenantResourceStatus
	// tenants selects tenants; nil for a declaration in a tenant's namespace.
	tenants *metav1.LabelSelector
	// selected are the names of the selected tenants.
	selected []string
	// account is the account that the declaration names, or nil.
	account *replication.Account
	// refused is the reason why the declaration is refused, or "".
	refused string
	// home is the namespace of the declaration, if it has one.
	home string
	// once is set if the objects are applied once for each tenant, or once for all tenants, and
	// not in each namespace: each object then names its own namespace.
	once bool
	// alone is set if they are applied once for all tenants.
	alone bool
	// perNamespace is set if each namespace has its own account that applies the objects.
	perNamespace bool
}

var tenantResources = kindOfCapsule{
	name:  "TenantResource",
	empty: func() client.Object { return &v1beta2.TenantResource{} },
	list:  func() client.ObjectList { return &v1beta2.TenantResourceList{} },
	read: func(o client.Object) *declaration {
		t, ok := o.(*v1beta2.TenantResource)
		if !ok {
			return &declaration{}
		}
		d := &declaration{spec: t.Spec.ReplicationSpec, status: *t.Status.DeepCopy(), home: t.Namespace}
		if t.Spec.ServiceAccount != nil {
			d.account = &replication.Account{Name: t.Spec.ServiceAccount.Name}
		}
		return d
	},
	set: func(o client.Object, d *declaration) {
		if t, ok := o.(*v1beta2.TenantResource); ok {
			t.Status = *d.status.DeepCopy()
		}
	},
}

var globalTenantResources = kindOfCapsule{
	name:  "GlobalTenantResource",
	empty: func() client.Object { return &v1beta2.GlobalTenantResource{} },
	list:  func() client.ObjectList { return &v1beta2.GlobalTenantResourceList{} },
	read: func(o client.Object) *declaration {
		g, ok := o.(*v1beta2.GlobalTenantResource)
		if !ok {
			return &declaration{}
		}
		d := &declaration{
			spec: g.Spec.ReplicationSpec, status: *g.Status.TenantResourceStatus.DeepCopy(),
			tenants: g.Spec.TenantSelector.DeepCopy(), selected: g.Status.SelectedTenants,
		}
		if a := g.Spec.ServiceAccount; a != nil {
			d.account = &replication.Account{Namespace: a.Namespace, Name: a.Name}
			d.status.ServiceAccount = a.DeepCopy()
		}
		d.once = g.Spec.Scope == scopeTenant || g.Spec.Scope == scopeNone
		d.alone = g.Spec.Scope == scopeNone
		switch {
		case d.once && d.account == nil:
			d.refused = fmt.Sprintf("spec.scope: %s puts objects outside of the tenants' namespaces too: name the account that applies them in spec.serviceAccount, whose rights bound them", g.Spec.Scope)
		case !d.once && g.Spec.Scope != "" && g.Spec.Scope != scopeNamespace:
			d.refused = fmt.Sprintf("spec.scope: %s is none of %s, %s and %s", g.Spec.Scope, scopeNamespace, scopeTenant, scopeNone)
		}
		return d
	},
	set: func(o client.Object, d *declaration) {
		if g, ok := o.(*v1beta2.GlobalTenantResource); ok {
			g.Status.TenantResourceStatus = *d.status.DeepCopy()
			g.Status.SelectedTenants = d.selected
		}
	},
}

// Values of spec.scope.
const (
	scopeNamespace = "Namespace"
	scopeTenant    = "Tenant"
	scopeNone      = "None"
)

// The bounds of a resyncPeriod.
const (
	minPeriod = 5 * time.Second
	maxPeriod = 24 * time.Hour
)

// period parses a resyncPeriod.
func period(text string) (time.Duration, string) {
	if text == "" {
		return resync, ""
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return resync, fmt.Sprintf("%q is no duration, such as 60s", text)
	}
	return min(max(d, minPeriod), maxPeriod), ""
}

// honoured returns the condition Honoured: every field has an effect.
func honoured() metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: "AllFields", Message: "every field has an effect"}
}

// scopeOfKind returns whether a kind is namespaced.
type scopeOfKind func(schema.GroupVersionKind) replication.Scope

// capsuleEntries are the lists of a declaration.
func capsuleEntries(d *declaration, account func(string) replication.Account, scopes []scope, kinds scopeOfKind, p *problems) []entry {
	var entries []entry
	for i, resources := range d.spec.Resources {
		e := entry{index: i, adopt: d.spec.Settings.Adopt, force: d.spec.Settings.Force, account: account}
		e.Name, e.Variables, e.Capsule, e.OfTenant = fmt.Sprintf("resources[%d]", i), true, true, d.home != ""
		if d.once {
			if field := notOnce(&resources); field != "" {
				p.add(reasonRefused, "%s.%s: it is for objects in each namespace, with spec.scope %s: leave it out, and list the objects in rawItems", e.Name, field, scopeNamespace)
				continue
			}
		}
		var err error
		if e.Selector, err = selector(resources.NamespaceSelector); err != nil {
			p.add(reasonRefused, "%s.namespaceSelector: %v", e.Name, err)
			continue
		}
		if m := resources.AdditionalMetadata; m != nil {
			e.Labels, e.Annotations = m.Labels, m.Annotations
		}
		for _, item := range resources.RawItems {
			e.Items = append(e.Items, item.Raw)
		}
		for n, item := range resources.NamespacedItems {
			if item.Namespace == "" {
				item.Namespace = d.home
			}
			src, err := sourceOf(fmt.Sprintf("%s.namespacedItems[%d]", e.Name, n), item, kinds)
			if err != nil {
				p.add(reasonRefused, "%s: %v", src.where, err)
				continue
			}
			src.reader = d.reader(account, scopes)
			if item.Selector != nil {
				src.strip = item.Selector.MatchLabels
			}
			e.from = append(e.from, src)
		}
		for n, generator := range resources.Generators {
			where := fmt.Sprintf("%s.generators[%d]", e.Name, n)
			t, err := replication.ParseTemplate(where, generator.Template, generator.MissingKey)
			if err != nil {
				p.add(reasonRefused, "%s: %v", where, err)
				continue
			}
			e.Templates = append(e.Templates, t)
		}
		e.context = d.context(e.Name, resources.Context, account, scopes, kinds, p)
		entries = append(entries, e)
	}
	return entries
}

// notOnce returns a field that a declaration may not have if its objects are not applied in each
// namespace, or "". Owners of tenants write the objects that templates and copies read. In the
// tenant's namespaces these objects decide about nothing else; elsewhere they would decide which
// objects the account of the declaration writes, and where.
func notOnce(r *v1beta2.Replicated) string {
	switch {
	case r.NamespaceSelector != nil:
		return "namespaceSelector"
	case len(r.NamespacedItems) > 0:
		return "namespacedItems"
	case len(r.Generators) > 0:
		return "generators"
	case r.Context != nil:
		return "context"
	}
	return ""
}

// context returns the objects that templates read.
func (d *declaration) context(name string, context *v1beta2.TemplateContext, account func(string) replication.Account, scopes []scope, kinds scopeOfKind, p *problems) []source {
	if context == nil {
		return nil
	}
	var all []source
	for n, item := range context.Resources {
		where := fmt.Sprintf("%s.context.resources[%d]", name, n)
		item.Namespace = namespaceVariable.ReplaceAllLiteralString(item.Namespace, "{{ namespace }}")
		inEach := item.Namespace == "" || item.Namespace == "{{ namespace }}"
		if inEach {
			item.Namespace = "each"
		}
		src, err := sourceOf(where, item.ObjectReference, kinds)
		if err == nil && (item.Index == "" || item.Index == "tenant" || item.Index == "namespace") {
			err = fmt.Errorf("index %q is no name for templates, or is taken", item.Index)
		}
		if err != nil {
			p.add(reasonRefused, "%s: %v", where, err)
			continue
		}
		src.index, src.inEach = item.Index, inEach
		src.reader = func(_, namespace string) replication.Account { return account(namespace) }
		if !inEach {
			src.reader = d.reader(account, scopes)
		}
		all = append(all, src)
	}
	return all
}

// namespaceVariable is the variable for the namespace that gets the objects, in a reference.
var namespaceVariable = regexp.MustCompile(`^\{\{ *[.]?namespace *\}\}$`)

// reader returns the account that reads the objects of a namespace for a target namespace. A tenant's
// objects are copied to its own namespaces only.
func (d *declaration) reader(account func(string) replication.Account, scopes []scope) func(source, namespace string) replication.Account {
	return func(source, namespace string) replication.Account {
		for s := range scopes {
			if d.perNamespace && scopes[s].has(source) && scopes[s].has(namespace) {
				return account(source)
			}
		}
		return account(namespace)
	}
}

// sourceOf parses a reference.
func sourceOf(where string, item v1beta2.ObjectReference, kinds scopeOfKind) (source, error) {
	src := source{where: where, namespace: item.Namespace, name: item.Name, optional: item.Optional == nil || *item.Optional}
	version := item.APIVersion
	if version == "" {
		version = "v1"
	}
	kind, err := kindOf(version, item.Kind)
	if err != nil {
		return src, err
	}
	src.kind = kind
	if kinds(src.kind) == replication.Cluster {
		return src, fmt.Errorf("cluster-scoped kind %s/%s is not allowed: only namespaced objects are read", version, item.Kind)
	}
	if src.namespace == "" || src.name != "" && item.Selector != nil {
		return src, fmt.Errorf("it needs a namespace, and at most one of a name and a selector")
	}
	src.variables = strings.Contains(src.namespace+src.name, "{{")
	if item.Selector != nil {
		for _, value := range item.Selector.MatchLabels {
			src.variables = src.variables || strings.Contains(value, "{{")
		}
	}
	src.labels = item.Selector.DeepCopy()
	filled, err := src.of("x", "x")
	if err != nil {
		return src, err
	}
	if strings.Contains(filled.namespace+filled.name, "{{") {
		return src, fmt.Errorf("namespace %q and name %q: only {{ tenant.name }} and {{ namespace }} can be in double braces", src.namespace, src.name)
	}
	if src.name == "" && !src.variables {
		src.selector, err = selector(item.Selector)
	}
	return src, err
}

func readCapsule(list []v1beta2.ReplicatedObject) replication.Inventory {
	var kept []replication.Kept
	for _, o := range list {
		kept = append(kept, replication.Kept{
			APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name,
			Account: replication.Account{Namespace: o.ServiceAccountNamespace, Name: o.ServiceAccount}, Namespaces: o.Namespaces,
		})
	}
	return replication.ReadInventory(kept)
}

func writeCapsule(inventory replication.Inventory) []v1beta2.ReplicatedObject {
	var list []v1beta2.ReplicatedObject
	for _, k := range inventory.List() {
		list = append(list, v1beta2.ReplicatedObject{
			APIVersion: k.APIVersion, Kind: k.Kind, Name: k.Name,
			ServiceAccount: k.Account.Name, ServiceAccountNamespace: k.Account.Namespace, Namespaces: k.Namespaces,
		})
	}
	return list
}

func byType(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) }

func join(names []string) string { return strings.Join(names, ", ") }

// each enqueues a request for each object of a list.
func each(requests *[]reconcile.Request) func(runtime.Object) error {
	return func(o runtime.Object) error {
		if object, ok := o.(client.Object); ok {
			*requests = append(*requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)})
		}
		return nil
	}
}
