package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// TestKnowsVersions checks that a function is refused in each kind before the version that brings it:
// flatten came with 1.34, so a server accepts it from 1.35.
func TestKnowsVersions(t *testing.T) {
	t.Parallel()
	const flatten = "[[true]].flatten()[0]"
	condition := []admissionregistrationv1.MatchCondition{{Expression: flatten}}
	var validating admissionregistrationv1.ValidatingAdmissionPolicy
	validating.Spec.Variables = []admissionregistrationv1.Variable{{Name: "v", Expression: flatten}}
	validating.Spec.Validations = []admissionregistrationv1.Validation{{Expression: flatten, MessageExpression: "string(" + flatten + ")"}}
	validating.Spec.MatchConditions = condition
	var mutating admissionregistrationv1.MutatingAdmissionPolicy
	mutating.Spec.Variables = validating.Spec.Variables
	mutating.Spec.Mutations = []admissionregistrationv1.Mutation{
		{JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[" + flatten + "].map(b, JSONPatch{op: 'remove', path: '/x'})"}},
		{ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: flatten + " ? Object{} : Object{}"}},
	}
	mutating.Spec.MatchConditions = condition
	all := manifests{
		validating: []admissionregistrationv1.ValidatingAdmissionPolicy{validating},
		webhooks:   []admissionregistrationv1.ValidatingWebhookConfiguration{{Webhooks: []admissionregistrationv1.ValidatingWebhook{{MatchConditions: condition}}}},
		schemas: []*schema.Structural{{
			Generic:    schema.Generic{Type: "object"},
			Properties: map[string]schema.Structural{"field": {Generic: schema.Generic{Type: "string"}, ValidationExtensions: schema.ValidationExtensions{XValidations: apiextensionsv1.ValidationRules{{Rule: flatten}}}}},
		}},
	}
	for minor, want := range map[int]int{33: 6, 34: 6, 35: 0, 36: 0} {
		refused, err := all.refused(minor)
		if err != nil {
			t.Fatal(err)
		}
		if len(refused) != want {
			t.Errorf("1.%d refuses %d of %d expressions instead of %d: %s", minor, len(refused), len(all.expressions()), want, strings.Join(refused, "\n"))
		}
	}
	for minor, want := range map[int]int{34: 4, 35: 0} {
		refused, err := refusedOfMutating(minor, mutating)
		if err != nil {
			t.Fatal(err)
		}
		if len(refused) != want {
			t.Errorf("1.%d refuses %d expressions of the mutating policy instead of %d: %s", minor, len(refused), want, strings.Join(refused, "\n"))
		}
	}
}

// TestKnowsCosts checks that a long integer or string costs too much for a version that ignores its
// maximum length.
func TestKnowsCosts(t *testing.T) {
	t.Parallel()
	length, properties := int64(32), int64(64)
	amounts := schema.Structural{
		Generic:              schema.Generic{Type: "object"},
		ValidationExtensions: schema.ValidationExtensions{XValidations: apiextensionsv1.ValidationRules{{Rule: "self.all(k, isQuantity(string(self[k])))"}}},
		ValueValidation:      &schema.ValueValidation{MaxProperties: &properties},
		AdditionalProperties: &schema.StructuralOrBool{Structural: &schema.Structural{
			Extensions: schema.Extensions{XIntOrString: true}, ValueValidation: &schema.ValueValidation{MaxLength: &length},
		}},
	}
	list := manifests{schemas: []*schema.Structural{{Generic: schema.Generic{Type: "object"}, Properties: map[string]schema.Structural{
		"amounts": amounts, "list": {Generic: schema.Generic{Type: "array"}, Items: &amounts},
	}}}}
	for minor, want := range map[int]int{33: 2, 34: 0, 36: 0} {
		refused, err := list.refused(minor)
		if err != nil {
			t.Fatal(err)
		}
		if len(refused) != want {
			t.Errorf("1.%d refuses %d expressions instead of %d: %s", minor, len(refused), want, strings.Join(refused, "\n"))
		}
	}
}

// TestServedMutating checks the versions of MutatingAdmissionPolicy.
func TestServedMutating(t *testing.T) {
	t.Parallel()
	for minor, want := range map[int]string{31: "", 32: "v1alpha1", 33: "v1alpha1", 34: "v1beta1", 35: "v1beta1", 36: "v1"} {
		if got := servedMutating(minor); got != want {
			t.Errorf("1.%d serves %q instead of %q", minor, got, want)
		}
	}
}

// TestRow checks the rows of a version that is refused, of an old and of a new one.
func TestRow(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"| 1.32 | 3 of 9 refused: not supported | v1alpha1, off by default | no | no |": row(32, 9, 3, ""),
		"| 1.35 | all accepted | v1beta1, off by default | no | no |":                   row(35, 9, 0, ""),
		"| 1.36 | all accepted | v1 | yes | all |":                                      row(36, 9, 0, "all"),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestReadsManifests checks that the manifests of each kind are read, and that the documents which
// name the oldest version agree.
func TestReadsManifests(t *testing.T) {
	t.Parallel()
	all, err := readManifests("../../config")
	if err != nil {
		t.Fatal(err)
	}
	if len(all.validating) < 10 || len(all.mutating) < 2 || len(all.webhooks) < 1 || len(all.schemas) < 5 || len(all.expressions()) < 400 {
		t.Errorf("there are only %d validating and %d mutating policies, %d webhooks and %d schemas, with %d expressions",
			len(all.validating), len(all.mutating), len(all.webhooks), len(all.schemas), len(all.expressions()))
	}
	oldest, _, err := supported("../..")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"SUPPORT.md":               "| Kubernetes | 1.%d or newer;",
		"docs/how-to/install.md":   "You need Kubernetes 1.%d or newer",
		"charts/tenure/Chart.yaml": `kubeVersion: ">=1.%d.0-0"`,
	} {
		content, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(want, oldest); !strings.Contains(string(content), want) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
}
