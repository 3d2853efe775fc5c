package admission

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// part is the part of the requests about objects that one policy decides.
type part struct {
	// own is true for the namespaces with parameters.
	own bool
	// The policy decides requests about Pods, about the objects of Flux, and about all other objects.
	pods, flux, others bool
}

// The parts of the requests about objects: in namespaces without parameters, and in those with parameters.
//
// A cluster creates more Pods than other objects, and its controllers write the objects of Flux all the
// time. The API server prepares all variables of a policy for each request that the policy matches. So these
// requests have policies of their own, which have fewer variables and compare the resource less often: see
// [part.decide].
var (
	partOfProfile = part{pods: true, flux: true, others: true}
	partOfPods    = part{own: true, pods: true}
	partOfFlux    = part{own: true, flux: true}
	partOfOthers  = part{own: true, others: true}
)

// fluxGroups returns the API groups of the objects that the rules of scope fluxObjects are about: those of Flux,
// Flagger and flux-operator.
var fluxGroups = sync.OnceValue(func() []string {
	var all []string
	for _, on := range shared().resources {
		all = append(all, on.APIGroups...)
	}
	return slices.Compact(slices.Sorted(slices.Values(all)))
})

// policy returns the name of the policy that decides the part, for a policy with the rules about objects. The
// rules of [Shared] have the policy of the objects of Flux in common with those of [Objects]. Its name begins
// neither as [Shared] nor as [Objects]: a fleet may let the bindings of one of them warn.
func (p part) policy(name string) string {
	switch {
	case p == partOfPods:
		return name + fromParameters + "-pods"
	case p == partOfOthers:
		return name + fromParameters + "-rest"
	case p == partOfFlux && name == Objects:
		return Prefix + "flux" + fromParameters
	case p == partOfFlux:
		return name + fromParameters + "-flux"
	}
	return name
}

// has reports whether requests about a resource belong to the part.
func (p part) has(group, resource string) bool {
	switch {
	case resource == "*/*":
		return true
	case group == "" && (resource == "pods" || strings.HasPrefix(resource, "pods/")):
		return p.pods
	case slices.Contains(fluxGroups(), group):
		return p.flux
	}
	return p.others
}

// resources returns the resources that the policy of the part matches: all Pods, all objects of Flux, or those of the
// rules.
func (p part) resources(ofRules []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	one := everyObject
	switch p {
	case partOfPods:
		one = on(everyObject.Operations, "", "pods", "pods/*")
	case partOfFlux:
		one.APIGroups = fluxGroups()
	default:
		return ofRules
	}
	return []admissionregistrationv1.NamedRuleWithOperations{one}
}

// validations returns the validations of a rule for the requests of the part.
func (p part) validations(r Rule) []validation {
	var all []validation
	for _, v := range r.validations {
		all = append(all, validation{p.decide(v.expression), p.decide(v.message)})
	}
	return slices.DeleteFunc(all, func(v validation) bool { return v.expression == "true" })
}

// only returns those of the resources that belong to the part.
func (p part) only(resources []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	var all []admissionregistrationv1.NamedRuleWithOperations
	for _, on := range resources {
		on.Resources = slices.DeleteFunc(slices.Clone(on.Resources), func(name string) bool { return !p.has(on.APIGroups[0], name) })
		if len(on.Resources) > 0 {
			all = append(all, on)
		}
	}
	return all
}

// within returns the rule with those of its resources that belong to a part. It returns false if there are
// none.
func (r Rule) within(of part) (Rule, bool) {
	if r.ownParameters && !of.own {
		return r, false
	}
	r.resources = of.only(r.resources)
	return r, len(r.resources) > 0 || r.everyKind && of.own
}

// actionOnPods is CEL for the [action] of a request about Pods, without its resource.
const actionOnPods = "request.operation + (has(request.subResource) ? '/' + request.subResource : '')"

// podActions matches the actions on Pods and their subresources.
var podActions = regexp.MustCompile(`'([A-Z]+) /pods(/[a-z]+)?'`)

// comparisons matches comparisons of the resource of a request with constants.
var comparisons = regexp.MustCompile(`request\.resource\.resource (==|!=|in) (?:'([a-z]+)'|\[([a-z', ]*)\])`)

// decide returns CEL with the same value as an expression for each request of the part. It decides
// comparisons of the resource, and leaves out what is then never evaluated: many rules are about
// templates as well, and their expressions look for the spec of a Pod in each kind.
func (p part) decide(expression string) string {
	if !p.own {
		return expression
	}
	if p.pods {
		expression = strings.ReplaceAll(expression, action, actionOnPods)
		expression = podActions.ReplaceAllString(expression, "'$1$2'")
	}
	expression = simplified(comparisons.ReplaceAllStringFunc(expression, func(comparison string) string {
		operands := comparisons.FindStringSubmatch(comparison)
		var names []string
		for name := range strings.SplitSeq(operands[2]+operands[3], ",") {
			names = append(names, strings.Trim(name, "' "))
		}
		possible := slices.ContainsFunc(names, p.may)
		if possible && !p.pods {
			return comparison
		}
		return fmt.Sprint(possible == (operands[1] != "!="))
	}))
	if p.pods {
		expression = strings.ReplaceAll(expression, "request.resource.resource", "'pods'")
	}
	return expression
}

