package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	groupNetworking = "networking.k8s.io"
	groupGateway    = "gateway.networking.k8s.io"
)

// notOperator are conditions that exempt platform admins, the accounts that the profile lists
// and the controllers of Kubernetes and of the platform, which may write the same in every
// namespace.
var notOperator = append([]string{notEverywhere}, notThePlatform...)

// services returns the rule about Services: their types and the addresses that they take.
func services() Rule {
	types := optional("network.services.types")
	ranges := optional("network.services.externalIPs")
	const (
		addresses = "(%[1]s.?spec.?externalIPs.orValue([]) + (%[1]s.?spec.?loadBalancerIP.orValue('') == '' ? [] : [%[1]s.spec.loadBalancerIP]))"
		typeOf    = "%s.?spec.?type.orValue('ClusterIP')"
	)
	had := func(expression string) string {
		return "(oldObject == null ? [] : " + fmt.Sprintf(expression, "oldObject") + ")"
	}
	outside := fmt.Sprintf(addresses, "object") + ".filter(a, !(a in " + had(addresses) + ") && !(isIP(a) && " + ranges + ".orValue([]).exists(r, cidr(r).containsIP(a)) || isIP(a) && !(a in object.?spec.?externalIPs.orValue([])) && " + optional("network.services.loadBalancerIPs") + ".orValue([]).exists(r, cidr(r).containsIP(a))))"
	r := Rule{
		Name: Prefix + "services", Rows: []string{"W4"},
		Title:      "Services have the types and the addresses that the tenant may have",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "services")},
		objects:    true,
		conditions: notOperator,
		validations: []validation{
			{
				fmt.Sprintf(typeOf, "object") + " in " + types + ".orValue(['ClusterIP', 'LoadBalancer']) || oldObject != null && " + fmt.Sprintf(typeOf, "oldObject") + " == " + fmt.Sprintf(typeOf, "object"),
				objectPhrase + " + 'must not have type ' + " + fmt.Sprintf(typeOf, "object") + " + ' (allowed: ' + " + types + ".orValue(['ClusterIP', 'LoadBalancer']).join(', ') + ')'",
			},
			{
				outside + ".size() == 0",
				objectPhrase + " + 'must not take the address ' + " + short(outside+".join(', ')") + " + ' in spec.externalIPs or spec.loadBalancerIP (allowed: ' + (" + ranges + ".hasValue() ? " + ranges + ".value().map(r, string(r)).join(', ') : 'none') + ')'",
			},
			{
				"object.?spec.?loadBalancerClass.orValue('') == '' || oldObject != null && object.?spec.?loadBalancerClass == oldObject.?spec.?loadBalancerClass || " + permits("network.services.loadBalancerClasses", "object.spec.loadBalancerClass"),
				objectPhrase + " + 'must not have load balancer class ' + " + short("object.?spec.?loadBalancerClass.orValue('')") + " + ' (allowed: ' + " + short(named("network.services.loadBalancerClasses")) + " + ')'",
			},
		},
	}
	for _, of := range []struct{ field, denied, expression, what string }{
		{"labels", "network.services.deniedLabels", "network.services.deniedLabelExpression", "label"},
		{"annotations", "network.services.deniedAnnotations", "network.services.deniedAnnotationExpression", "annotation"},
	} {
		patterns, expression := optional(of.denied), optional(of.expression)
		denied := fmt.Sprintf("object.metadata.?%[1]s.orValue({}).filter(k, (%[2]s.orValue([]).exists(p, %[3]s) || %[4]s.hasValue() && k.matches(%[4]s.value()))"+
			" && !(oldObject != null && k in oldObject.metadata.?%[1]s.orValue({}) && oldObject.metadata.%[1]s[k] == object.metadata.%[1]s[k]))",
			of.field, patterns, matchesName("p", "k"), expression)
		r.validations = append(r.validations, validation{
			"!" + patterns + ".hasValue() && !" + expression + ".hasValue() || " + denied + ".size() == 0",
			objectPhrase + " + 'must not have the " + of.what + " ' + " + short(denied+".join(', ')") + " + ': the platform denies it'",
		})
	}
	return r
}

