package failureevents

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

type noProfile struct{}

func (noProfile) Profile(context.Context) (*v1alpha1.TenancyProfile, error) { return nil, nil }

type posts []string

func (p *posts) Post(_ context.Context, namespace string, f Failure) error {
	*p = append(*p, namespace+": "+f.Message)
	return nil
}

func kustomization(namespace, status, reason, message string, spec map[string]any) *unstructured.Unstructured {
	k := Object(Kustomization)
	k.SetNamespace(namespace)
	k.SetName("sync")
	k.SetUID("1")
	k.Object["spec"] = spec
	k.Object["status"] = map[string]any{"lastAttemptedRevision": "main@sha1:abc", "conditions": []any{
		map[string]any{"type": "Ready", "status": status, "reason": reason, "message": message},
	}}
	return k
}

// release is a HelmRelease of the platform that has conditions, each as type,
// status, reason and message.
func release(spec map[string]any, conditions ...[4]string) *unstructured.Unstructured {
	u := Object(HelmRelease)
	u.SetNamespace("flux-system")
	u.SetName("chart")
	u.SetUID("2")
	var all []any
	for _, c := range conditions {
		all = append(all, map[string]any{"type": c[0], "status": c[1], "reason": c[2], "message": c[3]})
	}
	u.Object["spec"] = spec
	u.Object["status"] = map[string]any{"lastAttemptedRevision": "1.2.3", "conditions": all}
	return u
}

// harness is a reconciler on a cluster with two tenants: dev-team has the
// namespaces apps and preview, billing has the namespace billing.
func harness(t *testing.T, k *unstructured.Unstructured, bound ...string) (*Reconciler, *posts, func() []string) {
	t.Helper()
	s := runtime.NewScheme()
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{k}
	for name, tenant := range map[string]string{"apps": "dev-team", "preview": "dev-team", "billing": "billing", "tools": ""} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if tenant != "" {
			ns.Labels = map[string]string{v1alpha1.LabelFluxTenant: tenant}
		}
		objects = append(objects, ns)
	}
	for _, namespace := range bound {
		objects = append(objects, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "delegate", Labels: map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "delegate"}},
		})
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithIndex(&rbacv1.RoleBinding{}, IndexSubject, Subjects).Build()
	told := &posts{}
	now := time.Unix(1000, 0)
	r := &Reconciler{Kind: k.GroupVersionKind(), Client: c, APIReader: c, Profiles: noProfile{}, Alerts: told, Instance: "test", Home: "flux-system", Now: func() time.Time { return now }}
	return r, told, func() []string {
		var list eventsv1.EventList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		var notes []string
		for _, e := range list.Items {
			notes = append(notes, e.Namespace+": "+e.Note)
		}
		return notes
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	as := map[string]any{"serviceAccountName": "delegate"}
	const released = ": HelmRelease flux-system/chart at 1.2.3: forbidden"
	const failed, note = "ReconciliationFailed", ": Kustomization flux-system/sync at main@sha1:abc: forbidden"
	for _, tc := range []struct {
		reason string
		k      *unstructured.Unstructured
		bound  []string
		want   []string
	}{
		{"all namespaces of the tenant whose account it is", kustomization("flux-system", "False", failed, "forbidden", as), []string{"apps", "preview"}, []string{"apps" + note, "preview" + note}},
		{"what two tenants share is told to none", kustomization("flux-system", "False", failed, "forbidden", as), []string{"apps", "billing"}, nil},
		{"the admin's own namespace beside it is none of a tenant's", kustomization("flux-system", "False", failed, "forbidden", as), []string{"apps", "tools"}, []string{"apps" + note}},
		{"the target says whose it is", kustomization("flux-system", "False", failed, "forbidden", map[string]any{"targetNamespace": "billing"}), nil, []string{"billing" + note}},
		{"the platform's own sync is nobody's", kustomization("flux-system", "False", failed, "forbidden", map[string]any{}), nil, nil},
		{"another cluster's tenants are not ours", kustomization("flux-system", "False", failed, "forbidden", map[string]any{"targetNamespace": "billing", "kubeConfig": map[string]any{}}), nil, nil},
		{"a tenant's own Kustomization is where it looks", kustomization("apps", "False", failed, "forbidden", map[string]any{"targetNamespace": "billing"}), nil, nil},
		{"to wait is no failure", kustomization("flux-system", "False", reasonDependency, "wait", as), []string{"apps"}, nil},
		{"a release that failed", release(map[string]any{"targetNamespace": "apps"}, [4]string{"Ready", "False", "InstallFailed", "forbidden"}), nil, []string{"apps" + released}},
		{"a release as the tenant's account", release(as, [4]string{"Ready", "False", "UpgradeFailed", "forbidden"}), []string{"apps"}, []string{"apps" + released}},
		{"a release that was rolled back says what failed", release(map[string]any{"targetNamespace": "apps"},
			[4]string{"Remediated", "True", "RollbackSucceeded", "rolled back"}, [4]string{"Ready", "False", "RollbackSucceeded", "rolled back"}, [4]string{"Released", "False", "UpgradeFailed", "forbidden"}),
			nil, []string{"apps" + released}},
		{"a release whose tests failed says so", release(map[string]any{"targetNamespace": "apps"},
			[4]string{"Remediated", "True", "RollbackSucceeded", "rolled back"}, [4]string{"Ready", "False", "RollbackSucceeded", "rolled back"},
			[4]string{"TestSuccess", "False", "TestFailed", "forbidden"}, [4]string{"Released", "True", "UpgradeSucceeded", "done"}),
			nil, []string{"apps" + released}},
		{"what failed before is not why it fails now", release(map[string]any{"targetNamespace": "apps"},
			[4]string{"Ready", "False", "ArtifactFailed", "forbidden"}, [4]string{"Released", "False", "UpgradeFailed", "long ago"}), nil, []string{"apps" + released}},
		{"a release that another tenant's namespace keeps is told to none", release(map[string]any{"targetNamespace": "apps", "storageNamespace": "billing"}, [4]string{"Ready", "False", "InstallFailed", "forbidden"}), nil, nil},
		{"a release that is kept in the platform's namespace", release(map[string]any{"targetNamespace": "apps", "storageNamespace": "flux-system"}, [4]string{"Ready", "False", "InstallFailed", "forbidden"}), nil, []string{"apps" + released}},
		{"a release that waits for another one", release(map[string]any{"targetNamespace": "apps"}, [4]string{"Ready", "False", reasonDependency, "wait"}), nil, nil},
		{"nor is to work", kustomization("flux-system", "Unknown", "Progressing", "working", as), []string{"apps"}, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			r, told, notes := harness(t, tc.k, tc.bound...)
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.k)}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, notes()); diff != "" {
				t.Errorf("events: -want, +got:\n%s", diff)
			}
			if len(*told) != len(tc.want) {
				t.Errorf("alerts: %v", *told)
			}
		})
	}
}

