package admission

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// capsulePrefix begins the names of the policies of Capsule's kinds.
const capsulePrefix = Prefix + "capsule-"

// ruleMatcher describes a part of spec.rules[].enforce of a Capsule Tenant: values of an object that the
// entries of each rule allow or deny.
type ruleMatcher struct {
	// name and allowed are the beginnings of the two parts of a refusal, in Capsule's words.
	name, allowed string
	// values returns CEL for a list of maps with the value v, its path and further texts. If lists is set,
	// it returns CEL for a list of such lists.
	values func(object string) string
	lists  bool
	// same is CEL that is true if the value o of the old object is the same as the value x. If it is empty,
	// equal values are the same, at any path.
	same string
	// rules is the name of the variable with the rules; empty for all rules.
	rules string
	// entries is CEL for the entries of the rule r. If entries reads the value x, has is CEL for a list
	// that is empty if the rule has no entries about any value. The entries are in a list that is nested in
	// depth further lists.
	entries, has string
	depth        int
	// covers is CEL that is true if the rule r covers the value x; empty for all values.
	covers string
	// matches is CEL that is true if the entry e matches the value x.
	matches string
	// describes is CEL for the text of the entry e.
	describes string
	// unlisted is CEL that is true for a value x that needs no entry to be allowed.
	unlisted string
	// further is CEL for the refusal of a value x by the rule r that allowed it, or for the empty text if
	// there is none.
	further string
}

const (
	// matchesExpression is true if an entry e with the fields exact, exp and negate matches the value x.
	matchesExpression = "(e.?exact.orValue([]).exists(t, t == x.v) || e.?exp.orValue('') != '' && x.v.matches(e.exp)) != e.?negate.orValue(false)"
	// describesExpression is the text of such an entry.
	describesExpression = "[e.?exact.orValue([]).size() > 0 ? (e.?negate.orValue(false) ? 'not ' : '') + 'exact: ' + e.exact.join(', ') : ''," +
		" e.?exp.orValue('') != '' ? (e.?negate.orValue(false) ? 'not ' : '') + 'exp: ' + e.exp : ''].filter(t, t != '').join('; ')"
	// capsuleAction is the action of the rule r.
	capsuleAction = "r.?action.orValue('deny')"
	// inAudience is true if the audience of the rule b contains the user.
	inAudience = "b.?audience.orValue([]).size() == 0 || b.audience.exists(a, a.kind == 'Custom' ? params.?status.?audiences.orValue([]).exists(c, c.name == a.name &&" +
		" (c.?users.orValue([]).exists(u, u == request.userInfo.username) || has(request.userInfo.groups) && request.userInfo.groups.exists(g, c.?groups.orValue([]).exists(n, n == g)))) : " + isSubject + ")"
	// isSubject is true if the user is the user, group or service account a.
	isSubject = "(a.kind == 'Group' ? has(request.userInfo.groups) && request.userInfo.groups.exists(g, g == a.name) : request.userInfo.username == a.name)"
)

// of adds the variables of a part of the rules: NAME_values, NAME_rules, and NAME with the refusals of an
// object's values. Of the rules that match a value, the last one decides whether the value is allowed or
// denied. If no rule matches the value and a rule allows other values, the value is refused. An update may
// keep a value.
func (p *ruled) of(variable string, m ruleMatcher) {
	covers, unlisted := cmp.Or(m.covers, "true"), cmp.Or(m.unlisted, "false")
	// each is the format of CEL for each list of values. first returns CEL for the first refusals of these
	// lists.
	each, first, same := "%s%s", func(refusals string) string { return refusals }, fmt.Sprintf("exists(o, %s)", cmp.Or(m.same, "o.v == x.v"))
	if m.lists {
		each, first, same = "%s.map(l, l%s)", firsts, "exists(l, l."+same+")"
	}
	p.variable(variable+"_values", fmt.Sprintf(each, m.values("object"), fmt.Sprintf(".filter(x, oldObject == null || !%s.%s)", m.values("oldObject"), same)))
	p.variable(variable+"_rules", fmt.Sprintf("variables.%s.filter(r, %s != 'audit' && %s.size() > 0)", cmp.Or(m.rules, "rules"), capsuleAction, m.given()))
	text := fmt.Sprintf(`'%s "' + x.v + '" at ' + x.path + ' `, m.name)
	denied := fmt.Sprintf("%sis denied by namespace rule: ' + %s", text, m.texts(m.matches))
	missed := fmt.Sprintf("%sis not allowed by namespace rule: value did not match any allowed rule. %s: ' + all.filter(r, %s == 'allow').map(r, %s).join(', ')",
		text, m.allowed, capsuleAction, m.texts("true"))
	decided := fmt.Sprintf("[hits[hits.size() - 1]].map(r, %s == 'deny' ? %s : %s)[0]", capsuleAction, denied, cmp.Or(m.further, "''"))
	p.refuses(variable, first(fmt.Sprintf(each, "variables."+variable+"_values",
		fmt.Sprintf(".map(x, [variables.%[1]s_rules.filter(r, %[2]s)].map(all, [all.filter(r, %[3]s)].map(hits, hits.size() > 0 ? %[4]s"+
			" : !(%[5]s) && all.exists(r, %[6]s == 'allow' && %[7]s) ? %[8]s : '')[0])[0]).filter(t, t != '')",
			variable, covers, m.exists(m.matches), decided, unlisted, capsuleAction, m.exists("true"), missed))))
}

