package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/ui"
)

// TestChoice checks that the file beside a fleet counts as for verify, and the flags with it.
func TestChoice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tenure.yaml"), []byte("tenants: [namespace=web]\nplatform: [namespace=istio]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason, fleet string
		want          string
	}{
		"without a fleet": {"the flags alone count", "", "[namespace=a] []"},
		"with a fleet":    {"the file counts as well", dir, "[namespace=web namespace=a] [namespace=istio]"},
		"without a file":  {"the flags alone count", t.TempDir(), "[namespace=a] []"},
	} {
		choice, err := local.Choice(tc.fleet, []string{"namespace=a"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(choice.Tenants, choice.Platform); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tenure.yaml"), []byte("tenants: [nothing]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := local.Choice(dir, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "tenure.yaml: ") {
		t.Errorf("a wrong file: got %v", err)
	}
}

// TestChoiceOfNoFolder checks that the name of a folder that does not exist is an error: without the file of the
// fleet, a command would find other tenants.
func TestChoiceOfNoFolder(t *testing.T) {
	t.Parallel()
	_, err := local.Choice(filepath.Join(t.TempDir(), "nowhere"), nil, nil)
	if !errors.Is(err, layout.ErrNotFound) || len(ui.Hints(err)) != 1 {
		t.Errorf("want an error with a hint, got %v", err)
	}
	if _, err := local.Choice(t.TempDir(), nil, nil); err != nil {
		t.Errorf("a folder needs no file: %v", err)
	}
}
