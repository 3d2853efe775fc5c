package cli_test

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// recorder begins a program that appends its name and arguments to the file CALLS.
const recorder = "#!/bin/bash\necho \"$(basename \"$0\") $*\" >> \"$CALLS\"\n"

// runner runs the shell steps of a workflow, as far as GitHub's runner does: with the expressions of the
// step replaced, with the variables and files of GitHub, and with programs that are recorded.
type runner struct {
	t   *testing.T
	dir string
	// expressions are the values by the text between the brackets.
	expressions map[string]string
	env         map[string]string
}

// newRunner returns a runner with recorded programs, each with a script that it runs.
func newRunner(t *testing.T, expressions, programs map[string]string) *runner {
	t.Helper()
	r := &runner{t: t, dir: t.TempDir(), expressions: expressions}
	bin := filepath.Join(r.dir, "bin")
	for name, script := range programs {
		r.write(filepath.Join("bin", name), recorder+script+"\n", 0o700)
	}
	r.env = map[string]string{
		"PATH": bin + ":" + os.Getenv("PATH"), "HOME": r.dir, "NO_PROXY": "*", "CALLS": filepath.Join(r.dir, "calls"), "RUNNER_TEMP": r.dir,
		"GITHUB_OUTPUT": filepath.Join(r.dir, "output"), "GITHUB_PATH": filepath.Join(r.dir, "path"),
		"GITHUB_REPOSITORY": "acme/fleet", "GITHUB_REF_NAME": "v1.2.3", "GITHUB_SERVER_URL": "https://github.com", "GITHUB_WORKFLOW_REF": "acme/tenure/release.yaml@v1.2.3",
	}
	return r
}

func (r *runner) write(name, content string, mode os.FileMode) {
	r.t.Helper()
	file := filepath.Join(r.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), mode)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *runner) read(name string) string {
	r.t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(content)
}

var expression = regexp.MustCompile(`\$\{\{ *(.*?) *\}\}`)

// value replaces the expressions of a text.
func (r *runner) value(text string) string {
	return expression.ReplaceAllStringFunc(text, func(match string) string {
		key := expression.FindStringSubmatch(match)[1]
		value, known := r.expressions[key]
		if !known {
			r.t.Errorf("the test has no value for %s", match)
		}
		return value
	})
}

// run runs a step, and returns its output and exit code.
func (r *runner) run(command string, env map[string]string) (string, int) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", r.value(command))
	cmd.Dir = r.dir
	all := maps.Clone(r.env)
	all["PATH"] = strings.ReplaceAll(r.read("path"), "\n", ":") + all["PATH"]
	for name, value := range env {
		all[name] = r.value(value)
	}
	for name, value := range all {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// calls compares the recorded calls since the last comparison.
func (r *runner) calls(reason string, want ...string) {
	r.t.Helper()
	got := strings.Split(strings.TrimSuffix(r.read("calls"), "\n"), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s: calls -want +got:\n%s", reason, diff)
	}
	r.write("calls", "", 0o600)
}

// ownSteps returns the shell steps of the jobs of a workflow of this repository.
func ownSteps(t *testing.T, name string) map[string][]step {
	t.Helper()
	content, err := os.ReadFile("../../.github/workflows/" + name)
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string][]step{}
	for job, j := range parseWorkflow(t, content).Jobs {
		for _, s := range j.Steps {
			if s.Run != "" {
				steps[job] = append(steps[job], step{s.Run, s.Env})
			}
		}
	}
	return steps
}

// step is a shell step.
type step struct {
	Run string            `json:"run"`
	Env map[string]string `json:"env"`
}

// TestReleaseWorkflow runs the shell steps of the release: what `make release` prints is what cosign
// signs, and the key does not stay.
func TestReleaseWorkflow(t *testing.T) {
	t.Parallel()
	const digest = "sha256:0123456789abcdef"
	r := newRunner(t, map[string]string{
		"github.ref_name": "v1.2.3", "env.IMAGE": "ghcr.io/acme/tenure-server", "github.token": "t0ken",
		"secrets.COSIGN_PRIVATE_KEY": "k3y", "secrets.COSIGN_PASSWORD": "p4ss", "steps.release.outputs.digest": digest,
	}, map[string]string{
		"make":   `for a in "$@"; do case $a in KEY=*) cat "${a#KEY=}" > key; ls -l "${a#KEY=}" | cut -c 1-10 >> key ;; esac; done; echo "built sha256:00"; echo "$1 done: x@` + digest + `"`,
		"cosign": "true", "gh": "true",
	})
	r.env["IMAGE"] = "ghcr.io/acme/tenure-server"
	steps := ownSteps(t, "release.yaml")
	if len(steps["programs"]) != 1 || len(steps["release"]) != 3 {
		t.Fatalf("the shell steps are %+v", steps)
	}
	for _, s := range slices.Concat(steps["programs"], steps["release"]) {
		if out, code := r.run(s.Run, s.Env); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", s.Run, code, out)
		}
	}
	r.calls("all steps",
		"make programs VERSION=v1.2.3 REPOSITORY=ghcr.io/acme/tenure-server",
		"make release KEY="+r.dir+"/cosign.key PUSH=ghcr.io/acme/tenure-server:v1.2.3 BUILDER=https://github.com/acme/tenure/release.yaml@v1.2.3",
		"cosign sign --yes ghcr.io/acme/tenure-server@"+digest,
		"gh release create v1.2.3 --verify-tag --generate-notes dist/archives/* dist/sbom.spdx.json dist/provenance.intoto.json")
	if got := r.read("output"); got != "digest="+digest+"\n" {
		t.Errorf("the step of the release has the output %q", got)
	}
	if key := r.read("key"); key != "k3y-rw-------\n" || r.read("cosign.key") != "" {
		t.Errorf("the key is %q, and %q stays", key, r.read("cosign.key"))
	}

	// A release that fails publishes nothing, and leaves no key either.
	r.write("bin/make", "#!/bin/sh\nexit 2\n", 0o700)
	if out, code := r.run(steps["release"][0].Run, steps["release"][0].Env); code == 0 || r.read("cosign.key") != "" {
		t.Errorf("a release that fails: exit code %d, %q stays\n%s", code, r.read("cosign.key"), out)
	}
}