// exists returns CEL that is true if a condition holds for one of the entries e. An error in one condition
// is an error of the whole expression. The macro exists would ignore the error if the condition held for
// another entry.
func (m ruleMatcher) exists(condition string) string {
	expression := fmt.Sprintf("filter(e, %s).size() > 0", condition)
	for i := range m.depth {
		expression = fmt.Sprintf("map(l%[1]d, l%[1]d.%[2]s).exists(b, b)", i, expression)
	}
	return m.entries + "." + expression
}

// texts returns CEL that joins the texts of the entries e for which a condition holds, with commas.
func (m ruleMatcher) texts(condition string) string {
	expression := fmt.Sprintf("filter(e, %s).map(e, %s)", condition, m.describes)
	for i := range m.depth {
		expression = fmt.Sprintf("map(l%[1]d, l%[1]d.%[2]s).filter(t, t.size() > 0).map(t, t.join(', '))", i, expression)
	}
	return m.entries + "." + expression + ".join(', ')"
}

// given returns CEL for a list that is empty if the rule has no entries about these values.
func (m ruleMatcher) given() string { return cmp.Or(m.has, m.entries) }

// ruled is a policy that enforces rules of Capsule.
type ruled struct {
	name, title string
	resources   []admissionregistrationv1.NamedRuleWithOperations
	// excluded are resources that a policy for all kinds does not match. The API server looks for the
	// parameters before it evaluates conditions, also for requests of the manager.
	excluded   []admissionregistrationv1.NamedRuleWithOperations
	conditions []string
	variables  []admissionregistrationv1.Variable
	// refusals are the names of the variables with lists of refusals, in order.
	refusals []string
	// prefix is CEL for the beginning of each refusal; empty for none.
	prefix string
	// tenants is set for a policy that reads the rules from Capsule Tenants, because its objects are in no
	// namespace with a RuleStatus. rules is CEL for these rules.
	tenants bool
	rules   string
	// label is the label of the namespaces that the policy matches.
	label string
}

func (p *ruled) variable(name, expression string) {
	p.variables = append(p.variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
}

// refuses adds a variable with a list of refusals.
func (p *ruled) refuses(name, expression string) {
	p.variable(name, expression)
	p.refusals = append(p.refusals, name)
}

// CapsuleRules returns the policies, and their bindings, for spec.rules of Capsule Tenants. Most of them
// read the RuleStatus of the namespace, which the manager writes; those about namespaces read the Tenants.
// Unlike the other rules, these rules apply to platform admins too, as in Capsule: a platform admin can
// change the Tenant. The controllers of Kubernetes are exempt, except for the Pods that they create.
func CapsuleRules() ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	var policies []admissionregistrationv1.ValidatingAdmissionPolicy
	var bindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	for _, p := range []*ruled{ruledPods(), ruledServices(), ruledHosts(), ruledMetadata(), ruledManaged(), ruledNamespaces(v1alpha1.LabelCapsuleTenant), ruledNamespaces(v1alpha1.LabelTenant)} {
		policies = append(policies, p.policy())
		bindings = append(bindings, p.binding())
	}
	return policies, bindings
}

func capsuleLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "tenure", "app.kubernetes.io/component": "capsule"}
}

