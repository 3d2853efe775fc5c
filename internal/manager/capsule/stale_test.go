package capsule

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestFinalizeStale deletes a Tenant of Capsule while ours is missing from the cache.
func TestFinalizeStale(t *testing.T) {
	t.Parallel()
	const kept = "kept" // keeps ours readable after its deletion
	for name, tc := range map[string]struct {
		reason string
		ours   *v1alpha1.Tenant
		goes   bool
	}{
		"made a moment ago": {"theirs waits for ours: nobody would delete that later",
			&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil", Labels: map[string]string{tenancy.LabelManaged: ManagedValue}, Finalizers: []string{kept}}}, false},
		"by hand":  {"what somebody wrote stays", &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil", Finalizers: []string{kept}}}, true},
		"not made": {"there is nothing to wait for", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := metav1.Now()
			theirs := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil", DeletionTimestamp: &now, Finalizers: []string{Finalizer}}}
			objects := []client.Object{theirs}
			if tc.ours != nil {
				objects = append(objects, tc.ours)
			}
			live := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(theirs).WithObjects(objects...).Build()
			stale := interceptor.NewClient(live, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, ours := object.(*v1alpha1.Tenant); ours {
						return apierrors.NewNotFound(schema.GroupResource{Resource: "tenants"}, key.Name)
					}
					return c.Get(ctx, key, object, options...)
				},
			})
			r := &TenantReconciler{Client: stale, APIReader: live}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)}); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if err := live.Get(t.Context(), client.ObjectKeyFromObject(theirs), &v1beta2.Tenant{}); apierrors.IsNotFound(err) != tc.goes {
				t.Errorf("%s: theirs: %v", tc.reason, err)
			}
			if tc.ours == nil {
				return
			}
			got := &v1alpha1.Tenant{}
			if err := live.Get(t.Context(), client.ObjectKeyFromObject(theirs), got); err != nil {
				t.Fatal(err)
			}
			if deleted := !got.DeletionTimestamp.IsZero(); deleted == tc.goes {
				t.Errorf("%s: ours is deleted: %v", tc.reason, deleted)
			}
		})
	}
}

// TestUnfinished lets the API server refuse our Tenant for good, as one that is too large for etcd: theirs says so after
// a change, and not before.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonSucceeded, Message: "fine", ObservedGeneration: 1, LastTransitionTime: metav1.Now()}
	for _, tc := range []struct {
		reason     string
		generation int64
		conditions []metav1.Condition
		want       string
	}{
		{"a new Tenant", 1, nil, "the manager tries again: cannot write Tenant oil: Request entity too large"},
		{"a Tenant that was ready before the change", 2, []metav1.Condition{ready}, "the manager tries again: cannot write Tenant oil: Request entity too large"},
		{"a Tenant that has not changed", 1, []metav1.Condition{ready}, "fine"},
	} {
		theirs := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil", Generation: tc.generation, Finalizers: []string{Finalizer}}}
		theirs.Status.Conditions = tc.conditions
		live := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(theirs).WithObjects(theirs).Build()
		kube := interceptor.NewClient(live, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
				return apierrors.NewRequestEntityTooLargeError("too large")
			},
		})
		r := &TenantReconciler{Client: kube, APIReader: kube, Profiles: validProfile{}}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)}); err == nil {
			t.Errorf("%s: it is not tried again", tc.reason)
		}
		if err := live.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs); err != nil {
			t.Fatal(err)
		}
		c := apimeta.FindStatusCondition(theirs.Status.Conditions, conditionReady)
		if c == nil || !strings.Contains(c.Message, tc.want) || c.ObservedGeneration != tc.generation {
			t.Errorf("%s: want %q, got %v", tc.reason, tc.want, c)
		}
	}
}

// TestWritesOnce reconciles a Tenant of Capsule twice without a change: ours is written once. The API server sets the
// defaults of the schema.
func TestWritesOnce(t *testing.T) {
	t.Parallel()
	theirs := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil", Generation: 1, Finalizers: []string{Finalizer}}}
	live := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(theirs).WithObjects(theirs).Build()
	writes := 0
	kube := interceptor.NewClient(live, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if ours, ok := object.(*v1alpha1.Tenant); ok {
				writes++
				if ours.Spec.Namespaces.Quota == nil {
					ours.Spec.Namespaces.Quota = new(int32(100))
				}
			}
			return c.Create(ctx, object, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, object, options...)
		},
	})
	r := &TenantReconciler{Client: kube, APIReader: kube, Profiles: validProfile{}}
	for range 2 {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)}); err != nil {
			t.Fatal(err)
		}
	}
	if writes != 1 {
		t.Errorf("ours is written %d times, want once", writes)
	}
}

// TestProfileHosts reconciles a Tenant of Capsule without hosts: it gets those of the TenancyProfile without wildcards.
func TestProfileHosts(t *testing.T) {
	t.Parallel()
	theirs := &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oil", Generation: 1, Finalizers: []string{Finalizer}}}
	kube := fake.NewClientBuilder().WithScheme(scheme()).WithStatusSubresource(theirs).WithObjects(theirs).Build()
	profile := validProfile{}
	profile.Spec.Tenants.Network.Hosts = &v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{"*.example.com"}}
	r := &TenantReconciler{Client: kube, APIReader: kube, Profiles: profile}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(theirs)}); err != nil {
		t.Fatal(err)
	}
	ours := &v1alpha1.Tenant{}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(theirs), ours); err != nil {
		t.Fatal(err)
	}
	if hosts := ours.Spec.Network.Hosts; hosts == nil || len(hosts.Allowed) > 0 || hosts.Expression != `^.*\.example\.com$` {
		t.Errorf("ours allows %v", hosts)
	}
}

// validProfile is a cluster with a TenancyProfile.
type validProfile struct{ v1alpha1.TenancyProfile }

func (p validProfile) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	return &p.TenancyProfile, nil
}
