package localcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestWithNamespaces checks that the namespace of root objects is made before them, once, unless Flux's own
// manifests or the root objects have it.
func TestWithNamespaces(t *testing.T) {
	t.Parallel()
	const secrets = "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: gitops}}\n---\n{apiVersion: v1, kind: Secret, metadata: {name: b, namespace: gitops}}\n"
	const namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: gitops}}\n"
	for reason, tc := range map[string]struct {
		objects, installed string
		want               []string
	}{
		"nobody makes it":               {secrets, "", []string{"/gitops", "gitops/a", "gitops/b"}},
		"Flux's manifests have it":      {secrets, namespace, []string{"gitops/a", "gitops/b"}},
		"the root objects have it":      {namespace + "---\n" + secrets, "", []string{"/gitops", "gitops/a", "gitops/b"}},
		"nothing is in a namespace yet": {"", "", nil},
	} {
		objects, err := flux.ReadObjects([]byte(tc.objects))
		if err != nil {
			t.Fatal(err)
		}
		installed, err := flux.ReadObjects([]byte(tc.installed))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, u := range withNamespaces(objects, installed) {
			got = append(got, u.GetNamespace()+"/"+u.GetName())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// TestNameRootAccount checks that an invented root Kustomization applies as the account of kustomize-controller if
// the controller has a default account, and that no other root changes.
func TestNameRootAccount(t *testing.T) {
	t.Parallel()
	const controller = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: kustomize-controller, namespace: flux-system}, spec: {template: {spec: {serviceAccountName: controller, containers: [{name: manager, args: [%s]}]}}}}"
	for reason, tc := range map[string]struct {
		invented bool
		flag     string
		want     string
	}{
		"the default account comes only with the fleet":    {true, "--default-service-account=flux-applier", "controller"},
		"the controller applies it with rights of its own": {true, "--log-level=info", ""},
		"the flag names no account":                        {true, "--default-service-account=", ""},
		"the repository has the root":                      {false, "--default-service-account=flux-applier", ""},
	} {
		system, err := flux.ReadObjects(fmt.Appendf(nil, controller, tc.flag))
		if err != nil {
			t.Fatal(err)
		}
		root, err := flux.ReadObjects([]byte("{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: fleet, namespace: flux-system}, spec: {path: ./clusters/prod}}"))
		if err != nil {
			t.Fatal(err)
		}
		c := &Cluster{Fleet: &layout.Fleet{RootInvented: tc.invented, Sync: layout.Sync{Namespace: "flux-system", Kustomization: "fleet"}}}
		c.objects.system, c.objects.root = system, root
		c.nameRootAccount()
		if got, _, _ := unstructured.NestedString(root[0].Object, "spec", "serviceAccountName"); got != tc.want || len(c.Fakes()) > 0 != (tc.want != "") {
			t.Errorf("%s: account %q, want %q; %v", reason, got, tc.want, c.Fakes())
		}
	}
}

// TestAssumeFlags checks that the report says when nobody knows the flags of Flux, and which file tells them.
func TestAssumeFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	load := func() []Fake {
		fleet, err := layout.Load(dir, ".", layout.Options{URL: "https://git.example.com/x", Branch: "main"})
		if err != nil {
			t.Fatal(err)
		}
		c := &Cluster{Fleet: fleet}
		c.assumeFlags()
		return c.Fakes()
	}
	const file = "flux-system/gotk-components.yaml"
	if fakes := load(); len(fakes) != 1 || !fakes[0].Assumed || fakes[0].Content || !strings.Contains(fakes[0].Text, file) {
		t.Errorf("a fleet without Flux's manifests: %+v", fakes)
	}
	if err := os.Mkdir(filepath.Join(dir, "flux-system"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if fakes := load(); len(fakes) > 0 {
		t.Errorf("a fleet whose bootstrap fills the file: %+v", fakes)
	}
}

// TestFluxStep checks that a start without a fleet shows no step for Flux.
func TestFluxStep(t *testing.T) {
	t.Parallel()
	if step := (&Cluster{}).fluxStep(); step != "" {
		t.Errorf("a cluster without a fleet has the step %q", step)
	}
	if step := (&Cluster{Fleet: &layout.Fleet{}}).fluxStep(); step != "Flux" {
		t.Errorf("a cluster with a fleet has the step %q", step)
	}
}
