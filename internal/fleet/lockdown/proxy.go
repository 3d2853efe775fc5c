package lockdown

import (
	"strings"

	"github.com/tenure-dev/tenure/config"
)

// proxyFile is the file of the proxy in a fleet. Flux applies it with the manager, whose image
// it uses; like the manager, it does not block tenants.
const proxyFile = managerDir + "/proxy.yaml"

// proxyManifests returns the proxy's manifests for a namespace, with the manager's image.
func proxyManifests(namespace, image string) string {
	manifests := managerImageLine.ReplaceAllString(string(config.Proxy()), "${1}"+image)
	return strings.NewReplacer(
		"namespace: flux-system", "namespace: "+namespace,
		"tenure-proxy.flux-system.svc", "tenure-proxy."+namespace+".svc",
	).Replace(manifests)
}

// writeProxy adds the proxy to the tree, or removes it, and reports whether the tree has it.
func (t *tree) writeProxy(c *component, wanted *bool) bool {
	_, there := t.before[proxyFile]
	if wanted != nil {
		there = *wanted
	}
	if !there {
		delete(t.now, proxyFile)
		return false
	}
	t.now[proxyFile] = proxyManifests(c.Namespace, managerImage(t.now[managerFile]))
	return true
}
