package server

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/tenure-dev/tenure/internal/localcluster/node"
	"github.com/tenure-dev/tenure/internal/ui"
)

// notOnHost are the flags and commands that a Pod of a local cluster cannot use, each with the reason.
var notOnHost = map[string]string{
	"manager --webhook-client-ca":   "names a file of the host",
	"manager --webhook-client-name": "has no effect without --webhook-client-ca",
	"proxy --tls-cert-file":         "names a file of the host",
	"proxy --tls-private-key-file":  "names a file of the host",
	"proxy --client-ca-file":        "names a file of the host",
	"version":                       "no Pod runs it",
}

// typesOfKind are the types of flags whose values a local cluster checks as a kind. The type string is
// fitting for all others.
var typesOfKind = map[node.Kind]string{node.KindBool: "bool", node.KindDropped: "bool", node.KindRefused: "bool", node.KindInt: "int", node.KindDuration: "duration"}

// TestLocalClusterKnowsFlags compares the commands and flags with those that a local cluster runs as host
// processes: a Pod with any other flag does not start there.
func TestLocalClusterKnowsFlags(t *testing.T) {
	t.Parallel()
	const list = "internal/localcluster/node/tenure.go"
	programs, used := map[string]node.Program{}, map[string]bool{}
	for _, p := range node.TenureServer("/bin") {
		programs[p.Command] = p
	}
	// known reports whether the local cluster has the command or flag, or a reason says why not.
	known := func(what string, listed bool) bool {
		reason := notOnHost[what]
		used[what] = true
		switch {
		case !listed && reason == "":
			t.Errorf("tenure-server has %q, which no local cluster accepts: add it to %s, or to notOnHost with the reason", what, list)
		case listed && reason != "":
			t.Errorf("%s lists %q, and notOnHost says that it %s: remove one of them", list, what, reason)
		}
		return listed
	}
	for _, cmd := range NewCommand(ui.IO{}).Commands() {
		p, listed := programs[cmd.Name()]
		if !known(cmd.Name(), listed) {
			continue
		}
		delete(programs, cmd.Name())
		flags := map[string]node.Flag{}
		for _, f := range p.Flags {
			flags[f.Name] = f
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			what := cmd.Name() + " --" + f.Name
			have, listed := flags[f.Name]
			if !known(what, listed) {
				return
			}
			delete(flags, f.Name)
			want := typesOfKind[have.Kind]
			if want == "" && (f.Value.Type() == "bool" || f.Value.Type() == "int" || f.Value.Type() == "duration") || want != "" && want != f.Value.Type() {
				t.Errorf("%s lists %q with a kind that does not fit its type %s", list, what, f.Value.Type())
			}
			if have.Kind == node.KindListen && have.Default != f.DefValue {
				t.Errorf("%s lists %q with the default %q: tenure-server listens at %q, so the local cluster does not find the port", list, what, have.Default, f.DefValue)
			}
		})
		for name := range flags {
			t.Errorf("%s lists %q, which tenure-server does not have: a Pod with it fails in every other cluster", list, cmd.Name()+" --"+name)
		}
	}
	for name := range programs {
		t.Errorf("%s lists the command %q, which tenure-server does not have", list, name)
	}
	for what := range notOnHost {
		if !used[what] {
			t.Errorf("notOnHost has a reason for %q, which tenure-server does not have", what)
		}
	}
}
