package edit

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/ui"
)

// TestRender checks what a terminal and a pipe get of a change: a pipe the whole diff, a terminal the
// beginning of long new files.
func TestRender(t *testing.T) {
	t.Parallel()
	long := []byte(strings.Repeat("a: b\n", 100))
	edited := workspace.Unified("edited.yaml", long, append(bytes.Clone(long), "c: \x1b[2Jd\n"...))
	diff := workspace.Unified("long.yaml", nil, long) + edited + workspace.Unified("short.yaml", nil, []byte("diff --git a/x b/x\n"))

	var pipe bytes.Buffer
	if err := Show(ui.IO{Out: &pipe}, diff); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(diff, pipe.String()); diff != "" {
		t.Errorf("-want +got in a pipe:\n%s", diff)
	}

	want := `diff --git a/long.yaml b/long.yaml
new file mode 100644
--- /dev/null
+++ b/long.yaml
@@ -0,0 +1,100 @@
` + strings.Repeat("+a: b\n", 5) + `… 95 more lines: --dry-run into a pipe or file prints all
` + strings.ReplaceAll(edited, "\x1b", "\uFFFD") + `diff --git a/short.yaml b/short.yaml
new file mode 100644
--- /dev/null
+++ b/short.yaml
@@ -0,0 +1 @@
+diff --git a/x b/x
`
	if diff := cmp.Diff(want, render(&ui.Screen{Interactive: true}, diff)); diff != "" {
		t.Errorf("-want +got on a terminal:\n%s", diff)
	}
	if got := render(&ui.Screen{Interactive: true, Colour: true}, diff); !strings.Contains(got, string(ui.Green)+"+a: b") {
		t.Errorf("no colour: %q", got)
	}
}
