package uninstall

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
)

// TestPrint checks the numbers in the summary.
func TestPrint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason              string
		tenants, namespaces int
		want                string
	}{
		{"one of each", 1, 1, "These stay: 1 Tenant, 1 namespace of tenants, the TenancyProfile"},
		{"several", 2, 3, "These stay: 2 Tenants, 3 namespaces of tenants, the TenancyProfile"},
		{"none", 0, 0, "These stay: 0 Tenants, 0 namespaces of tenants, the TenancyProfile"},
	} {
		var out bytes.Buffer
		o := &options{streams: ui.IO{Out: &out, Err: &out}}
		if err := o.print(&lockdown.Installation{Tenants: c.tenants, Namespaces: c.namespaces}, "are"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: want %q in\n%s", c.reason, c.want, out.String())
		}
	}
}
