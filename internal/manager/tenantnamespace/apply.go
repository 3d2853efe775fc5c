package tenantnamespace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// apply writes missing and different objects, deletes obsolete objects, and sets the label
// that marks the parameters as in force.
func (r *Reconciler) apply(ctx context.Context, ns *corev1.Namespace, tenant *v1alpha1.Tenant, desired *tenancy.Objects, have *contents) (result ctrl.Result, problem, err error) {
	if have.parameters != nil && !have.parameters.DeletionTimestamp.IsZero() {
		// Another client deleted the parameters: release the objects in order, and then
		// create them again.
		result, err = r.release(ctx, ns, have)
		return result, nil, err
	}
	if err := r.releaseShares(ctx, ns, tenant, have); err != nil {
		return ctrl.Result{}, nil, err
	}
	if tenant != nil {
		var labels map[string]string
		if labels, err = r.applyMetadata(ctx, ns, desired); err == nil {
			// The label that cordoned the namespace may be gone since the parameters were computed.
			desired.Parameters.Spec.Cordoned = tenant.Spec.Cordoned || tenancy.Cordoned(labels)
		}
	} else {
		err = r.applyLevel(ctx, ns, desired)
	}
	metadata := error(nil)
	if tenant != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)) {
		metadata, err = err, nil
	}
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if err := r.applyKeys(ctx, ns.Name, desired.Keys, have); err != nil {
		return ctrl.Result{}, nil, err
	}
	value := desired.ParametersLabel(ns.Labels)
	if ns.Labels[v1alpha1.LabelParameters] == v1alpha1.ParametersWithoutDefaults && value != v1alpha1.ParametersWithoutDefaults {
		// Set the label before the objects are applied: an object that keeps failing must not
		// delay the defaults.
		if err := r.label(ctx, ns, &value); err != nil {
			return ctrl.Result{}, nil, err
		}
		ns = ns.DeepCopy()
		ns.Labels[v1alpha1.LabelParameters] = value
	}
	// Objects that the rules certainly refuse are applied once the label marks the parameters
	// as in force, since the change of the label triggers another reconciliation.
	wanted := slices.DeleteFunc(desired.List(), func(o client.Object) bool { return slices.Contains(desired.Later, o) })
	complete, ours := metadata == nil && (tenant == nil || hasShares(tenant, ns, have)), have.ours(tenant)
	if !complete {
		// The manager adds no rights before the quotas and the labels of the namespace, such as
		// the Pod Security level, are in force, but it removes obsolete rights and keeps the
		// limits. The creation of the quotas triggers the next reconciliation.
		wanted = r.onlyRemovals(wanted, have)
		ours = slices.DeleteFunc(ours, func(o client.Object) bool { return !r.givesRights(o) })
	}
	result, problem, err = r.applyAll(ctx, ns, tenant, wanted, have)
	if err != nil {
		return ctrl.Result{}, nil, err
	}
	if err := r.prune(ctx, ours, desired.List()); err != nil {
		return ctrl.Result{}, nil, err
	}
	if metadata != nil && (result.RequeueAfter == 0 || result.RequeueAfter > grace) {
		// A refusal may end without a change of the Tenant, such as one for lack of rights.
		result.RequeueAfter = grace
	}
	if !complete {
		return result, cmp.Or(metadata, problem, errWaiting), nil
	}
	if problem != nil {
		// The new parameters may not have been written, and the previous ones may have defaults.
		value = cmp.Or(ns.Labels[v1alpha1.LabelParameters], tenancy.ManagedValue)
	}
	wait, err := r.awaitPropagation(ctx, ns, have, value)
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, problem, err
}

