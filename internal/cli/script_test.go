package cli

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenure-dev/tenure/internal/cli/ui"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"tenure": func() { os.Exit(Run(context.Background(), ui.Std(), os.Args[1:])) },
	})
}

// TestScripts runs the scripts in testdata. They have the command's real tree,
// but none of the programs beside it: no cluster ever starts.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("TENURE_HOME", env.WorkDir+"/home")
			return nil
		},
	})
}
