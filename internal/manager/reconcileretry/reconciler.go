package reconcileretry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/failureevents"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// first is the delay between the write of a RoleBinding and the first retry: the API
	// server learns of new RoleBindings, and of a tenant's parameters, by a watch.
	first = 2 * time.Second
	// grace is the time after the write of a RoleBinding in which a failure may still be
	// caused by the missing rights.
	grace = 10 * time.Second
	// forbidden is part of the API server's message when it refuses a request, because of
	// missing rights or an admission rule.
	forbidden = "is forbidden"

	// quotaUnknown is part of the API server's message when it refuses an object because a quota
	// counts its kind and kube-controller-manager has not counted yet. It looks for new kinds every
	// 30 s, so this happens after the CRDs of Flux have been created.
	quotaUnknown = "status unknown for quota"
	// quotaDelay is the time between the attempts of an object that is refused for such a quota.
	quotaDelay = 5 * time.Second
	// quotaGrace is the age up to which an object is retried for such a quota.
	quotaGrace = time.Minute
)

// Reconciler retries objects of one kind that failed because the API server did not yet know
// the rights that the manager or the fleet had given their accounts, or because Kubernetes had
// not yet counted for a quota: it requests a reconciliation from Flux. Without it, Flux would
// retry at the object's next interval, which may be an hour away.
//
// It has no state of its own. The RoleBindings hold the time at which the rights were given,
// and the object holds the time of its creation, of its last attempt and the last request that
// Flux handled.
// So a restarted manager, or another replica, finds the objects to retry and does not
// request the same retry twice.
type Reconciler struct {
	// Kind is [failureevents.Kustomization] or [failureevents.HelmRelease].
	Kind schema.GroupVersionKind
	// Client reads from a cache, with the index of [failureevents.Index], and writes to the
	// API server.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Profiles reads the profile, which lists the platform's namespaces and delegated syncs.
	Profiles failureevents.Profiles
	// Now returns the current time.
	Now func() time.Time
}

// Reconcile requests a reconciliation of one object from Flux when it is due. It returns an
// error if it cannot read the object, the RoleBindings of its account or the profile, or
// cannot write the request.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	// The cached object lacks fields and may be outdated. So the API server is asked, right
	// before the request, whether the object is suspended or already has a request.
	for _, from := range []client.Reader{r.Client, r.APIReader} {
		u := failureevents.Object(r.Kind)
		if err := from.Get(ctx, request.NamespacedName, u); err != nil {
			if apierrors.IsNotFound(err) {
				return ctrl.Result{}, nil
			}
			return ctrl.Result{}, fmt.Errorf("cannot read %s %s: %w", r.Kind.Kind, request, err)
		}
		at, err := r.due(ctx, u)
		if err != nil {
			return ctrl.Result{}, err
		}
		if at.IsZero() {
			return ctrl.Result{}, nil
		}
		if wait := at.Sub(r.Now()); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		if from == r.APIReader {
			return ctrl.Result{}, Request(ctx, r.Client, u, r.Now())
		}
	}
	return ctrl.Result{}, nil
}

// due returns the time of the next retry of an object, or the zero time if it needs none.
func (r *Reconciler) due(ctx context.Context, u *unstructured.Unstructured) (time.Time, error) {
	if !retriable(u) {
		return time.Time{}, nil
	}
	if strings.Contains(failureevents.Condition(u, "Ready")["message"], quotaUnknown) {
		return dueForQuota(u), nil
	}
	given, err := r.rightsGivenAt(ctx, u)
	return dueForRights(u, given), err
}

// retriable reports whether the API server refused the last attempt of an object, and Flux would
// handle a request.
func retriable(u *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	asked := u.GetAnnotations()[Annotation]
	waits := asked != "" && asked != handled(u)
	return refused(u) && u.GetDeletionTimestamp().IsZero() && !suspended && !waits
}

// handled returns the last request that Flux handled.
func handled(u *unstructured.Unstructured) string {
	heard, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	return heard
}

// triedAt returns the time of the last attempt. An unchanged failure keeps its transition time, so
// the last handled request counts, too.
func triedAt(u *unstructured.Unstructured) time.Time {
	return later(parsed(failureevents.Condition(u, "Ready")["lastTransitionTime"]), parsed(handled(u)))
}

