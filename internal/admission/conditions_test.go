package admission

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

func TestAffordable(t *testing.T) {
	t.Parallel()
	const one, two = "a.check('x').allowed()", "a.check('y').allowed() && b.check('y').allowed()"
	for reason, c := range map[string]struct {
		conditions []string
		want       [][]string
	}{
		"no condition is none":                              {nil, nil},
		"what asks nothing stands together":                 {[]string{"x", "y"}, [][]string{{"x", "y"}}},
		"two questions can be paid for":                     {[]string{"x", one, one}, [][]string{{"x", one, one}}},
		"the third comes after what decides without asking": {[]string{"x", two, "y", one}, [][]string{{"x", two, "y"}, {"x", one}}},
		"nothing decides without asking":                    {[]string{two, one}, [][]string{{two}, {one}}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, affordable(c.conditions)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", reason, diff)
			}
		})
	}
}

// What a shared rule refuses must match: an expression that the match condition
// lacks would never be looked at.
func TestAllowedHasAllRules(t *testing.T) {
	t.Parallel()
	policies, _ := Policies()
	seen := 0
	for _, p := range policies {
		if p.Name != Shared && p.Name != partOfFlux.policy(Objects) {
			continue
		}
		seen++
		condition := p.Spec.MatchConditions[0].Expression
		// A Receiver has a field of this name.
		if strings.Contains(strings.ReplaceAll(condition, ".variables.", "."), "variables.") {
			t.Errorf("the match condition of %s has variables, which the API server does not know there", p.Name)
		}
		for _, r := range Rules() {
			for _, v := range r.validations {
				// Where variables stand, there is something else.
				before, _, _ := strings.Cut(v.expression, "variables.")
				if p.Name != Shared {
					before = readOnce.Replace(before)
				}
				if r.scope == fluxObjects && !strings.Contains(condition, "("+before) {
					t.Errorf("the match condition of %s does not look at what %s refuses: %s", p.Name, r.Name, v.expression)
				}
			}
		}
	}
	for _, r := range Rules() {
		if r.early && r.scope != tenantObjects && strings.Contains(strings.ReplaceAll(holding(r.validations), "variables.name", ""), "variables.") {
			t.Errorf("the match condition of %s has variables, which the API server does not know there", r.Name)
		}
	}
	if seen != 2 {
		t.Errorf("%d policies are shared, want 2", seen)
	}
}

// What a rule of [Objects] refuses must match, and a match condition asks RBAC nothing:
// that is the validation's.
func TestObjectsMatchesAllRules(t *testing.T) {
	t.Parallel()
	policies, _ := Policies()
	parts := map[string]part{Objects: partOfProfile, partOfOthers.policy(Objects): partOfOthers, partOfPods.policy(Objects): partOfPods, partOfFlux.policy(Objects): partOfFlux}
	for _, r := range Rules() {
		if r.scope != tenantObjects {
			continue
		}
		in := map[string]bool{}
		for _, p := range policies {
			of, known := parts[p.Name]
			if !known || !r.Without(p.DeepCopy()) {
				continue
			}
			in[p.Name] = true
			if len(p.Spec.MatchConditions) != 1 {
				t.Fatalf("%s has %d match conditions, want 1", p.Name, len(p.Spec.MatchConditions))
			}
			condition := p.Spec.MatchConditions[0].Expression
			for _, word := range []string{"variables.", "namespaceObject", ".check("} {
				// A Receiver has a field with the name variables.
				if strings.Contains(strings.ReplaceAll(condition, ".variables.", "."), word) {
					t.Errorf("the match condition of %s has %s, which it does not see or should not ask", p.Name, word)
				}
			}
			r, _ := r.within(of)
			for _, wanted := range append(r.checked(), r.suspects(of)) {
				wanted = inline(wanted, r.variables)
				wanted = strings.TrimSpace(of.decide(wanted))
				if wanted != "true" && !strings.Contains(condition, readOnce.Replace(wanted)) {
					t.Errorf("the match condition of %s does not look at what %s refuses: %s", p.Name, r.Name, wanted)
				}
			}
		}
		want := map[string]bool{}
		for _, name := range r.Policies() {
			want[name] = true
		}
		if diff := cmp.Diff(want, in); diff != "" {
			t.Errorf("%s is in other policies than it says: -want, +got:\n%s", r.Name, diff)
		}
	}
}

// Merged rules match the same requests, and each resource is in one rule for each operation.
func TestMerged(t *testing.T) {
	t.Parallel()
	var all []admissionregistrationv1.NamedRuleWithOperations
	for _, r := range Rules() {
		if r.scope == tenantObjects {
			all = append(all, r.resources...)
		}
	}
	requests := func(rules []admissionregistrationv1.NamedRuleWithOperations) map[string]int {
		found := map[string]int{}
		for _, r := range rules {
			for _, resource := range r.Resources {
				for _, operation := range r.Operations {
					found[string(operation)+" "+resource+"."+r.APIGroups[0]]++
				}
			}
		}
		return found
	}
	got, want := requests(merged(all)), requests(all)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("other requests match (-want, +got):\n%s", diff)
	}
	for request, n := range got {
		if n > 1 && !strings.Contains(request, "*/*") {
			t.Errorf("%d rules match %s", n, request)
		}
	}
}

// TestEither checks that a condition that several suspicions share decides about each of them alone,
// whatever its operators are. Go gives && and || the same precedence as CEL.
func TestEither(t *testing.T) {
	t.Parallel()
	all := []suspicion{
		{"a", []string{"x || y", "z"}},
		{"b || c", []string{"x || y"}},
		{"d", []string{"z", "x || y"}},
		{"e", nil},
		{"f", []string{"z"}},
	}
	expression, err := parser.ParseExpr(either(all))
	if err != nil {
		t.Fatal(err)
	}
	for bits := range 1 << 9 {
		given := func(name string) bool { return bits>>strings.Index("abcdefxyz", name)&1 == 1 }
		xy := given("x") || given("y")
		want := given("a") && xy && given("z") || (given("b") || given("c")) && xy || given("d") && given("z") && xy || given("e") || given("f") && given("z")
		if got := holds(t, expression, given); got != want {
			t.Fatalf("with %09b got %v, want %v: %s", bits, got, want, either(all))
		}
	}
}

// holds evaluates an expression of names, && and ||.
func holds(t *testing.T, e ast.Expr, given func(string) bool) bool {
	t.Helper()
	switch e := e.(type) {
	case *ast.Ident:
		return given(e.Name)
	case *ast.ParenExpr:
		return holds(t, e.X, given)
	case *ast.BinaryExpr:
		if e.Op == token.LAND {
			return holds(t, e.X, given) && holds(t, e.Y, given)
		}
		return holds(t, e.X, given) || holds(t, e.Y, given)
	}
	t.Fatalf("unexpected %T", e)
	return false
}

// An API server compiles a long expression slowly: see [longExpression]. A match condition has no variables.
func TestVariablesAreShort(t *testing.T) {
	t.Parallel()
	const longest = 3 * longExpression / 2
	policies, _ := Policies()
	for _, p := range policies {
		for _, v := range p.Spec.Variables {
			if n := len(v.Expression); n > longest {
				t.Errorf("variable %s of %s has %d bytes, and at most %d compile fast: divide it into variables that its expression reads", v.Name, p.Name, n, longest)
			}
		}
	}
}
