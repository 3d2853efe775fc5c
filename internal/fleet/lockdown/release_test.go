package lockdown

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReleases runs the commands that remove the manager's finalizers, with a fake kubectl that
// has one object of each kind and records the patched objects.
func TestReleases(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const kubectl = `#!/bin/sh
case "$1 $*" in
"get "*" -A "*) echo "-n dev ${2}/one"; echo "-n ops ${2}/two" ;;
"get "*) echo "$2/one" ;;
*) for word in "$@"; do printf '[%s]' "$word"; done >>"$LOG"; echo >>"$LOG" ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range releases(true) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+filepath.Join(dir, "log"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(releases(false), "\n"); strings.Contains(got, "capsule") {
		t.Errorf("without Capsule's kinds the commands name them:\n%s", got)
	}
	const patched = `[patch][--type=merge][-p][{"metadata":{"finalizers":null}}]`
	for _, kind := range []string{"tenants.tenure.dev", "tenants.capsule.clastix.io", "globaltenantresources.capsule.clastix.io"} {
		if want := fmt.Sprintf("%s[%s/one]\n", patched, kind); !strings.Contains(string(log), want) {
			t.Errorf("%s is not patched, in\n%s", kind, log)
		}
	}
	for _, kind := range []string{"tenantparameters.tenure.dev", "tenantresources.capsule.clastix.io", "resourcequotas"} {
		for namespace, name := range map[string]string{"dev": "one", "ops": "two"} {
			if want := fmt.Sprintf("%s[-n][%s][%s/%s]\n", patched, namespace, kind, name); !strings.Contains(string(log), want) {
				t.Errorf("%s in %s is not patched, in\n%s", kind, namespace, log)
			}
		}
	}
}
