package localcluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
)

// TestMapArtifact checks at which address the folder of a fleet from a registry is served.
func TestMapArtifact(t *testing.T) {
	t.Parallel()
	const dir, url = "/fleet", "oci://images.example.com/fleet"
	mapped := func(address string) network.Map { return network.Map{Kind: network.KindOCI, URL: address, Dir: dir} }
	for name, tc := range map[string]struct {
		reason, tag string
		maps        []network.Map
		want, err   string
		added       int
	}{
		"Tag":     {"the tag of the fleet", "v1", nil, url + ":v1", "", 1},
		"Mapped":  {"the user maps the tag", "v1", []network.Map{mapped(url + ":v1")}, url + ":v1", "", 0},
		"Another": {"the user maps another tag", "v1", []network.Map{mapped(url + ":v2")}, url + ":v1", "", 1},
		"Range":   {"the user names a tag that the range selects", "", []network.Map{mapped(url + ":1.2.3")}, url + ":1.2.3", "", 0},
		"NoTag":   {"nothing names a tag", "", nil, "", "--map oci://images.example.com/fleet:TAG=/fleet", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Cluster{Fleet: &layout.Fleet{Sync: layout.Sync{Kind: string(flux.OCIRepository), URL: url, Branch: tc.tag}}}
			c.opts.Maps = tc.maps
			err := c.mapArtifact(dir)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%s: want an error with %q, got %v", tc.reason, tc.err, err)
				}
				return
			}
			if err != nil || c.artifact.String() != tc.want || len(c.opts.Maps) != len(tc.maps)+tc.added {
				t.Errorf("%s: served at %s with %d maps, error %v", tc.reason, c.artifact, len(c.opts.Maps), err)
			}
		})
	}
}

// TestRootSecret checks that the Secret of a root source has the form that its kind reads.
func TestRootSecret(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]struct{ url, secretType, key string }{
		string(flux.OCIRepository): {"oci://images.example.com/fleet", "kubernetes.io/dockerconfigjson", ".dockerconfigjson"},
		string(flux.GitRepository): {"https://git.example.com/fleet", "", "username"},
	} {
		c := &Cluster{Fleet: &layout.Fleet{Sync: layout.Sync{Kind: kind, URL: want.url, SecretRef: "key", Namespace: "flux-system"}}}
		secrets, err := c.rootSecret(nil)
		if err != nil || len(secrets) != 1 {
			t.Fatalf("%s: %d Secrets, error %v", kind, len(secrets), err)
		}
		secretType, _, _ := unstructured.NestedString(secrets[0].Object, "type")
		_, found, _ := unstructured.NestedString(secrets[0].Object, "stringData", want.key)
		if diff := cmp.Diff(want.secretType, secretType); diff != "" || !found {
			t.Errorf("%s: key %s is there: %v; type (-want +got):\n%s", kind, want.key, found, diff)
		}
	}
}
