package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// TestProxy checks that the proxy has the manager's image, and is in Flux's namespace,
// whatever its name.
func TestProxy(t *testing.T) {
	t.Parallel()
	moved := strings.NewReplacer("namespace: flux-system", "namespace: gitops")
	dir := small(t, map[string]string{folder + "gotk-components.yaml": moved.Replace(components), folder + "gotk-sync.yaml": moved.Replace(sync)})
	yes := true
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Proxy: &yes, ManagerImage: "registry.example.com/x:1"})
	got := read(t, dir)["infrastructure/tenure/manager/proxy.yaml"]
	for _, want := range []string{"image: registry.example.com/x:1", "namespace: gitops", "--tls-host=tenure-proxy.gitops.svc"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "flux-system.") || strings.Contains(got, "namespace: flux-system") {
		t.Errorf("it is not in gitops:\n%s", got)
	}
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, ManagerImage: "registry.example.com/x:2"})
	if got := read(t, dir)["infrastructure/tenure/manager/proxy.yaml"]; !strings.Contains(got, "image: registry.example.com/x:2") {
		t.Errorf("it does not follow the manager's image:\n%s", got)
	}
}
