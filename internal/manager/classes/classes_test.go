package classes

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// cluster returns a client of a cluster that does not serve GatewayClasses.
func cluster(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, schedulingv1.AddToScheme, storagev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind(); kind.Kind == "GatewayClass" {
				return &apimeta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
			}
			return c.List(ctx, list, options...)
		},
	})
}

func named(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels}
}

func selecting() *v1alpha1.AllowedClasses {
	return &v1alpha1.AllowedClasses{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	gold := map[string]string{"tier": "gold"}
	c := cluster(t,
		&storagev1.StorageClass{ObjectMeta: named("fast", gold)}, &storagev1.StorageClass{ObjectMeta: named("slow", nil)},
		&schedulingv1.PriorityClass{ObjectMeta: named("high", gold)},
	)
	limits := &v1alpha1.Posture{}
	if got, problem, err := (Reader{Client: c}).Select(t.Context(), limits); got != nil || problem != nil || err != nil {
		t.Errorf("without a selector: got %v, %v, %v", got, problem, err)
	}
	limits.Storage.Classes, limits.Workloads.PriorityClasses, limits.Network.GatewayClasses = selecting(), selecting(), selecting()
	got, problem, err := Reader{Client: c}.Select(t.Context(), limits)
	if problem != nil || err != nil {
		t.Errorf("got %v, %v", problem, err)
	}
	if diff := cmp.Diff(&v1alpha1.SelectedClasses{StorageClasses: []string{"fast"}, PriorityClasses: []string{"high"}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// profiles has one profile, or an error.
type profiles struct {
	profile *v1alpha1.TenancyProfile
	err     error
}

func (p profiles) Profile(context.Context) (*v1alpha1.TenancyProfile, error) { return p.profile, p.err }

func TestChangedNamespaces(t *testing.T) {
	t.Parallel()
	namespace := func(name string, labels map[string]string) client.Object {
		return &corev1.Namespace{ObjectMeta: named(name, labels)}
	}
	c := cluster(t,
		&v1alpha1.Tenant{ObjectMeta: named("plain", nil)},
		&v1alpha1.Tenant{ObjectMeta: named("gold", nil), Spec: v1alpha1.TenantSpec{Network: v1alpha1.Network{IngressClasses: selecting()}}},
		namespace("default", nil),
		namespace("plain-app", map[string]string{v1alpha1.LabelTenant: "plain"}),
		namespace("gold-app", map[string]string{v1alpha1.LabelTenant: "gold"}),
		namespace("labelled-app", map[string]string{v1alpha1.LabelFluxTenant: "labelled"}),
	)
	common := &v1alpha1.TenancyProfile{}
	common.Spec.Tenants.Workloads.RuntimeClasses = selecting()
	for reason, tc := range map[string]struct {
		profiles profiles
		want     []string
	}{
		"a Tenant selects classes":   {profiles{profile: &v1alpha1.TenancyProfile{}}, []string{"gold-app"}},
		"the profile does":           {profiles{profile: common}, []string{"gold-app", "labelled-app", "plain-app"}},
		"there is no profile":        {profiles{}, nil},
		"the profile cannot be used": {profiles{err: fmt.Errorf("%w: a field", tenancy.ErrInvalid)}, nil},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			changed := make(chan event.GenericEvent, 10)
			r := &Reconciler{Client: c, Profiles: tc.profiles, Changed: changed}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
				t.Fatal(err)
			}
			close(changed)
			var got []string
			for e := range changed {
				got = append(got, e.Object.GetName())
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	t.Run("the manager ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := &Reconciler{Client: c, Profiles: profiles{profile: common}, Changed: make(chan event.GenericEvent)}
		if _, err := r.Reconcile(ctx, ctrl.Request{}); err == nil {
			t.Error("it went on without a receiver")
		}
	})
}

// TestEvents checks that the events of many classes make one request, and that updates without
// new labels make none.
func TestEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		h := together()
		for i := range 1000 {
			h.Create(t.Context(), event.CreateEvent{Object: &storagev1.StorageClass{ObjectMeta: named(fmt.Sprint(i), nil)}}, queue)
		}
		h.Update(t.Context(), event.UpdateEvent{}, queue)
		h.Delete(t.Context(), event.DeleteEvent{}, queue)
		<-time.After(2 * batchDelay)
		synctest.Wait()
		if got := queue.Len(); got != 1 {
			t.Errorf("there are %d requests, want 1", got)
		}
	})
	now := metav1.Now()
	for reason, tc := range map[string]struct {
		before, after metav1.ObjectMeta
		want          bool
	}{
		"a label":       {named("a", map[string]string{"x": "y"}), named("a", nil), true},
		"a deletion":    {named("a", nil), metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now}, true},
		"an annotation": {named("a", nil), metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"x": "y"}}, false},
	} {
		e := event.UpdateEvent{ObjectOld: &storagev1.StorageClass{ObjectMeta: tc.before}, ObjectNew: &storagev1.StorageClass{ObjectMeta: tc.after}}
		if got := labelsChanged.Update(e); got != tc.want {
			t.Errorf("%s: the update counts: %v", reason, got)
		}
	}
}
