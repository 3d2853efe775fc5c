package catalog

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// deliversArtifact returns a Scenario of a tenant that delivers the artifact at a tag from a folder.
func deliversArtifact(t *testing.T, tag string) *Scenario {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "app.yaml"), []byte("app"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := flux.Ref{Kind: flux.OCIRepository, Namespace: "team", Name: "apps"}
	u := object(sourceAPI, string(source.Kind), source.Namespace, source.Name, map[string]any{"spec": map[string]any{
		"url": "oci://images.example.com/acme/team", "secretRef": map[string]any{"name": "registry"},
	}})
	e := newFakeEnv(interceptor.Funcs{}, u)
	e.hosts.oci = ocihost.New()
	if err := e.hosts.oci.Add(ocihost.Address{Host: "images.example.com", Repository: "acme/team", Tag: "v1"}, dir); err != nil {
		t.Fatal(err)
	}
	e.Namespace = "team"
	e.Repository = &discovery.Repository{Source: source, URL: "oci://images.example.com/acme/team", Branch: tag}
	return e
}

// exported returns the files that are served at an address.
func exported(t *testing.T, h *ocihost.Host, a ocihost.Address) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := h.Export(a, dir); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		name, _ := filepath.Rel(dir, file)
		got[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestServeNoBranch checks that a repository of whose branches the source selects none takes no push.
func TestServeNoBranch(t *testing.T) {
	t.Parallel()
	host, err := githost.New(t.Context(), githost.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://git.example.com/acme/team"
	if err := host.AddFiles(t.Context(), url, "main", map[string]string{"app.yaml": "kind: ConfigMap"}); err != nil {
		t.Fatal(err)
	}
	for branch, want := range map[string]bool{"main": true, "": false} {
		r := discovery.Repository{Source: flux.Ref{Kind: flux.GitRepository, Namespace: "team", Name: "apps"}, URL: url, Branch: branch}
		if got := (hosts{git: host}).serve(r); got != want {
			t.Errorf("the branch %q is served: %t", branch, got)
		}
	}
}

// A push adds the attacks' files to the artifact, its revision ends with the returned digest, and
// the next push removes them.
func TestPublishArtifact(t *testing.T) {
	t.Parallel()
	e := deliversArtifact(t, "v1")
	if !e.hosts.serve(*e.Repository) {
		t.Fatal("the artifact is not served")
	}
	for _, tag := range []string{"v2", ""} {
		if e.hosts.serve(discovery.Repository{Source: e.Repository.Source, URL: e.Repository.URL, Branch: tag}) {
			t.Errorf("the tag %q is served", tag)
		}
	}
	address, err := artifact(e.Repository.URL, "v1")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{attackFolder + "/x/canary.yaml": []byte("canary")}
	first, err := e.hosts.publish(t.Context(), *e.Repository, "attacks", files)
	if err != nil || !strings.HasPrefix(first, "sha256:") {
		t.Fatalf("the revision %q, error %v", first, err)
	}
	if diff := cmp.Diff(map[string]string{"app.yaml": "app", attackFolder + "/x/canary.yaml": "canary"}, exported(t, e.hosts.oci, address)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	files[attackFolder+"/x/canary.yaml"] = nil
	second, err := e.hosts.publish(t.Context(), *e.Repository, "no attacks", files)
	if err != nil || second == first {
		t.Errorf("the revision %q after %q, error %v", second, first, err)
	}
	if diff := cmp.Diff(map[string]string{"app.yaml": "app"}, exported(t, e.hosts.oci, address)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Each chart of an attack has a tag of its own below the artifact, which the HelmRelease names.
func TestPushCharts(t *testing.T) {
	t.Parallel()
	e := deliversArtifact(t, "v1")
	files := map[string][]byte{}
	for name, content := range charts(configMap("other", "x"), configMap("team", "x")) {
		files[folder("I4-git-HelmRelease")+"/"+name] = []byte(content)
	}
	remove, err := e.pushCharts(files)
	if err != nil {
		t.Fatal(err)
	}
	source, err := e.makeChartSource(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"type": "oci", "interval": "1h", "url": e.Repository.URL, "secretRef": map[string]any{"name": "registry"}}
	if diff := cmp.Diff(want, source.Object["spec"]); diff != "" {
		t.Errorf("the source of the charts (-want +got):\n%s", diff)
	}
	release := e.release("x", folder("I4-git-HelmRelease")+"/aimed", nil)
	spec := release.Object["spec"].(map[string]any)["chart"].(map[string]any)["spec"].(map[string]any)
	if spec["chart"] != chartName || spec["sourceRef"].(map[string]any)["name"] != source.GetName() {
		t.Errorf("the release takes its chart from %v", spec)
	}
	address, err := artifact(e.Repository.URL+"/"+chartName, spec["version"].(string))
	if err != nil {
		t.Fatal(err)
	}
	got := exported(t, e.hosts.oci, address)
	if !strings.Contains(got[chartName+"/templates/canary.yaml"], "namespace: other") || !strings.Contains(got[chartName+"/Chart.yaml"], "name: "+chartName+"\nversion: "+address.Tag) {
		t.Errorf("the chart is %v", got)
	}
	remove()
	if e.hosts.oci.Serves(address) || !e.hosts.serve(*e.Repository) {
		t.Error("the charts are served after the attacks, or the artifact is not")
	}
	if err := e.Admin.Get(t.Context(), client.ObjectKeyFromObject(source), source); err != nil {
		t.Error(err)
	}
}
