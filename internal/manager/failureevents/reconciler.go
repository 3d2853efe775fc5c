// Package failureevents reports failures of a Kustomization or HelmRelease in a namespace of the
// platform, which tenants cannot read, to the tenant whose objects it applies: as an event in the
// tenant's namespace, which also reaches the tenant's Alerts. RFC-0003 demands this.
package failureevents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pause is the minimum time between two different events about one object. It limits
	// the events about a failure whose message changes all the time.
	pause = 10 * time.Second
	// repeat is the interval at which the event of a lasting failure is updated. It is
	// shorter than an hour, after which the API server deletes an event.
	repeat = 30 * time.Minute
)

// Profiles reads the cluster's TenancyProfile. It returns nil and no error if there is no
// TenancyProfile, and [tenancy.ErrInvalid] if the TenancyProfile is not valid.
type Profiles interface {
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Alerts sends a failure to the Alerts in a namespace of the tenant. It returns an error if
// it could not send the failure.
type Alerts interface {
	Post(ctx context.Context, namespace string, f Failure) error
}

// Failure is the reason why an object is not ready.
type Failure struct {
	// Kind, Namespace and Name identify the object. UID distinguishes it from an earlier
	// object of the same name.
	Kind                 schema.GroupVersionKind
	Namespace, Name, UID string
	// Reason and Message are copies from the object's condition. Revision is the revision
	// that Flux tried to apply.
	Reason, Message, Revision string
}

// Reconciler reports failures of the objects of one kind.
type Reconciler struct {
	// Kind is [Kustomization] or [HelmRelease].
	Kind schema.GroupVersionKind
	// Client reads from a cache and writes to the API server. APIReader reads from the API
	// server.
	Client    client.Client
	APIReader client.Reader
	Profiles  Profiles
	// Alerts may be nil. The reconciler then only writes events.
	Alerts Alerts
	// Instance is the name of this process in events.
	Instance string
	// Home is the namespace in which Tenure runs. It belongs to the platform even if the
	// profile does not list it.
	Home string
	// Now returns the current time.
	Now func() time.Time

	mu   sync.Mutex
	last map[client.ObjectKey]mirrored
}

// mirrored is the last reported failure of an object, and the time of the report.
type mirrored struct {
	failure Failure
	at      time.Time
}

// Reconcile reports the failure of one object, if it has one and the last report is long
// enough ago. It returns an error if it cannot read the profile, the object, its bindings
// or the namespaces, or cannot write the event.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	profile, err := r.profile(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !slices.Contains(profile.PlatformNamespaces, request.Namespace) {
		return ctrl.Result{}, nil // the tenant can read Flux's own events there
	}
	k := Object(r.Kind)
	if err := r.Client.Get(ctx, request.NamespacedName, k); err != nil {
		if apierrors.IsNotFound(err) {
			r.forgetFailure(request.NamespacedName)
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("cannot read %s %s: %w", r.Kind.Kind, request, err)
	}
	failure, failed := failureOf(k)
	if !failed {
		if ready(k) {
			r.forgetFailure(request.NamespacedName)
		}
		return ctrl.Result{}, nil
	}
	if wait := r.wait(request.NamespacedName, failure); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	namespaces, err := r.readers(ctx, k, profile)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, namespace := range namespaces {
		if err := r.mirror(ctx, namespace, failure); err != nil {
			return ctrl.Result{}, err
		}
	}
	if len(namespaces) == 0 {
		return ctrl.Result{}, nil
	}
	r.remember(request.NamespacedName, failure)
	return ctrl.Result{RequeueAfter: repeat}, nil
}

// profile returns the TenancyProfile's spec, which names the platform's namespaces.
// Without a profile it returns a spec with the manager's own namespace.
func (r *Reconciler) profile(ctx context.Context) (*v1alpha1.TenancyProfileSpec, error) {
	profile, err := r.Profiles.Profile(ctx)
	if err != nil && !errors.Is(err, tenancy.ErrInvalid) {
		return nil, err
	}
	if profile == nil {
		return &v1alpha1.TenancyProfileSpec{PlatformNamespaces: []string{r.Home}}, nil
	}
	return &profile.Spec, nil
}

// readers returns the namespaces of the tenant that an object of the platform delivers
// to: its target namespace, or the namespaces in which the platform has given its account
// rights, and the namespace in which Helm stores its release. It returns none if these
// belong to several tenants, since a tenant must not see what another one delivers.
func (r *Reconciler) readers(ctx context.Context, k *unstructured.Unstructured, profile *v1alpha1.TenancyProfileSpec) ([]string, error) {
	if _, remote, _ := unstructured.NestedMap(k.Object, "spec", "kubeConfig"); remote {
		return nil, nil
	}
	var candidates []string
	if target, _, _ := unstructured.NestedString(k.Object, "spec", "targetNamespace"); target != "" {
		candidates = []string{target}
	} else if account, _, _ := unstructured.NestedString(k.Object, "spec", "serviceAccountName"); account != "" {
		var err error
		if candidates, err = r.bound(ctx, k.GetNamespace(), account, profile); err != nil {
			return nil, fmt.Errorf("cannot find out where the account %s of %s %s/%s has rights: %w", account, r.Kind.Kind, k.GetNamespace(), k.GetName(), err)
		}
	}
	if storage, _, _ := unstructured.NestedString(k.Object, "spec", "storageNamespace"); storage != "" {
		candidates = append(candidates, storage)
	}
	slices.Sort(candidates)
	var namespaces []string
	tenants := map[string]bool{}
	for _, name := range slices.Compact(candidates) {
		ns := &corev1.Namespace{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return nil, fmt.Errorf("cannot read namespace %s: %w", name, err)
		}
		tenant, ok := tenancy.TenantOf(ns.Labels)
		if !ok || slices.Contains(profile.PlatformNamespaces, name) || !ns.DeletionTimestamp.IsZero() {
			continue
		}
		tenants[tenant] = true
		namespaces = append(namespaces, name)
	}
	if len(tenants) > 1 {
		return nil, nil
	}
	return namespaces, nil
}

// mirror writes the event, and sends a new event to the tenant's Alerts.
func (r *Reconciler) mirror(ctx context.Context, namespace string, f Failure) error {
	made, err := r.event(ctx, namespace, f)
	if err != nil {
		return err
	}
	if !made || r.Alerts == nil {
		return nil
	}
	if err := r.Alerts.Post(ctx, namespace, f); err != nil {
		// The event exists; only the notification is lost, as when Flux's controllers
		// cannot post one.
		ctrl.LoggerFrom(ctx).Info("cannot tell the tenant's alerts of a failure", "namespace", namespace, "error", err.Error())
	}
	return nil
}

// wait returns the time until the reconciler may report the failure; at most zero means now.
func (r *Reconciler) wait(k client.ObjectKey, f Failure) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[k]
	if !ok {
		return 0
	}
	patience := pause
	if last.failure == f {
		patience = repeat
	}
	return last.at.Add(patience).Sub(r.Now())
}

func (r *Reconciler) remember(k client.ObjectKey, f Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[client.ObjectKey]mirrored{}
	}
	r.last[k] = mirrored{f, r.Now()}
}

func (r *Reconciler) forgetFailure(k client.ObjectKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, k)
}
