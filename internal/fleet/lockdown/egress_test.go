package lockdown

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"golang.org/x/net/http/httpproxy"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestEgress checks to which addresses kustomize-controller and its copies in shards connect without the proxy
// where nothing listens, as Go reads their variables.
func TestEgress(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		options       Options
		domain        string
		open, refused []string
	}{
		"of every fleet": {
			open: []string{
				"https://10.96.0.1:443", "http://source-controller.flux-system.svc.cluster.local./gitrepository/a/b/c.tar.gz", "http://source-watcher.flux-system.svc.cluster.local./a",
				"http://notification-controller.flux-system.svc.cluster.local./",
				"https://tenure-proxy.flux-system.svc:9001/api", "https://tenure-proxy.flux-system.svc.cluster.local:9001/api",
			},
			refused: []string{
				"https://10.96.0.2:443", "https://bases.example.com/a.yaml", "http://169.254.169.254/latest", "http://webhook-receiver.flux-system.svc.cluster.local/", "http://source-controller.evil.svc.cluster.local/",
				"http://evil-source-controller.flux-system.svc.cluster.local/", "https://kms.example.com:8200/", "http://source-controller.flux-system.svc.cluster.local.evil.example.com/",
				// Nothing answers at other ports of a Service.
				"https://10.96.0.1:10250/", "http://source-controller.flux-system.svc.cluster.local.:8080/", "http://notification-controller.flux-system.svc.cluster.local:8080/", "https://tenure-proxy.flux-system.svc:8080/",
			},
		},
		"with hosts": {
			options: Options{EgressHosts: []string{"kms.example.com:8200", "other.example.com"}},
			open:    []string{"https://kms.example.com:8200/v1", "https://other.example.com:6443/api", "https://10.96.0.1/"},
			refused: []string{"https://kms.example.com/v1", "https://example.com/"},
		},
		"in another domain": {
			domain:  "k8s.example.org",
			open:    []string{"http://source-controller.flux-system.svc.k8s.example.org./a"},
			refused: []string{"http://source-controller.flux-system.svc.cluster.local./a"},
		},
		"with a shard": {
			options: Options{Shards: []string{"gold"}},
			open:    []string{"http://source-controller-gold.flux-system.svc.cluster.local./a"},
			refused: []string{"http://source-controller-silver.flux-system.svc.cluster.local./a"},
		},
	} {
		tc.options.Tenants = true
		components := string(config.FluxComponents())
		if tc.domain != "" {
			components = strings.ReplaceAll(components, ".svc.cluster.local.", ".svc."+tc.domain+".")
		}
		exported, err := Export([]byte(components), tc.options)
		if err != nil {
			t.Fatal(err)
		}
		controllers := 0
		for _, o := range readObjects(t, exported) {
			if o.GetKind() != "Deployment" || controllerOf(o) != kustomizeController {
				continue
			}
			controllers++
			// Go connects to loopback without a proxy, and no variable changes that.
			if served, want := valuesOf(arguments(o), metricsFlag), []string{"$(TENURE_POD_NAME):8080"}; !slices.Equal(served, want) {
				t.Errorf("%s: %s serves metrics and profiles at %q, want %q", reason, o.GetName(), served, want)
			}
			if _, set := environment(o, "TENURE_POD_NAME"); !set {
				t.Errorf("%s: %s does not know the name of its Pod", reason, o.GetName())
			}
			if proxy := proxyOf(o, "fd00::1"); proxy("https://[fd00::1]:443/api") != "" || proxy("https://[fd00::2]:443/api") != NoProxyThere {
				t.Errorf("%s: %s does not reach the API server with IPv6, or another address", reason, o.GetName())
			}
			proxy := proxyOf(o, "10.96.0.1")
			for address, want := range with(tc.open, tc.refused) {
				got := proxy(address)
				if got == ArtifactProxy && !slices.Contains(artifactServers(t, o), strings.TrimSuffix(address[len("http://"):len("http://")+strings.IndexByte(address[len("http://"):], '/')], ".")) {
					got = NoProxyThere // the artifact proxy refuses it
				}
				if got := got == NoProxyThere; got != want {
					t.Errorf("%s: %s is refused to %s: %t, want %t", reason, address, o.GetName(), got, want)
				}
			}
		}
		if controllers != 1+len(tc.options.Shards) {
			t.Errorf("%s: %d Deployments of %s", reason, controllers, kustomizeController)
		}
	}
}