// dueForQuota returns the time of the next retry of an object that is refused for a quota that is
// not counted yet. It returns the zero time if the object is too old.
func dueForQuota(u *unstructured.Unstructured) time.Time {
	tried, created := triedAt(u), u.GetCreationTimestamp().Time
	if tried.Sub(created) >= quotaGrace {
		return time.Time{}
	}
	return later(tried, created).Add(quotaDelay)
}

// rightsGivenAt returns the time at which the manager, or a sync of the platform, last gave
// rights in any namespace to the account of an object. It returns the zero time if neither
// ever did.
func (r *Reconciler) rightsGivenAt(ctx context.Context, u *unstructured.Unstructured) (time.Time, error) {
	account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName")
	if _, remote, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig"); account == "" || remote {
		return time.Time{}, nil
	}
	var bindings rbacv1.RoleBindingList
	if err := r.Client.List(ctx, &bindings, client.MatchingFields{failureevents.IndexSubject: u.GetNamespace() + "/" + account}); err != nil {
		return time.Time{}, fmt.Errorf("cannot find out since when the account %s of %s %s/%s has rights: %w", account, r.Kind.Kind, u.GetNamespace(), u.GetName(), err)
	}
	var profile *v1alpha1.TenancyProfile
	if slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool { return !ours(&b) && delivered(&b) }) {
		var err error
		if profile, err = r.Profiles.Profile(ctx); err != nil {
			return time.Time{}, fmt.Errorf("cannot find out which role bindings the platform delivers: %w", err)
		}
	}
	var last time.Time
	for i := range bindings.Items {
		if b := &bindings.Items[i]; ours(b) || profile != nil && byPlatform(b, &profile.Spec) {
			last = later(last, written(b))
		}
	}
	return last, nil
}

// writers are the field managers of the manager and of Flux's controllers, which write
// RoleBindings.
var writers = []string{fieldManager, "kustomize-controller", "helm-controller"}

// written returns the time at which the manager or Flux last changed an object.
func written(o client.Object) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if slices.Contains(writers, m.Manager) && m.Operation == metav1.ManagedFieldsOperationApply && m.Time != nil {
			at = later(at, m.Time.Time)
		}
	}
	return at
}

// ours reports whether the manager created an object. The rule tenure-managed prevents other
// users from setting this label.
func ours(o client.Object) bool {
	return o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue
}

// kinds are the kinds of syncs, whose groups are the prefixes of Flux's ownership labels.
var kinds = []schema.GroupVersionKind{failureevents.Kustomization, failureevents.HelmRelease}

// delivered reports whether Flux applied an object.
func delivered(o client.Object) bool {
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return o.GetLabels()[k.Group+"/name"] != "" })
}

// byPlatform reports whether a sync of the platform applied an object. Delegated syncs do
// not count, since they apply repositories of tenants: with a RoleBinding for another
// tenant's account, a tenant could make the manager retry the other tenant's objects.
func byPlatform(o client.Object, profile *v1alpha1.TenancyProfileSpec) bool {
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool {
		namespace, name := o.GetLabels()[k.Group+"/namespace"], o.GetLabels()[k.Group+"/name"]
		return slices.Contains(profile.PlatformNamespaces, namespace) && !slices.Contains(profile.DelegatedSyncs, v1alpha1.DelegatedSync{Namespace: namespace, Name: name})
	})
}

// dueForRights returns the time of the next retry of an object whose account got rights at the time
// given. It returns the zero time if the object needs no retry. While the API server still
// refuses the object, the retries come 2, 4, 8 and 16 s after the rights were given.
func dueForRights(u *unstructured.Unstructured, given time.Time) time.Time {
	since := max(triedAt(u).Sub(given), 0)
	if given.IsZero() || since >= grace {
		return time.Time{}
	}
	return given.Add(since + max(since, first))
}

// refused reports whether the API server refused the object's last attempt.
func refused(u *unstructured.Unstructured) bool {
	ready := failureevents.Condition(u, "Ready")
	return ready["status"] == "False" && strings.Contains(ready["message"], forbidden)
}

// parsed returns the time in a text in RFC 3339, or the zero time for any other text.
func parsed(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
