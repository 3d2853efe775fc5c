package admission

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, expression, want string }{
		{"the spec of a Pod", podSpec("object"), "(object.?spec).orValue({})"},
		{"a comparison with another kind", "request.resource.resource == 'jobs' && a", "false"},
		{"a comparison that is not equal", "request.resource.resource != 'pods' || a", " a"},
		{"a list with Pods", "request.resource.resource in ['jobs', 'pods'] && a", " a"},
		{"a list without Pods", "request.resource.resource in ['jobs', 'cronjobs'] || a", " a"},
		{"a group that is a constant", "(request.resource.resource == 'jobs' && a) || b", " b"},
		{"its negation", "!(request.resource.resource == 'jobs') && a", " a"},
		{"the arguments of a function", "[1].exists(x, request.resource.resource == 'jobs' && x > 0 || a)", "[1].exists(x, a)"},
		{"a call with one constant", "f(request.resource.resource == 'jobs')", "f(false)"},
		{"a conditional in a conditional", "request.resource.resource == 'jobs' ? (a ? b : c) : request.resource.resource == 'pods' ? d : e", "d"},
		{"a conditional with another condition", "a ? (request.resource.resource == 'pods' ? b : c) : d", "a ? (b) : d"},
		{"texts are not expressions", "x + ' (true && ? : '", "x + ' (true && ? : '"},
		{"an escaped quotation mark", `'it\'s (true && ' + (request.resource.resource == 'pods' ? a : b)`, `'it\'s (true && ' + (a)`},
		{"optional fields and keys are no conditionals", "a.?b[?'c'].orValue(true) && d", "a.?b[?'c'].orValue(true) && d"},
		{"the name of the resource", "request.resource.resource + x", "'pods' + x"},
		{"an action", isOneOf(action, []string{"CREATE /pods", "UPDATE /pods/status"}), actionOnPods + " in ['CREATE', 'UPDATE/status']"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			if got := partOfPods.decide(tc.expression); got != tc.want {
				t.Errorf("%s becomes\n%q, want\n%q", tc.expression, got, tc.want)
			}
		})
	}
}

// TestSimplified compares random expressions with what becomes of them, for all values of their variables.
func TestSimplified(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	shorter := 0
	for range 20000 {
		expression := randomCondition(random, 4)
		got := simplified(expression)
		if len(got) < len(expression) {
			shorter++
		}
		for i := range 4 {
			a, b := i&1 > 0, i&2 > 0
			before, rest := evaluated(expression, a, b)
			after, left := evaluated(got, a, b)
			if before != after || strings.TrimSpace(rest) != "" || strings.TrimSpace(left) != "" {
				t.Fatalf("%s\nis %t, and\n%s\nis %t, for a=%t b=%t (not read: %q and %q)", expression, before, got, after, a, b, rest, left)
			}
		}
	}
	if shorter < 5000 {
		t.Errorf("only %d expressions became shorter", shorter)
	}
}

// randomCondition returns CEL in the format of this package, with the variables a and b.
func randomCondition(random *rand.Rand, depth int) string {
	operand := func() string { return "(" + randomCondition(random, depth-1) + ")" }
	n := random.IntN(9)
	if depth == 0 {
		n = random.IntN(5)
	}
	switch n {
	case 0, 1, 2, 3, 4:
		return []string{"true", "false", "a", "b", "!a"}[n]
	case 5:
		return operand() + " && " + operand()
	case 6:
		return operand() + " ||\n" + operand() + " && " + operand()
	case 7:
		return operand() + " ? " + operand() + " :\n" + randomCondition(random, depth-1)
	}
	return "!" + operand()
}

// evaluated returns the value of the condition with which a text begins, and the rest of the text. It reads
// the grammar of CEL: a conditional, of disjunctions, of conjunctions.
func evaluated(text string, a, b bool) (bool, string) {
	condition, rest := joined(text, a, b, "||", "&&")
	if after, ok := strings.CutPrefix(strings.TrimSpace(rest), "?"); ok {
		yes, rest := joined(after, a, b, "||", "&&")
		no, rest := evaluated(strings.TrimPrefix(strings.TrimSpace(rest), ":"), a, b)
		if condition {
			return yes, rest
		}
		return no, rest
	}
	return condition, rest
}

// joined returns the value of the operands that the operators join, of which the first one binds weakest.
func joined(text string, a, b bool, operators ...string) (bool, string) {
	if len(operators) == 0 {
		return operand(text, a, b)
	}
	value, rest := joined(text, a, b, operators[1:]...)
	for {
		after, ok := strings.CutPrefix(strings.TrimSpace(rest), operators[0])
		if !ok {
			return value, rest
		}
		var other bool
		other, rest = joined(after, a, b, operators[1:]...)
		if operators[0] == "||" {
			value = value || other
		} else {
			value = value && other
		}
	}
}

func operand(text string, a, b bool) (bool, string) {
	text = strings.TrimSpace(text)
	if after, ok := strings.CutPrefix(text, "!"); ok {
		value, rest := operand(after, a, b)
		return !value, rest
	}
	if after, ok := strings.CutPrefix(text, "("); ok {
		value, rest := evaluated(after, a, b)
		return value, strings.TrimPrefix(strings.TrimSpace(rest), ")")
	}
	for word, value := range map[string]bool{"true": true, "false": false, "a": a, "b": b} {
		if after, ok := strings.CutPrefix(text, word); ok {
			return value, after
		}
	}
	return false, text
}
