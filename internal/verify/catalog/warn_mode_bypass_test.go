package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestIsWarned checks that warn mode is reported, and that a patch which lets more rules warn is
// reported first.
func TestIsWarned(t *testing.T) {
	t.Parallel()
	const (
		must   = "which must deny in warn mode too"
		beside = "which may warn only beside bindings of " + admission.ObjectsAlways
	)
	for name, tc := range map[string]struct {
		reason string
		// warn selects the bindings that warn, and always adds the policies of warn mode.
		warn   func(admissionv1.ValidatingAdmissionPolicyBinding) bool
		always bool
		want   Outcome
		say    []string
		silent []string
	}{
		"enforce": {"each binding denies", func(admissionv1.ValidatingAdmissionPolicyBinding) bool { return false }, false, Stopped, nil, nil},
		"warn": {"the profile's warn mode", func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return admission.MayWarn(b.Labels[admission.LabelComponent])
		}, true, GotThrough, []string{"warn mode"}, []string{must, beside}},
		"by hand": {"the same patch, without the policies of warn mode", func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return admission.MayWarn(b.Labels[admission.LabelComponent])
		}, false, GotThrough, []string{beside}, []string{must}},
		"older patch": {"a patch of the label admission alone leaves the rules about objects as they are", func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Labels[admission.LabelComponent] == admission.Component
		}, false, GotThrough, []string{"warn mode"}, []string{must, beside}},
		"all": {"a patch of every binding", func(admissionv1.ValidatingAdmissionPolicyBinding) bool { return true }, true, GotThrough, []string{must}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, bindings := admission.Policies()
			if tc.always {
				_, further := admission.WarnPolicies()
				bindings = slices.Concat(bindings, further)
			}
			var objects []client.Object
			for i := range bindings {
				if tc.warn(bindings[i]) {
					bindings[i].Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
				}
				objects = append(objects, &bindings[i])
			}
			f := isWarned(t.Context(), newFakeEnv(interceptor.Funcs{}, objects...))
			if f.Outcome != tc.want {
				t.Errorf("%s: %s, want %s: %+v", tc.reason, f.Outcome, tc.want, f)
			}
			for _, words := range tc.say {
				if !strings.Contains(f.Evidence, words) {
					t.Errorf("%s: the finding does not say %q: %s", tc.reason, words, f.Evidence)
				}
			}
			for _, words := range tc.silent {
				if strings.Contains(f.Evidence, words) {
					t.Errorf("%s: the finding says %q: %s", tc.reason, words, f.Evidence)
				}
			}
		})
	}
}
