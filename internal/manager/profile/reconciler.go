// Package profile writes the status of the TenancyProfile: whether the profile is in force
// in all namespaces of tenants.
package profile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConditionReady is the type of the condition that reports whether the profile is in force.
const ConditionReady = "Ready"

// Reasons of the condition.
const (
	// ReasonInForce: the policies read this version of the profile in all namespaces.
	ReasonInForce = "InForce"
	// ReasonProgressing: some namespaces still have parameters of an older version.
	ReasonProgressing = "Progressing"
	// ReasonFailed: the manager could not update the parameters of some namespaces.
	ReasonFailed = "Failed"
	// ReasonInvalid: the profile is not valid; the last valid version stays in force.
	ReasonInvalid = "Invalid"
)

// Reconciler writes the status of the TenancyProfile.
type Reconciler struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
	// Read decodes and validates the profile. It returns [tenancy.ErrInvalid] if the profile
	// is not valid.
	Read func(*unstructured.Unstructured) (*v1alpha1.TenancyProfile, error)
	// Failures are the namespaces whose parameters could not be updated.
	Failures *Failures
	// Count publishes the counts as metrics.
	Count func(Counts)

	// took is the duration of the last count of all namespaces, in nanoseconds.
	took atomic.Int64
}

// Counts are the numbers of tenants and of their namespaces.
type Counts struct {
	// Tenants is the number of tenants, and Namespaces the number of all their namespaces.
	// The profile is in force in InForce namespaces; the parameters of Failed namespaces
	// could not be updated.
	Tenants, Namespaces, InForce, Failed int
	// Valid is true if the cluster has a valid profile.
	Valid bool
}

// Reconcile counts the namespaces in which the profile is in force and writes the status if
// it changed. It returns an error if it cannot read the cache or write the status.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TenancyProfile"))
	err := r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, current)
	if apierrors.IsNotFound(err) {
		r.Count(Counts{})
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("cannot read the TenancyProfile: %w", err)
	}
	condition, err := r.condition(ctx, current)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.write(ctx, current, condition)
}

// condition returns the condition Ready for the current profile, and publishes the counts.
func (r *Reconciler) condition(ctx context.Context, current *unstructured.Unstructured) (metav1.Condition, error) {
	c := metav1.Condition{Type: ConditionReady, ObservedGeneration: current.GetGeneration()}
	profile, err := r.Read(current)
	if errors.Is(err, tenancy.ErrInvalid) {
		r.Count(Counts{})
		c.Status, c.Reason = metav1.ConditionFalse, ReasonInvalid
		c.Message = err.Error() + "; in namespaces with parameters, the earlier profile stays in force"
		return c, nil
	}
	if err != nil {
		return c, err
	}
	began := time.Now()
	counts, err := r.look(ctx, profile)
	r.took.Store(int64(time.Since(began)))
	if err != nil {
		return c, err
	}
	r.Count(counts)
	c.Status, c.Reason, c.Message = summary(counts, r.Failures.first())
	return c, nil
}

// look counts tenants and namespaces. In a namespace without the label of parameters, the
// policies read the profile itself, so a new version is in force there at once.
func (r *Reconciler) look(ctx context.Context, profile *v1alpha1.TenancyProfile) (Counts, error) {
	var namespaces corev1.NamespaceList
	var parameters v1alpha1.TenantParametersList
	var objects v1alpha1.TenantList
	for _, list := range []client.ObjectList{&namespaces, &parameters, &objects} {
		// look does not change the objects, so the cache need not copy them.
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return Counts{}, fmt.Errorf("cannot find the namespaces in which the TenancyProfile is in force: %w", err)
		}
	}
	credentials, err := r.credentials(ctx)
	if err != nil {
		return Counts{}, err
	}
	specs := map[string]v1alpha1.TenantParametersSpec{}
	for _, p := range parameters.Items {
		specs[p.Namespace] = p.Spec
	}
	wanted := map[string]v1alpha1.TenantParametersSpec{}
	for i := range objects.Items {
		wanted[objects.Items[i].Name] = tenancy.Parameters(objects.Items[i].Name, &objects.Items[i], profile)
	}
	counts := Counts{Valid: true}
	tenants := map[string]bool{}
	for _, ns := range namespaces.Items {
		tenant, ok := tenancy.TenantOf(ns.Labels)
		if !ok || !ns.DeletionTimestamp.IsZero() {
			continue
		}
		tenants[tenant] = true
		counts.Namespaces++
		want, ok := wanted[ns.Labels[v1alpha1.LabelTenant]]
		if !ok {
			want = tenancy.Parameters(tenant, nil, profile)
		}
		want = tenancy.CredentialsIn(ns.Name, credentials[ns.Name]).Allow(want)
		want.Exemptions = tenancy.Exemptions(ns.Name, profile)
		want.Cordoned = want.Cordoned || tenancy.Cordoned(ns.Labels)
		spec, found := specs[ns.Name]
		// These fields do not come from the profile.
		want.OwnerAccounts, want.SelectedClasses = spec.OwnerAccounts, spec.SelectedClasses
		want.PlatformWorkloads, want.PlatformSelectors = spec.PlatformWorkloads, spec.PlatformSelectors
		_, labelled := ns.Labels[v1alpha1.LabelParameters]
		switch {
		case r.Failures.has(ns.Name):
			counts.Failed++
		case !labelled || (found && equality.Semantic.DeepEqual(spec, want)):
			counts.InForce++
		}
	}
	counts.Tenants = len(tenants)
	return counts, nil
}

