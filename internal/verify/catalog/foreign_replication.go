package catalog

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForeignReplication(register func(...Attack)) {
	attack := Attack{
		ID: "I15", Via: API, Deep: true,
		Kinds:      []string{"Tenant"},
		Title:      "replicates cluster-scoped objects, objects in another tenant's namespace, or copies from another tenant's namespace",
		Controls:   []string{"the manager, which applies as the tenant's account", "RBAC"},
		References: []string{"CVE-2026-22872", "CVE-2026-65835"},
		Fix:        Fix{Advice: "replicate objects as an account of the tenant, and give this account rights in the tenant's namespaces only", Rights: true},
		Run:        replicatesElsewhere,
	}
	register(attack)
	attack.Kind, attack.Deep, attack.Kinds = "manager", false, []string{"RoleBinding"}
	attack.Title = "lets the manager impersonate the accounts of a namespace without a tenant"
	attack.Controls = []string{"policy on the namespaces in which the manager may impersonate accounts"}
	attack.Fix = Fix{Advice: "install Tenure's rules: RBAC cannot limit the namespaces in which the manager may give itself this right"}
	attack.Run = movesTheManager
	register(attack)
	attack.Kind, attack.Deep, attack.Owners = "TenantResource", true, OwnersWithin
	attack.Kinds = []string{"TenantResource"}
	attack.Title = "creates cluster-scoped objects, or objects in another tenant's namespace, with its own TenantResource"
	attack.Controls = []string{"RBAC", "the manager, which applies as the tenant's account"}
	attack.Fix = Fix{Advice: "give the tenant's role no write verb on tenantresources, or apply them as an account of the tenant", Rights: true}
	attack.Run = declaresElsewhere
	register(attack)
}

const (
	// replicated is the type of the condition of a Tenant about the replication of its objects.
	replicated = "Replicated"
	// replicationPatience is the maximum duration of each wait for the manager.
	replicationPatience = 2 * time.Minute
	// byTheManager is the control that refuses foreign targets before the manager sends a
	// request.
	byTheManager = "manager"
)

// replicator holds the objects that one attack replicates: foreign objects and the tenant's own objects.
type replicator struct {
	// first is the tenant's own object that the attack replicates alone, before all others. The manager
	// reports a refusal also while the API server does not yet know its right to impersonate the account.
	// Once this object exists, a refusal is about the foreign objects.
	first *unstructured.Unstructured
	// private is an object of another tenant that the attack tries to copy.
	private *unstructured.Unstructured
	// outside are the canaries, which must not be created.
	outside []*unstructured.Unstructured
	// own is the positive control, which must be created.
	own *unstructured.Unstructured
}

func (e *Scenario) newReplicator(id string) replicator {
	id = name(id + "-" + e.Namespace)
	secret := map[string]any{"stringData": map[string]any{"canary": "sings"}}
	return replicator{
		first:   configMap(e.Namespace, id+"-first"),
		private: object("v1", "Secret", e.Victim.Namespace, id, secret),
		outside: []*unstructured.Unstructured{
			configMap(e.Victim.Namespace, id),
			object(rbacv1.SchemeGroupVersion.String(), "ClusterRole", "", id, map[string]any{"rules": []any{}}),
			object("v1", "Secret", e.Namespace, id, nil),
		},
		own: configMap(e.Namespace, id),
	}
}

// items returns the objects that the declaration lists.
func (r replicator) items() []any {
	return []any{r.outside[0].Object, r.outside[1].Object, r.own.Object}
}

// ownNamespaceSelector returns a selector of the tenant's namespace alone.
func (e *Scenario) ownNamespaceSelector() map[string]any {
	return map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: e.Namespace}}
}

// removeReplicated deletes the remaining objects of an attack.
func (e *Scenario) removeReplicated(r replicator) {
	for _, u := range append([]*unstructured.Unstructured{r.first, r.private, r.own}, r.outside...) {
		e.remove(u)
	}
}

// cameOf returns the finding after the manager has reported on the declaration.
func (e *Scenario) cameOf(ctx context.Context, r replicator, said readiness) Finding {
	for _, u := range r.outside {
		there, err := e.exists(ctx, u)
		if err != nil {
			return notProven("cannot read the canary: " + firstLine(err.Error()))
		}
		if there {
			return gotThrough(fmt.Sprintf("the controller that replicates objects created %s %s for the tenant", u.GetKind(), keyOf(u)))
		}
	}
	if there, err := e.exists(ctx, r.own); err != nil || !there {
		return notProven("the tenant's own objects were not replicated either: " + firstLine(cmp.Or(said.message, "no controller gave a reason")))
	}
	if said.ready != metav1.ConditionFalse {
		return notProven("the foreign objects were not created, and no controller reported a refusal: " + firstLine(said.message))
	}
	control := byTheManager
	if named, known := controlOf(said.message); known {
		control += ", " + named
	}
	return stopped(control, firstLine(said.message))
}

