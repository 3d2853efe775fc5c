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
	// first is how long rights are there before somebody is asked to use them: the API
	// server hears of them by a watch, as it does of a tenant's own parameters.
	first = 2 * time.Second
	// grace is how long after that a failure may still be for want of them.
	grace = 10 * time.Second
	// forbidden is what the API server says of all that it refuses, for want of rights
	// or by a rule.
	forbidden = "is forbidden"
)

// Reconciler asks objects of one kind to reconcile that were refused something before
// the API server knew of the rights that the manager or the fleet gave their accounts. Without it,
// they would try again at their next interval, which may be an hour away.
//
// It remembers nothing: when rights were given, when the object tried last, and which
// request Flux has heard is written on the objects. So a manager that was away finds
// who waits, and one that comes after it asks nobody twice.
type Reconciler struct {
	// Kind is [failureevents.Kustomization] or [failureevents.HelmRelease].
	Kind schema.GroupVersionKind
	// Client reads from a cache, with the index of [failureevents.Index], and writes to the
	// API server.
	Client client.Client
	// APIReader reads from the API server.
	APIReader client.Reader
	// Profiles has the namespaces and the delegated syncs of the platform.
	Profiles failureevents.Profiles
	// Now is the clock.
	Now func() time.Time
}

// Reconcile looks at one object, and asks it when it is time to.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	// The cache has little of an object, and may be late: whether the object is
	// suspended or asked already is read when it is about to be asked.
	for _, from := range []client.Reader{r.Client, r.APIReader} {
		u := failureevents.Object(r.Kind)
		if err := from.Get(ctx, request.NamespacedName, u); err != nil {
			if apierrors.IsNotFound(err) {
				return ctrl.Result{}, nil
			}
			return ctrl.Result{}, fmt.Errorf("cannot read %s %s: %w", r.Kind.Kind, request, err)
		}
		given, err := r.rightsGivenAt(ctx, u)
		if err != nil {
			return ctrl.Result{}, err
		}
		at := due(u, given)
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

// rightsGivenAt returns when the manager, or a sync of the platform, last gave rights to the
// account that an object is applied as, in any namespace; zero if neither ever did.
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

// writers are the field managers of those who give rights: the manager, and Flux.
var writers = []string{fieldManager, "kustomize-controller", "helm-controller"}

// written returns when the manager or Flux wrote an object last, so that it changed.
func written(o client.Object) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if slices.Contains(writers, m.Manager) && m.Operation == metav1.ManagedFieldsOperationApply && m.Time != nil {
			at = later(at, m.Time.Time)
		}
	}
	return at
}

// ours says whether the manager made an object: nobody else may say so of one.
func ours(o client.Object) bool {
	return o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue
}

// kinds are the kinds of syncs, whose groups are the prefixes of Flux's ownership labels.
var kinds = []schema.GroupVersionKind{failureevents.Kustomization, failureevents.HelmRelease}

// delivered reports whether Flux applied an object.
func delivered(o client.Object) bool {
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return o.GetLabels()[k.Group+"/name"] != "" })
}

// byPlatform reports whether a sync of the platform applied an object. Delegated syncs
// apply repositories of tenants, and do not count: a tenant would choose the accounts that
// a binding names, and have the manager ask objects of others.
func byPlatform(o client.Object, profile *v1alpha1.TenancyProfileSpec) bool {
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool {
		namespace, name := o.GetLabels()[k.Group+"/namespace"], o.GetLabels()[k.Group+"/name"]
		return slices.Contains(profile.PlatformNamespaces, namespace) && !slices.Contains(profile.DelegatedSyncs, v1alpha1.DelegatedSync{Namespace: namespace, Name: name})
	})
}

// due returns when to ask an object whose account was given rights; zero for never.
// While it is refused still, it is asked less and less often: after 2, 4, 8 and 16 s.
func due(u *unstructured.Unstructured, given time.Time) time.Time {
	if given.IsZero() || !refused(u) || !u.GetDeletionTimestamp().IsZero() {
		return time.Time{}
	}
	if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); suspended {
		return time.Time{}
	}
	heard, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	if asked := u.GetAnnotations()[Annotation]; asked != "" && asked != heard {
		return time.Time{} // Flux has not come to it yet
	}
	// A failure that has not changed keeps its time.
	tried := later(parsed(failureevents.Condition(u, "Ready")["lastTransitionTime"]), parsed(heard))
	since := max(tried.Sub(given), 0)
	if since >= grace {
		return time.Time{}
	}
	return given.Add(since + max(since, first))
}

// refused says whether the API server refused what an object has tried last.
func refused(u *unstructured.Unstructured) bool {
	ready := failureevents.Condition(u, "Ready")
	return ready["status"] == "False" && strings.Contains(ready["message"], forbidden)
}

// parsed returns the time that a text is; zero if it is none.
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
