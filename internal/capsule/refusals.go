package capsule

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
)

// Refusals returns a message for each value of a new object that the rules of a Tenant refuse: images,
// schedulers, QoS classes, types, names, addresses, ports and hosts. The policies of the API server decide;
// Refusals repeats their decision in Go, so that `tenure verify` finds an object that they must refuse. It
// omits metadata, resources and pull policies. It ignores rules that cannot be decoded.
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

// refuses reports whether rules refuse a value. The last rule with an entry that matches the value decides.
// If no entry matches, the value is refused if a rule allows other values.
func (p *auditedPart) refuses(rules []*ruleEnforcement, v checkedValue) bool {
	rules = slices.DeleteFunc(slices.Clone(rules), func(e *ruleEnforcement) bool { return !p.lists(e, v) })
	if v.value == "" {
		// The rules require a host, and ignore other missing values.
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