// may reports whether a request of the part may be about a resource with the name.
func (p part) may(resource string) bool {
	switch p {
	case partOfPods:
		return resource == "pods"
	case partOfFlux:
		return slices.Contains(fluxResources(), resource)
	}
	return resource != "pods"
}

// fluxResources returns the names of the resources of Flux that a rule is about.
var fluxResources = sync.OnceValue(func() []string {
	var all []string
	for _, r := range Rules() {
		if of, any := r.within(partOfFlux); any {
			all = append(all, names(of.resources)...)
		}
	}
	return all
})

// reduce returns the variables for the requests of the part. A variable of a short expression costs more than
// the expression in its place, see [partOfPods], so only the variables to keep may be short.
func (p part) reduce(variables []admissionregistrationv1.Variable, keep []string) []admissionregistrationv1.Variable {
	const short = 100
	var left []admissionregistrationv1.Variable
	replaced := map[string]string{}
	for _, v := range variables {
		v.Expression = p.decide(variable.ReplaceAllStringFunc(v.Expression, func(read string) string {
			if expression, known := replaced[read]; known {
				return "(" + expression + ")"
			}
			return read
		}))
		if len(v.Expression) <= short && authorizerChecks(v.Expression) == 0 && !slices.Contains(keep, v.Name) {
			replaced["variables."+v.Name] = v.Expression
		} else {
			left = append(left, v)
		}
	}
	return left
}

// variable matches the reading of a variable.
var variable = regexp.MustCompile(`\bvariables[.][A-Za-z0-9_]+`)

// simplified returns CEL with the same value as an expression, without the operands that the constants
// true and false make superfluous: CEL does not evaluate them, but the API server compiles them. It expects
// expressions in the format of this package, with spaces around the operators.
func simplified(expression string) string {
	var b strings.Builder
	for i := 0; i < len(expression); {
		end := i + 1
		switch c := expression[i]; {
		case c == '\'':
			end = i + extent(expression[i:])
			b.WriteString(expression[i:end])
		case strings.IndexByte("([{", c) >= 0:
			end = i + extent(expression[i:])
			inner := simplified(expression[i+1 : end-1])
			if c == '(' && constant(inner) != "" && !called.MatchString(b.String()) {
				b.WriteString(constant(inner))
			} else {
				b.WriteString(string(c) + inner + expression[end-1:end])
			}
		default:
			b.WriteByte(c)
		}
		i = end
	}
	elements := divided(b.String(), ",")
	for i, element := range elements {
		elements[i] = chosen(element)
	}
	return strings.Join(elements, ",")
}

// called matches the text before the parenthesis of a call.
var called = regexp.MustCompile(`[A-Za-z0-9_]$`)

// chosen simplifies a conditional, or a disjunction of conjunctions.
func chosen(expression string) string {
	parts := divided(expression, " ? ")
	condition := logical(parts[0])
	if len(parts) == 1 {
		return condition
	}
	// CEL allows another conditional after the colon only, so this colon is the first one.
	alternatives := divided(strings.Join(parts[1:], " ? "), " :")
	yes, no := alternatives[0], strings.TrimLeft(strings.Join(alternatives[1:], " :"), " \n")
	switch strings.TrimSpace(condition) {
	case "true":
		return chosen(yes)
	case "false":
		return chosen(no)
	}
	return condition + " ? " + chosen(yes) + " : " + chosen(no)
}

// logical simplifies a disjunction of conjunctions.
func logical(expression string) string {
	some := divided(expression, " ||")
	for i, one := range some {
		every := without(divided(one, " &&"), "true")
		if len(every) == 0 {
			return "true"
		}
		some[i] = strings.Join(every, " &&")
		if slices.ContainsFunc(every, func(operand string) bool { return constant(operand) == "false" }) {
			some[i] = "false"
		}
	}
	if some = without(some, "false"); len(some) == 0 {
		return "false"
	}
	return strings.Join(some, " ||")
}

// without returns the operands that do not have the constant value.
func without(operands []string, value string) []string {
	return slices.DeleteFunc(operands, func(operand string) bool { return constant(operand) == value })
}

// constant returns true or false for an operand that has this value whatever the request, and otherwise "".
func constant(operand string) string {
	switch strings.TrimSpace(operand) {
	case "true", "!false":
		return "true"
	case "false", "!true":
		return "false"
	}
	return ""
}

// divided splits an expression at a separator, but not within brackets and texts.
func divided(expression, separator string) []string {
	var parts []string
	start := 0
	for i := 0; i < len(expression); {
		switch {
		case strings.HasPrefix(expression[i:], separator):
			parts = append(parts, expression[start:i])
			i += len(separator)
			start = i
		case expression[i] == '\'' || strings.IndexByte("([{", expression[i]) >= 0:
			i += extent(expression[i:])
		default:
			i++
		}
	}
	return append(parts, expression[start:])
}

// extent returns the length of the text or the brackets with which an expression begins.
func extent(expression string) int {
	depth := 0
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; {
		case c == '\'':
			for i++; expression[i] != '\''; i++ {
				if expression[i] == '\\' {
					i++
				}
			}
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			depth--
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(expression)
}
