package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addWarnModeBypass(register func(...Attack)) {
	register(Attack{
		ID: "I22", Via: API,
		Kinds:    []string{},
		Title:    "sends a request about which a rule only warns",
		Controls: []string{"bindings of Tenure's policies that deny"},
		Fix:      Fix{Advice: "remove the patch of validationActions from the fleet: run tenure profile multi-tenant with --mode enforce; a rule that warns stops nothing, and a rule that limits rights which RBAC cannot limit must deny in warn mode too"},
		Run:      isWarned,
	})
}

// isWarned checks for bindings of Tenure's policies that do not deny. It sends no request that a rule
// should deny: other attacks do.
func isWarned(ctx context.Context, e *Scenario) Finding {
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := e.Admin.List(ctx, &bindings, client.MatchingLabels{"app.kubernetes.io/name": "tenure"}); err != nil {
		return notProven("cannot read the bindings of policies: " + firstLine(err.Error()))
	}
	denies := func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
		return slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
	}
	alwaysOfObjects := slices.ContainsFunc(bindings.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
		return strings.HasPrefix(b.Spec.PolicyName, admission.ObjectsAlways) && denies(b)
	})
	// The bindings that must deny come first, because the finding lists only a few.
	var must, warning []string
	for _, b := range bindings.Items {
		switch component := b.Labels[admission.LabelComponent]; {
		case denies(b):
		case component == admission.ComponentObjects && !alwaysOfObjects:
			must = append(must, b.Name+" (which may warn only beside bindings of "+admission.ObjectsAlways+" that deny)")
		case !admission.MayWarn(component):
			must = append(must, b.Name+" (which must deny in warn mode too)")
		default:
			warning = append(warning, b.Name)
		}
	}
	warning = append(must, warning...)
	switch {
	case len(warning) > 0:
		return gotThrough(fmt.Sprintf("the fleet is in warn mode: %d of %d bindings of Tenure's policies stop nothing: %s", len(warning), len(bindings.Items), listed(warning)))
	case len(bindings.Items) == 0:
		return stopped(notInstalled, "the cluster has no rule of Tenure's that could warn")
	}
	if err := identityWorks(ctx, e); err != nil {
		return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
	}
	return stopped("bindings that deny", fmt.Sprintf("all %d bindings of Tenure's policies deny", len(bindings.Items)))
}

// listed returns the first names of a long list as text.
func listed(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