// replicatesElsewhere adds a list to spec.objects of the tenant's Tenant, as the platform would on request
// of the tenant, and removes it again.
func replicatesElsewhere(ctx context.Context, e *Scenario) Finding {
	tenant := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	there, err := e.exists(ctx, tenant)
	if err != nil {
		return notProven("cannot read the tenant's Tenant: " + firstLine(err.Error()))
	}
	if !there {
		return e.nothingThere(ctx, notInstalled, "no Tenant "+e.Tenant.Name+" is there, for which objects would be replicated")
	}
	if err := e.Admin.Get(ctx, keyOf(tenant), tenant); err != nil {
		return notProven("cannot read the tenant's Tenant: " + firstLine(err.Error()))
	}
	r := e.newReplicator("i15")
	if err := e.Admin.Create(ctx, r.private.DeepCopy()); err != nil {
		return notProven("cannot create the object to copy: " + firstLine(err.Error()))
	}
	defer e.removeReplicated(r)
	declare := func(ctx context.Context, spec map[string]any) error {
		declared := object(tenant.GetAPIVersion(), "Tenant", "", tenant.GetName(), map[string]any{"spec": spec})
		declared.SetUID(tenant.GetUID()) // a Tenant that was deleted meanwhile is not created again
		return e.Admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(declared), client.FieldOwner("tenure-attack"))
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
		defer cancel()
		_ = declare(ctx, map[string]any{})
	}()
	objects := func(items []any, from ...any) map[string]any {
		return map[string]any{"objects": []any{map[string]any{
			"name":              name("i15"),
			"serviceAccount":    e.Account.Name,
			"namespaceSelector": e.ownNamespaceSelector(),
			"items":             items,
			"from":              append([]any{}, from...),
		}}}
	}
	if err := declare(ctx, objects([]any{r.first.Object})); err != nil {
		return notProven("cannot declare the objects to replicate: " + firstLine(err.Error()))
	}
	if _, err := e.awaitReplicatorCondition(ctx, tenant, replicated, r.first); err != nil {
		return notProven("no controller replicates objects here: " + firstLine(err.Error()))
	}
	copied := map[string]any{"apiVersion": "v1", "kind": "Secret", "namespace": r.private.GetNamespace(), "name": r.private.GetName()}
	if err := declare(ctx, objects(r.items(), copied)); err != nil {
		return notProven("cannot declare the objects to replicate: " + firstLine(err.Error()))
	}
	said, err := e.awaitReplicatorCondition(ctx, tenant, replicated, r.own)
	if err != nil {
		return notProven("no controller replicates objects here: " + firstLine(err.Error()))
	}
	return e.cameOf(ctx, r, said)
}

// awaitReplicatorCondition waits until the condition for a declaration's current generation is final and
// the tenant's own object exists. The manager reports a refusal at once, but may create the own object
// later, after the API server has processed a new right of the manager.
func (e *Scenario) awaitReplicatorCondition(ctx context.Context, u *unstructured.Unstructured, condition string, own *unstructured.Unstructured) (readiness, error) {
	var last readiness
	decided := false
	err := pollUntil(ctx, replicationPatience, func(ctx context.Context) (bool, error) {
		current := u.DeepCopy()
		if err := e.Admin.Get(ctx, keyOf(u), current); err != nil {
			return false, err
		}
		if last, decided = conditionOf(current, condition); !decided {
			return false, nil
		}
		return e.exists(ctx, own)
	})
	if decided && ctx.Err() == nil {
		return last, nil
	}
	if err != nil && last.message != "" {
		err = fmt.Errorf("%w: %s", err, last.message)
	}
	return last, err
}

// movesTheManager requests, as the manager, the right to impersonate the accounts of a foreign namespace.
// If a tenant could make the manager send this request, only this control would stop it.
func movesTheManager(ctx context.Context, e *Scenario) Finding {
	role := object(rbacv1.SchemeGroupVersion.String(), "ClusterRole", "", tenancy.ReplicatorRole, nil)
	there, err := e.exists(ctx, role)
	if err != nil {
		return notProven("cannot read the manager's roles: " + firstLine(err.Error()))
	}
	if !there {
		return e.nothingThere(ctx, notInstalled, "no controller replicates objects here: there is no ClusterRole "+role.GetName())
	}
	manager, err := e.ofPlatform(tenancy.ManagerAccount)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	binding := func(namespace string) func(*Scenario) *unstructured.Unstructured {
		return func(*Scenario) *unstructured.Unstructured {
			u := object(rbacv1.SchemeGroupVersion.String(), "RoleBinding", namespace, name("i15"), map[string]any{
				"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role.GetName()},
				"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": e.Platform, "name": tenancy.ManagerAccount}},
			})
			u.SetLabels(map[string]string{tenancy.LabelManaged: tenancy.ManagedValue})
			return u
		}
	}
	return requests(request{
		what: "have the manager act as every account of namespace " + e.Victim.Namespace, aimed: creating(binding(e.Victim.Namespace)), own: creating(binding(e.Namespace)),
	})(ctx, manager)
}

// declaresElsewhere makes a TenantResource in the tenant's namespace.
func declaresElsewhere(ctx context.Context, e *Scenario) Finding {
	r := e.newReplicator("i15-tr")
	declaring := func(id string, items ...any) *unstructured.Unstructured {
		return object("capsule.clastix.io/v1beta2", "TenantResource", e.Namespace, name(id), map[string]any{"spec": map[string]any{
			"resyncPeriod": "60s", "resources": []any{map[string]any{"namespaceSelector": e.ownNamespaceSelector(), "rawItems": items}},
		}})
	}
	first, all := declaring("i15-first", r.first.Object), declaring("i15", r.items()...)
	if err := e.tryCreate(ctx, all); err != nil {
		f := judge(err, "")
		if f.Outcome == Stopped {
			return e.withPositiveControl(ctx, f)
		}
		return f
	}
	defer e.removeReplicated(r)
	defer e.remove(first)
	defer e.remove(all)
	if err := e.create(ctx, first); err != nil {
		return judge(err, "")
	}
	if _, err := e.awaitReplicatorCondition(ctx, first, "Ready", r.first); err != nil {
		return notProven("no controller replicates objects here: " + firstLine(err.Error()))
	}
	if err := e.create(ctx, all); err != nil {
		return judge(err, "")
	}
	said, err := e.awaitReplicatorCondition(ctx, all, "Ready", r.own)
	if err != nil {
		return notProven("no controller replicates objects here: " + firstLine(err.Error()))
	}
	return e.cameOf(ctx, r, said)
}