// hasShares reports whether the namespace has its part of each Tenant quota that applies to it, and
// none of them is being deleted.
func hasShares(tenant *v1alpha1.Tenant, ns *corev1.Namespace, have *contents) bool {
	for _, q := range tenancy.QuotasOf(tenant, ns.Name, ns.Labels) {
		if q.Scope == "Namespace" {
			continue
		}
		if !slices.ContainsFunc(have.quotas, func(o *corev1.ResourceQuota) bool {
			return o.Name == tenancy.QuotaObjectName(tenant, q.Name) && isShareOf(o, tenant) && o.DeletionTimestamp.IsZero()
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

// onlyRemovals returns, of the objects that give rights, only the changes that remove rights:
// existing RoleBindings without the subjects that must no longer have the role.
func (r *Reconciler) onlyRemovals(wanted []client.Object, have *contents) []client.Object {
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
		// Change only this version of the binding: a later one may have fewer subjects.
		less.UID, less.ResourceVersion = there.UID, there.ResourceVersion
		left = append(left, less)
	}
	return left
}

// applyAll writes missing and different objects. It goes on after an object that it may not
// write, and returns the first such problem. The Tenant may be nil.
func (r *Reconciler) applyAll(ctx context.Context, ns *corev1.Namespace, tenant *v1alpha1.Tenant, wanted []client.Object, have *contents) (result ctrl.Result, problem, err error) {
	refused := false
	for _, object := range wanted {
		existing := have.find(object)
		if existing != nil && tenancy.UpToDate(existing, object) {
			continue
		}
		_, sync := object.(*unstructured.Unstructured)
		err := r.deleteOtherRole(ctx, existing, object)
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
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || (!apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !noRole(roleOf(object), err)) {
			return ctrl.Result{}, nil, fmt.Errorf("cannot apply %s %s/%s: %w", kind, ns.Name, object.GetName(), err)
		}
		if sync {
			if wait := r.refusalDelay(ns); wait > 0 {
				result.RequeueAfter = wait
				continue
			}
		}
		refused = refused || kind != "RoleBinding"
		if problem == nil {
			problem = cmp.Or(ExplainUnlabelled(existing, object, err), explain(tenant, object, err))
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

// refusalDelay returns the requeue delay for a source that was refused although the rules allow it,
// because the API server may not enforce the current parameters yet. It returns zero once
// [grace] is over.
func (r *Reconciler) refusalDelay(ns *corev1.Namespace) time.Duration {
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; !labelled {
		// The namespace's own parameters are not in force yet, and may allow the source.
		return propagationDelay
	}
	if r.Now().Sub(r.refused.first(ns.Name, r.Now())) < grace {
		return propagationDelay / 4
	}
	return 0
}

// explain returns an error that tells how to fix a refused object.
func explain(tenant *v1alpha1.Tenant, object client.Object, err error) error {
	if b, ok := object.(*rbacv1.RoleBinding); ok {
		if problem := ExplainBinding(b.RoleRef.Name, err); problem != nil {
			return problem
		}
	}
	field := ""
	if path := tenancy.FieldOf(tenant, object); path != "" {
		field = " of " + path
	}
	return fmt.Errorf("cannot apply %s %s/%s%s: %w", object.GetObjectKind().GroupVersionKind().Kind, object.GetNamespace(), object.GetName(), field, err)
}

// ExplainBinding returns an error that tells how to fix a binding to a role that the API server refused because
// the manager may not bind the role, or because the role does not exist. It returns nil for other errors.
func ExplainBinding(role string, err error) error {
	switch {
	case noRole(role, err):
		return fmt.Errorf("there is no ClusterRole %s: create it, and allow the manager to bind it with a ClusterRole that has the label %s: \"true\" and may bind it", role, LabelBindable)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the manager may not bind the role %s: allow it with a ClusterRole that has the label %s: \"true\" and may bind it", role, LabelBindable)
	}
	return nil
}

// ExplainUnlabelled returns an error that tells how to fix an object that the API server refused because it exists
// without the manager's label, for example after `kubectl replace`: the rule about the manager's own requests protects
// objects of others. It returns nil for other errors. existing is nil if the object does not exist.
func ExplainUnlabelled(existing, object client.Object, err error) error {
	if existing == nil || !apierrors.IsForbidden(err) || existing.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
		return nil
	}
	name := client.ObjectKeyFromObject(object).String()
	return fmt.Errorf("%s %s exists without the label %s=%s, so the manager may not change it: delete it, or give it the label",
		object.GetObjectKind().GroupVersionKind().Kind, strings.TrimPrefix(name, "/"), tenancy.LabelManaged, tenancy.ManagedValue)
}

// noRole reports whether the API server refused a binding because its role does not exist. The API server
// reads the role if the manager may not bind it by name. The error names the role, and the kind of the binding.
func noRole(role string, err error) bool {
	var status apierrors.APIStatus
	if role == "" || !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Group == rbacv1.GroupName && details.Name == role
}

// roleOf returns the role of a RoleBinding, or "" for another object.
func roleOf(object client.Object) string {
	if b, ok := object.(*rbacv1.RoleBinding); ok {
		return b.RoleRef.Name
	}
	return ""
}

// deleteOtherRole deletes a binding with the manager's name for it and another role, since the role of
// a binding cannot be changed.
func (r *Reconciler) deleteOtherRole(ctx context.Context, existing, wanted client.Object) error {
	have, ok1 := existing.(*rbacv1.RoleBinding)
	want, ok2 := wanted.(*rbacv1.RoleBinding)
	if !ok1 || !ok2 || have.RoleRef == want.RoleRef || !tenancy.MadeBinding(want.Name) {
		return nil
	}
	uid := have.UID
	return client.IgnoreNotFound(r.Client.Delete(ctx, have.DeepCopy(), client.Preconditions{UID: &uid}))
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
// ones that the manager set and the Tenant no longer has. It returns the labels that the namespace then has.
func (r *Reconciler) applyMetadata(ctx context.Context, ns *corev1.Namespace, desired *tenancy.Objects) (map[string]string, error) {
	labels, labelsKnown := changes(ns.Labels, desired.Labels, owned(ns, "f:labels"))
	annotations, annotationsKnown := changes(ns.Annotations, desired.Annotations, owned(ns, "f:annotations"))
	result := ns.Labels
	if len(labels)+len(annotations) > 0 {
		changed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
		patch := mergePatch(ns, map[string]any{"labels": labels, "annotations": annotations})
		if err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(FieldManager)); err != nil {
			return nil, fmt.Errorf("cannot remove labels and annotations from namespace %s: %w", ns.Name, err)
		}
		result = changed.Labels
	}
	if labelsKnown && annotationsKnown && len(labels)+len(annotations) == 0 {
		return result, nil
	}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(ns.Name)
	u.SetUID(ns.UID) // do not change a new namespace of the same name
	u.SetLabels(desired.Labels)
	if len(desired.Annotations) > 0 {
		u.SetAnnotations(desired.Annotations)
	}
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("cannot label namespace %s: %w", ns.Name, err)
	}
	return u.GetLabels(), nil
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

// applyObject writes an object by server-side apply. It creates, rather than applies, a
// service account that the cache does not show: the fleet may just have created an account
// with this name, and an apply would make it the manager's.
func (r *Reconciler) applyObject(ctx context.Context, existing, object client.Object) error {
	if account, ok := object.(*corev1.ServiceAccount); ok && existing == nil {
		return r.Client.Create(ctx, account.DeepCopy(), client.FieldOwner(FieldManager))
	}
	err := Apply(ctx, r.Client, object)
	wanted, ok := object.(*v1alpha1.TenantParameters)
	had, exists := existing.(*v1alpha1.TenantParameters)
	if !ok || !exists || !apierrors.IsInvalid(err) {
		return err
	}
	// An apply that takes the last field out of an object within a custom resource makes this
	// object null, which the schema refuses. Limits that allow nothing are such an object.
	return replaceSpec(ctx, r.Client, had, wanted)
}

// replaceSpec writes the spec of parameters as a whole, if nobody changed them since they were
// read.
func replaceSpec(ctx context.Context, c client.Client, had, wanted *v1alpha1.TenantParameters) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": had.ResourceVersion},
		{"op": "replace", "path": "/spec", "value": wanted.Spec},
	})
	if err != nil {
		return err
	}
	return c.Patch(ctx, had.DeepCopy(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldManager))
}

// Apply writes an object of the manager's by server-side apply. An apply keeps the fields of other field managers, such
// as a label that `kubectl edit` added to a selector. So Apply then replaces the fields that still differ. It returns an error if the object cannot be encoded, a conflict if another client changed the object
// meanwhile, or the API server's error.
func Apply(ctx context.Context, c client.Client, object client.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	// The manager does not set these fields.
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	delete(u.Object, "status")
	applied := u.DeepCopy()
	// Apply writes the answer of the API server into applied.
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
		return err
	}
	return removeForeign(ctx, c, applied, u, object)
}

