package e2e

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/corpus"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestCorpus checks that each fleet of the corpus gets the verdicts that people determined by
// reading it.
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
		found = append(found, corpus.Found{Tenant: a.Tenant, Key: a.Key, Outcome: catalog.Outcome(a.Outcome), Said: strings.Join([]string{a.Control, a.Evidence, a.Reason}, " ")})
	}
	table, differences := f.Compare(found)
	t.Log("\n" + table)
	for _, difference := range differences {
		t.Error(difference)
	}
	checkPatches(t, f, report)
	if t.Failed() {
		t.Log(said)
	}
}

// unpatched are the fleets of the corpus for which verify prints no patch: no attack got through
// that a patch could stop, or the manifests have a layout that verify does not change.
var unpatched = []string{"accounts", "ancient", "azure", "beside", "by-kubectl", "by-name", "capsule", "company", "home", "hub", "layers", "operator", "operator-oci", "outside", "reference"}

// checkPatches applies each patch of a report to a copy of the platform's repository. Each folder
// that builds in the repository must build in the copy. An attack without a patch has a fix in
// words.
func checkPatches(t *testing.T, f corpus.Fleet, report verified) {
	t.Helper()
	patches := map[string]bool{}
	for _, c := range report.Clusters {
		patches[c.Patch] = true
	}
	for _, a := range report.Attacks {
		patches[a.Patch] = true
		if a.Outcome == string(catalog.GotThrough) && a.Fix == "" {
			t.Errorf("%s of %s got through, and the report has no fix", a.Key, a.Tenant)
		}
	}
	delete(patches, "")
	if none := slices.Contains(unpatched, f.Name); none != (len(patches) == 0) {
		t.Errorf("the report has %d patches; it must have none: %t", len(patches), none)
	}
	platform := completed(t, filepath.Join(f.Dir, "platform"))
	for patch := range patches {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(platform)); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "git", "apply")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(patch)
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("cannot apply the patch: %v\n%s\n%s", err, out, patch)
			continue
		}
		changed := false
		for _, folder := range manifestFolders(t, platform) {
			before, err := flux.BuildFolder(platform, filepath.Join(platform, folder), "")
			if err != nil {
				continue
			}
			after, err := flux.BuildFolder(dir, filepath.Join(dir, folder), "")
			if err != nil {
				t.Errorf("%s does not build with the patch: %v\n%s", folder, err, patch)
			}
			changed = changed || !gocmp.Equal(before, after)
		}
		if !changed {
			t.Errorf("the patch changes no object that a folder builds to:\n%s", patch)
		}
	}
	t.Logf("%d patches were applied and build", len(patches))
}

// completed returns a copy of a platform's repository with Flux's manifests, which verify puts into
// the place of an empty gotk-components.yaml.
func completed(t *testing.T, platform string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(platform)); err != nil {
		t.Fatal(err)
	}
	for _, folder := range manifestFolders(t, dir) {
		file := filepath.Join(dir, folder, "gotk-components.yaml")
		if content, err := os.ReadFile(file); err == nil && !strings.Contains(string(content), "kind:") {
			if err := os.WriteFile(file, config.FluxComponents(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// manifestFolders returns the folders below dir with manifests.
func manifestFolders(t *testing.T, dir string) []string {
	t.Helper()
	var folders []string
	err := filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		if filepath.Ext(file) == ".yaml" {
			folder, relErr := filepath.Rel(dir, filepath.Dir(file))
			folders = append(folders, folder)
			err = errors.Join(err, relErr)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// TestMutants checks for a sample of a fleet's mutants, one of each kind of control, that
// exactly the attacks predicted by the model of the corpus change their outcome. make mutate
// runs all mutants.
func TestMutants(t *testing.T) {
	t.Parallel()
	sample := []string{
		"flag --no-remote-bases of kustomize-controller",
		"policy receivers",
		"operation UPDATE in policy sources",
		"validation 0 of policy sources",
		"buckets in policy sources",
		"action Deny of policy dependencies, which becomes Warn",
		"action Deny of policy sources without its parameter",
		"value of flag --no-cross-namespace-refs of notification-controller",
		"quota of count/alerts.notification.toolkit.fluxcd.io",
		"label pod-security.kubernetes.io/enforce",
		"role that is not cluster-admin",
	}
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	fleets, err := corpus.Load(filepath.Join(root, "test", "corpus"))
	if err != nil {
		t.Fatal(err)
	}
	f := fleets[slices.IndexFunc(fleets, func(f corpus.Fleet) bool { return f.Name == "company" })]
	var addresses []string
	for address, dir := range f.Maps {
		addresses = append(addresses, address+"="+filepath.Join(f.Dir, dir))
	}
	r, failed := start(t, localcluster.Options{Fleet: filepath.Join(f.Dir, "platform"), Path: f.Path, Maps: parseMaps(t, addresses...)})
	expectNothing(t, "the fleet becomes ready", failed)
	opts := attackOptions(r)
	opts.Tenant = "atlas"
	var lines strings.Builder
	score, err := f.Mutate(t.Context(), opts, nil, func(name string) bool { return slices.Contains(sample, name) }, &lines)
	t.Logf("%s\n%s", score, lines.String())
	if err != nil {
		t.Error(err)
	}
	if score.Mutants != len(sample) {
		t.Errorf("%d mutants were made, want %d", score.Mutants, len(sample))
	}
	for _, s := range score.Survived {
		t.Error(s)
	}
}
