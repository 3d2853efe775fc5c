package celversions_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// oldest is the minor version of Kubernetes 1 that SUPPORT.md names. Functions are only added, and the
// local cluster of the other tests runs a new version.
const oldest = 35

// TestExpressionsOfOldest compiles every expression of the policies as the API server of the oldest
// supported version does: with the functions that existed one version before, since a server accepts
// only what the previous version can run.
func TestExpressionsOfOldest(t *testing.T) {
	t.Parallel()
	support, err := os.ReadFile("../../SUPPORT.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("| Kubernetes | 1.%d or newer;", oldest); !strings.Contains(string(support), want) {
		t.Errorf("SUPPORT.md lacks %q", want)
	}
	expressions := 0
	for _, file := range []string{"admission/policies.yaml", "admission/warn.yaml", "capsule/admission.yaml", "capsule/rules.yaml"} {
		for _, policy := range policiesIn(t, "../../config/"+file) {
			for _, issue := range issues(t, oldest, policy) {
				t.Errorf("policy %s: %s", policy.Name, issue)
			}
			expressions += len(policy.Spec.Variables) + len(policy.Spec.Validations) + len(policy.Spec.MatchConditions)
		}
	}
	if expressions < 200 {
		t.Errorf("there are only %d expressions", expressions)
	}
}

// TestExpressionsKnowVersions checks that a function is unknown before the version that brings it:
// flatten came with 1.34, so a server accepts it from 1.35.
func TestExpressionsKnowVersions(t *testing.T) {
	t.Parallel()
	policy := admissionregistrationv1.ValidatingAdmissionPolicy{}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "[[true]].flatten()[0]"}}
	if found := issues(t, 34, policy); len(found) != 1 {
		t.Errorf("1.34: %v", found)
	}
	if found := issues(t, 35, policy); len(found) > 0 {
		t.Errorf("1.35: %v", found)
	}
}

// policiesIn returns the ValidatingAdmissionPolicies in a file of manifests.
func policiesIn(t *testing.T, file string) (all []admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if policy.Kind == "ValidatingAdmissionPolicy" {
			all = append(all, policy)
		}
	}
	return all
}

// issues compiles the expressions of a policy as a version of Kubernetes does.
func issues(t *testing.T, minor int, policy admissionregistrationv1.ValidatingAdmissionPolicy) (found []string) {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MajorMinor(1, uint(minor-1))))
	if err != nil {
		t.Fatal(err)
	}
	options := plugincel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	check := func(result plugincel.CompilationResult, expression string) {
		if result.Error != nil {
			found = append(found, fmt.Sprintf("%s: %v", expression, result.Error))
		}
	}
	for _, v := range policy.Spec.Variables {
		check(compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, options, environment.NewExpressions), v.Expression)
	}
	for _, v := range policy.Spec.Validations {
		check(compiler.CompileCELExpression(&validating.ValidationCondition{Expression: v.Expression}, options, environment.NewExpressions), v.Expression)
		if v.MessageExpression != "" {
			check(compiler.CompileCELExpression(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, options, environment.NewExpressions), v.MessageExpression)
		}
	}
	for _, c := range policy.Spec.MatchConditions {
		condition := matchconditions.MatchCondition(c)
		check(compiler.CompileCELExpression(&condition, options, environment.NewExpressions), c.Expression)
	}
	return found
}
