package tenantnamespace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/classes"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// world is a cluster with one Tenant in one namespace, dev, and with the rule about
// sources. It is a [Profiles], [Kinds], [Failures] and [Reports].
type world struct {
	client.WithWatch
	now time.Time
	// heard is from when on the rule reads the namespace's own parameters, if the label
	// says that they hold, and from when on it refuses nothing in any case.
	heard, open time.Time
	refusals    int
	// gone says that the cluster does not serve Flux's kinds any more.
	gone bool
	// broken is a kind that the API server cannot take, for no reason of the rules.
	broken string
	// problem is what was reported last, and reported about which Tenant.
	problem  error
	reported *v1alpha1.Tenant
	// storage are limits of the profile.
	storage v1alpha1.Storage
}

func (w *world) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	p := &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}
	p.Spec.Tenants.Sources.Git = []v1alpha1.AddressPattern{"https://git.example.com/acme/**"}
	p.Spec.Tenants.Bounds.MinInterval.Duration, p.Spec.Tenants.Bounds.MaxTimeout.Duration = 30*time.Second, 15*time.Minute
	// The fake client cannot apply NetworkPolicies.
	p.Spec.Tenants.Network.Isolation = v1alpha1.IsolationNone
	p.Spec.Tenants.Storage = w.storage
	return p, nil
}
func (w *world) Served(context.Context) ([]string, error) { return nil, nil }
func (w *world) Set(string, error)                        {}
func (w *world) Forget(string)                            { w.reported = nil }
func (w *world) Retry(*v1alpha1.Tenant, string, error)    {}
func (w *world) Report(tenant *v1alpha1.Tenant, _ string, problem error) {
	w.problem, w.reported = problem, tenant
}

// admit refuses a source from an address that the rule does not know to be allowed, and
// gives parameters the time at which they were made, in whole seconds.
func (w *world) admit(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	switch kind := o.(interface{ GetKind() string }).GetKind(); {
	case kind == w.broken:
		return apierrors.NewInternalError(errors.New("failed calling webhook"))
	case w.gone && (kind == tenancy.GitRepositoryKind.Kind || kind == tenancy.KustomizationKind.Kind):
		return apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{Resource: "gitrepositories"}, "app", "404 page not found", 0, true)
	case kind == "TenantParameters":
		p := &v1alpha1.TenantParameters{}
		err := errors.Join(c.Apply(ctx, o, opts...), c.Get(ctx, client.ObjectKey{Namespace: "dev", Name: v1alpha1.ParametersName}, p))
		if err != nil || !p.CreationTimestamp.IsZero() {
			return err
		}
		p.CreationTimestamp = metav1.NewTime(w.now.Truncate(time.Second))
		return c.Update(ctx, p)
	case kind != tenancy.GitRepositoryKind.Kind || !w.now.Before(w.open):
		return c.Apply(ctx, o, opts...)
	}
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "dev"}, ns); err != nil {
		return err
	}
	if _, labelled := ns.Labels[v1alpha1.LabelParameters]; labelled && !w.now.Before(w.heard) {
		return c.Apply(ctx, o, opts...)
	}
	w.refusals++
	return apierrors.NewForbidden(schema.GroupResource{Resource: "gitrepositories"}, "app", nil)
}

func newWorld(t *testing.T, address string) (*world, *Reconciler) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, networkingv1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "1", Generation: 1}}
	tenant.Spec.Namespaces.Create = []string{"dev"}
	tenant.Spec.Sync = []v1alpha1.Sync{{Name: "app", Git: &v1alpha1.GitSource{URL: address}}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "2", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}}}
	w := &world{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	w.WithWatch = interceptor.NewClient(
		fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.Namespace{}, IndexTenant, byTenant).WithIndex(&v1alpha1.Tenant{}, IndexOwnerNamespace, ByOwnerNamespace).WithObjects(tenant, ns).Build(),
		interceptor.Funcs{Apply: w.admit},
	)
	return w, &Reconciler{
		Client: w, Profiles: w, Kinds: w, Classes: classes.Reader{Client: w}, Failures: w, Reports: w,
		Events: events.NewFakeRecorder(10), Now: func() time.Time { return w.now },
	}
}

// settled reconciles until the source is there or a problem is told, and returns when
// that was. The next look is when it was asked for, or at once if the namespace's labels
// have changed.
func (w *world) settled(t *testing.T, r *Reconciler) time.Time {
	t.Helper()
	w.problem = nil
	for range 100 {
		at := w.now
		if w.look(t, r); w.problem != nil || w.delivers(t) {
			return at
		}
	}
	t.Fatal("the source is not there, and the tenant is told nothing")
	return time.Time{}
}

func (w *world) look(t *testing.T, r *Reconciler) {
	t.Helper()
	labels := func() map[string]string {
		ns := &corev1.Namespace{}
		if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, ns); err != nil {
			t.Fatal(err)
		}
		return ns.Labels
	}
	before := labels()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "dev"}})
	if err != nil {
		t.Fatal(err)
	}
	if maps.Equal(before, labels()) {
		w.now = w.now.Add(result.RequeueAfter)
	}
}

