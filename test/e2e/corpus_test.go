package e2e

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/testcluster"
	"github.com/tenure-dev/tenure/test/corpus"
)

// Each fleet of the corpus gets the verdicts that people wrote from reading it.
func TestCorpus(t *testing.T) {
	t.Parallel()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	fleets, err := corpus.Load(filepath.Join(root, "test", "corpus"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fleets {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			verifyCorpus(t, f)
		})
	}
}

func verifyCorpus(t *testing.T, f corpus.Fleet) {
	args := f.Command()[1:]
	for i, arg := range args {
		args[i] = "'" + arg + "'"
	}
	report, code, said := tenureVerify(t, strings.Join(args, " "))
	if code != f.Exit {
		t.Errorf("exit code %d, want %d", code, f.Exit)
	}
	for _, c := range report.Clusters {
		said += c.Error
	}
	if !strings.Contains(said, f.Says) {
		t.Errorf("verify does not say %q", f.Says)
	}
	var tenants, platform, notReady []string
	for _, tenant := range report.Tenants {
		tenants = append(tenants, tenant.Name)
	}
	for _, p := range report.Platform {
		platform = append(platform, p.Namespace)
	}
	for _, n := range report.NotReady {
		notReady = append(notReady, n.Object)
	}
	for what, both := range map[string][2][]string{
		"tenants":                  {slices.Sorted(maps.Keys(f.Tenants)), tenants},
		"platform's namespaces":    {slices.Sorted(maps.Keys(f.Platform)), platform},
		"objects that do not work": {f.NotReady, notReady},
	} {
		if diff := gocmp.Diff(both[0], both[1]); diff != "" {
			t.Errorf("the %s (-expected +found):\n%s", what, diff)
		}
	}
	var found []corpus.Found
	for _, a := range report.Attacks {
		found = append(found, corpus.Found{Tenant: a.Tenant, Key: a.Key, Outcome: attack.Outcome(a.Outcome), Said: strings.Join([]string{a.Control, a.Evidence, a.Reason}, " ")})
	}
	table, differences := f.Compare(found)
	t.Log("\n" + table)
	for _, difference := range differences {
		t.Error(difference)
	}
	if t.Failed() {
		t.Log(said)
	}
}
