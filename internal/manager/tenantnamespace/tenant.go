package tenantnamespace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// LabelBindable on a ClusterRole adds its rules to the manager's rights. With it, a
	// platform admin allows the manager to bind more roles.
	LabelBindable = "rbac.tenure.dev/aggregate-to-manager"
	// IndexTenant finds namespaces by [v1alpha1.LabelTenant].
	IndexTenant = "tenant"
	// IndexOwnerNamespace is the name of the index of Tenants by the namespaces of the
	// service accounts that own them.
	IndexOwnerNamespace = "ownerNamespace"
	// retryInterval is the retry interval for an operation that a person must allow first.
	retryInterval = time.Minute
	// grace is the time that the API server may take to enforce new parameters; until then a
	// refused source is not reported as a problem.
	grace = 10 * time.Second
)

// errWaiting says that a namespace has no part of the tenant's quota yet.
var errWaiting = errors.New("waits for its part of the tenant's quota")

// syncKinds are the kinds of a Tenant's sync.
var syncKinds = []schema.GroupVersionKind{tenancy.GitRepositoryKind, tenancy.OCIRepositoryKind, tenancy.KustomizationKind}

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
		return nil, fmt.Errorf("cannot read whose owners live in namespace %s: %w", namespace, err)
	}
	return tenancy.OwnerAccounts(owned.Items, namespace), nil
}

// platformWorkloads returns the workloads of a namespace that syncs of the platform applied.
func (r *Reconciler) platformWorkloads(ctx context.Context, ns *corev1.Namespace, profile *v1alpha1.TenancyProfileSpec) ([]string, error) {
	var objects []metav1.PartialObjectMetadata
	for _, kind := range tenancy.WorkloadKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := r.Client.List(ctx, list, client.InNamespace(ns.Name)); err != nil {
			return nil, fmt.Errorf("cannot read the workloads of kind %s in namespace %s: %w", kind.Kind, ns.Name, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
		}
		objects = append(objects, list.Items...)
	}
	workloads := tenancy.PlatformWorkloads(objects, profile)
	if len(workloads) <= tenancy.MaxPlatformWorkloads {
		return workloads, nil
	}
	r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "TooManyWorkloads", "Reconcile",
		"the platform has %d workloads in the tenant's namespace, and the first %d of them are protected from requests to scale, evict or enter: move some to a namespace of the platform's",
		len(workloads), tenancy.MaxPlatformWorkloads)
	return workloads[:tenancy.MaxPlatformWorkloads], nil
}

func (r *Reconciler) report(tenant *v1alpha1.Tenant, ns *corev1.Namespace, problem error) {
	if tenant == nil {
		r.Reports.Forget(ns.Name)
		return
	}
	r.Reports.Report(tenant, ns.Name, problem)
}

// hasShares reports whether the namespace has its part of each of the Tenant's quotas, and
// none of them is being deleted.
func hasShares(tenant *v1alpha1.Tenant, have *contents) bool {
	for _, q := range tenant.Spec.Quotas {
		if q.Scope == "Namespace" {
			continue
		}
		if !slices.ContainsFunc(have.quotas, func(o *corev1.ResourceQuota) bool {
			return o.Name == tenancy.QuotaObjectName(q.Name) && isShareOf(o, tenant) && o.DeletionTimestamp.IsZero()
		}) {
			return false
		}
	}
	return true
}

// givesRights reports whether an object gives rights. The manager's own right to delete the
// namespace is an exception: a Tenant that is deleted before its quotas exist never gets
// them.
func (r *Reconciler) givesRights(o client.Object) bool {
	switch o := o.(type) {
	case *rbacv1.RoleBinding:
		return o.RoleRef.Name != tenancy.DeleterRole || !slices.Equal(o.Subjects, []rbacv1.Subject{r.Manager})
	case *corev1.ServiceAccount, *unstructured.Unstructured:
		return true
	}
	return false
}