// TestPagesWorkflow runs the shell steps of the site: it has the main branch and each release.
func TestPagesWorkflow(t *testing.T) {
	t.Parallel()
	r := newRunner(t, map[string]string{"steps.pages.outputs.base_url": "https://docs.example.com"}, map[string]string{
		"make": "true", "git": `if [ "$1" = tag ]; then printf 'v0.1.0\nv0.2.0\n'; fi`,
	})
	for _, s := range ownSteps(t, "pages.yaml")["build"] {
		if out, code := r.run(s.Run, s.Env); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", s.Run, code, out)
		}
	}
	want := []string{"make site ADDRESS=https://docs.example.com", "git tag --list v*"}
	for _, tag := range []string{"v0.1.0", "v0.2.0"} {
		want = append(want, "git worktree add --detach "+r.dir+"/"+tag+" "+tag, "make site ADDRESS=https://docs.example.com VERSION="+tag+" SOURCE="+r.dir+"/"+tag)
	}
	r.calls("the site", want...)
}

// TestActionSteps runs the shell steps of the composite action for a pull request, with a release of a
// fake program.
func TestActionSteps(t *testing.T) {
	t.Parallel()
	var action struct {
		Runs struct {
			Steps []step `json:"steps"`
		} `json:"runs"`
	}
	content, err := os.ReadFile("../../action.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &action); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// The report of the main branch, as gh downloads it.
	r := newRunner(t, nil, map[string]string{"gh": `if [ "$1" = run ]; then mkdir -p "$RUNNER_TEMP/tenure"; echo {} > "$RUNNER_TEMP/tenure/main.json"; fi`})
	r.expressions = map[string]string{
		"inputs.version": "v1.2.3", "inputs.releases": releases(t, false), "inputs.fleet": ".", "inputs.paths": "clusters/a", "inputs.maps": "", "inputs.arguments": "", "inputs.token": "t0ken",
		"runner.temp": r.dir, "github.event.pull_request.number": "7",
	}
	r.env["GITHUB_ACTION_PATH"], r.env["RECORD"], r.env["EXIT"] = root, filepath.Join(r.dir, "record"), "1"
	failed := ""
	for _, s := range action.Runs.Steps {
		if s.Run == "" {
			continue
		}
		if out, code := r.run(s.Run, s.Env); code != 0 {
			failed += s.Run
			if code != 1 {
				t.Errorf("%s: exit code %d\n%s", s.Run, code, out)
			}
		}
	}
	// The verdict unsafe ends the step of the attacks alone, and the comment is written all the same.
	if failed != `"$GITHUB_ACTION_PATH/action/verify.sh"` {
		t.Errorf("these steps failed: %s", failed)
	}
	r.calls("all steps",
		"gh run download --repo acme/fleet --name verify-main --dir "+r.dir+"/tenure",
		"gh pr comment 7 --repo acme/fleet --edit-last --create-if-none --body-file "+r.dir+"/tenure/comment.md")
	if record := r.read("record"); !strings.HasPrefix(record, "verify\n--fleet\n.\n") || !strings.Contains(record, "--compare\n"+r.dir+"/tenure/main.json\n") {
		t.Errorf("tenure has the arguments\n%s", record)
	}
}

// TestGitLabJob runs the commands of GitLab's job, with the scripts and the release from a server.
func TestGitLabJob(t *testing.T) {
	t.Parallel()
	var jobs map[string]struct {
		Variables                         map[string]string
		BeforeScript, Script, AfterScript []string
	}
	content, err := os.ReadFile("../../examples/gitlab/verify.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, nil, map[string]string{"apt-get": "true"})
	// The job's own folder, and the names of its parts without an underscore.
	text := strings.NewReplacer("/tmp/tenure", r.dir+"/tenure", "before_script:", "beforeScript:", "after_script:", "afterScript:").Replace(string(content))
	if err := yaml.Unmarshal([]byte(text), &jobs); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(&gitlab{notes: "[]"})
	t.Cleanup(api.Close)
	scripts := httptest.NewServer(http.StripPrefix("/v1.2.3/action", http.FileServer(http.Dir("../../action"))))
	t.Cleanup(scripts.Close)
	job := jobs["tenure-verify"]
	maps.Copy(r.env, job.Variables)
	maps.Copy(r.env, map[string]string{
		"VERSION": "v1.2.3", "RELEASES": releases(t, false), "SCRIPTS": scripts.URL, "RECORD": filepath.Join(r.dir, "record"),
		"CI_API_V4_URL": api.URL, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "3", "CI_DEFAULT_BRANCH": "main", "CI_JOB_TOKEN": "job", "TENURE_TOKEN": "secret",
	})
	for _, commands := range [][]string{job.BeforeScript, job.Script, job.AfterScript} {
		if out, code := r.run(strings.Join(commands, "\n"), nil); code != 0 || len(commands) == 0 {
			t.Fatalf("%q: exit code %d\n%s", commands, code, out)
		}
	}
	if record := r.read("record"); !strings.HasPrefix(record, "verify\n--fleet\n.\n--programs\n") || r.read("tenure-reports/main.json") == "" {
		t.Errorf("the job leaves no report; tenure has the arguments\n%s", record)
	}
}
