package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenure-dev/tenure/internal/cli"
	"github.com/tenure-dev/tenure/internal/ui"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"tenure": func() { os.Exit(cli.Run(context.Background(), ui.Std(), os.Args[1:])) },
	})
}

// TestScripts runs testdata/*.txtar: each is a session with the command, with the output and
// the errors that a user sees. The scripts use the real command tree, but none of the other
// programs: no cluster starts.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"registry": startRegistry, "endswith": endsWith},
		Setup: func(env *testscript.Env) error {
			env.Setenv("TENURE_HOME", env.WorkDir+"/home")
			return nil
		},
	})
}

// endsWith runs the command with arguments and checks its exit code: endswith CODE ARG….
func endsWith(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec("tenure", args[1:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("tenure %v ends with %d, not %s", args[1:], code, args[0])
	}
}

func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	kubeconfig := t.TempDir() + "/config"
	if err := os.WriteFile(kubeconfig, []byte(unreachable), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs writer
	code := cli.Run(ctx, ui.IO{Out: &out, Err: &errs}, []string{"get", "ks", "--kubeconfig", kubeconfig})
	if code != ui.ExitInterrupted || out+errs != "" {
		t.Errorf("exit code %d, output %q: want %d without a message, whoever interrupts knows why", code, out+errs, ui.ExitInterrupted)
	}
}

type writer string

func (w *writer) Write(p []byte) (int, error) {
	*w += writer(p)
	return len(p), nil
}

const unreachable = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`

// TestPlugin shows help and errors under the names of plugins.
func TestPlugin(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		"/usr/bin/tenure":                     "tenure version",
		"/home/a/.krew/bin/kubectl-tenure":    "kubectl tenure version",
		"/home/a/.fluxcd/plugins/flux-tenure": "flux tenure version",
	} {
		var out, errs bytes.Buffer
		streams := ui.IO{In: strings.NewReader(""), Out: &out, Err: &errs}
		if code := cli.RunAs(t.Context(), streams, program, []string{"version", "--help"}); code != 0 || !strings.Contains(out.String(), "\n  "+want+" [flags]\n") {
			t.Errorf("%s: the help has no %q:\n%s", program, want, &out)
		}
		if code := cli.RunAs(t.Context(), streams, program, []string{"version", "--none"}); code != 1 || !strings.Contains(errs.String(), "see `"+want+" --help`") {
			t.Errorf("%s: the error has no %q:\n%s", program, want, &errs)
		}
	}
}

// TestCompletions finds the flags whose help lists their values, such as "text, json or yaml", and checks that a
// shell offers exactly these.
func TestCompletions(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`(?:^|: )((?:[a-z0-9-]+, )*[a-z0-9-]+,? or [a-z0-9-]+)(?:$|[ ;,:]\(|[,;:] |$)`)
	checked := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			match := list.FindStringSubmatch(f.Usage)
			if match == nil || f.Value.Type() == "bool" {
				return
			}
			want := regexp.MustCompile(`,? or |, `).Split(match[1], -1)
			checked++
			complete, ok := cmd.GetFlagCompletionFunc(f.Name)
			if !ok {
				t.Errorf("%s --%s has no completion, want %q", cmd.CommandPath(), f.Name, want)
				return
			}
			if got, directive := complete(cmd, nil, ""); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) || directive&cobra.ShellCompDirectiveNoFileComp == 0 {
				t.Errorf("%s --%s offers %q, want %q", cmd.CommandPath(), f.Name, got, want)
			}
		})
	}
	visit(cli.NewCommand(ui.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
	if checked < 10 {
		t.Errorf("found only %d flags that list their values", checked)
	}
}
