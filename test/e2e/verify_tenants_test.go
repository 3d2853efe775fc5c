package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/fleetgen"
)

// flags returns the arguments that run a generated fleet.
func flags(f fleetgen.Fleet) string {
	line := "--fleet " + f.Dir + " --path " + fleetgen.Path
	for _, m := range f.Maps {
		line += " --map '" + m + "'"
	}
	return line
}

// attacks returns the flags that try only these attacks.
func attacks(names string) string {
	return " --attack=" + strings.Join(strings.Fields(names), " --attack=")
}

func generate(t *testing.T, platform fleetgen.Platform, tenants ...fleetgen.Tenant) fleetgen.Fleet {
	t.Helper()
	fleet, err := fleetgen.Write(t.TempDir(), platform, tenants)
	if err != nil {
		t.Fatal(err)
	}
	return fleet
}

// outcomes returns the keys of a tenant's attacks by outcome, and the reasons of those that
// are not proven.
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

// TestVerifyOddTenants runs one fleet with tenants that are onboarded in unusual or wrong
// ways. It checks that each tenant is judged as far as possible, and that no tenant prevents
// the verdict on another.
func TestVerifyOddTenants(t *testing.T) {
	t.Parallel()
	const narrow = fleetgen.NarrowRules
	secrets := makeKeys(t).secrets
	openpgpKey := secrets[strings.LastIndex(secrets, "\n---\n"):]
	pgp := func(name string) fleetgen.Tenant {
		return fleetgen.Tenant{
			Name: name, Label: true, Rules: narrow, Labels: map[string]string{"fifth": "shape"},
			Sync:     "path: ./deploy, prune: true, targetNamespace: " + name + ", decryption: {provider: sops, secretRef: {name: sops-gpg}}",
			Platform: strings.Replace(openpgpKey, "flux-system", name, 1),
		}
	}
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
		pgp("key-one"), pgp("key-two"),
	)
	report, code, said := tenureVerify(t, flags(fleet)+attacks("I3 I4 I5 I8 I11 S1 S3 S9 S10 W2 W3"))
	if code != 1 {
		t.Errorf("exit code %d, want 1, since cluster-admin is not stopped:\n%s", code, said)
	}
	for tenant, tc := range map[string]struct {
		reason    string
		through   []string // some of the attacks that get through
		stopped   []string // some of the attacks that are stopped
		notProven string   // reason of all attacks that are not proven; "" for none
	}{
		"admin":      {reason: "cluster-admin in a RoleBinding", through: []string{"I8-api", "S3-api", "W3-api"}, stopped: []string{"I4-git", "I5-git", "W2-api"}},
		"unlabelled": {reason: "found by its Flux objects", stopped: []string{"I4-api", "I8-api", "I11-git", "S1-api"}},
		"accounts":   {reason: "no Flux object at all; the attacks bring a source", stopped: []string{"I4-api", "I11-api", "S1-api"}},
		"twin-one":   {reason: "one of two on a repository", stopped: []string{"I11-git", "I4-git"}},
		"twin-two":   {reason: "the other of the two", stopped: []string{"I4-api"}},
		"empty":      {reason: "the repository is empty", stopped: []string{"I11-git", "I3-git"}},
		"nobody":     {reason: "Flux falls back to an account without rights", stopped: []string{"I4-api", "I5-api", "I8-api", "W2-api", "W3-api", "S9-api"}},
		"powerless":  {reason: "an account without rights", stopped: []string{"I4-api", "I5-api", "W2-api"}},
		"faraway":    {reason: "its host is not mapped", stopped: []string{"I4-api", "I8-api"}, notProven: "add --map " + fleetgen.Host + "/faraway#main=DIR"},
		"key-one":    {reason: "another tenant has its OpenPGP key", through: []string{"S10-git-shared"}, stopped: []string{"S10-git"}},
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

// TestVerifySeveralClusters runs two clusters of one repository, one of them without the
// lockdown. It checks that each is judged by itself, and that the worse verdict counts.
// Without the lockdown, a tenant's Kustomization without an account is applied with the rights
// of the controller, although the tenant itself has no rights.
func TestVerifySeveralClusters(t *testing.T) {
	t.Parallel()
	nobody := fleetgen.Tenant{Name: "nobody", Label: true, NoAccount: true}
	fleet := generate(t, fleetgen.Platform{Flags: fleetgen.Lockdown()}, nobody)
	open := generate(t, fleetgen.Platform{}, nobody)
	const second = "clusters/open"
	differing := []string{"I1-git", "I3-git", "I4-git", "I5-git", "I11-git"}
	if err := os.CopyFS(filepath.Join(fleet.Dir, second), os.DirFS(filepath.Join(open.Dir, fleetgen.Path))); err != nil {
		t.Fatal(err)
	}
	sync := filepath.Join(fleet.Dir, second, "flux-system", "gotk-sync.yaml")
	text, err := os.ReadFile(sync)
	if err != nil {
		t.Fatal(err)
	}
	write(t, strings.ReplaceAll(string(text), fleetgen.Path, second), sync)

	report, code, said := tenureVerify(t, flags(fleet)+" --path "+second+attacks(strings.Join(differing, " ")))
	if code != 1 || len(report.Clusters) != 2 {
		t.Fatalf("exit code %d and %d clusters, want 1 and 2:\n%s", code, len(report.Clusters), said)
	}
	for i, want := range []struct{ path, outcome string }{{fleetgen.Path, "stopped"}, {second, "got through"}} {
		cluster := report.Clusters[i]
		got, _ := cluster.outcomes("nobody")
		if cluster.Path != want.path {
			t.Errorf("cluster %d is %s, want %s", i, cluster.Path, want.path)
		}
		for _, key := range differing {
			if !slices.Contains(got[want.outcome], key) {
				t.Errorf("%s: %s is not among what was %s: %q", want.path, key, want.outcome, got)
			}
		}
	}
}

// TestVerifyNoTenants checks that a fleet without tenants is not judged. It is the cluster of
// a single person: the platform's own repository delivers into all namespaces. The report says
// so in one sentence, and lists the namespaces with the evidence.
func TestVerifyNoTenants(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, name := range []string{"media", "mail", "home", "games", "photos"} {
		files["apps/"+name+".yaml"] = delivery(name, name, "flux-system/flux-system", "")
		files[name+"/a.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	dir, _ := newFleet(t, files)
	out, code := shell(t, home(t), verifyLimit, "tenure verify --fleet "+dir+" --path clusters/test 2>/dev/null")
	if code != 2 || strings.Count(out, "? ") != 2 || !strings.Contains(out, "? not judged: 0 tenants") || !strings.Contains(out, "? no tenants: the fleet has no Tenant, no namespace of a team with a tenant's label") {
		t.Errorf("exit code %d, want 2 and one reason:\n%s", code, out)
	}
	if got := strings.Count(out, "comes from the platform's own repository and names no account"); got != 5 {
		t.Errorf("the evidence for %d namespaces is listed, want that for 5:\n%s", got, out)
	}
}

// delivery returns the manifest of a Kustomization in a namespace, with an account if it is
// not empty.
func delivery(namespace, path, source, account string) string {
	sourceNamespace, name, _ := strings.Cut(source, "/")
	if account != "" {
		account = ", serviceAccountName: " + account
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: %[1]s}
spec: {interval: 1m, retryInterval: 2s, path: ./%[2]s, prune: true, targetNamespace: %[1]s, sourceRef: {kind: GitRepository, namespace: %[3]s, name: %[4]s}%[5]s}
---
`, namespace, path, sourceNamespace, name, account)
}

// bound returns the manifest of an account with a role, in all namespaces or in its own.
func bound(namespace, name, role string, everywhere bool) string {
	kind, place := "RoleBinding", ", namespace: "+namespace
	if everywhere {
		kind, place = "ClusterRoleBinding", ""
	}
	return fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[2]s, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[3]s
metadata: {name: %[1]s-%[2]s%[4]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[5]s}
subjects: [{kind: ServiceAccount, name: %[2]s, namespace: %[1]s}]
---
`, namespace, name, kind, place, role)
}

// TestVerifyTellsTenantsApart checks that tenants without labels are found by the objects that
// Flux delivers. The platform's own applications and a platform team with cluster-admin are no
// tenants; teams are tenants that share one repository in another namespace, and they attack
// through it. A file in the fleet decides the cases that cannot be detected.
func TestVerifyTellsTenantsApart(t *testing.T) {
	t.Parallel()
	dir, _ := newFleet(t, map[string]string{
		"apps/teams.yaml": source("teams", "https://git.example.com/acme/teams"),
		"apps/media.yaml": delivery("media", "media", "flux-system/flux-system", ""),
		"apps/infra.yaml": bound("infra", "admin", "cluster-admin", true) + delivery("infra", "infra", "flux-system/teams", "admin"),
		"apps/one.yaml":   bound("one", "deployer", "edit", false) + delivery("one", "one", "flux-system/teams", "deployer"),
		"apps/two.yaml":   bound("two", "deployer", "edit", false) + delivery("two", "two", "flux-system/teams", "deployer"),
		"apps/shop.yaml":  strings.Replace(delivery("shop-1", "shop", "flux-system/flux-system", ""), "{name: shop-1}", "{name: shop-1, labels: {acme.example/team: shop}}", 1),
		"media/a.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: media}\n",
		"shop/a.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n",
		".tenure.yaml":    "tenants: [label=acme.example/team]\n",
	})
	teams := filepath.Join(t.TempDir(), "teams")
	files := map[string]string{}
	for _, name := range []string{"infra", "one", "two"} {
		files[name+"/a.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	writeFiles(t, teams, files)
	report, _, said := tenureVerify(t, "--fleet "+dir+" --path clusters/test --map https://git.example.com/acme/teams#main="+teams+attacks("I4 I5 I8 I11 S1"))
	got := map[string]string{}
	for _, tenant := range report.Tenants {
		got[tenant.Name] = strings.Join(tenant.Why, "; ")
	}
	for _, p := range report.Platform {
		got["platform "+p.Namespace] = p.Why
	}
	want := map[string]string{
		"one":            "Kustomization one/app applies as account one/deployer",
		"two":            "Kustomization two/app applies as account two/deployer",
		"shop":           "namespace shop-1 is chosen by label=acme.example/team",
		"platform media": "Kustomization media/app comes from the platform's own repository and names no account",
		"platform infra": "Kustomization infra/app applies as account infra/admin, which has cluster-admin by ClusterRoleBinding infra-admin",
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the tenants, the platform's namespaces and the evidence (-want +got):\n%s\n%s", diff, said)
	}
	outcomes, reasons := report.outcomes("one")
	if len(outcomes["not proven"]) > 0 || !slices.Contains(outcomes["stopped"], "I4-git") {
		t.Errorf("a tenant attacks through the repository of all teams: stopped are %q, not proven %q: %q", outcomes["stopped"], outcomes["not proven"], reasons)
	}
}

// TestVerifyWithoutRights checks that missing rights prove nothing: if the platform's
// Kustomization with the tenants' bindings is not applied, refusals by RBAC are not proven,
// and the report says that there may be more tenants.
func TestVerifyWithoutRights(t *testing.T) {
	t.Parallel()
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/rights.yaml": strings.NewReplacer("name: apps", "name: rights", "./apps", "./rights").Replace(appsSync),
		"apps/teams.yaml":           source("teams", "https://git.example.com/acme/teams"),
		"apps/one.yaml":             delivery("one", "one", "flux-system/teams", "deployer"),
		"rights/one.yaml":           bound("one", "deployer", "edit", false),
		"rights/broken.yaml":        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: broken, namespace: nowhere}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}\n",
	})
	teams := filepath.Join(t.TempDir(), "teams")
	writeFiles(t, teams, map[string]string{"one/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"})
	report, code, said := tenureVerify(t, "--fleet "+dir+" --path clusters/test --timeout 20s --map https://git.example.com/acme/teams#main="+teams)
	outcomes, reasons := report.outcomes("one")
	if code == 0 || len(report.Tenants) != 1 {
		t.Fatalf("exit code %d and %d tenants, want not 0, and one:\n%s", code, len(report.Tenants), said)
	}
	for _, a := range report.Attacks {
		if a.Outcome == "stopped" && a.Control == "RBAC" {
			t.Errorf("%s is called stopped by rights that did not come", a.ID)
		}
	}
	if !slices.ContainsFunc(reasons, func(r string) bool {
		return strings.Contains(r, "RBAC refuses it, but") && strings.Contains(r, "Kustomization/flux-system/rights")
	}) {
		t.Errorf("the reason does not name the Kustomization: %q, and stopped are %q", reasons, outcomes["stopped"])
	}
}
