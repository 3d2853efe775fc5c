package reconcileretry

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/failureevents"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const (
	noRights  = `ConfigMap/dev/app dry-run failed (Forbidden): configmaps "app" is forbidden: User "system:serviceaccount:dev:dev" cannot patch resource`
	noQuota   = `GitRepository/dev/app dry-run failed (Forbidden): gitrepositories.source.toolkit.fluxcd.io "app" is forbidden: status unknown for quota: tenure, resources: count/gitrepositories.source.toolkit.fluxcd.io`
	noFolder  = "kustomization path not found: stat /tmp/x: no such file or directory"
	immutable = `Secret/dev/app dry-run failed (Invalid): Secret "app" is invalid: data: Forbidden: field is immutable`
)

var (
	given = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	key   = client.ObjectKey{Namespace: "dev", Name: "app"}
)

// ready is a Kustomization with a Ready condition that has been so since a time after
// the rights were given.
func ready(status, message string, after time.Duration) *unstructured.Unstructured {
	u := failureevents.Object(failureevents.Kustomization)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.Object["spec"] = map[string]any{"serviceAccountName": "dev"}
	u.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": status, "reason": "ReconciliationFailed", "message": message,
		"lastTransitionTime": given.Add(after).Format(time.RFC3339),
	}}}
	return u
}

// with changes a field of an object.
func with(u *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
	return u
}

// binding is a RoleBinding of the manager's that names the account dev/dev.
func binding(namespace string, after time.Duration) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: tenancy.BindingName, CreationTimestamp: metav1.NewTime(given.Add(after)),
			Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue},
		},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "dev", Name: "dev"}},
	}
}

// created says when an object was created, after the rights were given.
func created(u *unstructured.Unstructured, after time.Duration) *unstructured.Unstructured {
	u.SetCreationTimestamp(metav1.Time{Time: given.Add(after)})
	return u
}

