package capsule

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestIgnored checks which groups make no namespaces.
func TestIgnored(t *testing.T) {
	t.Parallel()
	configuration := &v1beta2.CapsuleConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1beta2.ConfigurationName}}
	configuration.Spec.IgnoreUserWithGroups = []string{"robots", "guests"}
	none := fake.NewClientBuilder().WithScheme(scheme()).Build()
	some := fake.NewClientBuilder().WithScheme(scheme()).WithObjects(configuration).Build()
	for reason, tc := range map[string]struct {
		groups  []string
		refusal string
	}{
		"no group":            {nil, ""},
		"another group":       {[]string{"robot"}, ""},
		"a group of the list": {[]string{"people", "guests"}, "(guests), whose members make no namespaces"},
	} {
		if got, err := Ignored(some)(t.Context(), tc.groups); err != nil || !strings.Contains(got, tc.refusal) || (got == "") != (tc.refusal == "") {
			t.Errorf("%s: %q, %v", reason, got, err)
		}
	}
	if got, err := Ignored(none)(t.Context(), []string{"guests"}); err != nil || got != "" {
		t.Errorf("without a CapsuleConfiguration: %q, %v", got, err)
	}
}