// hosts returns the rule about the names and the classes of Ingresses, Gateways and routes.
func hosts() Rule {
	const (
		isIngress = "request.resource.resource == 'ingresses'"
		isGateway = "request.resource.resource == 'gateways'"
		// The class of an Ingress was an annotation before it was a field.
		classAnnotation = "kubernetes.io/ingress.class"
	)
	names := func(object string) string {
		return fmt.Sprintf("(%[2]s ? %[1]s.?spec.?rules.orValue([]).map(r, r.?host.orValue('')) + %[1]s.?spec.?tls.orValue([]).map(t, t.?hosts.orValue([])).flatten() + (has(%[1]s.spec.defaultBackend) ? [''] : [])"+
			" : %[3]s ? %[1]s.?spec.?listeners.orValue([]).map(l, l.?hostname.orValue(''))"+
			" : %[1]s.?spec.?hostnames.orValue([]).size() == 0 ? [''] : %[1]s.spec.hostnames.map(h, string(h)))", object, isIngress, isGateway)
	}
	list := optional("network.hosts")
	refused := names("object") + ".filter(h, !(oldObject != null && h in " + names("oldObject") + ") && !(" + list + ".hasValue() ? (h.startsWith('*') ? " + list + ".?allowed.orValue([]).exists(e, " + matchesName("e", "h") + ") : " + permitsIfSet("network.hosts", "h") + ") : !h.startsWith('*')))"
	class := func(object string) string {
		return fmt.Sprintf("%[1]s.?spec.?ingressClassName.orValue(%[1]s.metadata.?annotations[?'%[2]s'].orValue(''))", object, classAnnotation)
	}
	gateways := "object.?spec.?parentRefs.orValue([]).filter(r, r.?kind.orValue('Gateway') == 'Gateway' && !(r.?namespace.orValue(request.namespace) == request.namespace)" +
		" && !(oldObject != null && r in oldObject.?spec.?parentRefs.orValue([])) && !" + permits("network.gateways", "r.namespace + '/' + r.name") + ")"
	return Rule{
		Name: Prefix + "hosts", Rows: []string{"W5"},
		Title: "Ingresses, Gateways and routes have the hosts and the classes that the tenant may have",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupNetworking, "ingresses"), on(writes, groupGateway, "gateways", "httproutes", "grpcroutes", "tlsroutes"),
		},
		objects:    true,
		conditions: notOperator,
		validations: []validation{
			{
				refused + ".size() == 0",
				objectPhrase + " + 'must not have ' + " + short(refused+".map(h, h == '' ? 'no host, which matches every name' : 'host ' + h).join(', ')") + " + ' (allowed: ' + (" + list + ".hasValue() ? " + short(named("network.hosts")) + " : 'names without *') + ')'",
			},
			{
				"!(" + isIngress + ") || oldObject != null && " + class("oldObject") + " == " + class("object") + " || " + permitsClass("network.ingressClasses", class("object")),
				objectPhrase + " + 'must not have ingress class \\'' + " + short(class("object")) + " + '\\' (allowed: ' + " + short(namedClasses("network.ingressClasses")) + " + ')'",
			},
			{
				"!(" + isGateway + ") || oldObject != null && oldObject.?spec.?gatewayClassName == object.?spec.?gatewayClassName || " + permitsClass("network.gatewayClasses", "object.spec.gatewayClassName"),
				objectPhrase + " + 'must not have gateway class ' + " + short("object.?spec.?gatewayClassName.orValue('')") + " + ' (allowed: ' + " + short(namedClasses("network.gatewayClasses")) + " + ')'",
			},
			{
				gateways + ".size() == 0",
				objectPhrase + " + 'must not attach to Gateway ' + " + short(gateways+".map(r, r.namespace + '/' + r.name).join(', ')") + " + ' (allowed: those of ' + request.namespace + ', ' + " + short(named("network.gateways")) + " + ')'",
			},
		},
	}
}
