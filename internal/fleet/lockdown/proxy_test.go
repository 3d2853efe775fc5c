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

// TestProxyHosts checks the names of the proxy's certificate: a run without names keeps them.
func TestProxyHosts(t *testing.T) {
	t.Parallel()
	dir := small(t, map[string]string{folder + "gotk-components.yaml": components, folder + "gotk-sync.yaml": sync})
	yes, no := true, false
	const own = "tenure-proxy.flux-system.svc,tenure-proxy.flux-system.svc.cluster.local"
	for _, run := range []struct {
		reason string
		hosts  []string
		want   string
	}{
		{"only the names of the Service", nil, own},
		{"names from outside", []string{"proxy.example.com", "*.example.org", "192.0.2.1"}, own + ",proxy.example.com,*.example.org,192.0.2.1"},
		{"a run without names keeps them", nil, own + ",proxy.example.com,*.example.org,192.0.2.1"},
		{"other names", []string{"api.example.com"}, own + ",api.example.com"},
		{"no names", []string{}, own},
	} {
		apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Proxy: &yes, ProxyHosts: run.hosts})
		if got := hosts(read(t, dir)["infrastructure/tenure/manager/proxy.yaml"]); got != run.want {
			t.Errorf("%s: the certificate has the names %s, want %s", run.reason, got, run.want)
		}
	}
	for reason, o := range map[string]lockdown.Options{
		"a name without the proxy": {Tenants: true, Proxy: &no, ProxyHosts: []string{"proxy.example.com"}},
		"an address":               {Tenants: true, Proxy: &yes, ProxyHosts: []string{"https://proxy.example.com"}},
		"a second argument":        {Tenants: true, Proxy: &yes, ProxyHosts: []string{"x\n            - --tls-host=y"}},
	} {
		if _, err := lockdown.Objects("flux-system", o); err == nil || !strings.Contains(err.Error(), "prox") {
			t.Errorf("%s: got %v, want an error", reason, err)
		}
	}
	manifests, err := lockdown.Objects("flux-system", lockdown.Options{Proxy: &yes, ProxyHosts: []string{"proxy.example.com"}})
	if err != nil || hosts(string(manifests)) != own+",proxy.example.com" {
		t.Errorf("the manifests of tenure install have the names %s, %v", hosts(string(manifests)), err)
	}
}

// hosts returns the values of --tls-host in manifests.
func hosts(manifests string) string {
	var all []string
	for line := range strings.Lines(manifests) {
		if _, host, found := strings.Cut(strings.TrimSpace(line), "--tls-host="); found {
			all = append(all, host)
		}
	}
	return strings.Join(all, ",")
}