func (p *ruled) policy() admissionregistrationv1.ValidatingAdmissionPolicy {
	fail, forbidden := admissionregistrationv1.Fail, metav1.StatusReasonForbidden
	kind := "RuleStatus"
	if p.tenants {
		kind = "Tenant"
	}
	policy := admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: capsulePrefix + p.name, Labels: capsuleLabels(), Annotations: map[string]string{"tenure.dev/title": p.title}},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			ParamKind:     &admissionregistrationv1.ParamKind{APIVersion: v1beta2.GroupVersion.String(), Kind: kind},
			FailurePolicy: &fail,
			// If the kind of a policy's parameters is not defined, the policy refuses all requests that it
			// matches, also in namespaces without a binding.
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: p.resources, ExcludeResourceRules: p.excluded, NamespaceSelector: p.selector()},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "applies", Expression: join(append([]string{"!(" + isManager + ")"}, p.conditions...), " && ")},
			},
			Variables: append([]admissionregistrationv1.Variable{
				{Name: "rules", Expression: cmp.Or(p.rules, "params.?status.?rules.orValue([]).filter(b, b.?enforce.hasValue() && ("+inAudience+")).map(b, b.enforce)")},
			}, p.variables...),
		},
	}
	for _, name := range p.refusals {
		policy.Spec.Validations = append(policy.Spec.Validations, admissionregistrationv1.Validation{
			Expression: "variables." + name + ".size() == 0", MessageExpression: shortened(prefixed(p.prefix, "variables."+name+"[0].replace('\\n', ' ')"), maxCapsuleMessage), Reason: &forbidden, Message: p.title,
		})
	}
	return policy
}

// selector returns the selector of the policy's namespaces.
func (p *ruled) selector() *metav1.LabelSelector {
	return where(metav1.LabelSelectorOpExists, cmp.Or(p.label, v1beta2.LabelRules))
}

func prefixed(prefix, message string) string {
	if prefix == "" {
		return message
	}
	return prefix + " + " + message
}

// maxCapsuleMessage is the maximum length of a refusal, in characters. A refusal lists all allowed values.
const maxCapsuleMessage = 2048

func (p *ruled) binding() admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	params := paramRef(v1beta2.RulesName)
	if p.tenants {
		params = &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction)}
	}
	return admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: capsulePrefix + p.name, Labels: capsuleLabels()},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        capsulePrefix + p.name,
			ParamRef:          params,
			MatchResources:    &admissionregistrationv1.MatchResources{NamespaceSelector: p.selector()},
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
}

// imageValues returns CEL for the images of a Pod with their paths, in Capsule's notation.
func imageValues(pod string) string {
	lists := make([]string, 0, 4)
	for _, of := range []struct{ list, target string }{
		{"initContainers", "pod/initcontainers"}, {"containers", "pod/containers"}, {"ephemeralContainers", "pod/ephemeralcontainers"},
	} {
		lists = append(lists, fmt.Sprintf("%[1]s.spec.?%[2]s.orValue([]).transformList(i, c, {'v': string(c.?image.orValue('')), 'path': '%[2]s[' + string(i) + ']', 'policy': string(c.?imagePullPolicy.orValue('')), 'target': '%[3]s'})", pod, of.list, of.target))
	}
	lists = append(lists, fmt.Sprintf("%s.spec.?volumes.orValue([]).transformList(i, c, has(c.image), {'v': string(c.image.?reference.orValue('')), 'path': 'volumes[' + string(i) + '](' + string(c.name) + ')', 'policy': string(c.image.?pullPolicy.orValue('')), 'target': 'pod/volumes'})", pod))
	return "(" + strings.Join(lists, " + ") + ")"
}

// single returns CEL for a list with one value if a condition holds, and an empty one otherwise.
func single(condition, value, path string) string {
	return fmt.Sprintf("(%s ? [{'v': string(%s), 'path': '%s'}] : [])", condition, value, path)
}