// narrowed returns, of the objects that give rights, only the changes that remove rights:
// existing RoleBindings without the subjects that must no longer have the role.
func (r *Reconciler) narrowed(wanted []client.Object, have *contents) []client.Object {
	var left []client.Object
	for _, object := range wanted {
		if !r.givesRights(object) {
			left = append(left, object)
			continue
		}
		want, ok1 := object.(*rbacv1.RoleBinding)
		there, ok2 := have.find(object).(*rbacv1.RoleBinding)
		if !ok1 || !ok2 || there.RoleRef != want.RoleRef {
			continue
		}
		less := want.DeepCopy()
		less.Subjects = slices.DeleteFunc(less.Subjects, func(s rbacv1.Subject) bool { return !slices.Contains(there.Subjects, s) })
		// Not what came after it, which may have fewer subjects.
		less.UID, less.ResourceVersion = there.UID, there.ResourceVersion
		left = append(left, less)
	}
	return left
}

// applyAll writes missing and different objects. It goes on after an object that it may not
// write, and returns the first such problem.
func (r *Reconciler) applyAll(ctx context.Context, ns *corev1.Namespace, wanted []client.Object, have *contents) (result ctrl.Result, problem, err error) {
	refused := false
	for _, object := range wanted {
		existing := have.find(object)
		if existing != nil && tenancy.UpToDate(existing, object) {
			continue
		}
		_, sync := object.(*unstructured.Unstructured)
		err := r.makeWay(ctx, existing, object)
		if err == nil {
			err = r.applyObject(ctx, existing, object)
		}
		if err == nil {
			if _, rules := object.(*v1alpha1.TenantParameters); rules {
				// The rules have changed, so earlier refusals do not count.
				r.refused.forget(ns.Name)
			}
			continue
		}
		kind := object.GetObjectKind().GroupVersionKind().Kind
		if sync && unserved(err) {
			// The other objects of the namespace do not depend on Flux.
			problem = cmp.Or(problem, fmt.Errorf("cannot apply %s %s/%s before Flux is installed: %w", kind, ns.Name, object.GetName(), err))
			continue
		}
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err)) {
			return ctrl.Result{}, nil, fmt.Errorf("cannot apply %s %s/%s: %w", kind, ns.Name, object.GetName(), err)
		}
		if sync {
			if wait := r.early(ns); wait > 0 {
				result.RequeueAfter = wait
				continue
			}
		}
		refused = refused || kind != "RoleBinding"
		if problem == nil {
			problem = explain(object, err)
		}
	}
	if !refused && result.RequeueAfter == 0 {
		r.refused.forget(ns.Name)
	}
	if problem != nil && result.RequeueAfter == 0 {
		result.RequeueAfter = retryInterval
	}
	return result, problem, nil
}

// unserved reports whether an object was not applied because the cluster does not serve its
// kind, or no longer serves it, which the client's discovery cache does not show yet.
func unserved(err error) bool {
	if apimeta.IsNoMatchError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Kind != "namespaces"
}

// early returns the requeue delay for a source that was refused although the rules allow it,
// because the API server may not enforce the current parameters yet. It returns zero once
// [grace] is over.
func (r *Reconciler) early(ns *corev1.Namespace) time.Duration {
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; !labelled {
		// Its own parameters will decide.
		return propagationDelay
	}
	if r.Now().Sub(r.refused.first(ns.Name, r.Now())) < grace {
		return propagationDelay / 4
	}
	return 0
}

