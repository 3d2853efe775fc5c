package tenantnamespace

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
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
