package get

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/ui"
)

// TestShowTenants compares what the names and flags of `get tenants` print.
func TestShowTenants(t *testing.T) {
	t.Parallel()
	found := &discovery.Found{
		Tenants: []discovery.Tenant{
			{Name: "billing", Namespaces: []string{"billing"}, Why: []string{"its label"}},
			{
				Name: "dev-team", Namespaces: []string{"apps"}, Accounts: []discovery.Account{{Namespace: "apps", Name: "dev-team"}},
				Owners: []discovery.Owner{{Kind: "Group", Name: "dev-team"}}, Why: []string{"its object"},
			},
		},
		Platform: []discovery.Platform{{Namespace: "infra", Why: "the root applies it"}},
	}
	objects := map[string]*v1alpha1.Tenant{"dev-team": {ObjectMeta: metav1.ObjectMeta{Name: "dev-team", Labels: map[string]string{"stage": "prod"}}}}
	const devTeam = `name: dev-team
namespaces:
- apps
object: true
owners:
- Group dev-team
ready: Unknown
repositories: []
roles: []
`
	for _, c := range []struct {
		reason, args string
		want         string // all of it for -o name, and otherwise a part
		wantErr      string
	}{
		{"all", "-o name", "tenant.tenure.dev/billing\ntenant.tenure.dev/dev-team\n", ""},
		{"one name", "dev-team -o name", "tenant.tenure.dev/dev-team\n", ""},
		{"several names", "dev-team billing -o name", "tenant.tenure.dev/billing\ntenant.tenure.dev/dev-team\n", ""},
		{"the namespace of a tenant", "-n apps -o name", "tenant.tenure.dev/dev-team\n", ""},
		{"-A overrides -n, as in kubectl", "-n apps -A -o name", "tenant.tenure.dev/billing\ntenant.tenure.dev/dev-team\n", ""},
		{"labels of the Tenant object", "-l stage=prod -o name", "tenant.tenure.dev/dev-team\n", ""},
		{"the status", "--status-selector ready!=unknown -o name", "tenant.tenure.dev/billing\n", ""},
		{"one name is one object", "dev-team -o yaml", devTeam, ""},
		{"no name is a list", "-o json", "{\n  \"items\": [\n    {\n      \"name\": \"billing\",\n      \"object\": false,\n      \"message\":", ""},
		{"wide has the owners", "dev-team -o wide", "OWNERS           MESSAGE", ""},
		{"one tenant's evidence is without that of the platform", "dev-team --why", "TENANT     NAMESPACES   EVIDENCE\ndev-team   apps         its object\n", ""},
		{"all evidence", "--why", "infra        the root applies it\n", ""},
		{"an unknown name", "shop", "", "tenant shop not found"},
		{"an unknown name does not hide the others", "shop billing -o name", "tenant.tenure.dev/billing\n", "tenant shop not found"},
		{"an unknown namespace", "-n shop", "", "no tenant has the namespace shop"},
		{"no tenant matches", "-l stage=dev", "no tenants found\n", ""},
		{"no tenant matches the wide table", "-l stage=dev -o wide", "no tenants found\n", ""},
	} {
		var out buffer
		o := &options{streams: ui.IO{Out: &out, Err: &out}}
		var showing error
		parent := &cobra.Command{Use: "get", SilenceErrors: true, SilenceUsage: true}
		o.addFlags(parent)
		cmd, tenants := o.tenants()
		cmd.RunE = func(cmd *cobra.Command, names []string) error {
			choose, err := tenants.selection(cmd, names)
			if err != nil {
				return err
			}
			showing = tenants.show(found, objects, choose)
			return nil
		}
		parent.AddCommand(cmd)
		parent.SetArgs(append([]string{"tenants"}, strings.Fields(c.args)...))
		if err := parent.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", c.reason, err)
			continue
		}
		switch got := out.String(); {
		case strings.HasSuffix(c.args, "-o name") && got != c.want, !strings.Contains(got, c.want):
			t.Errorf("%s (%s): want %q, got:\n%s", c.reason, c.args, c.want, got)
		case (showing == nil) != (c.wantErr == "") || showing != nil && showing.Error() != c.wantErr:
			t.Errorf("%s (%s): want the error %q, got %v", c.reason, c.args, c.wantErr, showing)
		}
	}
}

// TestCompleteTenantsInTime completes the names of a cluster that accepts connections and answers nothing.
func TestCompleteTenantsInTime(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := `{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: "https://` + listener.Addr().String() + `"}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}`
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	cmd := NewCommand(ui.IO{Out: &out, Err: &errs})
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SetArgs([]string{cobra.ShellCompRequestCmd, "tenants", "--kubeconfig", kubeconfig, ""})
	began := time.Now()
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The default timeout of a TLS handshake is 10 s.
	if took := time.Since(began); took > 2*complete.Timeout {
		t.Errorf("the completion took %s, want about %s", took, complete.Timeout)
	}
	if want := ":1\n"; out.String() != want {
		t.Errorf("got %q, want no names and the directive of an error, %q", out.String(), want)
	}
}
