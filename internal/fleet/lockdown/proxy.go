package lockdown

import (
	"strings"

	"github.com/tenure-dev/tenure/config"
)

// proxyFile holds the proxy in a fleet. It is applied with the manager, whose image
// it has, and like the manager holds up no tenant.
const proxyFile = managerDir + "/proxy.yaml"

// proxyManifests is the proxy in a namespace, with the manager's image.
func proxyManifests(namespace, image string) string {
	manifests := managerImageLine.ReplaceAllString(string(config.Proxy()), "${1}"+image)
	return strings.NewReplacer(
		"namespace: flux-system", "namespace: "+namespace,
		"tenure-proxy.flux-system.svc", "tenure-proxy."+namespace+".svc",
	).Replace(manifests)
}

// writeProxy puts the proxy into the tree, or takes it out. It says whether it is
// there.
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