// explain returns an error that tells how to fix a refused object.
func explain(object client.Object, err error) error {
	if b, ok := object.(*rbacv1.RoleBinding); ok && apierrors.IsForbidden(err) {
		return fmt.Errorf("the manager may not give the role %s: allow it with a ClusterRole that has the label %s: \"true\" and may bind it", b.RoleRef.Name, LabelBindable)
	}
	return fmt.Errorf("cannot apply %s %s/%s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace(), object.GetName(), err)
}

// makeWay deletes a binding with the manager's name for it and another role, since the role of
// a binding cannot be changed.
func (r *Reconciler) makeWay(ctx context.Context, existing, wanted client.Object) error {
	have, ok1 := existing.(*rbacv1.RoleBinding)
	want, ok2 := wanted.(*rbacv1.RoleBinding)
	if !ok1 || !ok2 || have.RoleRef == want.RoleRef || !strings.HasPrefix(want.Name, tenancy.RBACPrefix) {
		return nil
	}
	uid := have.UID
	return client.IgnoreNotFound(r.Client.Delete(ctx, have.DeepCopy(), client.Preconditions{UID: &uid}))
}

// leave prepares the deletion of a Tenant: it ends deliveries to the namespace, and gives the
// manager the right to delete it.
func (r *Reconciler) leave(ctx context.Context, desired *tenancy.Objects, have *contents) error {
	if err := r.stop(ctx, have); err != nil {
		return err
	}
	for _, object := range desired.Bindings {
		existing := have.find(object)
		if object.GetName() != tenancy.OffboardingBinding || existing != nil && tenancy.UpToDate(existing, object) {
			continue
		}
		if err := r.applyObject(ctx, existing, object); err != nil {
			return fmt.Errorf("cannot apply RoleBinding %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
	}
	return nil
}

// stop ends the deliveries of a tenant that is being deleted. The deletion of the namespaces
// deletes the delivered objects. stop keeps Flux from pruning them at the same time, with an
// account that is deleted too.
func (r *Reconciler) stop(ctx context.Context, have *contents) error {
	for _, o := range have.syncs {
		if o.GetLabels()[tenancy.LabelManaged] != tenancy.ManagedValue || o.GetKind() != tenancy.KustomizationKind.Kind {
			continue
		}
		if prune, _, _ := unstructured.NestedBool(o.Object, "spec", "prune"); !prune {
			continue
		}
		// The UID protects a new object with the same name. A resource version would
		// make the deletion fail after each change.
		uid := o.GetUID()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"prune":false,"suspend":true}}`, uid))
		if err := r.Client.Patch(ctx, o.DeepCopy(), patch, client.FieldOwner(FieldManager)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot stop Kustomization %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
		if err := r.Client.Delete(ctx, o.DeepCopy(), client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot remove Kustomization %s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

// podSecurityLabel is the label with the Pod Security level of a namespace.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// applyLevel sets the Pod Security level of a namespace without a Tenant object. It does
// not change the namespace's other labels.
func (r *Reconciler) applyLevel(ctx context.Context, ns *corev1.Namespace, desired *tenancy.Objects) error {
	if holds(ns.Labels, desired.Labels) {
		return nil
	}
	if before, given := ns.Labels[podSecurityLabel]; given {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "PodSecurityLevel", "Reconcile",
			"a tenant's namespace has the Pod Security level %s and not %q; if that is meant, exempt Namespace %s from rule %s in the TenancyProfile, or give the tenant a Tenant with spec.namespaces.podSecurity",
			desired.Labels[podSecurityLabel], before, ns.Name, tenancy.PodSecurityExemption)
	}
	patch := mergePatch(ns, map[string]any{"labels": desired.Labels})
	if err := r.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot give namespace %s its Pod Security level: %w", ns.Name, err)
	}
	return nil
}

// applyMetadata sets the Tenant's labels and annotations on its namespace, and removes the
// ones that the manager set and the Tenant no longer has.
func (r *Reconciler) applyMetadata(ctx context.Context, ns *corev1.Namespace, desired *tenancy.Objects) error {
	labels, labelsKnown := changes(ns.Labels, desired.Labels, owned(ns, "f:labels"))
	annotations, annotationsKnown := changes(ns.Annotations, desired.Annotations, owned(ns, "f:annotations"))
	if len(labels)+len(annotations) > 0 {
		patch := mergePatch(ns, map[string]any{"labels": labels, "annotations": annotations})
		if err := r.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, patch, client.FieldOwner(FieldManager)); err != nil {
			return fmt.Errorf("cannot take labels off namespace %s: %w", ns.Name, err)
		}
	}
	if labelsKnown && annotationsKnown && len(labels)+len(annotations) == 0 {
		return nil
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(ns.Name)
	u.SetUID(ns.UID) // not one that came after it
	u.SetLabels(desired.Labels)
	if len(desired.Annotations) > 0 {
		u.SetAnnotations(desired.Annotations)
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("cannot label namespace %s: %w", ns.Name, err)
	}
	return nil
}

// changes returns the removals, as a merge patch, and whether the namespace has all wanted
// values and the manager owns them.
func changes(have, want map[string]string, owned map[string]bool) (off map[string]any, known bool) {
	off, known = map[string]any{}, holds(have, want)
	for name := range owned {
		if name == corev1.LabelMetadataName {
			// Kubernetes set it when the manager created the namespace, and would
			// set it again.
			continue
		}
		if _, wanted := want[name]; !wanted && !strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") {
			if _, there := have[name]; there {
				off[name] = nil
			}
		}
	}
	for name := range want {
		known = known && owned[name]
	}
	return off, known
}

func holds(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
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
