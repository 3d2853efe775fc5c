package localcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const gitCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gitrepositories.source.toolkit.fluxcd.io}
spec:
  group: source.toolkit.fluxcd.io
  names: {kind: GitRepository}
  versions: [{name: v1, served: true}, {name: v1beta2, served: false}]
`

func TestCheckServed(t *testing.T) {
	t.Parallel()
	const object = "kind: GitRepository\nmetadata: {name: fleet, namespace: flux-system}\napiVersion: source.toolkit.fluxcd.io/"
	tests := map[string]struct {
		reason string
		root   string
		files  map[string]string
		want   string
	}{
		"Served": {
			reason: "what Flux serves is fine",
			root:   object + "v1",
		},
		"Unknown": {
			reason: "whether another kind exists is the API server's to say",
			root:   "apiVersion: example.com/v1\nkind: GitRepository\nmetadata: {name: fleet}",
		},
		"Removed": {
			reason: "the file, the object and the way out are named",
			root:   object + "v1beta2",
			files:  map[string]string{"kustomization.yaml": "resources: [sync.yaml]", "sync.yaml": "# the root\n---\n" + object + "v1beta2\n"},
			want: "cannot start with the fleet's root objects: clusters/a/flux-system/sync.yaml: GitRepository flux-system/fleet " +
				"has apiVersion source.toolkit.fluxcd.io/v1beta2, which this version of Flux does not serve any more: " +
				"change it to source.toolkit.fluxcd.io/v1, as `flux migrate -f .` does",
		},
		"Patched": {
			reason: "without a file that holds the object the folder is named",
			root:   object + "v1beta2",
			files:  map[string]string{"sync.yaml": object + "v1"},
			want: "cannot start with the fleet's root objects: clusters/a/flux-system: GitRepository flux-system/fleet " +
				"has apiVersion source.toolkit.fluxcd.io/v1beta2, which this version of Flux does not serve any more: " +
				"change it to source.toolkit.fluxcd.io/v1, as `flux migrate -f .` does",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for file, content := range tc.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got := ""
			if err := checkServed(read(t, gitCRD), read(t, tc.root), dir, "clusters/a/flux-system"); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func read(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestCrashAdvice checks that a controller without its CRD is not said to have wrong arguments.
func TestCrashAdvice(t *testing.T) {
	t.Parallel()
	for log, want := range map[string]string{
		`"error":"no matches for kind \"OCIRepository\" in version \"source.toolkit.fluxcd.io/v1\""`: "lack the CRD of OCIRepository in source.toolkit.fluxcd.io/v1: give it with --crds",
		"unknown flag: --concurent": "correct its arguments",
	} {
		if got := crashAdvice(errors.New(log)); !strings.Contains(got, want) {
			t.Errorf("%s: got %q", log, got)
		}
	}
}

// TestWithKind checks that an object of Flux's manifests without its CRD leads to --crds.
func TestWithKind(t *testing.T) {
	t.Parallel()
	missing := errors.New(`cannot apply ServiceMonitor flux-system/a: no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"`)
	if got := withKind(missing); !errors.Is(got, missing) || !strings.HasSuffix(got.Error(), ": the fleet's manifests of Flux lack the CRD of ServiceMonitor: give it with --crds DIR") {
		t.Errorf("a missing kind: got %v", got)
	}
	if other := errors.New("no route to host"); withKind(other).Error() != other.Error() {
		t.Errorf("another error: got %v", withKind(other))
	}
}
