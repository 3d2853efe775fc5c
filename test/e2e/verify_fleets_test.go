package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// update makes the tests write the golden reports, and the report of the example in README.md and
// docs/how-to/verify.md: make golden.
var update = flag.Bool("update", false, "write the golden reports and the report in the documentation anew")

// finding is the part of an attack's result in a golden report: the fields that do not depend
// on wording, times and addresses.
type finding struct {
	ID      string `json:"id"`
	Via     string `json:"via"`
	Kind    string `json:"kind,omitempty"`
	Tenant  string `json:"tenant"`
	Outcome string `json:"outcome"`
	Control string `json:"control,omitempty"`
}

// verified is the part of a report that tests read.
type verified struct {
	Path     string `json:"path"`
	Verdict  string `json:"verdict"`
	Error    string `json:"error"`
	NotReady []struct {
		Object string `json:"object"`
		Reason string `json:"reason"`
	} `json:"notReady"`
	Tenants []struct {
		Name string   `json:"name"`
		Why  []string `json:"why"`
	} `json:"tenants"`
	Platform []struct {
		Namespace string `json:"namespace"`
		Why       string `json:"why"`
	} `json:"platform"`
	Attacks []struct {
		finding
		Key      string `json:"key"`
		Evidence string `json:"evidence"`
		Reason   string `json:"reason"`
		Fix      string `json:"fix"`
		Patch    string `json:"patch"`
	} `json:"attacks"`
	Patch string `json:"patch"`
	Read  *struct {
		Files      int   `json:"files"`
		Applied    int   `json:"applied"`
		NotApplied []any `json:"notApplied"`
	} `json:"read"`
	Assumed  []string   `json:"assumed"`
	Clusters []verified `json:"clusters"`
}

// verifyLimit is the maximum duration of a `tenure verify`: a start, a fleet that settles, and
// every attack, beside other tests.
const verifyLimit = 10 * time.Minute

// tenureVerify runs the command with arguments in shell syntax, and returns its report, its
// exit code, and its error output. It checks that the command leaves nothing behind.
func tenureVerify(t *testing.T, args string) (verified, int, string) {
	t.Helper()
	h := home(t)
	said := filepath.Join(t.TempDir(), "said")
	out, code := shell(t, h, verifyLimit, "tenure verify "+args+" -o json 2>'"+said+"'")
	errors, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	var report verified
	if out != "" {
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("the report is no JSON: %v\n%s\n%s", err, out, errors)
		}
	}
	// Of one cluster or of several.
	for _, cluster := range report.Clusters {
		report.Tenants = append(report.Tenants, cluster.Tenants...)
		report.Platform = append(report.Platform, cluster.Platform...)
		report.NotReady = append(report.NotReady, cluster.NotReady...)
		report.Attacks = append(report.Attacks, cluster.Attacks...)
	}
	return report, code, string(errors)
}

// reduced returns the golden form of a report, a line for each attack.
func (v verified) reduced(t *testing.T) string {
	t.Helper()
	var all []finding
	for _, a := range v.Attacks {
		all = append(all, a.finding)
	}
	slices.SortFunc(all, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.ID[:1], b.ID[:1]), cmp.Compare(len(a.ID), len(b.ID)),
			cmp.Compare(a.ID, b.ID), cmp.Compare(a.Via, b.Via), cmp.Compare(a.Kind, b.Kind))
	})
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, f := range all {
		if err := encoder.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return lines.String()
}

// TestVerifyPublicFleets compares the reports of the public fleets, and of the fleets of the
// same shape, with testdata.
func TestVerifyPublicFleets(t *testing.T) {
	t.Parallel()
	const assumed = " --assume flux-system/kyverno --assume flux-system/kyverno-policies"
	for _, tc := range []verifiedFleet{
		{
			reason: "the tenant's Kustomization is too old for this Flux; the tenant is judged all the same",
			shape:  fluxAged, flags: func(_ *testing.T, f foreign) string { return f.flags() + assumed },
			code: 1, notReady: []string{"Kustomization/apps/dev-team"},
		},
		{
			reason: "everything is ready",
			shape:  fluxShape, flags: func(t *testing.T, f foreign) string { return f.flags(f.podinfo+"="+podinfoCharts(t)) + assumed },
			code: 1,
		},
		{
			reason: "this Flux does not serve its root objects",
			shape:  capsuleAged, flags: func(_ *testing.T, f foreign) string { return f.flags() },
			code: 2, says: "has apiVersion source.toolkit.fluxcd.io/v1beta2, which this version of Flux does not serve any more",
		},
		{
			reason: "the tenant's kubeconfig is made by nobody",
			shape:  capsuleShape, flags: func(t *testing.T, f foreign) string { return f.flags(f.capsule + "=" + capsuleCharts(t)) },
			code: 1, notReady: []string{"Kustomization/dev-team/dev-team"},
		},
	} {
		t.Run(tc.shape.public, func(t *testing.T) {
			t.Parallel()
			tc.shape.each(t, tc.test)
		})
	}
}

// verifiedFleet is a case of TestVerifyPublicFleets.
type verifiedFleet struct {
	reason   string
	shape    shape
	flags    func(*testing.T, foreign) string
	code     int
	notReady []string
	says     string
}

func (tc verifiedFleet) test(t *testing.T, f foreign) {
	report, code, said := tenureVerify(t, tc.flags(t, f))
	if code != tc.code || !strings.Contains(said, tc.says) {
		t.Errorf("%s: exit code %d, want %d and %q:\n%s", tc.reason, code, tc.code, tc.says, said)
	}
	var notReady []string
	for _, n := range report.NotReady {
		notReady = append(notReady, n.Object)
		if n.Reason == "" || strings.TrimSpace(n.Reason) != n.Reason {
			t.Errorf("the reason of %s is %q", n.Object, n.Reason)
		}
	}
	if diff := gocmp.Diff(tc.notReady, notReady); diff != "" {
		t.Errorf("%s: what is not ready (-want +got):\n%s", tc.reason, diff)
	}
	for _, c := range report.Clusters {
		if read := c.Read; read != nil && (read.Files == 0 || read.Applied+len(read.NotApplied) != read.Files) {
			t.Errorf("what became of each file is not said: %+v", *read)
		}
	}
	golden := filepath.Join("testdata", "verify", tc.shape.public+".jsonl")
	got := report.reduced(t)
	if *update {
		write(t, got, golden)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: run `make golden` if this is meant (-want +got):\n%s", tc.reason, diff)
	}
}