// ruledPods returns the policy for images, schedulers, QoS classes and resources of Pods.
func ruledPods() *ruled {
	p := &ruled{
		name: "pods", title: "Pods have the images, schedulers, QoS classes and resources that the rules of their Capsule Tenant allow",
		resources: []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "pods", "pods/ephemeralcontainers", "pods/resize")},
	}
	const registries = "r.?workloads.?registries.orValue([])"
	wrongPolicy := fmt.Sprintf("[%s.filter(e, %s)[0]].map(e, e.?policy.orValue([]).size() == 0 || e.policy.exists(y, y == x.policy) ? '' :"+
		` x.path + ' reference "' + x.v + '" uses pullPolicy=' + x.policy + ' which is not allowed (allowed: ' + e.policy.join(', ') + ')')[0]`, registries, matchesExpression)
	p.of("images", ruleMatcher{
		name: "registry", allowed: "Allowed registries", values: imageValues, entries: registries,
		covers:  "r.?workloads.?targets.orValue([]).size() == 0 || r.workloads.targets.exists(t, t == 'pod' || t == x.target)",
		matches: matchesExpression, describes: describesExpression, further: wrongPolicy,
	})
	p.of("schedulers", ruleMatcher{
		name: "scheduler", allowed: "Allowed schedulers", entries: "r.?workloads.?schedulers.orValue([])",
		values: func(pod string) string {
			return single(pod+".spec.?schedulerName.orValue('') != ''", pod+".spec.schedulerName", "spec.schedulerName")
		},
		matches: matchesExpression, describes: describesExpression,
		// The API server writes this scheduler into Pods that name no scheduler.
		unlisted: "x.v == 'default-scheduler'",
	})
	p.of("classes", ruleMatcher{
		name: "QoS class", allowed: "Allowed QoS classes", entries: "r.?workloads.?qosClasses.orValue([])",
		values: func(pod string) string {
			return single(pod+".?status.?qosClass.orValue('') != ''", pod+".status.qosClass", "status.qosClass")
		},
		matches: "e == x.v", describes: "e",
	})
	p.podResources()
	return p
}

// containsAddress is true if the network e, or the network with the address e only, contains the address or
// network x.v.
const containsAddress = "[isIP(e) ? e + (ip(e).family() == 4 ? '/32' : '/128') : e].exists(n, isCIDR(n) && (isIP(x.v) ? cidr(n).containsIP(x.v) : isCIDR(x.v) && cidr(n).containsCIDR(x.v)))"

// ruledServices returns the policy for types, external names, addresses and ports of Services.
func ruledServices() *ruled {
	p := &ruled{
		name: "services", title: "Services have the types, names, addresses and ports that the rules of their Capsule Tenant allow",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "services")},
		conditions: []string{notKubernetes},
	}
	is := func(service, kind string) string {
		return fmt.Sprintf("%s.spec.?type.orValue('ClusterIP') == '%s'", service, kind)
	}
	p.of("types", ruleMatcher{
		name: "service type", allowed: "Allowed service types", entries: "r.?services.?types.orValue([])",
		values: func(service string) string {
			return single("true", service+".spec.?type.orValue('ClusterIP')", "spec.type")
		},
		matches: "e == x.v", describes: "e",
	})
	p.of("names", ruleMatcher{
		name: "externalName hostname", allowed: "Allowed hostnames", entries: "r.?services.?externalNames.?hostnames.orValue([])",
		values: func(service string) string {
			return single(is(service, "ExternalName"), service+".spec.?externalName.orValue('')", "spec.externalName")
		},
		matches: matchesExpression, describes: describesExpression,
	})
	addresses := func(service string) string {
		return fmt.Sprintf("(%[1]s ? %[2]s + %[3]s.spec.?loadBalancerSourceRanges.orValue([]).transformList(i, c, {'v': string(c), 'path': 'spec.loadBalancerSourceRanges[' + string(i) + ']'}) : [])",
			is(service, "LoadBalancer"), single(service+".spec.?loadBalancerIP.orValue('') != ''", service+".spec.loadBalancerIP", "spec.loadBalancerIP"), service)
	}
	const networks = "r.?services.?loadBalancers.?cidrs.orValue([])"
	p.refuses("unaddressed", fmt.Sprintf("%s && (oldObject == null || object.spec != oldObject.spec) && %s.size() == 0 && variables.rules.exists(r, %s.size() > 0)"+
		" ? ['loadBalancer service requires spec.loadBalancerIP or spec.loadBalancerSourceRanges because loadBalancer CIDR constraints are enforced by namespace rule'] : []",
		is("object", "LoadBalancer"), addresses("object"), networks))
	// Without this refusal, a rule that denies would allow an address that CEL cannot read, such as an IPv4 address
	// written as an IPv6 address.
	p.refuses("unreadable", fmt.Sprintf("oldObject != null && object.spec == oldObject.spec || !variables.rules.exists(r, %s != 'audit' && %s.size() > 0) ? [] :"+
		` %s.filter(x, !isIP(x.v) && !isCIDR(x.v)).map(x, x.path + ' contains invalid IP or CIDR "' + x.v + '": write it in its usual form, such as 192.0.2.1 or 192.0.2.0/24')`,
		capsuleAction, networks, addresses("object")))
	p.of("addresses", ruleMatcher{
		name: "loadBalancer CIDR", allowed: "Allowed CIDRs", entries: networks, values: addresses, matches: containsAddress, describes: "e",
	})
	p.of("ports", ruleMatcher{
		name: "nodePort", allowed: "Allowed ranges", entries: "r.?services.?nodePorts.?ports.orValue([])",
		values: func(service string) string {
			return fmt.Sprintf("(%s || %s && %[3]s.spec.?allocateLoadBalancerNodePorts.orValue(true) ? %[3]s.spec.?ports.orValue([]).transformList(i, c, c.?nodePort.orValue(0) != 0, {'v': string(c.nodePort), 'path': 'spec.ports[' + string(i) + '].nodePort'}) : [])",
				is(service, "NodePort"), is(service, "LoadBalancer"), service)
		},
		matches: "e.from <= int(x.v) && int(x.v) <= e.to", describes: "e.from == e.to ? string(e.from) : string(e.from) + '-' + string(e.to)",
	})
	return p
}

