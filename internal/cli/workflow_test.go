package cli_test

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/cli"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

const actions = "../../examples/github-actions/"

// optional matches an expression of a workflow that adds arguments or nothing.
var optional = regexp.MustCompile(`\$\{\{[^}]*&& '([^']*)' \|\| '' \}\}`)

// workflow is a workflow of GitHub, as far as the ones here use it.
type workflow struct {
	Name        string            `json:"name"`
	On          map[string]any    `json:"on"`
	Permissions map[string]string `json:"permissions"`
	Concurrency map[string]string `json:"concurrency"`
	Defaults    map[string]any    `json:"defaults"`
	Env         map[string]string `json:"env"`
	Jobs        map[string]struct {
		Needs       string            `json:"needs"`
		If          string            `json:"if"`
		Strategy    map[string]any    `json:"strategy"`
		RunsOn      string            `json:"runs-on"`
		Timeout     int               `json:"timeout-minutes"`
		Permissions map[string]string `json:"permissions"`
		Environment map[string]string `json:"environment"`
		Steps       []struct {
			ID   string            `json:"id"`
			Name string            `json:"name"`
			If   string            `json:"if"`
			Uses string            `json:"uses"`
			Run  string            `json:"run"`
			With map[string]any    `json:"with"`
			Env  map[string]string `json:"env"`
		} `json:"steps"`
	} `json:"jobs"`
}

// parseWorkflow parses a workflow strictly, and checks what holds for each.
func parseWorkflow(t *testing.T, content []byte) workflow {
	t.Helper()
	// The parser follows YAML 1.1, for which on is a truth value; GitHub's does not.
	quoted := strings.Replace(string(content), "\non:\n", "\n\"on\":\n", 1)
	var w workflow
	if err := yaml.UnmarshalStrict([]byte(quoted), &w); err != nil {
		t.Fatal(err)
	}
	for name, job := range w.Jobs {
		if job.RunsOn == "" || job.Timeout == 0 {
			t.Errorf("job %s has no machine or no end: %+v", name, job)
		}
		for _, step := range job.Steps {
			if (step.Uses == "") == (step.Run == "") {
				t.Errorf("a step either uses an action or runs a command: %+v", step)
			}
		}
	}
	if len(w.On) == 0 || len(w.Permissions) == 0 {
		t.Errorf("the workflow never runs, or has all permissions: %+v", w)
	}
	return w
}

// makeCommand matches a run of make in a workflow: the target, and the variables.
var makeCommand = regexp.MustCompile(`(?m)^ *make ([a-z-]+)((?: +\\?\n? *[A-Z]+=\S+)*)`)

// TestOwnWorkflows checks that the workflows of this repository are YAML, that the targets and
// variables of make exist, and that a release is complete.
func TestOwnWorkflows(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, name := range []string{"ci.yaml", "pages.yaml", "release.yaml"} {
		content, err := os.ReadFile("../../.github/workflows/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range parseWorkflow(t, content).Jobs {
			for _, step := range job.Steps {
				runs = append(runs, step.Run)
			}
		}
	}
	all := strings.Join(runs, "\n")
	for _, command := range makeCommand.FindAllStringSubmatch(all, -1) {
		if !strings.Contains(string(makefile), "\n"+command[1]+":") {
			t.Errorf("the Makefile has no target %s", command[1])
		}
		for _, assignment := range strings.Fields(strings.ReplaceAll(command[2], "\\", "")) {
			variable, _, _ := strings.Cut(assignment, "=")
			if !strings.Contains(string(makefile), "$("+variable+")") {
				t.Errorf("the Makefile has no variable %s", variable)
			}
		}
	}
	for _, want := range []string{".ci/run", "make site", "make programs", "make release", "cosign sign --yes", "gh release create"} {
		if !strings.Contains(all, want) {
			t.Errorf("no workflow runs %s", want)
		}
	}
}

// TestWorkflow checks that the example workflow is YAML, and that its commands and flags
// exist.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(actions + "verify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	workflow := parseWorkflow(t, content)
	var commands int
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			for command := range strings.Lines(strings.ReplaceAll(step.Run, "\\\n", " ")) {
				if !strings.Contains(command, "/tenure ") {
					continue
				}
				args := words(t, optional.ReplaceAllString(command, "$1"))
				commands++
				parses(t, args[1:])
			}
		}
	}
	if commands != 1 || len(workflow.On) == 0 || workflow.Permissions["security-events"] != "write" {
		t.Errorf("the workflow runs tenure %d times, on %v, with the permissions %v", commands, workflow.On, workflow.Permissions)
	}
}

func parses(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := cli.NewCommand(ui.IO{Out: io.Discard, Err: io.Discard}).Find(args)
	if err != nil || cmd.Name() != "verify" {
		t.Fatalf("%q is no command of ours: %v", args, err)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("cannot parse %q: %v", args, err)
	}
	if err := cmd.Args(cmd, cmd.Flags().Args()); err != nil {
		t.Errorf("cannot run %q: %v", args, err)
	}
}

// words splits a command like a shell, without support for escapes.
func words(t *testing.T, command string) []string {
	t.Helper()
	var all []string
	word, quote, inWord := "", rune(0), false
	for _, r := range strings.TrimSpace(command) + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && r == ' ':
			if inWord {
				all = append(all, word)
			}
			word, inWord = "", false
		case r == '\\' || r == '$':
			t.Fatalf("a command is more than this test understands: %s", command)
		default:
			word, inWord = word+string(r), true
		}
	}
	if quote != 0 {
		t.Fatalf("a quote is not closed: %s", command)
	}
	return all
}

// TestExampleBaseline checks that the example of accepted risks is a valid baseline and names
// existing attacks.
func TestExampleBaseline(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(actions + "accepted-risks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := baseline.Parse(content)
	if err != nil || len(accepted) == 0 {
		t.Fatalf("got %v, %v", accepted, err)
	}
	for _, e := range accepted {
		known := false
		for _, a := range catalog.Catalogue() {
			known = known || e.ID == a.ID || e.ID == a.Key()
		}
		if !known || e.Expired(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("the example accepts what there is not, or is no example: %+v", e)
		}
	}
}
