package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// A pasted is a block of commands of the tutorial, and the lines that its output has
// to have, in this order.
type pasted struct{ commands, output string }

// TestTutorial pastes docs/tutorial.md into a shell: it runs the blocks marked sh, and
// compares the output with the blocks marked text.
func TestTutorial(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(home(t))
	tenureHome := filepath.Join(folder, ".tenure")
	t.Cleanup(func() { nothingLeft(t, tenureHome) })
	page, err := os.ReadFile(filepath.Join(filepath.Dir(bin), "docs", "tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", "")
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "HOME="+folder, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "GIT_CONFIG_GLOBAL="+os.DevNull)
	if err := paste(t, string(page), shell); err != nil {
		state, _ := command(t, tenureHome, "get", "all", "-A", "--kubeconfig", filepath.Join(tenureHome, "default", "kubeconfig")).CombinedOutput()
		log, _ := os.ReadFile(filepath.Join(tenureHome, "default", "log", "tenure.log"))
		_ = command(t, tenureHome, "down").Run()
		t.Fatalf("the tutorial does not run: %v\nFlux:\n%s\nthe end of the log:\n%s", err, state, log[max(0, len(log)-8000):])
	}
}

// paste pastes a page into a shell: it runs the blocks marked sh, and compares the output with
// the blocks marked text. The error has the output of the block that failed.
func paste(t *testing.T, page string, shell *exec.Cmd) error {
	t.Helper()
	blocks := blocksOf(page)
	if len(blocks) < 6 {
		t.Fatalf("the page has %d blocks of commands: are they still marked sh?", len(blocks))
	}
	var script strings.Builder
	script.WriteString("set -eu -o pipefail\n")
	for i, b := range blocks {
		fmt.Fprintf(&script, "echo @@%d@@\n%s\n", i, b.commands)
	}
	shell.Args[len(shell.Args)-1] = script.String()
	said, err := shell.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, lastBlock(blocks, string(said)))
	}
	for i, b := range blocks {
		_, output, _ := strings.Cut(string(said), fmt.Sprintf("@@%d@@\n", i))
		output, _, _ = strings.Cut(output, fmt.Sprintf("@@%d@@\n", i+1))
		for line := range strings.Lines(b.output) {
			at := patternOf(line).FindStringIndex(output)
			if at == nil {
				t.Errorf("this does not say %q, or not there:\n%s\nbut:\n%s", strings.TrimSpace(line), b.commands, output)
				break
			}
			output = output[at[1]:]
		}
	}
	return nil
}

// lastBlock returns the commands and the output of the last block that the shell started.
func lastBlock(blocks []pasted, said string) string {
	for i, b := range slices.Backward(blocks) {
		if _, output, found := strings.Cut(said, fmt.Sprintf("@@%d@@\n", i)); found {
			return b.commands + output
		}
	}
	return said
}

// blocksOf reads the blocks of a page.
func blocksOf(page string) []pasted {
	var blocks []pasted
	for i, part := range strings.Split(page, "```") {
		kind, content, _ := strings.Cut(part, "\n")
		switch {
		case i%2 == 0:
		case kind == "sh":
			blocks = append(blocks, pasted{commands: content})
		case kind == "text" && len(blocks) > 0:
			blocks[len(blocks)-1].output = content
		}
	}
	return blocks
}

// patternOf returns a pattern for a line of a page: an ellipsis matches any text in the line,
// a space matches several, and tabs.
func patternOf(line string) *regexp.Regexp {
	words := strings.Fields(line)
	for i, w := range words {
		words[i] = strings.ReplaceAll(regexp.QuoteMeta(w), "…", ".*")
	}
	return regexp.MustCompile(strings.Join(words, `[ \t]*`))
}