// ruledHosts returns the policy for the hosts of Ingresses, of the kinds of Gateway API and of OpenShift's
// Routes.
func ruledHosts() *ruled {
	p := &ruled{
		name: "hosts", title: "Ingresses, Gateways and routes have the hosts that the rules of their Capsule Tenant allow",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupNetworking, "ingresses"),
			on(writes, groupGateway, "gateways", "httproutes", "grpcroutes", "tlsroutes", "listenersets"),
			on(writes, "route.openshift.io", "routes"),
		},
		conditions: []string{notKubernetes},
	}
	const (
		hostnames = "r.?ingress.?hostnames.orValue([])"
		covers    = "r.?ingress.?types.orValue([]).exists(t, t == request.kind.kind)"
		root      = "{'Ingress': 'spec.rules[].host', 'Route': 'spec.host', 'Gateway': 'spec.listeners[].hostname', 'ListenerSet': 'spec.listeners[].hostname'}[?request.kind.kind].orValue('spec.hostnames[]')"
	)
	// hosts returns CEL for lists of hosts.
	hosts := func(o string) string {
		return fmt.Sprintf("(request.kind.kind == 'Ingress' ?"+
			" [%[1]s.spec.?rules.orValue([]).transformList(i, c, {'v': string(c.?host.orValue('')), 'path': 'spec.rules[' + string(i) + '].host'})]"+
			" + %[1]s.spec.?tls.orValue([]).transformList(i, c, c.?hosts.orValue([]).size() == 0 ? [{'v': '', 'path': 'spec.tls[' + string(i) + '].hosts'}] :"+
			" c.hosts.transformList(j, h, {'v': string(h), 'path': 'spec.tls[' + string(i) + '].hosts[' + string(j) + ']'}))"+
			" : [request.kind.kind == 'Route' ? [{'v': string(%[1]s.spec.?host.orValue('')), 'path': 'spec.host'}]"+
			" : request.kind.kind in ['Gateway', 'ListenerSet'] ?"+
			" %[1]s.spec.?listeners.orValue([]).transformList(i, c, {'v': string(c.?hostname.orValue('')), 'path': 'spec.listeners[' + string(i) + '].hostname'})"+
			" : %[1]s.spec.?hostnames.orValue([]).transformList(i, c, {'v': string(c), 'path': 'spec.hostnames[' + string(i) + ']'})])", o)
	}
	p.variable("hosts", fmt.Sprintf("[%s].map(g, g.exists(l, l.size() > 0) ? g : [[{'v': '', 'path': %s}]])[0]", hosts("object"), root))
	p.refuses("unnamed", fmt.Sprintf("(oldObject == null || object.spec != oldObject.spec) && variables.rules.exists(r, %s != 'audit' && %s.size() > 0 && %s)"+
		" ? %s : []", capsuleAction, hostnames, covers,
		firsts("variables.hosts.map(l, l.filter(x, x.v == '').map(x, 'hostname is required at ' + x.path + ' because hostname rules target ' + request.kind.kind))")))
	p.of("wrong", ruleMatcher{
		name: "ingress hostname", allowed: "Allowed hostnames", entries: hostnames, covers: covers,
		values: func(o string) string {
			if o == "object" {
				return "variables.hosts.map(l, l.filter(x, x.v != ''))"
			}
			return hosts(o)
		},
		lists:   true,
		matches: matchesExpression, describes: describesExpression,
	})
	return p
}

