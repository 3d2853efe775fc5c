package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// foreign is a fleet that was not written for Tenure.
type foreign struct {
	// own reports whether the fleet is in testdata/fleets.
	own bool
	// dir has a folder for each branch, main and dev-team.
	dir string
	// url is the address of the repository in the manifests; podinfo and capsule are the addresses
	// of charts.
	url, podinfo, capsule string
}

// shape is a pair of a public fleet and a fleet of testdata/fleets with the same objects and
// the same results.
type shape struct {
	own, public string
	// aged are branches whose objects have API versions that Flux no longer serves.
	aged []string
}

var (
	fluxShape     = shape{own: "flux", public: "flux2-multi-tenancy-v1"}
	fluxAged      = shape{own: "flux", public: "flux2-multi-tenancy", aged: []string{"dev-team"}}
	capsuleShape  = shape{own: "capsule", public: "flux2-capsule-multi-tenancy-v1"}
	capsuleAged   = shape{own: "capsule", public: "flux2-capsule-multi-tenancy", aged: []string{"main", "dev-team"}}
	publicSources = map[string]string{
		"flux":    "https://github.com/fluxcd/flux2-multi-tenancy",
		"capsule": "https://github.com/clastix/flux2-capsule-multi-tenancy.git",
	}
)

const (
	ownFleet    = "Own"
	publicFleet = "Public"
)

// fleets returns the available fleets of a shape, by [ownFleet] and [publicFleet]. The public
// fleets are not part of the repository, and the tests do not depend on them.
func (s shape) fleets(t *testing.T) map[string]foreign {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	if err := os.CopyFS(own, os.DirFS(filepath.Join("testdata", "fleets", s.own))); err != nil {
		t.Fatal(err)
	}
	for _, branch := range s.aged {
		outdate(t, filepath.Join(own, branch))
	}
	all := map[string]foreign{ownFleet: {
		own: true, dir: own, url: "https://git.example.com/acme/" + s.own + "-fleet",
		podinfo: "https://charts.example.com/podinfo", capsule: "https://charts.example.com/capsule",
	}}
	public := filepath.Join(root, "..", "shared", "data", s.public)
	if _, err := os.Stat(filepath.Join(public, "main")); err != nil {
		t.Logf("the public fleet %s is not beside the repository: the one of its shape in testdata stands for it", s.public)
		return all
	}
	all[publicFleet] = foreign{
		dir: public, url: publicSources[s.own],
		podinfo: "https://stefanprodan.github.io/podinfo", capsule: "https://clastix.github.io/charts",
	}
	return all
}

// each runs a test on each fleet of a shape.
func (s shape) each(t *testing.T, test func(*testing.T, foreign)) {
	t.Helper()
	for name, f := range s.fleets(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

// any runs a test on the public fleet of a shape, or on its stand-in where that is missing.
// TestVerifyPublicFleets runs both, and compares both with the same report.
func (s shape) any(t *testing.T, test func(*testing.T, foreign)) {
	t.Helper()
	all := s.fleets(t)
	f, found := all[publicFleet]
	if !found {
		f = all[ownFleet]
	}
	test(t, f)
}

// outdate changes the API versions in a branch to versions of years ago.
func outdate(t *testing.T, dir string) {
	t.Helper()
	versions := strings.NewReplacer(
		"source.toolkit.fluxcd.io/v1\nkind: HelmRepository", "source.toolkit.fluxcd.io/v1beta1\nkind: HelmRepository",
		"source.toolkit.fluxcd.io/v1\n", "source.toolkit.fluxcd.io/v1beta2\n",
		"kustomize.toolkit.fluxcd.io/v1\n", "kustomize.toolkit.fluxcd.io/v1beta2\n",
		"helm.toolkit.fluxcd.io/v2\n", "helm.toolkit.fluxcd.io/v2beta1\n",
	)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(versions.Replace(string(content))), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// maps returns the maps of the repository's branches, and more.
func (f foreign) maps(more ...string) []string {
	return append([]string{f.url + "#main=" + filepath.Join(f.dir, "main"), f.url + "#dev-team=" + filepath.Join(f.dir, "dev-team")}, more...)
}

// options returns the options of a cluster with the fleet and more maps.
func (f foreign) options(t *testing.T, more ...string) localcluster.Options {
	t.Helper()
	return localcluster.Options{Fleet: filepath.Join(f.dir, "main"), Path: "clusters/staging", Maps: parseMaps(t, f.maps(more...)...)}
}

// flags returns [foreign.options] as command-line flags.
func (f foreign) flags(more ...string) string {
	return " --fleet '" + filepath.Join(f.dir, "main") + "' --path clusters/staging --map '" + strings.Join(f.maps(more...), "' --map '") + "'"
}
