package lockdown

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// kustomizeController fetches what a tenant's kustomization.yaml names by its address: see
// https://github.com/fluxcd/website/pull/1406.
const kustomizeController = "kustomize-controller"

const (
	// NoProxyThere is the address of the proxy that kustomize-controller uses with TLS for all hosts but a few:
	// the discard port of its own Pod, where nothing listens. Each connection through this proxy fails
	// at once.
	NoProxyThere = "http://127.0.0.1:9"
	// ArtifactProxy is the address of the proxy that kustomize-controller uses without TLS: a container of its
	// Pod, which passes on requests for an artifact of a source alone.
	ArtifactProxy = "http://" + artifactProxyListen
	// artifactProxyListen is the address in the flag of that container, and artifactProxyName the container's name.
	artifactProxyListen = "127.0.0.1:9080"
	artifactProxyName   = "artifact-proxy"
)

const (
	// httpVariable and httpsVariable are the environment variables that name a proxy, and noProxyVariable lists the
	// hosts without one: see https://pkg.go.dev/net/http#ProxyFromEnvironment.
	httpVariable    = "HTTP_PROXY"
	httpsVariable   = "HTTPS_PROXY"
	noProxyVariable = "NO_PROXY"
)

const (
	// gitVariable is the environment variable with the protocols that git may use, and gitProtocols its value: those
	// that use the proxies. SSH uses none. See https://git-scm.com/docs/git#Documentation/git.txt-GITALLOWPROTOCOL.
	gitVariable  = "GIT_ALLOW_PROTOCOL"
	gitProtocols = "http:https"
)

// proxyVariables are the variables that name proxies.
var proxyVariables = []string{httpVariable, httpsVariable}

const (
	// apiServer is the host of the API server, a variable that Kubernetes sets in every container.
	apiServer = "$(KUBERNETES_SERVICE_HOST)"
	// apiServerPort is the host with its port. Go reads the brackets around both families of addresses.
	apiServerPort = "[" + apiServer + "]:$(KUBERNETES_SERVICE_PORT)"
)

// egress are the hosts to which kustomize-controller may connect.
type egress struct {
	// Namespace is Flux's, and Domain the domain of the cluster.
	Namespace, Domain string
	// Shards are the names of the shards, each with a source-controller.
	Shards []string
	// Hosts are hosts besides those of Flux and the API server.
	Hosts []string
	// Image is the image of the artifact proxy.
	Image string
}

// HTTP and HTTPS are the addresses of the proxies in the patches, and Listen is the one at which the artifact proxy listens.
func (egress) HTTP() string   { return ArtifactProxy }
func (egress) HTTPS() string  { return NoProxyThere }
func (egress) Listen() string { return artifactProxyListen }

// GitProtocols are the protocols that git may use.
func (egress) GitProtocols() string { return gitProtocols }

// Servers returns the hosts that serve artifacts, which the artifact proxy reaches.
func (e egress) Servers() []string {
	hosts := []string{e.service("source-controller"), e.service("source-watcher")}
	for _, shard := range e.Shards {
		hosts = append(hosts, e.service("source-controller-"+shard))
	}
	return hosts
}

// service returns the host of a Service of Flux.
func (e egress) service(name string) string { return name + "." + e.Namespace + ".svc." + e.Domain }

// NoProxy returns the value of NO_PROXY, with the ports that the hosts serve: to connect to another port of a
// Service may take until a timeout. Flux writes the hosts of its Services with a dot at the end.
func (e egress) NoProxy() string {
	events := e.service("notification-controller")
	all := []string{apiServerPort, events + ":80", events + ".:80"}
	// A kubeconfig of a tenant may name the proxy in any form.
	proxy := "tenure-proxy." + e.Namespace + ".svc"
	for _, host := range []string{proxy, proxy + "." + e.Domain, proxy + "." + e.Domain + "."} {
		all = append(all, host+":9001")
	}
	return strings.Join(append(all, e.Hosts...), ",")
}

// hostAndPort is the syntax of a host with an optional port.
var hostAndPort = regexp.MustCompile(`^([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$`)

// egressHosts returns the wanted hosts, or the hosts of before if there are none. An empty list removes
// them.
func egressHosts(wanted, before []string) ([]string, error) {
	if wanted == nil {
		return before, nil
	}
	hosts := slices.Clone(wanted)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	return hosts, CheckEgressHosts(hosts)
}

// CheckEgressHosts returns an error for a host to which kustomize-controller cannot be let connect.
func CheckEgressHosts(hosts []string) error {
	for _, host := range hosts {
		if !hostAndPort.MatchString(host) || !strings.ContainsAny(host, ".:") || strings.HasPrefix(host, ".") {
			return fmt.Errorf("cannot let kustomize-controller connect to %q: write a host such as kms.example.com or kms.example.com:8200 (--egress-host)", host)
		}
	}
	return nil
}

