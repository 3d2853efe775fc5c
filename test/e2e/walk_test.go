package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestWalk follows the guide of flux2-multi-tenancy, command by command: from an empty Git
// folder to a fleet that verify calls safe. See docs/how-to/from-flux-multi-tenancy.md.
func TestWalk(t *testing.T) {
	t.Parallel()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	tenureHome := home(t)
	testscript.Run(t, testscript.Params{
		Files:               []string{filepath.Join("testdata", "walk.txtar")},
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"stopped": stopped},
		Setup: func(env *testscript.Env) error {
			identity, err := age.GenerateX25519Identity()
			if err != nil {
				return err
			}
			for name, content := range map[string]string{
				"keys/sops.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: flux-system}\n---\n" +
					"apiVersion: v1\nkind: Secret\nmetadata: {name: sops-age, namespace: flux-system}\nstringData: {flux.agekey: " + identity.String() + "}\n",
			} {
				write(t, content, env.WorkDir, name)
			}
			env.Setenv("AGE", identity.Recipient().String())
			env.Setenv("TENURE_HOME", tenureHome)
			env.Setenv("CHARTS", filepath.Join(filepath.Dir(bin), "examples", "charts"))
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
			for _, who := range []string{"AUTHOR", "COMMITTER"} {
				env.Setenv("GIT_"+who+"_NAME", "test")
				env.Setenv("GIT_"+who+"_EMAIL", "test@example.com")
			}
			env.Defer(func() { leave(t, env, bin, tenureHome) })
			return nil
		},
	})
}

// leave stops the cluster that a failed script leaves, and prints why its controllers did not
// run.
func leave(t *testing.T, env *testscript.Env, bin, tenureHome string) {
	t.Helper()
	kubeconfig := filepath.Join(tenureHome, "default", "kubeconfig")
	if _, err := os.Stat(kubeconfig); err != nil {
		return
	}
	for _, args := range []string{"describe pods", "get events", "logs deployment/tenure-manager"} {
		said, _ := exec.Command(filepath.Join(bin, "kubectl"), append([]string{"--kubeconfig", kubeconfig, "-n", "flux-system"}, strings.Fields(args)...)...).CombinedOutput()
		env.T().Log(string(said))
	}
	_ = command(t, tenureHome, "down").Run()
}

// stopped implements the command `stopped REPORT ROW...` of scripts: it checks in verify's
// report that every attack of each of the rows was stopped, for each tenant or for the tenant
// with the same rights that was attacked in full.
func stopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: stopped REPORT ROW...")
	}
	var report struct {
		Clusters []struct {
			// Like is the tenant of the same shape that was attacked in full.
			Tenants []struct{ Name, Like string }
			Attacks []struct{ Key, ID, Tenant, Outcome, Control string }
		}
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &report))
	if len(report.Clusters) == 0 || len(report.Clusters[0].Tenants) < 2 {
		ts.Fatalf("the report is not one of several tenants")
	}
	var wrong []string
	for _, row := range args[1:] {
		tried := map[string]bool{}
		for _, a := range report.Clusters[0].Attacks {
			if a.ID != row {
				continue
			}
			tried[a.Tenant] = true
			if a.Outcome != "stopped" && a.Outcome != "not installed" {
				wrong = append(wrong, fmt.Sprintf("%s as %s: %s", a.Key, a.Tenant, a.Outcome))
			}
			ts.Logf("%s as %s: %s", a.Key, a.Tenant, a.Control)
		}
		for _, tenant := range report.Clusters[0].Tenants {
			if !tried[tenant.Name] && !tried[tenant.Like] {
				wrong = append(wrong, fmt.Sprintf("%s was not tried as %s", row, tenant.Name))
			}
		}
	}
	if slices.Sort(wrong); len(wrong) > 0 {
		ts.Fatalf("not safe:\n%s", strings.Join(wrong, "\n"))
	}
}