// credentials returns, by namespace, the RoleBindings that record which kubeconfigs the
// manager keeps there.
func (r *Reconciler) credentials(ctx context.Context) (map[string][]*rbacv1.RoleBinding, error) {
	var bindings rbacv1.RoleBindingList
	if err := r.Client.List(ctx, &bindings, client.MatchingFields{indexCredentials: "true"}); err != nil {
		return nil, fmt.Errorf("cannot see where credentials are: %w", err)
	}
	found := map[string][]*rbacv1.RoleBinding{}
	for i := range bindings.Items {
		b := &bindings.Items[i]
		found[b.Namespace] = append(found[b.Namespace], b)
	}
	return found, nil
}

// summary returns the condition's status, reason and message.
func summary(c Counts, failure string) (metav1.ConditionStatus, string, string) {
	switch {
	case c.Failed > 0:
		return metav1.ConditionFalse, ReasonFailed, fmt.Sprintf("in force in %d of %s; %s", c.InForce, namespaces(c.Namespaces), failure)
	case c.InForce < c.Namespaces:
		return metav1.ConditionUnknown, ReasonProgressing, fmt.Sprintf("in force in %d of %s", c.InForce, namespaces(c.Namespaces))
	case c.Namespaces == 0:
		return metav1.ConditionTrue, ReasonInForce, "in force; no namespace is a tenant's yet"
	}
	return metav1.ConditionTrue, ReasonInForce, fmt.Sprintf("in force in %s of %s", namespaces(c.Namespaces), plural(c.Tenants, "tenant"))
}

func namespaces(n int) string { return plural(n, "namespace") }

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// write patches the status if it changed.
func (r *Reconciler) write(ctx context.Context, current *unstructured.Unstructured, c metav1.Condition) error {
	var status v1alpha1.TenancyProfileStatus
	if content, ok, _ := unstructured.NestedMap(current.Object, "status"); ok {
		// A status that cannot be decoded is replaced.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status)
	}
	before := status.DeepCopy()
	apimeta.SetStatusCondition(&status.Conditions, c)
	status.ObservedGeneration = current.GetGeneration()
	if equality.Semantic.DeepEqual(before, &status) {
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return fmt.Errorf("cannot write the status of the TenancyProfile: %w", err)
	}
	changed := current.DeepCopy()
	changed.Object["status"] = content
	err = r.Client.Status().Patch(ctx, changed, client.MergeFrom(current))
	if err != nil {
		return fmt.Errorf("cannot write the status of the TenancyProfile: %w", err)
	}
	return nil
}

// Failures stores the namespaces whose parameters could not be updated, each with the
// reason. The zero value is ready to use. It is safe for concurrent use.
type Failures struct {
	// Changed, if set, is called when a failure is added, changed or removed.
	Changed func()

	mu      sync.Mutex
	reasons map[string]string
}

// Set stores the error of a namespace, or removes it if err is nil.
func (f *Failures) Set(namespace string, err error) {
	f.mu.Lock()
	before := f.reasons[namespace]
	after := ""
	if err != nil {
		after = err.Error()
	}
	switch {
	case after == "":
		delete(f.reasons, namespace)
	case f.reasons == nil:
		f.reasons = map[string]string{namespace: after}
	default:
		f.reasons[namespace] = after
	}
	f.mu.Unlock()
	if before != after && f.Changed != nil {
		f.Changed()
	}
}

func (f *Failures) has(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reasons[namespace] != ""
}

// first returns the reason of the first failed namespace in the order of names, so that the
// condition's message does not change between reconciliations.
func (f *Failures) first() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, namespace := range slices.Sorted(maps.Keys(f.reasons)) {
		return f.reasons[namespace]
	}
	return ""
}