// limitEgress sets the hosts to which kustomize-controller may connect. Before are the hosts of the fleet,
// imageBefore is the manager's image there, and flux are Flux's manifests.
func (c *component) limitEgress(o Options, before []string, imageBefore string, flux []*unstructured.Unstructured) error {
	hosts, err := egressHosts(o.EgressHosts, before)
	if err != nil {
		return err
	}
	image, err := serverImage(imageBefore, o.ManagerImage)
	c.FleetProxy = proxyOfFleet(flux)
	c.Egress = egress{Namespace: c.Namespace, Domain: clusterDomain(flux), Shards: c.Shards, Hosts: hosts, Image: image}
	return err
}

// proxyOfFleet returns the proxy that the fleet itself gives to kustomize-controller, or "".
func proxyOfFleet(flux []*unstructured.Unstructured) string {
	for _, o := range flux {
		if o.GetKind() != "Deployment" || controllerOf(o) != kustomizeController {
			continue
		}
		for _, name := range proxyVariables {
			if value, _ := environment(o, name); value != "" && value != NoProxyThere && value != ArtifactProxy {
				return value
			}
		}
	}
	return ""
}

// egressNote returns a note about the fleet's own proxy of kustomize-controller, or about the objects that
// it applies to other clusters, or "" if there is nothing to do.
func (c *component) egressNote(plain *survey) string {
	if c.FleetProxy != "" {
		return "kustomize-controller uses the proxy of the fleet, " + c.FleetProxy + ", and the profile leaves it so: let that proxy refuse the hosts that no file of a tenant may name, such as those of the cluster and of its cloud"
	}
	var remote []string
	for _, o := range plain.objects {
		if o.isFlux("Kustomization") && o.has("spec", "kubeConfig") {
			remote = append(remote, o.String())
		}
	}
	if len(remote) == 0 || len(c.Egress.Hosts) > 0 {
		return ""
	}
	return "kustomize-controller connects to no other cluster: name the API server of each with --egress-host, for " + listed(remote)
}

// clusterDomain returns the domain of the cluster as kustomize-controller has it in the address for
// events.
func clusterDomain(objects []*unstructured.Unstructured) string {
	for _, o := range objects {
		if o.GetKind() != "Deployment" || controllerOf(o) != kustomizeController {
			continue
		}
		for _, address := range valuesOf(arguments(o), "--events-addr") {
			parsed, err := url.Parse(address)
			if err != nil {
				continue
			}
			_, domain, found := strings.Cut(strings.TrimSuffix(parsed.Hostname(), "."), ".svc.")
			if found && len(validation.IsDNS1123Subdomain(domain)) == 0 {
				return domain
			}
		}
	}
	return defaultDomain
}

// defaultDomain is the domain of a cluster unless its admins chose another one.
const defaultDomain = "cluster.local"

// environment returns the value of a variable in a Deployment's first container, which is Flux's, and
// false if it has none.
func environment(o *unstructured.Unstructured, name string) (string, bool) {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if len(containers) == 0 {
		return "", false
	}
	value, found := "", false
	for _, entry := range asList(asMap(containers[0])["env"]) {
		if variable := asMap(entry); variable["name"] == name {
			value, _ = variable["value"].(string)
			found = true
		}
	}
	return value, found
}

// rememberedHosts returns the hosts besides Flux's and the API server in a file with the patches of
// the lockdown.
func rememberedHosts(text string) []string {
	var file struct {
		Patches []struct{ Patch string }
	}
	if yaml.Unmarshal([]byte(text), &file) != nil {
		return nil
	}
	for _, p := range file.Patches {
		if hosts := hostsIn(p.Patch); hosts != nil {
			return hosts
		}
	}
	return nil
}

// hostsIn returns the hosts in a patch of the lockdown that kustomize-controller reaches besides Flux's and
// the API server, or nil for another patch.
func hostsIn(patch string) []string {
	var deployment unstructured.Unstructured
	// A list of operations is no Deployment.
	if yaml.Unmarshal([]byte(patch), &deployment.Object) != nil {
		return nil
	}
	value, found := environment(&deployment, noProxyVariable)
	if !found {
		return nil
	}
	hosts := []string{}
	for host := range strings.SplitSeq(value, ",") {
		name, _, _ := strings.Cut(host, ":")
		service, _, inCluster := strings.Cut(name, ".")
		inCluster = inCluster && strings.Contains(name+".", ".svc.") && (slices.Contains([]string{"notification-controller", "source-watcher", "tenure-proxy"}, service) || strings.HasPrefix(service, "source-controller"))
		if host != apiServer && host != apiServerPort && !inCluster {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
