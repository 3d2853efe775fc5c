package ask

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/controller/refusal"
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
// the API server knew of the rights that the manager gave their accounts. Without it,
// they would try again at their next interval, which may be an hour away.
//
// It remembers nothing: when rights were given, when the object tried last, and which
// request Flux has heard is written on the objects. So a manager that was away finds
// who waits, and one that comes after it asks nobody twice.
type Reconciler struct {
	// Kind is [refusal.Kustomization] or [refusal.HelmRelease].
	Kind schema.GroupVersionKind
	// Client reads from a cache, with the index of [refusal.Index], and writes to the
	// API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Now is the clock.
	Now func() time.Time
}

// Reconcile looks at one object, and asks it when it is time to.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	// The cache has little of an object, and may be late: whether the object is
	// suspended or asked already is read when it is about to be asked.
	for _, from := range []client.Reader{r.Client, r.Live} {
		u := refusal.Object(r.Kind)
		if err := from.Get(ctx, request.NamespacedName, u); err != nil {
			if apierrors.IsNotFound(err) {
				return ctrl.Result{}, nil
			}
			return ctrl.Result{}, fmt.Errorf("cannot read %s %s: %w", r.Kind.Kind, request, err)
		}
		given, err := r.given(ctx, u)
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
		if from == r.Live {
			return ctrl.Result{}, Request(ctx, r.Client, u, r.Now())
		}
	}
	return ctrl.Result{}, nil
}

// given returns when the manager last gave rights to the account that an object is
// applied as, in any namespace; zero if it never did.
func (r *Reconciler) given(ctx context.Context, u *unstructured.Unstructured) (time.Time, error) {
	account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName")
	if _, remote, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig"); account == "" || remote {
		return time.Time{}, nil
	}
	var bindings rbacv1.RoleBindingList
	if err := r.Client.List(ctx, &bindings, client.MatchingFields{refusal.IndexSubject: u.GetNamespace() + "/" + account}); err != nil {
		return time.Time{}, fmt.Errorf("cannot find out since when the account %s of %s %s/%s has rights: %w", account, r.Kind.Kind, u.GetNamespace(), u.GetName(), err)
	}
	var last time.Time
	for i := range bindings.Items {
		if b := &bindings.Items[i]; ours(b) {
			last = later(last, written(b))
		}
	}
	return last, nil
}

// written returns when the manager wrote an object last, so that it changed.
func written(o client.Object) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if m.Manager == fieldManager && m.Operation == metav1.ManagedFieldsOperationApply && m.Time != nil {
			at = later(at, m.Time.Time)
		}
	}
	return at
}

// ours says whether the manager made an object: nobody else may say so of one.
func ours(o client.Object) bool {
	return o.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue
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
	tried := later(parsed(refusal.Condition(u, "Ready")["lastTransitionTime"]), parsed(heard))
	since := max(tried.Sub(given), 0)
	if since >= grace {
		return time.Time{}
	}
	return given.Add(since + max(since, first))
}

// refused says whether the API server refused what an object has tried last.
func refused(u *unstructured.Unstructured) bool {
	ready := refusal.Condition(u, "Ready")
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
