package cli_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// fakeTenure records its arguments and writes the reports that they name, as the program does.
const fakeTenure = `#!/bin/sh
printf '%s\n' "$@" > "$RECORD"
for a in "$@"; do
	case $a in
	json=*|markdown=*) echo "report" > "${a#*=}" ;;
	esac
done
exit "${EXIT:-0}"
`

// releases serves a release v1.2.3 whose program is fakeTenure, and returns its address. Damaged
// changes the archive after the checksums were written.
func releases(t *testing.T, damaged bool) string {
	t.Helper()
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	if err := files.WriteHeader(&tar.Header{Name: "tenure", Mode: 0o755, Size: int64(len(fakeTenure))}); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write([]byte(fakeTenure)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{files, zipped} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	name := fmt.Sprintf("tenure_1.2.3_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	sums := fmt.Sprintf("%x  tenure-programs_1.2.3_linux_amd64.tar.zst\n%x  %s\n", sha256.Sum256(nil), sha256.Sum256(packed.Bytes()), name)
	if damaged {
		packed.WriteByte('x')
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch request.URL.Path {
		case "/v1.2.3/" + name:
			_, _ = w.Write(packed.Bytes())
		case "/v1.2.3/SHA256SUMS":
			_, _ = io.WriteString(w, sums)
		default:
			http.NotFound(w, request)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// script runs a script of the action with variables, and returns its output and exit code.
func script(t *testing.T, name string, args []string, env map[string]string) (string, int) {
	t.Helper()
	file, err := filepath.Abs("../../action/" + name)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{file}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + env["BIN"] + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "NO_PROXY=*"}
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestActionScripts runs the scripts of the action with a release of a fake program.
func TestActionScripts(t *testing.T) {
	t.Parallel()
	env := map[string]string{"VERSION": "v1.2.3", "RELEASES": releases(t, false), "BIN": filepath.Join(t.TempDir(), "bin")}
	if out, code := script(t, "install.sh", nil, env); code != 0 || out != "" {
		t.Fatalf("install: exit code %d\n%s", code, out)
	}
	out := filepath.Join(t.TempDir(), "with a space")
	record := filepath.Join(t.TempDir(), "args")
	env["OUT"], env["RECORD"], env["FLEET"], env["EXIT"] = out, record, "fleet", "1"
	env["PATHS"], env["MAPS"], env["ARGUMENTS"] = "clusters/a\nclusters/b\r\n", "https://git.example.com/a b=x; rm *\n\n", "--baseline\nfleet/accepted.yaml"
	if out, code := script(t, "verify.sh", nil, env); code != 1 {
		t.Errorf("the exit code of tenure is lost: %d\n%s", code, out)
	}
	common := []string{
		"verify", "--fleet", "fleet", "--programs", env["RELEASES"] + "/v1.2.3", "--path", "clusters/a", "--path", "clusters/b", "--map", "https://git.example.com/a b=x; rm *",
		"-o", "html=" + out + "/verify.html", "-o", "sarif=" + out + "/verify.sarif", "-o", "junit=" + out + "/verify.xml", "-o", "json=" + out + "/new.json",
	}
	last := []string{"--baseline", "fleet/accepted.yaml"}
	for _, more := range [][]string{nil, {"--compare", out + "/main.json", "-o", "markdown=" + out + "/comment.md"}} {
		want := slices.Concat(common, more, last)
		content, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		parses(t, got)
		// The first run has left its report for the next one.
		if out, code := script(t, "verify.sh", nil, env); code != 1 {
			t.Errorf("the second run: exit code %d\n%s", code, out)
		}
	}

	for _, tt := range []struct{ reason, releases, version, want string }{
		{"a damaged archive", releases(t, true), "v1.2.3", "is not what the checksums of the release say"},
		{"a version that there is not", env["RELEASES"], "v9.9.9", "cannot fetch tenure_9.9.9_"},
	} {
		bin := filepath.Join(t.TempDir(), "bin")
		out, code := script(t, "install.sh", nil, map[string]string{"VERSION": tt.version, "RELEASES": tt.releases, "BIN": bin})
		if _, err := os.Stat(bin); code != 3 || err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit code %d, %v\n%s", tt.reason, code, err, out)
		}
	}
}

// gitlab is a part of GitLab's API: the artifacts of a job, and the notes of a merge request.
type gitlab struct {
	mu    sync.Mutex
	notes string
	calls []string
}

func (g *gitlab) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	token := request.Header.Get("Private-Token") + request.Header.Get("Job-Token")
	g.calls = append(g.calls, strings.TrimSpace(request.Method+" "+request.URL.Path+" "+token+" "+request.FormValue("body")))
	switch {
	case strings.HasSuffix(request.URL.Path, "/main.json"):
		_, _ = io.WriteString(w, "{}")
	case request.Method == http.MethodGet:
		_, _ = io.WriteString(w, g.notes)
	}
}

// taken returns the calls since it was asked last.
func (g *gitlab) taken() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}

// TestGitLabScript runs the script of GitLab's job against its API.
func TestGitLabScript(t *testing.T) {
	t.Parallel()
	const other, own = `[{"id":7,"type":null,"body":"tenure verify -- is fine","x":1}`, `{"id":12,"type":null,"body":"\u003c!-- tenure verify --\u003e\n## safe","x":1}`
	const notes = "/projects/5/merge_requests/3/notes"
	for _, tt := range []struct {
		reason, notes, token string
		comment              bool
		want                 []string
	}{
		{"the first comment", other + "]", "secret", true, []string{"GET " + notes + " secret", "POST " + notes + " secret safe"}},
		{"the next one replaces it", other + "," + own + "]", "secret", true, []string{"GET " + notes + " secret", "PUT " + notes + "/12 secret safe"}},
		{"nothing to compare with", other + "]", "secret", false, nil},
		{"no token", other + "]", "", true, nil},
	} {
		server := &gitlab{notes: tt.notes}
		api := httptest.NewServer(server)
		out := t.TempDir()
		if tt.comment {
			if err := os.WriteFile(filepath.Join(out, "comment.md"), []byte("safe\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		env := map[string]string{
			"CI_API_V4_URL": api.URL, "CI_PROJECT_ID": "5", "CI_MERGE_REQUEST_IID": "3", "CI_DEFAULT_BRANCH": "main", "CI_JOB_TOKEN": "job",
			"TENURE_TOKEN": tt.token, "OUT": out,
		}
		if said, code := script(t, "gitlab.sh", []string{"comment"}, env); code != 0 {
			t.Errorf("%s: exit code %d\n%s", tt.reason, code, said)
		}
		if diff := cmp.Diff(tt.want, server.taken()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tt.reason, diff)
		}
		if said, code := script(t, "gitlab.sh", []string{"report"}, env); code != 0 {
			t.Errorf("%s: exit code %d\n%s", tt.reason, code, said)
		}
		calls := server.taken()
		if content, err := os.ReadFile(filepath.Join(out, "main.json")); err != nil || string(content) != "{}" || len(calls) != 1 || !strings.HasSuffix(calls[0], " job") {
			t.Errorf("%s: the report is %q, %v; calls %q", tt.reason, content, err, calls)
		}
		api.Close()
		// Without GitLab there is no report, and no half of one.
		if said, code := script(t, "gitlab.sh", []string{"report"}, env); code != 0 {
			t.Errorf("%s: exit code %d\n%s", tt.reason, code, said)
		}
		if _, err := os.Stat(filepath.Join(out, "main.json")); err == nil {
			t.Errorf("%s: a report that cannot be fetched is there", tt.reason)
		}
	}
}

// variable matches a variable that a script reads and nothing gives it by itself.
var variable = regexp.MustCompile(`\$\{?([A-Z][A-Z0-9_]*)`)

// TestActionFiles checks that the composite action and GitLab's job are what the two hosts accept, and
// that they set each variable that their scripts read.
func TestActionFiles(t *testing.T) {
	t.Parallel()
	var action struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Author      string `json:"author"`
		Inputs      map[string]struct {
			Description string  `json:"description"`
			Required    bool    `json:"required"`
			Default     *string `json:"default"`
		} `json:"inputs"`
		Runs struct {
			Using string `json:"using"`
			Steps []struct {
				Name  string            `json:"name"`
				If    string            `json:"if"`
				Uses  string            `json:"uses"`
				With  map[string]any    `json:"with"`
				Shell string            `json:"shell"`
				Run   string            `json:"run"`
				Env   map[string]string `json:"env"`
			} `json:"steps"`
		} `json:"runs"`
	}
	content := strictly(t, "../../action.yaml", &action)
	for _, step := range action.Runs.Steps {
		if (step.Uses == "") == (step.Run == "") || step.Run != "" && step.Shell == "" {
			t.Errorf("a step of a composite action uses an action, or runs a command in a shell: %+v", step)
		}
		if strings.Contains(step.Run, "${{") {
			t.Errorf("a step puts an expression into its command, which could have any content: %s", step.Run)
		}
		for _, name := range []string{"install.sh", "verify.sh"} {
			if strings.Contains(step.Run, "/action/"+name) {
				sets(t, name, step.Env)
			}
		}
	}
	for name, input := range action.Inputs {
		if input.Description == "" || input.Required == (input.Default != nil) || !strings.Contains(content, "inputs."+name+" }}") {
			t.Errorf("input %s has no description, is unused, or is neither required nor has a default", name)
		}
	}
	if action.Runs.Using != "composite" || len(action.Runs.Steps) < 5 {
		t.Errorf("it is no composite action: %+v", action.Runs)
	}

	var jobs map[string]struct {
		Stage     string              `json:"stage"`
		Image     string              `json:"image"`
		Timeout   string              `json:"timeout"`
		Rules     []map[string]string `json:"rules"`
		Variables map[string]string   `json:"variables"`
		Before    []string            `json:"before_script"`
		Script    []string            `json:"script"`
		After     []string            `json:"after_script"`
		Artifacts struct {
			When    string            `json:"when"`
			Paths   []string          `json:"paths"`
			Reports map[string]string `json:"reports"`
		} `json:"artifacts"`
	}
	strictly(t, "../../examples/gitlab/verify.yaml", &jobs)
	job := jobs["tenure-verify"]
	for _, name := range []string{"install.sh", "verify.sh", "gitlab.sh"} {
		sets(t, name, job.Variables)
	}
	if len(jobs) != 1 || len(job.Rules) != 2 || len(job.Script) == 0 {
		t.Errorf("the jobs are %+v", jobs)
	}
}

// strictly parses a file, and returns its content.
func strictly(t *testing.T, file string, into any) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return string(content)
}

// sets checks that the variables are all that a script needs.
func sets(t *testing.T, name string, variables map[string]string) {
	t.Helper()
	content, err := os.ReadFile("../../action/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range variable.FindAllStringSubmatch(string(content), -1) {
		// GitLab sets the variables CI_…, and its user the token.
		if _, set := variables[match[1]]; !set && !strings.HasPrefix(match[1], "CI_") && match[1] != "TENURE_TOKEN" {
			t.Errorf("%s reads %s, which nothing sets", name, match[1])
		}
	}
}
