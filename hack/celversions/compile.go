package main

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	celschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// environmentOf returns the functions with which the API server of a minor version compiles new
// expressions: those of the version before, to which it must be possible to go back.
func environmentOf(minor int) *environment.EnvSet {
	return environment.MustBaseEnvSet(version.MajorMinor(1, uint(minor-1)))
}

// refused returns the errors of the API server of a minor version for the expressions that it
// refuses.
func (m manifests) refused(minor int) ([]string, error) {
	var all []string
	for _, policy := range m.validating {
		refused, err := refusedOfPolicy(minor, policy)
		if err != nil {
			return nil, err
		}
		all = append(all, refused...)
	}
	if servedMutating(minor) == "v1" {
		for _, policy := range m.mutating {
			refused, err := refusedOfMutating(minor, policy)
			if err != nil {
				return nil, err
			}
			all = append(all, refused...)
		}
	}
	for _, configuration := range m.webhooks {
		for _, webhook := range configuration.Webhooks {
			c, err := newCompiler(minor, false)
			if err != nil {
				return nil, err
			}
			c.conditions(webhook.MatchConditions)
			all = append(all, c.refused...)
		}
	}
	for _, s := range m.schemas {
		refused, err := refusedOfSchema(minor, s)
		if err != nil {
			return nil, err
		}
		all = append(all, refused...)
	}
	return all, nil
}

// compiler compiles the expressions of one object, and keeps what is refused.
type compiler struct {
	*plugincel.CompositedCompiler
	options plugincel.OptionalVariableDeclarations
	refused []string
}

func newCompiler(minor int, params bool) (*compiler, error) {
	composited, err := plugincel.NewCompositedCompiler(environmentOf(minor))
	if err != nil {
		return nil, err
	}
	return &compiler{CompositedCompiler: composited, options: plugincel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}}, nil
}

func (c *compiler) expression(accessor plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations) {
	if result := c.CompileCELExpression(accessor, options, environment.NewExpressions); result.Error != nil {
		c.refused = append(c.refused, fmt.Sprintf("%s: %v", accessor.GetExpression(), result.Error))
	}
}

func (c *compiler) variables(variables []admissionregistrationv1.Variable) {
	for _, v := range variables {
		if result := c.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, c.options, environment.NewExpressions); result.Error != nil {
			c.refused = append(c.refused, fmt.Sprintf("%s: %v", v.Expression, result.Error))
		}
	}
}

func (c *compiler) conditions(conditions []admissionregistrationv1.MatchCondition) {
	for _, condition := range conditions {
		c.expression((*matchconditions.MatchCondition)(&condition), c.options)
	}
}

func refusedOfPolicy(minor int, policy admissionregistrationv1.ValidatingAdmissionPolicy) ([]string, error) {
	c, err := newCompiler(minor, policy.Spec.ParamKind != nil)
	if err != nil {
		return nil, err
	}
	c.variables(policy.Spec.Variables)
	for _, v := range policy.Spec.Validations {
		c.expression(&validating.ValidationCondition{Expression: v.Expression}, c.options)
		if v.MessageExpression != "" {
			c.expression(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, c.options)
		}
	}
	c.conditions(policy.Spec.MatchConditions)
	return c.refused, nil
}

func refusedOfMutating(minor int, policy admissionregistrationv1.MutatingAdmissionPolicy) ([]string, error) {
	c, err := newCompiler(minor, policy.Spec.ParamKind != nil)
	if err != nil {
		return nil, err
	}
	c.variables(policy.Spec.Variables)
	patches := c.options
	patches.HasPatchTypes = true
	for _, mutation := range policy.Spec.Mutations {
		if mutation.JSONPatch != nil {
			c.expression(&patch.JSONPatchCondition{Expression: mutation.JSONPatch.Expression}, patches)
		} else {
			c.expression(&patch.ApplyConfigurationCondition{Expression: mutation.ApplyConfiguration.Expression}, patches)
		}
	}
	c.conditions(policy.Spec.MatchConditions)
	return c.refused, nil
}

// boundedSince is the minor version since which an API server estimates the cost of an expression
// about an integer or string by its maximum length. Older ones assume the longest request.
const boundedSince = 34

// refusedOfSchema compiles the expressions of a schema and estimates their costs. An expression in a
// list or map costs more than this: the tests on a real API server show that.
func refusedOfSchema(minor int, structural *schema.Structural) (refused []string, err error) {
	if minor < boundedSince {
		structural = structural.DeepCopy()
		unbind(structural)
	}
	err = eachSchema(structural, true, func(s *schema.Structural, whole bool) error {
		if len(s.XValidations) == 0 {
			return nil
		}
		results, err := celschema.Compile(s, model.SchemaDeclType(s, whole), celconfig.PerCallLimit, environmentOf(minor), celschema.NewExpressionsEnvLoader())
		for i, result := range results {
			if result.Error != nil {
				refused = append(refused, fmt.Sprintf("%s: %v", s.XValidations[i].Rule, result.Error))
			}
			if result.MaxCost > validation.StaticEstimatedCostLimit {
				refused = append(refused, fmt.Sprintf("%s: the estimated cost is %d, and at most %d is allowed", s.XValidations[i].Rule, result.MaxCost, validation.StaticEstimatedCostLimit))
			}
			if result.MessageExpressionError != nil {
				refused = append(refused, fmt.Sprintf("%s: %v", s.XValidations[i].MessageExpression, result.MessageExpressionError))
			}
		}
		return err
	})
	return refused, err
}

// unbind removes the maximum lengths of integers or strings from a schema.
func unbind(s *schema.Structural) {
	if s.XIntOrString && s.ValueValidation != nil {
		s.ValueValidation.MaxLength = nil
	}
	for name, property := range s.Properties {
		unbind(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		unbind(s.Items)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		unbind(s.AdditionalProperties.Structural)
	}
}
