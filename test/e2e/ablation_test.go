package e2e

import (
	"flag"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/ablation"
)

// The test of this file takes the longest, so it is the first of the package: go test starts the first
// parallel test first, and then the others from the last one to the second. A long test that starts last
// would run alone at the end.

// others is n if a row tries every nth of the attacks that its controls should not stop. `make
// ablation` gives 1, which tries them all.
var others = flag.Int("others", 24, "try every `n`th of the other attacks with each row of the ablation")

// rows is n if every nth row of the ablation is tried. `make ablation` gives 1, which tries them all.
var rows = flag.Int("rows", 4, "try every `n`th row of the ablation")

// sampled returns every nth of all rows, by the flag.
func sampled(all []ablation.Row) []ablation.Row {
	var some []ablation.Row
	for i := 0; i < len(all); i += max(*rows, 1) {
		some = append(some, all[i])
	}
	return some
}

// TestVerifyTenurePolicies checks that Tenure's policies, role and manager stop every attack
// that Flux and Kubernetes do not stop.
func TestVerifyTenurePolicies(t *testing.T) {
	t.Parallel()
	e := tenureFleet(t)
	policies := filepath.Join(e.platform, "infrastructure", "policies")
	write(t, strings.Replace(string(config.Proxy()), "  replicas: 2\n", "  replicas: 1\n", 1), policies, "proxy.yaml")
	edit(t, "resources: [", "resources: [proxy.yaml, ", policies, "kustomization.yaml")
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the example works under Tenure's rules as it is", failed)
	through, report := verify(r)
	if len(through) > 0 {
		t.Errorf("got through: %q", through)
	}
	// The attacks that concern Tenants were tried as one with namespaces; for a Tenant without a
	// namespace, the attacks that its owners can try.
	for tenant, rows := range map[string]string{
		"dev-team": "I6 I7 I8-proxy I12 I12-proxy I13-proxy I14 I15 I16 I17 I18 I24 I26 N6 S12 S14 A2 A4 A5 A5-api-workloads A7 A8-proxy A9-api A9-api-Tenant W1 W2-proxy",
		"newcomer": "I7 I12 I16 I17 A2",
	} {
		for _, id := range strings.Fields(rows) {
			i := slices.IndexFunc(report.Results, func(r catalog.Result) bool { return r.Tenant == tenant && (r.Attack.ID == id || r.Attack.Key() == id) })
			switch {
			case i < 0:
				t.Errorf("%s was not tried as %s", id, tenant)
			case report.Results[i].Finding.Outcome == catalog.NotInstalled:
				t.Errorf("%s was tried as %s where nothing is attacked: %s", id, tenant, report.Results[i].Finding.Message)
			}
		}
	}
	r.kubectl("", "wait", "--for=delete", "namespace/tenure-canary", "namespace/tenure-attack-i5", "namespace/tenure-attack-i5-release", atMost)
	t.Run("Ablation", func(t *testing.T) { ablate(r.with(t), ablation.TenureRows(), ablation.TenureExcluded()) })
}

// ablate removes the controls of some of the rows, each row by itself, and checks that exactly the attacks of the row get
// through.
func ablate(r run, all []ablation.Row, excluded map[string]ablation.Exclusion) {
	r.t.Helper()
	opts := attackOptions(r)
	opts.Tenant = "dev-team"
	tried := sampled(all)
	measured, err := ablation.Run(r.t.Context(), ablation.Options{Attack: opts, Rows: tried, Excluded: excluded, Every: *others, Progress: func(m ablation.Measured) {
		r.t.Logf("without %s: %v after %.1fs", m.Row.Name(), m.Through, m.Took.Seconds())
	}})
	if err != nil {
		r.t.Error(err)
	}
	if got, want := len(measured), len(tried)+1; got != want {
		r.t.Errorf("%d rows were tried, want %d", got, want)
	}
	for _, m := range measured {
		if diff := cmp.Diff(m.Row.Through(), m.Through); diff != "" {
			r.t.Errorf("what gets through without %s (-want +got):\n%s", m.Row.Name(), diff)
		}
		for _, fault := range m.Faults {
			r.t.Errorf("without %s: %s", m.Row.Name(), fault)
		}
	}
	r.t.Log("\n" + ablation.Matrix(measured))
}