func TestMirrorIsBounded(t *testing.T) {
	t.Parallel()
	k := kustomization("flux-system", "False", "BuildFailed", "first", map[string]any{"targetNamespace": "apps"})
	r, told, notes := harness(t, k)
	now := r.Now()
	r.Now = func() time.Time { return now }
	step := func(reason string, later time.Duration, message string, events, alerts int) {
		t.Helper()
		now = now.Add(later)
		current := Object(Kustomization)
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(k), current); err != nil {
			t.Fatal(err)
		}
		current.Object["status"] = kustomization("", "False", "BuildFailed", message, nil).Object["status"]
		if err := r.Client.Update(t.Context(), current); err != nil {
			t.Fatal(err)
		}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(k)})
		if err != nil || result.RequeueAfter <= 0 {
			t.Errorf("%s: Reconcile() = %v, %v", reason, result, err)
		}
		if len(notes()) != events || len(*told) != alerts {
			t.Errorf("%s: want %d events and %d alerts, got %q and %q", reason, events, alerts, notes(), *told)
		}
	}
	step("the first", 0, "first", 1, 1)
	step("the same at once", time.Second, "first", 1, 1)
	step("another one too soon", time.Second, "second", 1, 1)
	step("another one", pause, "second", 2, 2)
	step("the same much later is the same event", repeat, "second", 2, 2)
	r.forgetFailure(client.ObjectKeyFromObject(k))
	step("and after a restart", 0, "second", 2, 2)
}

func FuzzCut(f *testing.F) {
	f.Add("äöü", 4)
	f.Add("", 3)
	f.Add("\xff\xfe", 5)
	f.Fuzz(func(t *testing.T, s string, size int) {
		size = 3 + (size&0x7fffffff)%2000 // no bound of ours is smaller than the dots
		got := cut(s, size)
		if len(got) > size || !utf8.ValidString(got) {
			t.Errorf("cut(%q, %d) = %q", s, size, got)
		}
		if utf8.ValidString(s) && len(s) <= size && got != s {
			t.Errorf("cut(%q, %d) changed it to %q", s, size, got)
		}
		name := eventName(Failure{Name: strings.Repeat("a", size)})
		if len(name) > 253 {
			t.Errorf("an event's name has %d characters", len(name))
		}
	})
}

func TestTrim(t *testing.T) {
	t.Parallel()
	long := release(map[string]any{"targetNamespace": "apps", "values": map[string]any{"a": "b"}}, [4]string{"Ready", "True", "InstallSucceeded", "done"})
	want := release(map[string]any{"targetNamespace": "apps"}, [4]string{"Ready", "True", "InstallSucceeded", "done"})
	other := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "tenure.dev/v1alpha1", "kind": "TenancyProfile", "spec": map[string]any{"breakGlass": []any{"a"}}}}
	for _, tc := range []struct {
		reason string
		in     any
		want   any
	}{
		{"values are not read here", long, want},
		{"what others read stays whole", other, other},
		{"typed objects too", &corev1.Namespace{}, &corev1.Namespace{}},
	} {
		got, err := Trim(tc.in)
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
		}
	}
}
