package catalog

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestAwaitSource checks how long a source may take to fetch a commit, and what the error says.
func TestAwaitSource(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, ready, revision, says string
		took                          time.Duration
	}{
		"Fetched": {reason: "the commit is there", ready: "True", revision: "main@sha1:abc"},
		"Fails":   {reason: "a source that fails is tried again for a while", ready: "False", revision: "main@sha1:old", took: fetchPatience, says: "GitRepository/team/app did not fetch the commit in 2m0s: the host is away"},
		"Slow":    {reason: "a large repository takes its time", ready: "Unknown", revision: "main@sha1:old", took: longestFetch, says: "did not fetch the commit in 5m0s: the host is away"},
		"Silent":  {reason: "no controller looks at it", took: longestFetch, says: "did not fetch the commit in 5m0s: it has no condition Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				source := flux.Ref{Kind: flux.GitRepository, Namespace: "team", Name: "app"}
				u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"artifact": map[string]any{"revision": tc.revision}}}}
				if tc.ready != "" {
					u.Object["status"].(map[string]any)["conditions"] = []any{map[string]any{"type": "Ready", "status": tc.ready, "message": "the host is away"}}
				}
				u.SetGroupVersionKind(source.Kind.GroupVersionKind())
				u.SetNamespace(source.Namespace)
				u.SetName(source.Name)
				e := &Scenario{Admin: fakeClient().WithObjects(u).Build()}
				began := time.Now()
				err := e.awaitSource(t.Context(), source, "abc")
				if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
					t.Errorf("%s: got the error %v, want %q", tc.reason, err, tc.says)
				}
				if took := time.Since(began); took < tc.took || took > tc.took+time.Second {
					t.Errorf("%s: it took %s, want %s", tc.reason, took, tc.took)
				}
			})
		})
	}
}
