package sourcegrant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/grants"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// sharedSource is a source of namespace owner.
func sharedSource(name string) *unstructured.Unstructured {
	source := object(sourceGroup.WithKind("GitRepository"))
	source.SetNamespace("owner")
	source.SetName(name)
	source.Object["status"] = map[string]any{"artifact": map[string]any{
		"revision": "main@sha1:1", "url": "http://storage/1.tar.gz", "digest": "sha256:1", "path": "x", "lastUpdateTime": "2026-11-21T12:00:00Z",
	}}
	return source
}

// ours is a copy that namespace owner gave.
func ours(namespace, name string) *unstructured.Unstructured {
	u := copyOf("owner", grants.Copy{Namespace: namespace, Name: name})
	u.SetUID(types.UID(namespace))
	u.Object["status"] = map[string]any{"artifact": map[string]any{"revision": "main@sha1:1"}}
	return u
}

// granted is a grant of a source that is there, to tenant dev.
func granted(name, source string) *v1alpha1.SourceGrant {
	g := &v1alpha1.SourceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "owner", Name: name}}
	g.Spec.To = []v1alpha1.GrantedSource{{Kind: "GitRepository", Name: source}}
	g.Spec.From = []v1alpha1.GrantedConsumers{{Tenant: "dev"}}
	return g
}

func reconciler(t *testing.T, funcs interceptor.Funcs, there ...client.Object) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).
		WithStatusSubresource(&v1alpha1.SourceGrant{}, object(artifactKind)).
		WithObjects(there...).WithInterceptorFuncs(funcs).Build()
	recorder := events.NewFakeRecorder(100)
	return &Reconciler{Client: c, APIReader: c, Events: recorder, Now: time.Now}, recorder
}

var ownersRequest = ctrl.Request{NamespacedName: types.NamespacedName{Name: "owner"}}

// TestEndWithoutController ends a grant on a cluster that has not all of Flux's
// controllers.
func TestEndWithoutController(t *testing.T) {
	t.Parallel()
	release := consumerKinds[1].kind
	for name, tc := range map[string]struct {
		reason string
		err    error
	}{
		"unknown": {"a kind that is not served has no users", &apimeta.NoKindMatchError{GroupKind: release.GroupKind(), SearchedVersions: []string{release.Version}}},
		"removed": {"a kind that was served a moment ago has none either", apierrors.NewNotFound(schema.GroupResource{Group: release.Group, Resource: "helmreleases"}, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := object(consumerKinds[0].kind)
			user.SetNamespace("dev")
			user.SetName("app")
			user.Object["spec"] = map[string]any{"sourceRef": map[string]any{"kind": artifactKind.Kind, "name": "owner.old"}}
			old := ours("dev", "owner.old")
			r, recorder := reconciler(t, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if list.GetObjectKind().GroupVersionKind().Kind == release.Kind+"List" {
						return tc.err
					}
					return c.List(ctx, list, options...)
				},
			}, user, old)
			for range 2 {
				if _, err := r.Reconcile(t.Context(), ownersRequest); err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
			}
			if err := r.APIReader.Get(t.Context(), client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
				t.Errorf("%s: the copy is there still: %v", tc.reason, err)
			}
			if got := len(recorder.Events); got != 1 {
				t.Errorf("%s: its user was warned %d times", tc.reason, got)
			}
		})
	}
}

// TestOneFails ends and gives copies in namespaces of which some cannot be written.
func TestOneFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("storage is full")
	there := []client.Object{sharedSource("common"), sharedSource("other"), granted("one", "common"), granted("two", "other")}
	// As many fail as are worked on at a time, so that the last begins when one has failed.
	for i := range writers {
		there = append(there, ours(fmt.Sprintf("a%02d", i), "owner.old"))
	}
	last := ours("b", "owner.old")
	dev := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}}}
	r, _ := reconciler(t, interceptor.Funcs{
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, o runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			named, ok := o.(interface{ GetNamespace() string })
			if !ok {
				return fmt.Errorf("%T has no namespace", o)
			}
			if strings.HasPrefix(named.GetNamespace(), "a") {
				return broken
			}
			return c.SubResource(sub).Apply(ctx, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if o.GetName() == "owner.common" {
				return broken
			}
			return c.Create(ctx, o, options...)
		},
	}, append(there, last, dev)...)
	if _, err := r.Reconcile(t.Context(), ownersRequest); !errors.Is(err, broken) {
		t.Errorf("what failed is not tried again: %v", err)
	}
	if err := r.APIReader.Get(t.Context(), client.ObjectKeyFromObject(last), last); !apierrors.IsNotFound(err) {
		t.Errorf("a namespace waits for others: its copy is there still: %v", err)
	}
	made := ours("dev", "owner.other")
	if err := r.APIReader.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil || made.GetLabels()[tenancy.LabelManaged] == "" {
		t.Errorf("a source waits for another one: %v", err)
	}
	for name, want := range map[string]string{"one": reasonFailed, "two": grants.ReasonGranted} {
		g := granted(name, "")
		if err := r.APIReader.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		ready := apimeta.FindStatusCondition(g.Status.Conditions, conditionReady)
		if ready == nil || ready.Reason != want {
			t.Errorf("grant %s says %v, not %s", name, ready, want)
		}
	}
}