// removeForeign writes the fields of spec in which an applied object differs from the wanted one.
func removeForeign(ctx context.Context, c client.Client, applied, want *unstructured.Unstructured, object client.Object) error {
	existing := client.Object(applied)
	if _, untyped := object.(*unstructured.Unstructured); !untyped {
		existing, _ = reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(applied.Object, existing); err != nil {
			return err
		}
	}
	operations := differences(applied, want)
	if len(operations) == 0 || tenancy.UpToDate(existing, object) {
		return nil
	}
	// The API server answers with a conflict if the object has another version.
	operations = append(operations, operation{Op: "replace", Path: "/metadata/resourceVersion", Value: applied.GetResourceVersion()})
	patch, err := json.Marshal(operations)
	if err != nil {
		return err
	}
	return c.Patch(ctx, applied, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldManager))
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// differences returns the operations that replace the fields of spec that the manager writes and that differ.
func differences(have, want *unstructured.Unstructured) []operation {
	is, ok := have.Object["spec"].(map[string]any)
	should, wanted := want.Object["spec"].(map[string]any)
	if !ok || !wanted {
		return nil
	}
	fields, some := tenancy.WrittenFields(want.GetKind())
	if !some {
		return []operation{{Op: "replace", Path: "/spec", Value: should}}
	}
	var operations []operation
	for _, field := range fields {
		value, set := should[field]
		if equality.Semantic.DeepEqual(is[field], value) {
			continue
		}
		o := operation{Op: "add", Path: "/spec/" + field, Value: value}
		if !set {
			o = operation{Op: "remove", Path: o.Path}
		}
		operations = append(operations, o)
	}
	return operations
}

