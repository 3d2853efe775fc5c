package lockdown

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
)

//go:generate go run ../../../hack/chart ../../../charts/tenure

// Objects returns Tenure's objects, without Flux, for a namespace of Flux and of the manager:
// kinds, roles, rules, the TenancyProfile, the manager, and the optional parts that the options
// select: the proxy, the CronJob tenure-check, Capsule's kinds, the policy tenure-defaults and, with Shards, the policy
// that assigns objects to shards. The other options of interest are Warn, Allow and
// ManagerImage. `tenure install`, the Helm chart and the manifests of a release have these
// objects. Multi-document YAML. It returns an error if the image or an address in the options
// is not valid.
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
	if o.warns() {
		all = append(all, moved(string(config.WarnPolicies()), namespace))
	}
	if o.Defaults != nil && *o.Defaults {
		all = append(all, string(config.Defaults()))
	}
	if len(o.Shards) > 0 {
		all = append(all, string(config.Shards()))
	}
	programs := []string{manager}
	withProxy := o.Proxy != nil && *o.Proxy
	if err := checkProxyHosts(o.ProxyHosts, withProxy); err != nil {
		return nil, err
	}
	if withProxy {
		programs = append(programs, proxyManifests(namespace, managerImage(manager), o.ProxyHosts))
	}
	if o.Check != nil && *o.Check {
		programs = append(programs, checkJobManifests(namespace, managerImage(manager), o.warns()))
	}
	if o.Capsule != nil && *o.Capsule {
		all = append(all, capsuleManifests(namespace))
		for i := range programs {
			programs[i] = withCapsule(programs[i])
		}
	}
	manifests := strings.Join(append(all, programs...), "\n---\n")
	if o.warns() {
		if manifests, err = warning(manifests); err != nil {
			return nil, err
		}
	}
	return []byte(manifests), nil
}

// denies is the action of a binding in the manifests of config.
const denies = "\n  validationActions:\n  - Deny\n"

// componentLabel is the label [admission.LabelComponent] in the manifests of config.
var componentLabel = regexp.MustCompile(`\n    ` + regexp.QuoteMeta(admission.LabelComponent) + `: (\S+)\n`)

// warning returns manifests whose bindings warn of what the rules forbid, and audit it. Rules that
// make up for rights which RBAC cannot narrow have another label, and always deny.
func warning(manifests string) (string, error) {
	documents := strings.SplitAfter(manifests, "\n---\n")
	for i, document := range documents {
		label := componentLabel.FindStringSubmatch(document)
		if !strings.Contains(document, "\nkind: ValidatingAdmissionPolicyBinding\n") || label == nil || !admission.MayWarn(label[1]) {
			continue
		}
		if strings.Count(document, denies) != 1 {
			return "", fmt.Errorf("cannot let the rules warn: a binding has other actions than Deny:\n%s", document)
		}
		documents[i] = strings.Replace(document, denies, "\n  validationActions:\n  - Warn\n  - Audit\n", 1)
	}
	return strings.Join(documents, ""), nil
}