// ruledMetadata returns the policy for labels and annotations of objects of all kinds in the namespaces.
func ruledMetadata() *ruled {
	every := on(writes, "*", "*")
	every.Scope = new(admissionregistrationv1.NamespacedScope)
	p := &ruled{
		name: "metadata", title: "objects have the labels and annotations that the rules of their Capsule Tenant demand and allow",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{every},
		conditions: []string{"params.?status.?rules.orValue([]).exists(r, r.?enforce.?metadata.orValue([]).size() > 0)", notKubernetes},
		excluded: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, v1beta2.GroupVersion.Group, "rulestatuses"), on(writes, v1alpha1.GroupVersion.Group, "tenantparameters"),
			on(writes, "", "events"), on(writes, "events.k8s.io", "events"), on(writes, "coordination.k8s.io", "leases"),
		},
	}
	p.prefix = tenantOfNamespace
	p.metadata(kindMatches)
	return p
}

const (
	// tenantOfNamespace is the beginning of the refusals in a namespace.
	tenantOfNamespace = "'Tenant ' + params.metadata.?labels[?'" + v1alpha1.LabelCapsuleTenant + "'].orValue('of the namespace') + ' denied the request: '"
	// kindMatches is true if the kind k of a rule matches the kind of the object. An * in k matches any
	// characters.
	kindMatches = "request.kind.kind.matches('^' + k.replace('*', '.*') + '$')"
)

// metadataFields are the metadata fields that rules read, each with the word for one entry.
var metadataFields = []struct{ field, word string }{{"labels", "label"}, {"annotations", "annotation"}}

// ruledManaged returns the policy for the labels and annotations that rules manage. The webhook for rules
// sets them in the objects that the policy matches. Unlike the policy for other metadata, this policy
// applies to Pods, claims and Jobs that the controllers of Kubernetes create: otherwise a Deployment, a
// StatefulSet or a CronJob would choose their labels while the webhook does not answer. It also matches the
// status, since the status of some kinds can change together with the metadata.
func ruledManaged() *ruled {
	every := on(writes, "*", "*")
	status := on([]admissionregistrationv1.OperationType{admissionregistrationv1.Update}, "*", "*/status")
	every.Scope, status.Scope = new(admissionregistrationv1.NamespacedScope), new(admissionregistrationv1.NamespacedScope)
	hasManaged := make([]string, 0, len(metadataFields))
	for _, of := range metadataFields {
		hasManaged = append(hasManaged, fmt.Sprintf("d.?%[1]s.orValue({}).exists(s, d.%[1]s[s].?managed.hasValue())", of.field))
	}
	p := &ruled{
		name: "managed", title: "objects have the labels and annotations that the rules of their Capsule Tenant manage",
		resources: []admissionregistrationv1.NamedRuleWithOperations{every, status},
		conditions: []string{
			"params.?status.?rules.orValue([]).exists(r, r.?enforce.?metadata.orValue([]).exists(d, " + join(hasManaged, " || ") + "))",
			"(request.kind.kind in ['Pod', 'PersistentVolumeClaim', 'Job'] && request.operation == 'CREATE' || " + notKubernetes + ")",
		},
		excluded: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, v1beta2.GroupVersion.Group, "rulestatuses", "rulestatuses/status"), on(writes, v1alpha1.GroupVersion.Group, "tenantparameters"),
			on(writes, "", "events", "endpoints", "secrets"), on(writes, "events.k8s.io", "events"), on(writes, "coordination.k8s.io", "leases"),
			on(writes, "discovery.k8s.io", "endpointslices"), on(writes, "authorization.k8s.io", "*"),
		},
	}
	p.prefix = tenantOfNamespace
	p.ofKind(kindMatches)
	for _, of := range metadataFields {
		p.managed(of.field)
		value := func(object string) string { return fmt.Sprintf("%s.metadata.?%s[?e.k]", object, of.field) }
		// Objects that are older than a rule keep their value until the webhook changes them.
		wrong := fmt.Sprintf("(!%[1]s.hasValue() || string(%[1]s.value()) != e.v) && (oldObject == null || %[1]s != %[2]s)", value("object"), value("oldObject"))
		message := fmt.Sprintf(`'metadata %[1]s "' + e.k + '" at metadata.%[2]s["' + e.k + '"] is managed by namespace rule, with the value "' + e.v + '": give it this value, or try again when the manager answers, whose webhook sets it'`, of.word, of.field)
		p.refuses("changed_"+of.field, firsts(fmt.Sprintf("variables.managed_%[1]s.map(l, %[2]s)", of.field,
			firsts(fmt.Sprintf("l.map(n, n.map(e, {'k': e.k, 'v': %s[0]}).filter(e, %s).map(e, %s))", lastManaged(of.field, "e.k"), wrong, message)))))
	}
	return p
}