// prune deletes the objects that are not kept. It does not delete an object that another
// field manager applies too, but removes the manager's label from it.
func (r *Reconciler) prune(ctx context.Context, ours, kept []client.Object) error {
	wanted := map[key]bool{}
	for _, object := range kept {
		wanted[keyOf(object)] = true
	}
	for _, object := range ours {
		if wanted[keyOf(object)] || !object.GetDeletionTimestamp().IsZero() {
			continue
		}
		if err := r.remove(ctx, object); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot remove %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
		}
	}
	return nil
}

func (r *Reconciler) remove(ctx context.Context, object client.Object) error {
	if isShare(object) {
		return ReleaseQuota(ctx, r.Client, object, true)
	}
	if shared(object) {
		patch := mergePatch(object, map[string]any{
			"resourceVersion": object.GetResourceVersion(),
			"labels":          map[string]any{tenancy.LabelManaged: nil},
		})
		return r.Client.Patch(ctx, object.DeepCopyObject().(client.Object), patch, client.FieldOwner(FieldManager))
	}
	// The preconditions protect an object that changed since it was read: it may
	// have another owner now.
	uid, version := object.GetUID(), object.GetResourceVersion()
	return r.Client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
}

// shared reports whether another field manager also applies the object.
func shared(object client.Object) bool {
	for _, m := range object.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Manager != FieldManager {
			return true
		}
	}
	return false
}

// mergePatch changes an object's metadata if it is still the same object.
func mergePatch(object client.Object, metadata map[string]any) client.Patch {
	metadata["uid"] = object.GetUID()
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // only for types that JSON does not know
	}
	return client.RawPatch(types.MergePatchType, patch)
}

// awaitPropagation sets the label that marks the parameters as in force to a value once they have existed
// for [propagationDelay]. It returns the remaining time. Of the values that the label already has, it changes
// only the manager's.
func (r *Reconciler) awaitPropagation(ctx context.Context, ns *corev1.Namespace, have *contents, value string) (time.Duration, error) {
	if current, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled {
		r.unlabelled.forget(ns.Name)
		if current != tenancy.ManagedValue && current != v1alpha1.ParametersWithoutDefaults {
			return 0, nil // a value of the platform's manifests, which Flux would write again
		}
		return 0, r.label(ctx, ns, &value)
	}
	if have.parameters == nil {
		return propagationDelay, nil
	}
	if wait := have.parameters.CreationTimestamp.Add(stamp + propagationDelay).Sub(r.Now()); wait > 0 {
		return wait, nil
	}
	return 0, r.label(ctx, ns, &value)
}

// label sets the label that names the parameters in force or, for nil, removes it. It does not
// change a new namespace of the same name.
func (r *Reconciler) label(ctx context.Context, ns *corev1.Namespace, value *string) error {
	if have, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled == (value != nil) && (value == nil || have == *value) {
		return nil
	}
	patch := mergePatch(ns, map[string]any{"labels": map[string]any{v1alpha1.LabelParameters: value}})
	if err := r.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, patch, client.FieldOwner(FieldManager)); err != nil {
		return fmt.Errorf("cannot change label %s of namespace %s: %w", v1alpha1.LabelParameters, ns.Name, err)
	}
	return nil
}
