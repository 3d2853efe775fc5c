package lockdown

import (
	"strings"

	"github.com/tenure-dev/tenure/config"
)

//go:generate go run ../../../hack/chart ../../../charts/tenure

// Objects returns Tenure's objects, without Flux, for a namespace of Flux and of the manager:
// kinds, roles, rules, the TenancyProfile, the manager, and the proxy and Capsule's kinds if the
// options select them. It reads Allow, ManagerImage, Proxy and Capsule of the options.
// `tenure install` and the Helm chart have these objects. Multi-document YAML.
func Objects(namespace string, o Options) ([]byte, error) {
	manager, err := managerManifests(namespace, "", o.ManagerImage)
	if err != nil {
		return nil, err
	}
	posture, err := (&survey{}).posture(namespace, o.Allow)
	if err != nil {
		return nil, err
	}
	all := []string{string(config.CRDs()), string(config.Roles()), moved(string(config.Policies()), namespace), posture}
	programs := []string{manager}
	if o.Proxy != nil && *o.Proxy {
		programs = append(programs, proxyManifests(namespace, managerImage(manager)))
	}
	if o.Capsule != nil && *o.Capsule {
		all = append(all, capsuleManifests(namespace))
		for i := range programs {
			programs[i] = withCapsule(programs[i])
		}
	}
	return []byte(strings.Join(append(all, programs...), "\n---\n")), nil
}