// managed adds the variable managed_FIELD: a list for each rule, which has a list for each entry about the
// kind of the object, with the names k and the values v that the rule manages.
func (p *ruled) managed(field string) {
	p.variable("managed_"+field, fmt.Sprintf("variables.ofKind.map(r, r.metadata.map(d, [d.?%s.orValue({})].map(m, m.filter(s, m[s].?managed.hasValue()).map(s, {'k': string(s), 'v': string(m[s].managed)}))[0]))", field))
}

// lastManaged returns CEL for a list with the value of a name in the last rule that manages the name. The
// list is empty if no rule manages it.
func lastManaged(field, name string) string {
	return fmt.Sprintf("[%[2]s].map(name, variables.managed_%[1]s.map(l, l.map(n, n.filter(g, g.k == name).map(g, g.v)).filter(n, n.size() > 0)).filter(l, l.size() > 0))"+
		".map(all, all.size() == 0 ? [] : [all[all.size() - 1]].map(l, l[l.size() - 1][0]))[0]", field, name)
}

// ruledNamespaces returns the policy for labels and annotations of Namespace objects, for rules that name
// this kind. It reads the rules of the Capsule Tenant, because a new namespace has no RuleStatus yet. Each
// label that assigns a namespace to a tenant has a policy of its own: the selector of a policy cannot
// select one label or another, and a policy must not match where the kind of its parameters is not defined.
func ruledNamespaces(label string) *ruled {
	const labels = "object.metadata.?labels.orValue({})"
	selected := "(!has(b.namespaceSelector) || b.namespaceSelector.?matchLabels.orValue({}).all(k, k in LABELS && LABELS[k] == b.namespaceSelector.matchLabels[k])" +
		" && b.namespaceSelector.?matchExpressions.orValue([]).all(e, e.operator == 'In' ? e.key in LABELS && e.values.exists(v, v == LABELS[e.key]) : e.operator == 'NotIn' ? !(e.key in LABELS && e.values.exists(v, v == LABELS[e.key]))" +
		" : e.operator == 'Exists' ? e.key in LABELS : !(e.key in LABELS)))"
	// Custom audiences: rules about namespaces know only those that contain the owners.
	audience := "(b.?audience.orValue([]).size() == 0 || b.audience.exists(a, a.kind == 'Custom' ? a.name in ['TenantOwner', 'CapsuleUser'] && " + owns("params.metadata.name") + " : " + isSubject + "))"
	p := &ruled{
		name: "namespaces", title: "namespaces have the labels and annotations that the rules of their Capsule Tenant demand and allow",
		resources: []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "namespaces", "namespaces/status", "namespaces/finalize")},
		tenants:   true,
		label:     label,
		rules:     "params.?spec.?rules.orValue([]).filter(b, b.?enforce.?metadata.hasValue() && " + strings.ReplaceAll(selected, "LABELS", labels) + " && " + audience + ").map(b, b.enforce)",
		conditions: []string{
			notKubernetes,
			fmt.Sprintf("%s[?'%s'].orValue('') == params.metadata.name", labels, label),
			"params.?spec.?rules.orValue([]).exists(r, r.?enforce.?metadata.orValue([]).exists(d, d.?kinds.orValue([]).exists(k, k == 'Namespace')))",
		},
		prefix: "'Tenant ' + params.metadata.name + ' denied the request: '",
	}
	if label == v1alpha1.LabelTenant {
		// The policy for Capsule's label covers these namespaces.
		p.name += "-labelled"
		p.conditions = append(p.conditions, fmt.Sprintf("!('%s' in %s)", v1alpha1.LabelCapsuleTenant, labels))
	}
	p.metadata("k == 'Namespace'")
	return p
}

