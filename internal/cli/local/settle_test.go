package local

import (
	"testing"

	"github.com/tenure-dev/tenure/internal/flux"
)

// TestDescribeAssessment checks which failures are the same failure, tried again.
func TestDescribeAssessment(t *testing.T) {
	t.Parallel()
	failed := func(reason string) string {
		return describeAssessment(flux.Assessment{Failed: []flux.Finding{{Reason: reason}}})
	}
	for reason, tc := range map[string]struct {
		one, two string
		same     bool
	}{
		"each build has a temporary folder of its own": {"read /tmp/a/kustomization-2379108689/clusters: is a directory", "read /tmp/a/kustomization-534068399/clusters: is a directory", true},
		"another failure":     {"kustomize build failed: no such file", "kustomize build failed: not mapped", false},
		"a count is progress": {"1/3 replicas are ready", "2/3 replicas are ready", false},
	} {
		if same := failed(tc.one) == failed(tc.two); same != tc.same {
			t.Errorf("%s: the same: %t, want %t", reason, same, tc.same)
		}
	}
}
