package uninstall

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// TestForbidden checks that the error of a user without rights says whose rights the command needs.
func TestForbidden(t *testing.T) {
	t.Parallel()
	err := explain(fmt.Errorf("cannot read a role: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "clusterroles"}, "tenure-tenant", nil)))
	if hints := ui.Hints(err); len(hints) != 1 || !strings.Contains(hints[0], "cluster admin") {
		t.Errorf("got the hints %q of %v", hints, err)
	}
}
