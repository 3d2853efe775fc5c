package flux

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMissingGroups checks that the failures of a fleet without a CRD name its API group, the
// objects that depend on it, and the way out.
func TestMissingGroups(t *testing.T) {
	t.Parallel()
	monitors := Finding{Row: ks("monitors", Failed), Reason: `ServiceMonitor/web/app dry-run failed: no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"`}
	certs := Finding{Row: ks("certs", Failed), Reason: `resource mapping not found for name: "a": no matches for kind "Certificate" in version "cert-manager.io/v1"`}
	apps := Finding{Row: ks("apps", Blocked, ref(Kustomization, "monitors")), Reason: "waits for Kustomization/flux-system/monitors (failed)"}
	last := Finding{Row: ks("last", Blocked, ref(Kustomization, "apps")), Reason: "waits for Kustomization/flux-system/apps (blocked)"}
	old := Finding{Row: ks("old", Failed), Reason: `no matches for kind "HelmRepository" in version "source.toolkit.fluxcd.io/v1beta1"`}
	got := MissingGroups([]Finding{last, monitors, certs, apps, old})
	want := []MissingGroup{
		{Group: "cert-manager.io", Kinds: []string{"Certificate.v1"}, Objects: []Ref{ref(Kustomization, "certs")}},
		{Group: "monitoring.coreos.com", Kinds: []string{"ServiceMonitor.v1"}, Objects: []Ref{ref(Kustomization, "monitors")}, Waiting: []Ref{ref(Kustomization, "apps"), ref(Kustomization, "last")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	text := got[1].String()
	for _, part := range []string{"API group monitoring.coreos.com (ServiceMonitor.v1)", "Kustomization/flux-system/monitors needs it", "Kustomization/flux-system/apps, Kustomization/flux-system/last wait for that", "--crds"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
}
