package capsule

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
)

// resourceRules are policies for requests and limits, by the name of the resource.
type resourceRules struct {
	Requests map[string]resourcePolicy `json:"requests,omitempty"`
	Limits   map[string]resourcePolicy `json:"limits,omitempty"`
}

// resourcePolicy is the policy for a request or a limit. Value is the default, or the maximum ratio of the
// limit to the request.
type resourcePolicy struct {
	Policy string             `json:"policy"`
	Value  *resource.Quantity `json:"value,omitempty"`
}

// Policies for resources. Requests can have only the first three.
const (
	policyPreserve     = "Preserve"
	policyDefault      = "Default"
	policyRemove       = "Remove"
	policyMatchRequest = "MatchRequest"
	policyRatio        = "Ratio"
)

// Targets of the rules about resources.
const (
	targetPod            = "pod"
	targetContainers     = "pod/containers"
	targetInitContainers = "pod/initcontainers"
)

var (
	resourceTargets = []string{targetPod, targetContainers, targetInitContainers}
	// ratioResources are the resources that can have a ratio. For other resources, Kubernetes requires a
	// limit equal to the request.
	ratioResources = []string{string(corev1.ResourceCPU), string(corev1.ResourceMemory), string(corev1.ResourceEphemeralStorage)}
)

// onPods reports whether the resources of a Pod itself, and not of a container, can have the name.
func onPods(name string) bool {
	return name == string(corev1.ResourceCPU) || name == string(corev1.ResourceMemory) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// checkResources checks the policies of a rule about resources.
func (t *translation) checkResources(field string, e *ruleEnforcement) {
	rules := e.Workloads.Resources
	if rules == nil {
		return
	}
	for _, target := range e.Workloads.Targets {
		if !slices.Contains(resourceTargets, target) {
			t.note(Refused, field+".targets", "requests and limits are for %s, and not for %s", strings.Join(resourceTargets, ", "), target)
		}
	}
	field += ".resources"
	if len(rules.Requests)+len(rules.Limits) == 0 {
		t.note(Refused, field, "it has neither requests nor limits")
	}
	for _, part := range []struct {
		name     string
		policies map[string]resourcePolicy
		known    []string
	}{
		{"requests", rules.Requests, []string{policyPreserve, policyDefault, policyRemove}},
		{"limits", rules.Limits, []string{policyPreserve, policyDefault, policyRemove, policyMatchRequest, policyRatio}},
	} {
		for _, name := range slices.Sorted(maps.Keys(part.policies)) {
			at, policy := fmt.Sprintf("%s.%s[%s]", field, part.name, name), part.policies[name]
			switch {
			case len(validation.IsQualifiedName(name)) > 0:
				t.note(Refused, at, "it is not the name of a resource")
			case slices.Contains(e.Workloads.Targets, targetPod) && !onPods(name):
				t.note(Refused, at, "only containers have it: leave the target pod out")
			case !slices.Contains(part.known, policy.Policy):
				t.note(Refused, at+".policy", "%q is none of %s", policy.Policy, strings.Join(part.known, ", "))
			default:
				t.policyValue(at+".value", name, policy)
			}
			if p := part.policies[name].Policy; (p == policyMatchRequest || p == policyRatio) && rules.Requests[name].Policy == policyRemove {
				t.note(Refused, at, "there is no request to compare the limit with, since the rule removes it")
			}
		}
	}
}

func (t *translation) policyValue(field, name string, policy resourcePolicy) {
	switch v := policy.Value; {
	case policy.Policy != policyDefault && policy.Policy != policyRatio:
		if v != nil {
			t.note(Refused, field, "only the policies %s and %s have a value", policyDefault, policyRatio)
		}
	case v == nil:
		t.note(Refused, field, "the policy %s needs a value", policy.Policy)
	case policy.Policy == policyRatio && (!slices.Contains(ratioResources, name) || v.Cmp(resource.MustParse("1")) < 0):
		t.note(Refused, field, "a ratio is 1 or more, and for %s", strings.Join(ratioResources, ", "))
	case v.Sign() < 0:
		t.note(Refused, field, "%s is negative", v)
	}
}

// location holds the resources of a Pod or of a container: of is the object with the field resources.
type location struct {
	target, path string
	of           map[string]any
}

// locations returns the locations of a Pod that rules can cover. A Pod need not have resources of its own:
// the list contains them only if they exist, or if a rule covers Pods.
func locations(pod *unstructured.Unstructured, rules []*ruleEnforcement) []location {
	spec, _ := pod.Object["spec"].(map[string]any)
	var all []location
	if _, has := spec["resources"]; has || slices.ContainsFunc(rules, func(e *ruleEnforcement) bool { return slices.Contains(e.Workloads.Targets, targetPod) }) {
		all = append(all, location{targetPod, "spec.resources", spec})
	}
	for _, list := range []struct{ field, target string }{{"initContainers", targetInitContainers}, {"containers", targetContainers}} {
		containers, _ := spec[list.field].([]any)
		for i := range containers {
			if container, ok := containers[i].(map[string]any); ok {
				all = append(all, location{list.target, fmt.Sprintf("spec.%s[%d].resources", list.field, i), container})
			}
		}
	}
	return all
}

// covers reports whether a rule covers a resource of the location.
func (l location) covers(e *ruleEnforcement, name string) bool {
	return (len(e.Workloads.Targets) == 0 || slices.Contains(e.Workloads.Targets, l.target)) && (l.target != targetPod || onPods(name))
}

// get returns a request or a limit, or nil if there is none.
func (l location) get(field, name string) *resource.Quantity {
	value, found, _ := unstructured.NestedFieldNoCopy(l.of, "resources", field, name)
	if !found {
		return nil
	}
	q, err := resource.ParseQuantity(fmt.Sprint(value))
	if err != nil {
		return nil
	}
	return &q
}

// set changes a request or a limit, or removes it if the value is nil, and reports whether the value
// changed.
func (l location) set(field, name string, value *resource.Quantity) bool {
	before := l.get(field, name)
	switch {
	case value == nil:
		unstructured.RemoveNestedField(l.of, "resources", field, name)
		return before != nil
	case before != nil && before.Cmp(*value) == 0:
		return false
	}
	return unstructured.SetNestedField(l.of, value.String(), "resources", field, name) == nil
}

// ofPods returns the rules about the resources of Pods that apply to the user of a request.
func ofPods(status *v1beta2.RuleStatusStatus, r Request) []*ruleEnforcement {
	if r.Object.GroupVersionKind().GroupKind().String() != "Pod" {
		return nil
	}
	var all []*ruleEnforcement
	for i := range status.Rules {
		rule := &tenantRule{}
		if json.Unmarshal(status.Rules[i].Raw, rule) == nil && rule.Enforce != nil && rule.Enforce.Workloads.Resources != nil && speaksTo(rule, status.Audiences, r) {
			all = append(all, rule.Enforce)
		}
	}
	return all
}

// policies returns the policies for requests or for limits.
func (r *resourceRules) policies(field string) map[string]resourcePolicy {
	if field == "requests" {
		return r.Requests
	}
	return r.Limits
}

// SetResources changes the requests and limits of a new Pod by the rules, and reports whether it changed
// the Pod. The last rule about a resource decides, whatever its action is.
func SetResources(status *v1beta2.RuleStatusStatus, r Request) bool {
	rules, changed := ofPods(status, r), false
	for _, l := range locations(r.Object, rules) {
		for _, field := range []string{"requests", "limits"} {
			last := map[string]resourcePolicy{}
			for _, e := range rules {
				for name, policy := range e.Workloads.Resources.policies(field) {
					if l.covers(e, name) {
						last[name] = policy
					}
				}
			}
			for name, policy := range last {
				changed = l.apply(field, name, policy) || changed
			}
		}
	}
	return changed
}

// apply changes a request or a limit by its policy, and reports whether it changed it. Without a request,
// it does not change a limit that needs one: the API server refuses the Pod.
func (l location) apply(field, name string, p resourcePolicy) bool {
	has, request := l.get(field, name), l.get("requests", name)
	switch {
	case p.Policy == policyRemove:
		return l.set(field, name, nil)
	case p.Policy == policyDefault && has == nil:
		return l.set(field, name, p.Value)
	case p.Policy == policyMatchRequest && request != nil:
		return l.set(field, name, request)
	case p.Policy == policyRatio && has == nil && request != nil && request.Sign() > 0:
		return l.set(field, name, product(name, request, p.Value))
	}
	return false
}

// product returns the limit for a request and a ratio, rounded down.
func product(name string, request, ratio *resource.Quantity) *resource.Quantity {
	exact, whole := new(big.Rat), new(big.Int)
	for i, q := range []*resource.Quantity{request, ratio} {
		factor, ok := new(big.Rat).SetString(q.AsDec().String())
		switch {
		case !ok:
			return nil
		case i == 0:
			exact.Set(factor)
		default:
			exact.Mul(exact, factor)
		}
	}
	if name == string(corev1.ResourceCPU) {
		exact.Mul(exact, big.NewRat(1000, 1))
	}
	whole.Quo(exact.Num(), exact.Denom())
	switch {
	case !whole.IsInt64():
		return nil
	case name == string(corev1.ResourceCPU):
		return resource.NewMilliQuantity(whole.Int64(), request.Format)
	}
	return resource.NewQuantity(whole.Int64(), request.Format)
}

// auditResources returns a message for each request and limit of a Pod that violates the policy of a rule
// with the action audit, unless a later rule cancels the policy.
func auditResources(status *v1beta2.RuleStatusStatus, r Request) []string {
	var messages []string
	rules := ofPods(status, r)
	for _, l := range locations(r.Object, rules) {
		for i, e := range rules {
			if e.Action != actionAudit {
				continue
			}
			for _, field := range []string{"requests", "limits"} {
				for name, policy := range e.Workloads.Resources.policies(field) {
					ended := slices.ContainsFunc(rules[i+1:], func(later *ruleEnforcement) bool {
						p := later.Workloads.Resources.policies(field)[name].Policy
						return l.covers(later, name) && (p == policyPreserve || p == policyDefault)
					})
					if text := l.broken(field, name, policy); text != "" && l.covers(e, name) && !ended {
						messages = append(messages, fmt.Sprintf("workload resource %s %q at %s.%s[%q] violates policy %s: %s", strings.TrimSuffix(field, "s"), name, l.path, field, name, policy.Policy, text))
					}
				}
			}
		}
	}
	return messages
}

// broken returns how a request or a limit violates a policy, or "".
func (l location) broken(field, name string, p resourcePolicy) string {
	has, request := l.get(field, name), l.get("requests", name)
	switch {
	case p.Policy == policyRemove && has != nil:
		return strings.TrimSuffix(field, "s") + " must be undefined for policy Remove"
	case p.Policy == policyMatchRequest && ((has == nil) != (request == nil) || has != nil && has.Cmp(*request) != 0):
		return "limit and request must both be undefined or equal for policy MatchRequest"
	case p.Policy != policyRatio || p.Value == nil:
		return ""
	case request == nil || request.Sign() <= 0:
		return "Ratio requires a request greater than zero"
	case has == nil:
		return "limit is undefined"
	}
	if most := product(name, request, p.Value); most != nil && has.Cmp(*most) > 0 {
		return fmt.Sprintf("limit %s must not exceed %s (request %s x ratio %s)", has, most, request, p.Value)
	}
	return ""
}
