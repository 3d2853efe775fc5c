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
	// own says that it is one of testdata/fleets.
	own bool
	// dir has a folder for each branch, main and dev-team.
	dir string
	// url is the repository's in the manifests; podinfo and capsule are those of charts.
	url, podinfo, capsule string
}

// shape is what a public fleet and one of testdata/fleets have in common. The second
// is written so that it has the same objects and gets the same answers.
type shape struct {
	own, public string
	// aged are branches whose objects have API versions that Flux serves no more.
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

// fleets are the fleets of a shape that are at hand, by [ownFleet] and [publicFleet].
// The public ones are no part of the repository, and what is tested does not depend on
// them: where they are beside it, they are one case more.
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

// outdate gives the objects of a branch the API versions that they had years ago.
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

// maps says where the repository's branches are, and more.
func (f foreign) maps(more ...string) []string {
	return append([]string{f.url + "#main=" + filepath.Join(f.dir, "main"), f.url + "#dev-team=" + filepath.Join(f.dir, "dev-team")}, more...)
}

// options are those of a cluster with the fleet, and more maps.
func (f foreign) options(t *testing.T, more ...string) localcluster.Options {
	t.Helper()
	return localcluster.Options{Fleet: filepath.Join(f.dir, "main"), Path: "clusters/staging", Maps: parseMaps(t, f.maps(more...)...)}
}

// flags are [foreign.options] as a user writes them.
func (f foreign) flags(more ...string) string {
	return " --fleet '" + filepath.Join(f.dir, "main") + "' --path clusters/staging --map '" + strings.Join(f.maps(more...), "' --map '") + "'"
}
