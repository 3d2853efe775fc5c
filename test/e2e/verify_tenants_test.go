package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fleetgen"
)

// flags are the arguments that run a generated fleet.
func flags(f fleetgen.Fleet) string {
	line := "--fleet " + f.Dir + " --path " + fleetgen.Path
	for _, m := range f.Maps {
		line += " --map '" + m + "'"
	}
	return line
}

func generate(t *testing.T, platform fleetgen.Platform, tenants ...fleetgen.Tenant) fleetgen.Fleet {
	t.Helper()
	fleet, err := fleetgen.Write(t.TempDir(), platform, tenants)
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

// outcomes are the keys of a tenant's attacks by how they ended, with what is
// said about those that are not proven.
func (v verified) outcomes(tenant string) (byOutcome map[string][]string, reasons []string) {
	byOutcome = map[string][]string{}
	for _, a := range v.Attacks {
		if a.Tenant != tenant {
			continue
		}
		byOutcome[a.Outcome] = append(byOutcome[a.Outcome], strings.TrimSuffix(a.ID+"-"+a.Via+"-"+a.Kind, "-"))
		if a.Outcome == "not proven" && !slices.Contains(reasons, a.Reason) {
			reasons = append(reasons, a.Reason)
		}
	}
	return byOutcome, reasons
}

// Tenants that are onboarded in unusual ways, or badly, all in one fleet: each is
// judged as far as that is possible, and none of them keeps another from it.
func TestVerifyOddTenants(t *testing.T) {
	t.Parallel()
	const narrow = fleetgen.NarrowRules
	fleet := generate(t, fleetgen.Platform{Flags: fleetgen.Lockdown()},
		fleetgen.Tenant{Name: "admin", Label: true, Role: "cluster-admin"},
		fleetgen.Tenant{Name: "unlabelled", Rules: narrow, Labels: map[string]string{"fourth": "shape"}},
		fleetgen.Tenant{Name: "accounts", Label: true, Rules: narrow, Sync: "none"},
		fleetgen.Tenant{Name: "twin-one", Label: true, Rules: narrow, Role: "view", Repository: "twins", Sync: "path: ./, prune: true, targetNamespace: twin-one"},
		fleetgen.Tenant{Name: "twin-two", Label: true, Rules: narrow, Repository: "twins", Sync: "path: ./, prune: true, targetNamespace: twin-two"},
		fleetgen.Tenant{Name: "empty", Label: true, Rules: narrow, Role: "admin", Files: map[string]string{}},
		fleetgen.Tenant{Name: "nobody", Label: true, NoAccount: true},
		fleetgen.Tenant{Name: "powerless", Label: true},
		fleetgen.Tenant{Name: "faraway", Label: true, Rules: narrow, Labels: map[string]string{"another": "shape"}, Unmapped: true},
		fleetgen.Tenant{Name: "keyless", Label: true, Rules: narrow, Labels: map[string]string{"third": "shape"},
			Sync: "path: ./deploy, prune: true, targetNamespace: keyless, decryption: {provider: sops, secretRef: {name: absent}}"},
	)
	report, code, said := tenureVerify(t, flags(fleet))
	if code != 1 {
		t.Errorf("exit code %d, want 1, since cluster-admin is not stopped:\n%s", code, said)
	}
	for tenant, tc := range map[string]struct {
		reason    string
		through   []string // some of what gets through
		stopped   []string // some of what is stopped
		notProven string   // what is said of all that is not proven; "" for nothing
	}{
		"admin":      {reason: "cluster-admin in a RoleBinding", through: []string{"I8-api", "S3-api", "W3-api"}, stopped: []string{"I4-git", "I5-git", "W2-api"}},
		"unlabelled": {reason: "found by its Flux objects", stopped: []string{"I4-api", "I8-api", "I11-git", "S1-api"}},
		"accounts":   {reason: "no Flux object at all", stopped: []string{"I4-api"}, notProven: "no Kustomization of the tenant applies a Git repository"},
		"twin-one":   {reason: "one of two on a repository", stopped: []string{"I11-git", "I4-git"}},
		"twin-two":   {reason: "the other of the two", stopped: []string{"I4-api"}},
		"empty":      {reason: "the repository is empty", stopped: []string{"I11-git", "I3-git"}},
		"nobody":     {reason: "Flux falls back to an account without rights", stopped: []string{"I4-api", "I5-api", "I8-api", "W2-api", "W3-api", "S9-api"}},
		"powerless":  {reason: "an account without rights", stopped: []string{"I4-api", "I5-api", "W2-api"}},
		"faraway":    {reason: "its host is not mapped", stopped: []string{"I4-api", "I8-api"}, notProven: "add --map " + fleetgen.Host + "/faraway#main=DIR"},
		"keyless":    {reason: "its decryption key is missing; the attacks do without", stopped: []string{"I11-git", "I4-api"}},
	} {
		got, reasons := report.outcomes(tenant)
		for outcome, want := range map[string][]string{"got through": tc.through, "stopped": tc.stopped} {
			for _, key := range want {
				if !slices.Contains(got[outcome], key) {
					t.Errorf("%s (%s): %s is not among what was %s: %q; not proven: %q %q", tenant, tc.reason, key, outcome, got[outcome], got["not proven"], reasons)
				}
			}
		}
		for _, reason := range reasons {
			if tc.notProven == "" || !strings.Contains(reason, tc.notProven) {
				t.Errorf("%s (%s): %q is not proven: %s", tenant, tc.reason, got["not proven"], reason)
			}
		}
	}
	var notReady []string
	for _, n := range report.NotReady {
		notReady = append(notReady, n.Object)
		if n.Object == "GitRepository/faraway/faraway" && !strings.Contains(n.Reason, "add --map https://git.example.com/") {
			t.Errorf("which host is not mapped, and the flag, is not said: %s", n.Reason)
		}
	}
	slices.Sort(notReady)
	want := []string{
		"GitRepository/faraway/faraway", "Kustomization/empty/empty", "Kustomization/faraway/faraway",
		"Kustomization/keyless/keyless", "Kustomization/nobody/nobody", "Kustomization/powerless/powerless",
	}
	if diff := gocmp.Diff(want, notReady); diff != "" {
		t.Errorf("what is not ready is listed, each once (-want +got):\n%s", diff)
	}
}

// Two clusters of one repository, of which one lacks the lockdown: each is judged
// by itself, and the worse one counts. Without the lockdown, what a tenant's
// Kustomization without an account delivers is applied with the rights of the
// controller, although the tenant may do nothing itself.
func TestVerifySeveralClusters(t *testing.T) {
	t.Parallel()
	nobody := fleetgen.Tenant{Name: "nobody", Label: true, NoAccount: true}
	fleet := generate(t, fleetgen.Platform{Flags: fleetgen.Lockdown()}, nobody)
	open := generate(t, fleetgen.Platform{}, nobody)
	const second = "clusters/open"
	if err := os.CopyFS(filepath.Join(fleet.Dir, second), os.DirFS(filepath.Join(open.Dir, fleetgen.Path))); err != nil {
		t.Fatal(err)
	}
	sync := filepath.Join(fleet.Dir, second, "flux-system", "gotk-sync.yaml")
	text, err := os.ReadFile(sync)
	if err != nil {
		t.Fatal(err)
	}
	write(t, strings.ReplaceAll(string(text), fleetgen.Path, second), sync)

	report, code, said := tenureVerify(t, flags(fleet)+" --path "+second)
	if code != 1 || len(report.Clusters) != 2 {
		t.Fatalf("exit code %d and %d clusters, want 1 and 2:\n%s", code, len(report.Clusters), said)
	}
	for i, want := range []struct{ path, outcome string }{{fleetgen.Path, "stopped"}, {second, "got through"}} {
		cluster := report.Clusters[i]
		got, _ := cluster.outcomes("nobody")
		if cluster.Path != want.path {
			t.Errorf("cluster %d is %s, want %s", i, cluster.Path, want.path)
		}
		for _, key := range []string{"I1-git", "I3-git", "I4-git", "I5-git", "I11-git"} {
			if !slices.Contains(got[want.outcome], key) {
				t.Errorf("%s: %s is not among what was %s: %q", want.path, key, want.outcome, got)
			}
		}
	}
}

// A fleet without tenants cannot be judged.
func TestVerifyNoTenants(t *testing.T) {
	t.Parallel()
	report, code, said := tenureVerify(t, flags(generate(t, fleetgen.Platform{Flags: fleetgen.Lockdown()})))
	if code != 2 || report.Verdict != "not judged" || len(report.Attacks) != 0 {
		t.Errorf("exit code %d, verdict %q, %d attacks, want 2 and none:\n%s", code, report.Verdict, len(report.Attacks), said)
	}
}
