package tenantnamespace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSelectedClasses checks that the parameters have the classes that a Tenant selects, while
// the classes and the selector change.
func TestSelectedClasses(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	selects := func(key string, operator metav1.LabelSelectorOperator) {
		t.Helper()
		w.edit(t, r, func(s *v1alpha1.TenantSpec) {
			s.Storage.Classes = &v1alpha1.AllowedClasses{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator}}}}
		})
	}
	want := func(reason string, names ...string) {
		t.Helper()
		p := &v1alpha1.TenantParameters{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: "dev", Name: v1alpha1.ParametersName}, p); err != nil {
			t.Fatal(err)
		}
		var got []string
		if p.Spec.SelectedClasses != nil {
			got = p.Spec.SelectedClasses.StorageClasses
		}
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}

	selects("shared", metav1.LabelSelectorOpExists)
	want("there are no classes")
	recorder, ok := r.Events.(*events.FakeRecorder)
	if !ok {
		t.Fatalf("the events go to a %T", r.Events)
	}
	told := ""
	for len(recorder.Events) > 0 {
		told += <-recorder.Events + "\n"
	}
	if !strings.Contains(told, "SelectsNothing the selector of storage.classes selects no class") {
		t.Errorf("nobody is told that the selector selects nothing: %s", told)
	}

	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Labels: map[string]string{"shared": "yes"}}, Provisioner: "example.com/disk"}
	if err := w.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.look(t, r)
	want("a class with the label", "fast")

	selects("shared", "Is")
	want("an invalid selector selects nothing")
	if w.problem == nil || !strings.Contains(w.problem.Error(), `spec.storage.classes.selector is invalid: "Is"`) {
		t.Errorf("the Tenant does not say that its selector is invalid: %v", w.problem)
	}
	selects("shared", metav1.LabelSelectorOpExists)
	want("the selector is valid again", "fast")
	if w.problem != nil {
		t.Errorf("the problem stays: %v", w.problem)
	}

	class.Labels = nil
	if err := w.Update(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.look(t, r)
	want("the class lost its label")
}

// TestUnallowedDefault checks that a Tenant says which of its defaults the profile does not allow.
func TestUnallowedDefault(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	w.storage.Classes = &v1alpha1.AllowedClasses{AllowedNames: v1alpha1.AllowedNames{Allowed: []v1alpha1.ValuePattern{"slow"}}}
	w.edit(t, r, func(s *v1alpha1.TenantSpec) { s.Storage.Classes = &v1alpha1.AllowedClasses{Default: "fast"} })
	if w.problem == nil || !strings.Contains(w.problem.Error(), "spec.storage.classes.default is fast, which the TenancyProfile does not allow") {
		t.Errorf("the Tenant does not name its default: %v", w.problem)
	}
	w.edit(t, r, func(s *v1alpha1.TenantSpec) { s.Storage.Classes.Default = "slow" })
	if w.problem != nil {
		t.Errorf("the problem stays: %v", w.problem)
	}
}

// The manager marks namespaces without defaults with a value of the label, and the API server leaves out the
// policy there.
func TestParametersLabel(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t, "https://git.example.com/acme/app")
	is := func(reason, want string) {
		t.Helper()
		ns := &corev1.Namespace{}
		if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, ns); err != nil {
			t.Fatal(err)
		}
		if got := ns.Labels[v1alpha1.LabelParameters]; got != want {
			t.Errorf("%s: got the value %q, want %q", reason, got, want)
		}
	}
	label := func(reason, want string) {
		t.Helper()
		for range 4 { // the label comes with the last look
			w.look(t, r)
		}
		is(reason, want)
	}
	label("no defaults", v1alpha1.ParametersWithoutDefaults)
	w.edit(t, r, func(s *v1alpha1.TenantSpec) { s.Storage.Classes = &v1alpha1.AllowedClasses{Default: "fast"} })
	label("a default", tenancy.ManagedValue)
	w.edit(t, r, func(s *v1alpha1.TenantSpec) { s.Storage.Classes = nil })
	label("no default any more", v1alpha1.ParametersWithoutDefaults)

	tenant := &v1alpha1.Tenant{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, tenant); err != nil {
		t.Fatal(err)
	}
	tenant.Spec.Storage.Classes = &v1alpha1.AllowedClasses{Default: "fast"}
	if err := w.Update(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	w.broken = "TenantParameters"
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "dev"}}); err == nil {
		t.Error("nobody is told about parameters that cannot be written")
	}
	is("a default, and parameters that cannot be written", tenancy.ManagedValue)
	w.broken = ""
	label("they are written again", tenancy.ManagedValue)

	ns := &corev1.Namespace{}
	if err := w.Get(t.Context(), client.ObjectKey{Name: "dev"}, ns); err != nil {
		t.Fatal(err)
	}
	ns.Labels[v1alpha1.LabelParameters] = "true"
	if err := w.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	label("a value of somebody else", "true")
}