// appliedBy says that somebody changed a binding when the rights were given.
func appliedBy(manager string) func(*rbacv1.RoleBinding) {
	return func(b *rbacv1.RoleBinding) {
		b.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: given},
			APIVersion: "rbac.authorization.k8s.io/v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:subjects":{}}`),
		}}
	}
}

// appliedAs says that a Kustomization of a namespace has applied a binding.
func appliedAs(namespace, name string) func(*rbacv1.RoleBinding) {
	return func(b *rbacv1.RoleBinding) {
		b.Labels = map[string]string{"kustomize.toolkit.fluxcd.io/namespace": namespace, "kustomize.toolkit.fluxcd.io/name": name}
	}
}

// platform is a profile with a delegated sync.
type platform struct{}

func (platform) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	return &v1alpha1.TenancyProfile{Spec: v1alpha1.TenancyProfileSpec{
		PlatformNamespaces: []string{"flux-system"}, DelegatedSyncs: []v1alpha1.DelegatedSync{{Namespace: "flux-system", Name: "team"}},
	}}, nil
}

func changed(b *rbacv1.RoleBinding, change func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
	change(b)
	return b
}

func cluster(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := rbacv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithIndex(&rbacv1.RoleBinding{}, failureevents.IndexSubject, failureevents.Subjects).WithReturnManagedFields().Build()
}

// trimmed reads objects as the manager's cache has them.
type trimmed struct{ client.Client }

func (c trimmed) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.Client.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	kept, err := failureevents.Trim(o)
	if err == nil {
		o.(*unstructured.Unstructured).Object = kept.(*unstructured.Unstructured).Object
	}
	return err
}

// asked returns when the object was asked last; empty if it never was.
func asked(t *testing.T, c client.Client) string {
	t.Helper()
	u := failureevents.Object(failureevents.Kustomization)
	if err := c.Get(t.Context(), key, u); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return u.GetAnnotations()[Annotation]
}

// TestAsk looks once at an object, 3 s after rights were given.
func TestAsk(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		object *unstructured.Unstructured
		// live is what the API server has, if the cache is behind.
		live    *unstructured.Unstructured
		binding *rbacv1.RoleBinding
		want    bool
		again   time.Duration
	}{
		"before":      {reason: "it failed before it had rights", object: ready("False", noRights, -time.Minute), binding: binding("dev", 0), want: true},
		"just after":  {reason: "the API server had not heard of them yet", object: ready("False", noRights, time.Second), binding: binding("dev", 0), want: true},
		"too early":   {reason: "the API server may not know of them yet", object: ready("False", noRights, -time.Minute), binding: binding("dev", 2*time.Second), again: time.Second},
		"elsewhere":   {reason: "it delivers to another namespace of the tenant's", object: ready("False", noRights, -time.Minute), binding: binding("other", 0), want: true},
		"ready":       {reason: "nothing has failed", object: ready("True", "applied", -time.Minute), binding: binding("dev", 0)},
		"working":     {reason: "it is at work", object: ready("Unknown", noRights, -time.Minute), binding: binding("dev", 0)},
		"long after":  {reason: "the rights that it has are not enough", object: ready("False", noRights, time.Minute), binding: binding("dev", 0)},
		"other cause": {reason: "it does not fail for want of rights", object: ready("False", noFolder, -time.Minute), binding: binding("dev", 0)},
		"a field":     {reason: "nor because of a field that is called forbidden", object: ready("False", immutable, -time.Minute), binding: binding("dev", 0)},
		"no binding":  {reason: "nobody gave it rights", object: ready("False", noRights, -time.Minute)},
		"suspended":   {reason: "it is not to reconcile, which the cache does not say", object: ready("False", noRights, -time.Minute), live: with(ready("False", noRights, -time.Minute), true, "spec", "suspend"), binding: binding("dev", 0)},
		"asked":       {reason: "Flux has not come to the last request yet", object: with(ready("False", noRights, -time.Minute), "now", "metadata", "annotations", Annotation), binding: binding("dev", 0)},
		"asked long ago": {
			reason: "a request of which Flux is done is none", binding: binding("dev", 0), want: true,
			object: with(with(ready("False", noRights, -time.Minute), "now", "metadata", "annotations", Annotation), "now", "status", "lastHandledReconcileAt"),
		},
		"delivered":    {reason: "it is ready, which the cache does not say yet", object: ready("False", noRights, -time.Minute), live: ready("True", "applied", time.Second), binding: binding("dev", 0)},
		"other rights": {reason: "rights are another account's", object: with(ready("False", noRights, -time.Minute), "else", "spec", "serviceAccountName"), binding: binding("dev", 0)},
		"remote":       {reason: "rights in this cluster are none in another", object: with(ready("False", noRights, -time.Minute), map[string]any{}, "spec", "kubeConfig"), binding: binding("dev", 0)},
		"the fleet's":  {reason: "a sync of the platform has bound the account", object: ready("False", noRights, -time.Minute), binding: changed(binding("dev", 0), appliedAs("flux-system", "infra")), want: true},
		"the fleet's, later": {
			reason: "a sync of the platform has added the account", object: ready("False", noRights, -time.Minute), want: true,
			binding: changed(changed(binding("dev", -time.Hour), appliedAs("flux-system", "infra")), appliedBy("kustomize-controller")),
		},
		"delegated":  {reason: "a tenant decides what a delegated sync applies", object: ready("False", noRights, -time.Minute), binding: changed(binding("dev", 0), appliedAs("flux-system", "team"))},
		"a tenant's": {reason: "a tenant's own sync has bound the account", object: ready("False", noRights, -time.Minute), binding: changed(binding("dev", 0), appliedAs("dev", "infra"))},
		"not ours":   {reason: "who writes bindings of their own asks for themselves", object: ready("False", noRights, -time.Minute), binding: changed(binding("dev", 0), func(b *rbacv1.RoleBinding) { b.Labels = nil })},
		"more rights": {
			reason: "an old binding has got a new subject", object: ready("False", noRights, -time.Minute), want: true,
			binding: changed(binding("dev", -time.Hour), appliedBy("tenure-manager")),
		},
		"no count":             {reason: "Kubernetes may have counted for the quota by now", object: created(ready("False", noQuota, -2*time.Second), -20*time.Second), want: true},
		"no count, too early":  {reason: "Kubernetes may not have counted yet", object: created(ready("False", noQuota, time.Second), -20*time.Second), again: 3 * time.Second},
		"no count, long after": {reason: "nobody counts for the quota", object: created(ready("False", noQuota, -2*time.Second), -time.Hour)},
		"no count, suspended":  {reason: "it is not to reconcile", object: with(created(ready("False", noQuota, -2*time.Second), -20*time.Second), true, "spec", "suspend")},
		"written by others": {
			reason: "what others write on a binding gives no rights", object: ready("False", noRights, -time.Minute),
			binding: changed(binding("dev", -time.Hour), appliedBy("else")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{tc.object}
			if tc.binding != nil {
				objects = append(objects, tc.binding)
			}
			c := cluster(t, objects...)
			live := c
			if tc.live != nil {
				live = cluster(t, tc.live)
			}
			r := &Reconciler{Kind: failureevents.Kustomization, Client: trimmed{c}, APIReader: live, Profiles: platform{}, Now: func() time.Time { return given.Add(3 * time.Second) }}
			before := asked(t, c)
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			if err != nil {
				t.Fatal(err)
			}
			if got := asked(t, c) != before; got != tc.want {
				t.Errorf("%s: want it asked: %v, got %v", tc.reason, tc.want, got)
			}
			if result.RequeueAfter != tc.again {
				t.Errorf("%s: want another look after %s, got %s", tc.reason, tc.again, result.RequeueAfter)
			}
		})
	}
}

// TestIdle looks at objects that are not to be asked, of which the cache knows enough.
func TestIdle(t *testing.T) {
	t.Parallel()
	for reason, u := range map[string]*unstructured.Unstructured{
		"nothing has failed":                    ready("True", "applied", 0),
		"its rights have been there for a time": ready("False", noRights, time.Minute),
	} {
		// Without a Live to read from.
		r := &Reconciler{Kind: failureevents.Kustomization, Client: cluster(t, u, binding("dev", 0)), Now: func() time.Time { return given.Add(time.Hour) }}
		if result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || !result.IsZero() {
			t.Errorf("%s: %v %v", reason, result, err)
		}
	}
}

// TestGone looks at an object that the API server does not have any more.
func TestGone(t *testing.T) {
	t.Parallel()
	c := cluster(t, ready("False", noRights, 0), binding("dev", 0))
	for name, r := range map[string]*Reconciler{
		"nowhere":      {Kind: failureevents.HelmRelease, Client: c, APIReader: c},
		"in the cache": {Kind: failureevents.Kustomization, Client: c, APIReader: cluster(t)},
	} {
		r.Now = func() time.Time { return given.Add(time.Minute) }
		if result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || !result.IsZero() {
			t.Errorf("%s: %v %v", name, result, err)
		}
	}
	if got := asked(t, c); got != "" {
		t.Errorf("what is gone was asked: %s", got)
	}
}

// TestAskedAgain lets Flux heed each request, for some time in vain.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		// heard is how long the API server takes to hear of the rights.
		heard time.Duration
		// same says that a failure is told with the time of the first one.
		same bool
		want []time.Duration
	}{
		"at once":      {"one request is enough", time.Second, false, []time.Duration{2 * time.Second}},
		"late":         {"the API server is slow", 5 * time.Second, false, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}},
		"never":        {"who is refused for another reason is left alone in the end", time.Hour, false, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}},
		"never, alike": {"also if the failure never changes", time.Hour, true, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := cluster(t, ready("False", noRights, -time.Minute), binding("dev", 0))
			now := given
			r := &Reconciler{Kind: failureevents.Kustomization, Client: c, APIReader: c, Now: func() time.Time { return now }}
			var at []time.Duration
			for last := ""; len(at) < 10; {
				result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				if err != nil {
					t.Fatal(err)
				}
				if result.RequeueAfter > 0 {
					now = now.Add(result.RequeueAfter)
					continue
				}
				request := asked(t, c)
				if request == last {
					break
				}
				last, at = request, append(at, now.Sub(given))
				u := ready("False", noRights, -time.Minute)
				if !tc.same {
					u = ready("False", noRights, now.Sub(given))
				}
				if now.Sub(given) >= tc.heard {
					u = ready("True", "applied", now.Sub(given))
				}
				there := failureevents.Object(failureevents.Kustomization)
				if err := c.Get(t.Context(), key, there); err != nil {
					t.Fatal(err)
				}
				there.Object["status"] = with(u, request, "status", "lastHandledReconcileAt").Object["status"]
				if err := c.Update(t.Context(), there); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, at); diff != "" {
				t.Errorf("%s: asked (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWaiting finds who waits for the rights that a binding gives.
func TestWaiting(t *testing.T) {
	t.Parallel()
	waits := ready("False", noRights, 0)
	other := with(ready("False", noRights, 0), "else", "spec", "serviceAccountName")
	other.SetName("other")
	works := ready("True", "applied", 0)
	works.SetName("works")
	far := ready("False", noRights, 0)
	far.SetNamespace("far")
	r := &Reconciler{Kind: failureevents.Kustomization, Client: cluster(t, waits, other, works, far)}
	b := binding("elsewhere", 0)
	b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: "dev"}, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "dev"})
	if diff := cmp.Diff([]ctrl.Request{{NamespacedName: key}}, r.waiting(t.Context(), b)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// FuzzDue gives the reconciler any times that a tenant may write: an object is asked a
// while after the rights, or its creation, or never.
func FuzzDue(f *testing.F) {
	f.Add("2026-11-22T12:00:01Z", "", "", noRights)
	f.Add("", "2026-11-22T12:00:09.5Z", "2026-11-22T12:00:09.5Z", noRights)
	f.Add("0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "x", noFolder)
	f.Fuzz(func(t *testing.T, since, heard, request, message string) {
		u := with(with(ready("False", message, 0), request, "metadata", "annotations", Annotation), heard, "status", "lastHandledReconcileAt")
		u.Object["status"].(map[string]any)["conditions"].([]any)[0].(map[string]any)["lastTransitionTime"] = since
		if !retriable(u) {
			return
		}
		if at := dueForQuota(created(u, 0)); !at.IsZero() && (at.Before(given.Add(quotaDelay)) || at.After(given.Add(quotaGrace+quotaDelay))) {
			t.Errorf("it is asked %s after it was created", at.Sub(given))
		}
		at := dueForRights(u, given)
		if !at.IsZero() && (at.Before(given.Add(first)) || at.After(given.Add(2*grace))) {
			t.Errorf("it is asked %s after it was given rights", at.Sub(given))
		}
	})
}
