package admission

import (
	"fmt"
	"strings"
)

// CEL about a policy p, which a rule r has for a resource of a location l. p has the name of the resource,
// the policy and its value, and the request and the limit as texts; a missing request or limit is an empty
// text.
const (
	// speaksOf is true if the rule covers the location.
	speaksOf = "(r.?workloads.?targets.orValue([]).size() == 0 || r.workloads.targets.exists(t, t == l.target))"
	// hasResource is true if the location can have the resource n: a Pod can have fewer resources than a
	// container.
	hasResource = "(l.target != 'pod' || n in ['cpu', 'memory'] || n.startsWith('hugepages-'))"
	requested   = "p.request != '' && quantity(p.request).isGreaterThan(quantity('0'))"
	product     = "quantity(p.request).asApproximateFloat() * quantity(p.value).asApproximateFloat()"
	// keepsRequest and keepsLimit are true if the request or the limit complies with the policy. The
	// tolerance allows for the rounding error of floating-point numbers.
	keepsRequest = "p.request == ''"
	keepsLimit   = "p.policy == 'Remove' ? p.limit == '' :" +
		" p.policy == 'MatchRequest' ? (p.request == '' || p.limit == '' ? p.request == p.limit : quantity(p.limit).compareTo(quantity(p.request)) == 0) :" +
		" " + requested + " && p.limit != '' && quantity(p.limit).asApproximateFloat() <= " + product + " * (1.0 + 1e-9)"
	// shown is the product of the request and a ratio, as a quantity.
	shown = "(p.name == 'cpu' ? [int(" + product + " * 1000.0 + 1e-6)].map(a, a % 1000 == 0 ? string(a / 1000) : string(a) + 'm')[0] :" +
		" [int(" + product + " + 1e-6)].map(a, a % 1073741824 == 0 ? string(a / 1073741824) + 'Gi' : a % 1048576 == 0 ? string(a / 1048576) + 'Mi' : a % 1024 == 0 ? string(a / 1024) + 'Ki' : string(a))[0])"
	// brokenRequest and brokenLimit are the texts about a request or a limit that violates the policy.
	brokenRequest = "'request must be undefined for policy Remove'"
	brokenLimit   = "p.policy == 'Remove' ? 'limit must be undefined for policy Remove' :" +
		" p.policy == 'MatchRequest' ? 'limit and request must both be undefined or equal for policy MatchRequest' :" +
		" !(" + requested + ") ? 'Ratio requires a request greater than zero' : p.limit == '' ? 'limit is undefined' :" +
		" 'limit ' + p.limit + ' must not exceed ' + " + shown + " + ' (request ' + p.request + ' x ratio ' + p.value + ')'"
)

// podResources adds the refusals about requests and limits. A rule has a policy for each resource that it
// names; Preserve and Default cancel the policies of earlier rules. A rule that denies refuses a violation
// of its policy, unless this rule or a later one allows the resource. If rules allow, the resource must
// comply with the policy of at least one of them.
func (p *ruled) podResources() {
	containers := func(list string) string {
		return fmt.Sprintf("object.spec.?%[1]s.orValue([]).transformList(i, c, {'target': dyn('pod/%[2]s'), 'path': dyn('spec.%[1]s[' + string(i) + '].resources'), 'has': dyn(c.?resources.orValue({}))})", list, strings.ToLower(list))
	}
	p.variable("resourced", "variables.rules.filter(r, r.?workloads.?resources.hasValue() && "+capsuleAction+" != 'audit')")
	// The requests and limits of an existing Pod change only by the subresource resize. A Pod need not have
	// resources of its own, unless a rule covers Pods.
	p.variable("locations", "variables.resourced.size() == 0 || oldObject != null && !(has(request.subResource) && request.subResource == 'resize') ? [] :"+
		" (has(object.spec.resources) || variables.resourced.exists(r, r.?workloads.?targets.orValue([]).exists(t, t == 'pod')) ?"+
		" [{'target': dyn('pod'), 'path': dyn('spec.resources'), 'has': dyn(object.spec.?resources.orValue({}))}] : []) + "+containers("initContainers")+" + "+containers("containers"))
	p.policies("request", "['Remove']", keepsRequest, brokenRequest)
	p.policies("limit", "['Remove', 'MatchRequest', 'Ratio']", keepsLimit, brokenLimit)
}

// policies adds the refusals about requests or about limits: kept and broken are CEL about the policy p,
// and checked are the policies that can be violated.
func (p *ruled) policies(field, checked, kept, broken string) {
	fill := strings.NewReplacer("FIELDS", field+"s", "FIELD", field, "CHECKED", checked, "KEPT", kept, "BROKEN", broken,
		"SPEAKS", speaksOf, "LATER", strings.ReplaceAll(speaksOf, "r.", "s."), "RESOURCE", hasResource, "ACTION", capsuleAction).Replace
	// For each location, the variable has a list with a list for each rule.
	p.variable(field+"_policies", fill("variables.locations.map(l, variables.resourced.transformList(i, r, SPEAKS,"+
		" r.workloads.resources.?FIELDS.orValue({}).filter(n, r.workloads.resources.FIELDS[n].policy in CHECKED && RESOURCE &&"+
		" !variables.resourced.transformList(j, s, j > i && LATER, s.workloads.resources.?FIELDS.orValue({})[?n].?policy.orValue('')).exists(t, t in ['Preserve', 'Default']))"+
		".map(n, {'name': string(n), 'policy': string(r.workloads.resources.FIELDS[n].policy), 'value': string(r.workloads.resources.FIELDS[n].?value.orValue('')),"+
		" 'request': string(l.has.?requests[?n].orValue('')), 'limit': string(l.has.?limits[?n].orValue(''))})"+
		`.map(p, {'kept': dyn(KEPT), 'rule': dyn(i), 'allows': dyn(ACTION == 'allow'), 'name': dyn(p.name), 'at': dyn('workload resource FIELD "' + p.name + '" at ' + l.path + '.FIELDS["' + p.name + '"] '),`+
		" 'text': dyn((KEPT) ? '' : 'violates policy ' + p.policy + ': ' + (BROKEN))})))"))
	refusals := func(condition, text string) string {
		return firsts(fmt.Sprintf("variables.%s_policies.map(g, %s)", field, firsts(fmt.Sprintf("g.map(h, h.filter(b, !b.kept && %s && !g.exists(o, o.exists(d, d.name == b.name && d.allows && d.kept && d.rule >= b.rule))).map(b, b.at + %s))", condition, text))))
	}
	p.refuses("denied_"+field+"s", refusals("!b.allows", "b.text"))
	p.refuses("unallowed_"+field+"s", strings.ReplaceAll(refusals("b.allows", "'does not satisfy any allowed resource policy (' + b.text + ')'"), " && d.rule >= b.rule", ""))
}