// ofKind adds the variable ofKind: the rules about the metadata of the object's kind. The parameter ofKind
// is CEL that is true if the kind k of a rule matches this kind.
func (p *ruled) ofKind(ofKind string) {
	// The group of an entry is a group, or a group with a version, in which an * matches any characters; v1 and
	// the empty text are the core group.
	const ofGroup = "(d.?apiGroups.orValue([]).size() == 0 ? ['v1'] : d.apiGroups).exists(g, g == '*' || (g == '' || g == 'v1' ? request.kind.group == '' :" +
		" [!g.contains('/') || request.kind.group == '' ? request.kind.group : request.kind.group + '/' + request.kind.version].exists(t, g.contains('*') ? t.matches('^' + g.replace('.', '[.]').replace('*', '.*') + '$') : g == t)))"
	p.variable("ofKind", fmt.Sprintf("variables.rules.map(r, {'action': dyn(%s), 'metadata': dyn(r.?metadata.orValue([]).filter(d, d.?kinds.orValue([]).exists(k, %s) && %s))}).filter(r, r.metadata.size() > 0)", capsuleAction, ofKind, ofGroup))
}

// metadata adds the refusals about labels and annotations. ofKind is CEL that is true if the kind k of a
// rule matches the kind of the object.
func (p *ruled) metadata(ofKind string) {
	const (
		// reserved is true if Capsule reserves the name k for itself.
		reserved = "k.matches('" + v1beta2.ReservedKeys + "')"
		// named is true if the key s of a rule matches the name k. The key is a regular expression; an *
		// that follows no dot matches any characters.
		named = "k.matches('^(?:' + s.replace('.*', '*').replace('*', '.*') + ')$')"
	)
	p.ofKind(ofKind)
	for _, of := range metadataFields {
		p.managed(of.field)
		has := func(object string) string {
			return fmt.Sprintf("%s.metadata.?%s.orValue({}).exists(k, %s)", object, of.field, named)
		}
		reservedKey := strings.ReplaceAll(reserved, "k.", "s.")
		missing := fmt.Sprintf("r.metadata.map(d, [d.?%[1]s.orValue({})].map(m, m.filter(s, m[s].?required.orValue(false) && !(%[2]s) && !(%[3]s) && (oldObject == null || %[4]s))"+
			`.map(s, 'metadata %[5]s "' + s + '" is required at metadata.%[1]s["' + s + '"]'))[0])`, of.field, reservedKey, has("object"), has("oldObject"), of.word)
		p.refuses("missing_"+of.field, firsts("variables.ofKind.filter(r, r.action == 'allow').map(r, "+firsts(missing)+")"))
		// An entry without values in a rule that denies denies the name, unless the entry has a default or
		// a managed value.
		entries := fmt.Sprintf("r.metadata.map(d, [d.?%[1]s.orValue({})].map(m, m.filter(s, [x.key].exists(k, %[2]s)).map(s, m[s].?values.orValue([]).size() == 0 && !m[s].?default.hasValue() && !m[s].?managed.hasValue() && r.action != 'allow' ? [{'exp': '.*'}] : m[s].?values.orValue([])))[0])", of.field, named)
		values := func(object string) string {
			return fmt.Sprintf("[%[1]s.metadata.?%[2]s.orValue({})].map(m, m.filter(k, !(%[3]s) && %[4]s.all(v, v != string(m[k]))).map(k, {'v': string(m[k]), 'key': string(k), 'path': 'metadata.%[2]s[\"' + string(k) + '\"]'}))[0]",
				object, of.field, reserved, lastManaged(of.field, "k"))
		}
		p.of("wrong_"+of.field, ruleMatcher{
			name: "metadata " + of.word, allowed: "Allowed metadata values", values: values, same: "o.v == x.v && o.key == x.key",
			rules: "ofKind", entries: entries, depth: 2, has: "r.metadata", describes: describesExpression,
			// For lists of allowed values and for forbidden values, an empty value counts as a missing value.
			matches: "(x.v != '' || !e.?negate.orValue(false)) && " + matchesExpression, unlisted: "x.v == ''",
		})
	}
}
