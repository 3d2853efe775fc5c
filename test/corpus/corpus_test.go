package corpus

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/ablation"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// All files of the corpus can be read and name attacks of the catalogue.
func TestLoad(t *testing.T) {
	t.Parallel()
	fleets, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fleets {
		through := false
		for _, tenant := range f.Tenants {
			for _, v := range tenant.Verdicts() {
				through = through || v.Outcome == catalog.GotThrough
			}
		}
		if f.Path == "" || (f.Exit == 1) != through {
			t.Errorf("fleet %s has path %q and exit code %d; an attack gets through: %t", f.Name, f.Path, f.Exit, through)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	f := Fleet{Name: "fleet", Tenants: map[string]Tenant{"team": {Default: catalog.Stopped, Reason: "RBAC", Exceptions: []Fact{
		{Outcome: catalog.GotThrough, Reason: "no policy", Rows: []string{"S9-api"}},
	}}}}
	var right []Found
	for key, v := range f.Tenants["team"].Verdicts() {
		right = append(right, Found{Tenant: "team", Key: key, Outcome: v.Outcome})
	}
	if _, differences := f.Compare(right); len(differences) > 0 {
		t.Errorf("equal verdicts differ: %q", differences)
	}
	for reason, tc := range map[string]struct {
		found []Found
		want  string
	}{
		"an attack is missing":     {right[1:], `found "absent"`},
		"an attack ends otherwise": {append([]Found{{Tenant: "team", Key: right[0].Key, Outcome: catalog.NotProven}}, right[1:]...), `found "not proven"`},
		"a tenant too many":        {append([]Found{{Tenant: "other", Key: "S9-api", Outcome: catalog.Stopped}}, right...), "other, which is not a tenant"},
	} {
		if _, differences := f.Compare(tc.found); len(differences) != 1 || !strings.Contains(differences[0], tc.want) {
			t.Errorf("%s: want one difference with %q, got %q", reason, tc.want, differences)
		}
	}
}

func TestTurned(t *testing.T) {
	t.Parallel()
	policy := admissionv1.ValidatingAdmissionPolicy{Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{Resources: []string{"kustomizations"}},
			},
		}}},
		Validations: make([]admissionv1.Validation, 2),
	}}
	policy.Name = "accounts"
	rule := func(group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create", "patch"}}
	}
	controls := ablation.Controls{
		Flags:    map[string][]string{"kustomize-controller": {"--default-service-account", "--no-remote-bases"}},
		Policies: []admissionv1.ValidatingAdmissionPolicy{policy},
		Quotas:   []string{"count/kustomizations.kustomize.toolkit.fluxcd.io"},
		Rules:    []rbacv1.PolicyRule{rule(kustomizeGroup, "kustomizations")},
	}
	for reason, tc := range map[string]struct {
		effect ablation.Effect
		want   []string
	}{
		"one flag stops it alone":                {ablation.Effect{Controller: "kustomize-controller", Flag: "--no-remote-bases", Validation: -1}, []string{"S7-git"}},
		"a policy stops the same as the flag":    {ablation.Effect{Controller: "kustomize-controller", Flag: "--default-service-account", Validation: -1}, []string{}},
		"the other validation stops one more":    {ablation.Effect{Policy: "accounts", Validation: 1}, []string{"I13-api"}},
		"the policy does not match it any more":  {ablation.Effect{Policy: "accounts", Validation: -1, Resource: "kustomizations"}, []string{"I13-api"}},
		"a kind that the policy does not match":  {ablation.Effect{Policy: "accounts", Validation: -1, Resource: "helmreleases"}, []string{}},
		"an object can be changed":               {ablation.Effect{Policy: "accounts", Validation: -1, Operation: "UPDATE"}, []string{"I13-api"}},
		"no policy selects the namespace":        {ablation.Effect{Label: "toolkit.fluxcd.io/tenant", Validation: -1}, []string{"I13-api"}},
		"nothing changes":                        {ablation.Effect{Validation: -1}, []string{}},
		"every verb on roles":                    {ablation.Effect{Validation: -1, Rules: []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"*"}}}}, []string{"I4-api"}},
		"a right to a source of the platform":    {ablation.Effect{Validation: -1, Everywhere: []rbacv1.PolicyRule{rule(sourceGroup, "gitrepositories")}}, []string{"A2-api", "I19-api", "I3-api", "S9-api"}},
		"nothing counts a kind":                  {ablation.Effect{Quota: controls.Quotas[0], Validation: -1}, []string{"A2-api"}},
		"a right to the status of sources":       {ablation.Effect{Validation: -1, Rules: []rbacv1.PolicyRule{rule(sourceGroup, "gitrepositories/status")}}, []string{"S4-api"}},
		"the role holds in all other namespaces": {ablation.Effect{Validation: -1, Everywhere: controls.Rules}, []string{"I3-api", "I3-git"}},
	} {
		if diff := cmp.Diff(tc.want, Turned(controls, tc.effect)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// A mutant counts only if just what must turn has turned.
func TestScore(t *testing.T) {
	t.Parallel()
	row := func(attacks ...string) ablation.Row {
		return ablation.Row{Controls: []ablation.Control{{Name: "flag"}}, Attacks: attacks}
	}
	for reason, tc := range map[string]struct {
		measured                     ablation.Measured
		killed, explained, survivors int
	}{
		"what must turn does":         {ablation.Measured{Row: row("S1-api"), Through: []string{"S1-api"}}, 1, 0, 0},
		"what must turn does not":     {ablation.Measured{Row: row("S1-api")}, 0, 0, 1},
		"what must not turn does":     {ablation.Measured{Row: row(), Through: []string{"S1-api"}}, 0, 0, 1},
		"an attack is not proven":     {ablation.Measured{Row: row(), Faults: []string{"S9-api is not proven"}}, 0, 0, 1},
		"the fleet did not come back": {ablation.Measured{Through: []string{"S1-api"}}, 0, 0, 1},
	} {
		var s Score
		s.count("fleet", "team", tc.measured, nil, io.Discard)
		if s.Killed != tc.killed || s.Explained != tc.explained || len(s.Survived) != tc.survivors {
			t.Errorf("%s: got %+v", reason, s)
		}
	}
	var s Score
	s.count("fleet", "team", ablation.Measured{Row: row("S1-api")}, []Survivor{{Fleet: "fleet", Tenant: "team", Mutant: row().Name(), Reason: "why"}}, io.Discard)
	if s.Explained != 1 || len(s.Survived) != 0 {
		t.Errorf("an explained survivor: got %+v", s)
	}
}
