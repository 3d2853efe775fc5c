package autofix

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
)

// TestDiffOfEmptyFile fills a file that is there and empty: git would refuse to apply
// a diff that makes it anew.
func TestDiffOfEmptyFile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		before map[string]string
		want   string
	}{
		"empty":   {"a file that is empty is there", map[string]string{"a.yaml": ""}, "--- a/a.yaml\n"},
		"missing": {"a file that is not there is made", nil, "new file mode 100644\n--- /dev/null\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := (&tree{fleet: &layout.Fleet{Dir: t.TempDir()}, bench: newWorkbench(nil), before: tc.before, now: map[string]string{"a.yaml": "x: 1\n"}}).patch()
			if !strings.HasPrefix(got, "diff --git a/a.yaml b/a.yaml\n"+tc.want) {
				t.Errorf("%s: %s", tc.reason, got)
			}
		})
	}
}
