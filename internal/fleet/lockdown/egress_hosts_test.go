package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
)

// TestEgressHostsStay checks that later runs keep the hosts of a fleet until they are named anew, and that a
// fleet which applies to another cluster is told about them.
func TestEgressHostsStay(t *testing.T) {
	t.Parallel()
	dir := example(t)
	const component = "clusters/staging/flux-system/tenure/kustomization.yaml"
	for _, tc := range []struct {
		reason string
		hosts  []string
		want   string
	}{
		{"a new fleet", nil, "tenure-proxy.flux-system.svc.cluster.local.:9001\"\n"},
		{"two hosts", []string{"vault.example.com:8200", "kms.example.com"}, ".svc.cluster.local.:9001,kms.example.com,vault.example.com:8200\"\n"},
		{"another run", nil, ".svc.cluster.local.:9001,kms.example.com,vault.example.com:8200\"\n"},
		{"another host", []string{"kms.example.com"}, ".svc.cluster.local.:9001,kms.example.com\"\n"},
		{"none", []string{}, "tenure-proxy.flux-system.svc.cluster.local.:9001\"\n"},
	} {
		plan := apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Allow: allow, EgressHosts: tc.hosts})
		_, value, found := strings.Cut(read(t, dir)[component], "- name: NO_PROXY\n                    value: ")
		if line, _, _ := strings.Cut(value, "\n"); !found || !strings.HasSuffix(line+"\n", tc.want) {
			t.Errorf("%s: NO_PROXY is %s, want the end %s", tc.reason, line, tc.want)
		}
		if notes := strings.Join(plan.Notes, "\n"); strings.Contains(notes, "--egress-host") {
			t.Errorf("%s: the fleet applies to one cluster, and the notes are %s", tc.reason, notes)
		}
	}
	remote := "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: hub, namespace: flux-system}\nspec: {interval: 1m, path: ./hub, prune: true, serviceAccountName: tenure-root, sourceRef: {kind: GitRepository, name: flux-system}, kubeConfig: {secretRef: {name: hub}}}\n"
	write(t, dir, "clusters/staging/hub.yaml", remote)
	write(t, dir, "hub/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: hub}\n")
	for _, tc := range []struct {
		hosts []string
		noted bool
	}{{nil, true}, {[]string{"hub.example.com:6443"}, false}} {
		plan := apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Allow: allow, EgressHosts: tc.hosts})
		if notes := strings.Join(plan.Notes, "\n"); strings.Contains(notes, "--egress-host, for Kustomization flux-system/hub") != tc.noted {
			t.Errorf("with the hosts %q: the notes are %s", tc.hosts, notes)
		}
	}
}

// TestProxyOfTheFleet checks that the profile leaves a proxy that the fleet gives to its controllers, says so, and
// that the state shows it.
func TestProxyOfTheFleet(t *testing.T) {
	t.Parallel()
	const (
		system = "clusters/staging/flux-system/"
		proxy  = "http://proxy.example.com:3128"
		patch  = "patches:\n  - target: {kind: Deployment, labelSelector: app.kubernetes.io/part-of=flux}\n    patch: |\n      - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: HTTPS_PROXY, value: \"" + proxy + "\"}}\n"
	)
	dir := example(t)
	write(t, dir, system+"kustomization.yaml", strings.Replace(read(t, dir)[system+"kustomization.yaml"], "patches:\n", patch, 1))
	plan := apply(t, dir, "clusters/staging", lockdown.Options{Tenants: true, Allow: allow})
	if notes := strings.Join(plan.Notes, "\n"); !strings.Contains(notes, "kustomize-controller uses the proxy of the fleet, "+proxy) {
		t.Errorf("the notes do not name the proxy: %s", notes)
	}
	component := read(t, dir)[system+"tenure/kustomization.yaml"]
	if strings.Contains(component, "HTTPS_PROXY") {
		t.Error("the component sets another proxy")
	}
	if !strings.Contains(component, "GIT_ALLOW_PROTOCOL") {
		t.Error("git may use SSH, for which there is no proxy")
	}
	states, err := lockdown.Drift(load(t, dir, "clusters/staging"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range states {
		if s.Name == "HTTPS_PROXY" && (s.OK() || s.String() != "is "+proxy) {
			t.Errorf("the state of the variable: %s", s)
		}
	}
}