// delivers says whether the Tenant's source is there.
func (w *world) delivers(t *testing.T) bool {
	t.Helper()
	err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: "app"}, ofKind(tenancy.GitRepositoryKind))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// TestSyncRefused delivers from a source that the rules do not allow yet.
func TestSyncRefused(t *testing.T) {
	t.Parallel()
	const theirs, ours = "https://git.example.com/other/app", "https://git.example.com/acme/app"
	for name, tc := range map[string]struct {
		reason, address string
		// heard is how long the rules take to read the parameters of the namespace,
		// open from when on the posture of all allows the source.
		heard, open time.Duration
		refusals    int
		at          time.Duration
		told        bool
	}{
		"allowed to all":       {"what the posture of all tenants allows does not wait", ours, time.Hour, 0, 0, 0, false},
		"its own":              {"what only its own parameters allow is not tried before they hold", theirs, 0, time.Hour, 0, stamp + propagationDelay, false},
		"its own, rules late":  {"the rules may read the parameters later than the label says", theirs, stamp + propagationDelay + 3*time.Second, time.Hour, 6, stamp + propagationDelay + 3*time.Second, false},
		"allowed, rules late":  {"the posture of all tenants has just changed: it is tried with every look, and told to nobody", ours, time.Hour, propagationDelay / 2, 2, propagationDelay, false},
		"its own, rules never": {"a refusal that stays is told", theirs, time.Hour, time.Hour, 21, stamp + propagationDelay + grace, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := newWorld(t, tc.address)
			start := w.now
			w.heard, w.open = start.Add(tc.heard), start.Add(tc.open)
			took := w.settled(t, r).Sub(start)
			if told := w.problem != nil; told != tc.told || told == w.delivers(t) {
				t.Errorf("%s: the source is there: %v, and what the tenant is told: %v", tc.reason, w.delivers(t), w.problem)
			}
			if w.refusals != tc.refusals {
				t.Errorf("%s: want %d refused requests, got %d", tc.reason, tc.refusals, w.refusals)
			}
			if took != tc.at {
				t.Errorf("%s: want it after %s, got %s", tc.reason, tc.at, took)
			}
		})
	}
}

// TestParametersSettle says when the label comes: the parameters are there for two seconds
// then, in whatever part of a second they were made.
func TestParametersSettle(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Millisecond, time.Second / 2, time.Second - time.Nanosecond} {
		w, r := newWorld(t, "https://git.example.com/other/app")
		w.now = w.now.Add(after)
		start := w.now
		if took := w.settled(t, r).Sub(start); took < propagationDelay || took > stamp+propagationDelay {
			t.Errorf("made %s after a full second: the label came after %s, want between %s and %s", after, took, propagationDelay, stamp+propagationDelay)
		}
	}
}

// TestSyncRefusedBefore corrects the address of a source that was refused for long: the
// rules that read the new parameters a moment later are no reason to tell of it again.
func TestSyncRefusedBefore(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/other/app")
	w.heard, w.open = w.now.Add(time.Hour), w.now.Add(time.Hour)
	w.settled(t, r)
	if w.problem == nil || !strings.Contains(w.problem.Error(), "GitRepository dev/app") {
		t.Fatalf("what is refused for good is not told: %v", w.problem)
	}
	tenant := &v1alpha1.Tenant{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Spec.Sync[0].Git.URL = "https://git.example.com/other/right"
	if err := w.Update(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	w.heard = w.now.Add(time.Second)
	w.settled(t, r)
	if w.problem != nil {
		t.Errorf("the tenant is told of a refusal that goes away by itself: %v", w.problem)
	}
}

// TestSyncUnserved takes Flux's definitions away, of which the client does not know: the
// rest of the namespace does not wait for them.
func TestSyncUnserved(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	w.gone = true
	w.settled(t, r)
	if w.problem == nil || !strings.Contains(w.problem.Error(), "before Flux is installed") {
		t.Fatalf("that Flux is gone is not told: %v", w.problem)
	}
	w.edit(t, r, func(s *v1alpha1.TenantSpec) { s.Owners = []v1alpha1.Owner{user("ann", "admin")} })
	if len(w.owners(t)) == 0 {
		t.Error("nobody gets a role while Flux is gone")
	}
	w.gone = false
	w.settled(t, r)
	if w.problem != nil || !w.delivers(t) {
		t.Errorf("nothing is delivered when Flux is back: %v", w.problem)
	}
}

// TestUnserved tells what is not served from what else is not found.
func TestUnserved(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"}
	for _, tc := range []struct {
		reason string
		err    error
		want   bool
	}{
		{"the client knows of no such kind", &apimeta.NoKindMatchError{GroupKind: kind}, true},
		{"the API server does not", fmt.Errorf("cannot: %w", apierrors.NewGenericServerResponse(http.StatusNotFound, "patch", schema.GroupResource{Resource: "gitrepositories"}, "app", "", 0, true)), true},
		{"a namespace that is gone is looked at again", apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "dev"), false},
		{"a refusal is another thing", apierrors.NewForbidden(schema.GroupResource{Resource: "gitrepositories"}, "app", nil), false},
	} {
		if got := unserved(tc.err); got != tc.want {
			t.Errorf("%s: want %v, got %v", tc.reason, tc.want, got)
		}
	}
}
