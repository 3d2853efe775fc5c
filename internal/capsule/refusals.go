package capsule

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
)

// Refusals returns a message for each image, scheduler, QoS class, type, name, address, port and host of a new
// object that the rules of a Tenant refuse. The policies of the API server decide; this is their judgement in
// Go, by which `tenure verify` finds an object that they have to refuse. Refusals leaves out metadata, resources
// and pull policies. Rules that cannot be decoded refuse nothing.
func Refusals(status *v1beta2.RuleStatusStatus, r Request) []string {
	var rules []*ruleEnforcement
	for i := range status.Rules {
		rule := &tenantRule{}
		if json.Unmarshal(status.Rules[i].Raw, rule) == nil && rule.Enforce != nil && rule.Enforce.Action != actionAudit && speaksTo(rule, status.Audiences, r) {
			rules = append(rules, rule.Enforce)
		}
	}
	var messages []string
	for _, part := range auditedParts(r.Object) {
		for _, v := range part.values(r.Object) {
			if part.lists != nil && part.refuses(rules, v) {
				messages = append(messages, fmt.Sprintf("%s %q at %s", part.name, v.value, v.path))
			}
		}
	}
	return messages
}

// refuses reports whether rules refuse a value. The last rule with an entry that matches the value decides. If
// there is none, a rule that allows other values refuses it.
func (p *auditedPart) refuses(rules []*ruleEnforcement, v checkedValue) bool {
	rules = slices.DeleteFunc(slices.Clone(rules), func(e *ruleEnforcement) bool { return !p.lists(e, v) })
	if v.value == "" {
		// The rules demand a host, and pass over other values that are missing.
		return p.empty && len(rules) > 0
	}
	for _, e := range slices.Backward(rules) {
		if p.matches(e, v) != "" {
			return e.Action != actionAllow
		}
	}
	return v.value != p.unlisted && slices.ContainsFunc(rules, func(e *ruleEnforcement) bool { return e.Action == actionAllow })
}

// ofImages reports whether the rule has entries about the images with a use, such as of a container.
func (e *ruleEnforcement) ofImages(target string) bool {
	targets := e.Workloads.Targets
	return len(e.Workloads.Registries) > 0 && (len(targets) == 0 || slices.Contains(targets, targetPod) || slices.Contains(targets, target))
}

// ofHosts reports whether the rule has entries about the hosts of a kind.
func (e *ruleEnforcement) ofHosts(kind string) bool {
	return len(e.Ingress.Hostnames) > 0 && slices.Contains(e.Ingress.Types, kind)
}