// artifactServers returns the hosts that the artifact proxy in a Deployment reaches.
func artifactServers(t *testing.T, o *unstructured.Unstructured) []string {
	t.Helper()
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) != 2 {
		t.Fatalf("%s has %d containers, want 2", o.GetName(), len(containers))
	}
	container := asMap(containers[1])
	args, _, _ := unstructured.NestedStringSlice(container, "args")
	if name, listen := container["name"], valuesOf(args, "--listen"); name != artifactProxyName || len(args) < 3 || args[0] != artifactProxyName || !slices.Equal(listen, []string{artifactProxyListen}) {
		t.Fatalf("%s has the container %v with %q", o.GetName(), name, args)
	}
	return valuesOf(args, "--server")
}

func readObjects(t *testing.T, manifests []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := flux.ReadObjects(manifests)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// with returns addresses with false, and refused addresses with true.
func with(open, refused []string) map[string]bool {
	all := map[string]bool{}
	for _, address := range open {
		all[address] = false
	}
	for _, address := range refused {
		all[address] = true
	}
	return all
}

// proxyOf returns a function that returns the proxy of a Deployment for an address. Server is the host of the
// API server.
func proxyOf(o *unstructured.Unstructured, server string) func(address string) string {
	get := func(name string) string {
		value, _ := environment(o, name)
		return strings.NewReplacer(apiServer, server, "$(KUBERNETES_SERVICE_PORT)", "443").Replace(value)
	}
	config := httpproxy.Config{HTTPProxy: get("HTTP_PROXY"), HTTPSProxy: get("HTTPS_PROXY"), NoProxy: get(noProxyVariable)}
	choose := config.ProxyFunc()
	return func(address string) string {
		parsed, err := url.Parse(address)
		if err != nil {
			return err.Error()
		}
		proxy, err := choose(parsed)
		if err != nil || proxy == nil {
			return ""
		}
		return proxy.String()
	}
}

// TestEgressHosts checks which hosts are accepted, kept and removed.
func TestEgressHosts(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		wanted, before, want []string
		refused              bool
	}{
		"none":              {},
		"kept":              {before: []string{"a.example.com"}, want: []string{"a.example.com"}},
		"removed":           {wanted: []string{}, before: []string{"a.example.com"}, want: []string{}},
		"replaced":          {wanted: []string{"b.example.com:8200", "10.0.0.1", "[fd00::1]:443"}, before: []string{"a.example.com"}, want: []string{"10.0.0.1", "[fd00::1]:443", "b.example.com:8200"}},
		"twice":             {wanted: []string{"b.example.com", "b.example.com"}, want: []string{"b.example.com"}},
		"all hosts":         {wanted: []string{"*"}, refused: true},
		"a whole domain":    {wanted: []string{".example.com"}, refused: true},
		"a top level":       {wanted: []string{"com"}, refused: true},
		"an address":        {wanted: []string{"https://a.example.com"}, refused: true},
		"two at once":       {wanted: []string{"a.example.com,b.example.com"}, refused: true},
		"a range":           {wanted: []string{"10.0.0.0/8"}, refused: true},
		"a variable":        {wanted: []string{"$(HOME).example.com"}, refused: true},
		"a line":            {wanted: []string{"a.example.com\n"}, refused: true},
		"upper case letter": {wanted: []string{"A.example.com"}, refused: true},
	} {
		got, err := egressHosts(tc.wanted, tc.before)
		if (err != nil) != tc.refused {
			t.Errorf("%s: got the error %v", reason, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" && err == nil {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// TestHostsInPatch checks which hosts of a patch the next run of the profile keeps: not Flux's and the API server's, also
// as earlier versions wrote them, without ports.
func TestHostsInPatch(t *testing.T) {
	t.Parallel()
	const patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: any}\nspec: {template: {spec: {containers: [{name: manager, env: [{name: NO_PROXY, value: %q}]}]}}}\n"
	hosts := []string{"kms.example.com:8200", "[fd00::1]:443"}
	for reason, value := range map[string]string{
		"of this version":        egress{Namespace: "flux-system", Domain: "cluster.local", Shards: []string{"gold"}, Hosts: hosts}.NoProxy(),
		"of an earlier version":  "$(KUBERNETES_SERVICE_HOST),source-controller.flux-system.svc.cluster.local.,tenure-proxy.flux-system.svc," + strings.Join(hosts, ","),
		"without other services": strings.Join(hosts, ","),
	} {
		if diff := cmp.Diff(hosts, hostsIn(fmt.Sprintf(patch, value))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}
