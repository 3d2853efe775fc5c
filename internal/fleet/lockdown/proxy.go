package lockdown

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/config"
)

// proxyFile is the file of the proxy in a fleet. Flux applies it with the manager, whose image
// it uses; like the manager, it does not block tenants.
const proxyFile = managerDir + "/proxy.yaml"

// proxyHostLine is the last name of the proxy's certificate in the manifests of config.
const proxyHostLine = "            - --tls-host=tenure-proxy.flux-system.svc.cluster.local\n"

var (
	// proxyHost has the pattern of the chart's value proxy.hosts.
	proxyHost = regexp.MustCompile(`^[a-zA-Z0-9.:*-]{1,253}$`)
	// proxyHosts finds the names in the proxy's file, also in quotes.
	proxyHosts = regexp.MustCompile(`(?m)^ *- ["']?--tls-host=([^"'\s]+)`)
)

// proxyManifests returns the proxy's manifests for a namespace, with the manager's image. The
// certificate has the given names besides those of the Service.
func proxyManifests(namespace, image string, hosts []string) string {
	manifests := managerImageLine.ReplaceAllString(string(config.Proxy()), "${1}"+image)
	lines := proxyHostLine
	for _, host := range hosts {
		lines += "            - --tls-host=" + host + "\n"
	}
	return strings.NewReplacer(
		proxyHostLine, strings.ReplaceAll(lines, "flux-system.svc", namespace+".svc"),
		"namespace: flux-system", "namespace: "+namespace,
		"tenure-proxy.flux-system.svc", "tenure-proxy."+namespace+".svc",
	).Replace(manifests)
}

// checkProxyHosts returns an error for names that cannot be in a certificate, or that no proxy has.
func checkProxyHosts(hosts []string, proxy bool) error {
	if len(hosts) > 0 && !proxy {
		return errors.New("cannot name the proxy, since it is not installed: add --proxy")
	}
	return CheckProxyHosts(hosts)
}

// CheckProxyHosts returns an error for a name that cannot be in the proxy's certificate.
func CheckProxyHosts(hosts []string) error {
	for _, host := range hosts {
		if !proxyHost.MatchString(host) {
			return fmt.Errorf("%q is not a name for the proxy: write a host such as proxy.example.com (--proxy-host)", host)
		}
	}
	return nil
}

// rememberedHosts returns the names that the proxy in the fleet has besides those of its Service.
func (t *tree) rememberedHosts(namespace string) []string {
	var hosts []string
	for _, match := range proxyHosts.FindAllStringSubmatch(t.before[proxyFile], -1) {
		if !strings.HasPrefix(match[1], "tenure-proxy."+namespace+".svc") {
			hosts = append(hosts, match[1])
		}
	}
	return hosts
}

// writeProxy adds the proxy to the tree, or removes it, and reports whether the tree has it.
func (t *tree) writeProxy(c *component, o Options) (bool, error) {
	_, there := t.before[proxyFile]
	if o.Proxy != nil {
		there = *o.Proxy
	}
	if err := checkProxyHosts(o.ProxyHosts, there); err != nil {
		return false, err
	}
	if !there {
		delete(t.now, proxyFile)
		return false, nil
	}
	hosts := o.ProxyHosts
	if hosts == nil {
		hosts = t.rememberedHosts(c.Namespace)
	}
	t.now[proxyFile] = proxyManifests(c.Namespace, managerImage(t.now[managerFile]), hosts)
	return true, nil
}
