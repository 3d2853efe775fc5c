package admission

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	groupNetworking = "networking.k8s.io"
	groupGateway    = "gateway.networking.k8s.io"
	// groupOlderGateway is the group of kinds that were experiments. ListenerSets were XListenerSets there, and clusters
	// may still serve these.
	groupOlderGateway = "gateway.networking.x-k8s.io"
)

// notOperator are conditions that exempt platform admins, the accounts that the profile lists
// and the controllers of Kubernetes and of the platform, which may write the same in every
// namespace.
var notOperator = append([]string{notEverywhere}, notThePlatform...)

// serviceMetadata returns CEL for a list of the metadata that controllers give the Services which they make of a
// Gateway or of a Canary, and otherwise for a list of other metadata. Flagger gives that of the first Service to the
// route and the VirtualService of a Canary too.
func serviceMetadata(object, otherwise string) string {
	return fmt.Sprintf("("+isCanary+" ? ['apex', 'primary', 'canary'].map(f, %[1]s.?spec.?service[?f]) : "+isGateway+" ? [%[1]s.?spec.?infrastructure] : [%[2]s])", object, otherwise)
}

// serviceAnnotations returns CEL for a list of the annotations of an object, and of the Services that a controller
// makes of it.
func serviceAnnotations(object string) string {
	return "([" + object + ".?metadata] + " + serviceMetadata(object, "") + ").map(m, m.?annotations.orValue({}))"
}

// chosenAddress is CEL that is true if a request chooses the address of a Service within the cluster. The
// API server assigns an address before it evaluates the rules; the field managers of the object show
// whether the request contained the address. A Service keeps its address until it is deleted, so only two
// kinds of requests count: those that create the Service, and those that give it a first address or an
// address of a second family. An update can remove all field managers, and then counts too.
const (
	newAddresses  = "([object.?spec.?clusterIP.orValue('')] + object.?spec.?clusterIPs.orValue([])).filter(a, !(a in ['', 'None']) && !(oldObject != null && a in [oldObject.?spec.?clusterIP.orValue('')] + oldObject.?spec.?clusterIPs.orValue([])))"
	chosenAddress = "request.resource.resource == 'services' && !has(request.subResource) && " + newAddresses + ".size() > 0" +
		" && (oldObject != null && object.metadata.?managedFields.orValue([]).size() == 0 || object.metadata.?managedFields.orValue([]).exists(m, m.?fieldsV1[?'f:spec'][?'f:clusterIP'].hasValue() || m.?fieldsV1[?'f:spec'][?'f:clusterIPs'].hasValue()))"
)

// services returns the rule about Services: their types and the addresses that they take. The controller of a
// Gateway makes a Service of it, with the addresses and the annotations that the Gateway names, and as the
// platform. So does Flagger with the Services of a Canary.
func services() Rule {
	types := optional("network.services.types")
	ranges := optional("network.services.externalIPs")
	const (
		// A Gateway may name the Service of a proxy in its own namespace.
		requested = "(!(" + isGateway + ") ? [] : %[1]s.?spec.?addresses.orValue([]).filter(a, !(a.?type.orValue('IPAddress') == 'Hostname' && a.?value.orValue('').matches('^[a-z0-9-]+([.]' + request.namespace + '([.]svc([.][a-z0-9.-]+)?)?)?$'))).map(a, a.?value.orValue('')))"
		openPorts = "(%[1]s.?spec.?ports.orValue([]).map(n, n.?nodePort.orValue(0)) + [%[1]s.?spec.?healthCheckNodePort.orValue(0)]).filter(n, n > 0)"
		typeOf    = "%s.?spec.?type.orValue('ClusterIP')"
	)
	addresses := "(%[1]s.?spec.?externalIPs.orValue([]) + (%[1]s.?spec.?loadBalancerIP.orValue('') == '' ? [] : [%[1]s.spec.loadBalancerIP]) + " + requested +
		" + " + serviceAnnotations("%[1]s") + ".map(m, " + addressAnnotations + ".map(k, m[?k].orValue('')).join(',')).join(',').replace('[', '').replace(']', '').replace('\"', '').split(',').map(a, a.trim()).filter(a, a != ''))"
	had := func(expression string) string {
		return "(oldObject == null ? [] : " + fmt.Sprintf(expression, "oldObject") + ")"
	}
	nodePorts := optional("network.services.nodePorts")
	wrongPorts := fmt.Sprintf(openPorts, "object") + ".filter(n, !(n in " + had(openPorts) + ") && !" + inRanges(nodePorts, "n") + ")"
	outside := fmt.Sprintf(addresses, "object") + ".filter(a, !(a in " + had(addresses) + ") && !(isIP(a) && " + ranges + ".orValue([]).exists(r, cidr(r).containsIP(a)) || isIP(a) && !(a in object.?spec.?externalIPs.orValue([])) && " + optional("network.services.loadBalancerIPs") + ".orValue([]).exists(r, cidr(r).containsIP(a))))"
	r := Rule{
		Name: Prefix + "services", Rows: []string{"W4"},
		Title:      "Services, Gateways and Canaries use the types and the addresses that the tenant may use",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "services"), on(updates, "", "services/status"), on(writes, groupGateway, "gateways"), on(writes, groupFlagger, "canaries")},
		scope:      tenantObjects,
		conditions: notOperator,
		validations: []validation{
			{
				// Every node sends the traffic to such an address to the Service.
				"!has(request.subResource) || object.?status.?loadBalancer == oldObject.?status.?loadBalancer",
				objectPhrase + " + 'has an address of a load balancer in its status, which only the platform writes'",
			},
			{
				isGateway + " || " + isCanary + " || " + fmt.Sprintf(typeOf, "object") + " in " + types + ".orValue(['ClusterIP', 'LoadBalancer']) || oldObject != null && " + fmt.Sprintf(typeOf, "oldObject") + " == " + fmt.Sprintf(typeOf, "object"),
				objectPhrase + " + 'must not have type ' + " + fmt.Sprintf(typeOf, "object") + " + ' (allowed: ' + " + types + ".orValue(['ClusterIP', 'LoadBalancer']).join(', ') + ')'",
			},
			{
				fmt.Sprintf(typeOf, "object") + " != 'ExternalName' || " + types + ".orValue([]).exists(t, t == 'ExternalName') || oldObject != null && object.?spec.?externalName == oldObject.?spec.?externalName",
				objectPhrase + " + 'must not lead to ' + " + short("object.?spec.?externalName.orValue('')") + " + ', which spec.externalName names (allowed types: ' + " + types + ".orValue(['ClusterIP', 'LoadBalancer']).join(', ') + ')'",
			},
			{
				"!(" + chosenAddress + ")",
				objectPhrase + " + 'must not choose the address ' + " + newAddresses + "[0] + ' in spec.clusterIP, which the platform may keep for a Service of its own: leave it out, Kubernetes assigns one'",
			},
			{
				outside + ".size() == 0",
				objectPhrase + " + 'must not take the address ' + " + short(outside+".join(', ')") + " + ' in spec.externalIPs, spec.loadBalancerIP or an annotation (allowed: ' + (" + ranges + ".hasValue() ? " + ranges + ".value().map(r, string(r)).join(', ') : 'none') + ')'",
			},
			{
				"!" + nodePorts + ".hasValue() || " + wrongPorts + ".size() == 0",
				objectPhrase + " + 'must not open port ' + " + short(wrongPorts+".map(n, string(n)).join(', ')") + " + ' on every node (allowed: ' + " + portRanges(nodePorts) + " + '): name an allowed port in spec.ports[].nodePort or, for a load balancer, set spec.allocateLoadBalancerNodePorts to false'",
			},
			{
				"object.?spec.?loadBalancerClass.orValue('') == '' || oldObject != null && object.?spec.?loadBalancerClass == oldObject.?spec.?loadBalancerClass || " + permits("network.services.loadBalancerClasses", "object.spec.loadBalancerClass"),
				objectPhrase + " + 'must not have load balancer class ' + " + short("object.?spec.?loadBalancerClass.orValue('')") + " + ' (allowed: ' + " + short(named("network.services.loadBalancerClasses")) + " + ')'",
			},
		},
	}
	r.variables = []admissionregistrationv1.Variable{{Name: "shared", Expression: serviceAnnotations("object") + ".map(m, m.filter(k, (" + sharesBalancer + ")" +
		" && !(oldObject != null && " + serviceAnnotations("oldObject") + ".exists(o, k in o && o[k] == m[k])) && !" + permitsIfSet("network.services.allowedAnnotations", "k") + "))"}}
	r.validations = append(r.validations, validation{
		allEmpty("variables.shared"),
		objectPhrase + " + 'must not have the annotation ' + " + short(joinLists("variables.shared")) + " + ', which shares or takes over a load balancer of others: leave it out, or let the key of an address that the namespace shares begin with ' + request.namespace + '/ (allowed: ' + (" + optional("network.services.allowedAnnotations") + ".hasValue() ? " + short(named("network.services.allowedAnnotations")) + " : 'none') + ')'",
	})
	for _, of := range []struct{ field, denied, expression, what string }{
		{"labels", "network.services.deniedLabels", "network.services.deniedLabelExpression", "label"},
		{"annotations", "network.services.deniedAnnotations", "network.services.deniedAnnotationExpression", "annotation"},
	} {
		patterns, expression := optional(of.denied), optional(of.expression)
		denied := fmt.Sprintf(serviceMetadata("object", "object.?metadata")+".map(m, m.?%[1]s.orValue({}).filter(k, (%[2]s.orValue([]).exists(p, %[3]s) || %[4]s.hasValue() && k.matches(%[4]s.value()))"+
			" && !(oldObject != null && "+serviceMetadata("oldObject", "oldObject.?metadata")+".exists(o, o.?%[1]s[?k] == m.?%[1]s[?k]))))",
			of.field, patterns, matchesName("p", "k"), expression)
		r.validations = append(r.validations, validation{
			"!" + patterns + ".hasValue() && !" + expression + ".hasValue() || " + allEmpty(denied),
			objectPhrase + " + 'must not have the " + of.what + " ' + " + short(joinLists(denied)) + " + ': the platform denies it'",
		})
	}
	return r
}

// endpoints returns the rule about the addresses to which a tenant leads Services: by Endpoints
// and EndpointSlices, or by the status of a Pod, from which Kubernetes makes EndpointSlices.
func endpoints() Rule {
	// Lists of addresses; an empty one is none.
	const addresses = "(request.resource.resource == 'endpoints' ? %[1]s.?subsets.orValue([]).map(s, (s.?addresses.orValue([]) + s.?notReadyAddresses.orValue([])).map(a, a.ip))" +
		" : request.resource.resource == 'endpointslices' ? (has(%[1]s.endpoints) && %[1]s.endpoints != null ? %[1]s.endpoints : []).map(e, e.?addresses.orValue([]))" +
		" : [%[1]s.?status.?podIPs.orValue([]).map(a, a.?ip.orValue('')), %[1]s.?status.?podIP.optMap(a, [a]).orValue([])])"
	ranges := optional("network.services.endpoints")
	wrong := fmt.Sprintf(addresses, "object") + ".map(l, l.filter(a, a != '' && !(oldObject != null && " + fmt.Sprintf(addresses, "oldObject") + ".exists(o, a in o)) && !(isIP(a) && " + ranges + ".orValue([]).exists(r, cidr(r).containsIP(a)))))"
	return Rule{
		Name: Prefix + "endpoints", Rows: []string{"W9"},
		Title: "Services lead only to the tenant's Pods and to addresses that the tenant may use",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, "", "endpoints"), on(writes, "discovery.k8s.io", "endpointslices"), on(updates, "", "pods/status"),
		},
		scope:      tenantObjects,
		conditions: append([]string{notANode}, notOperator...),
		validations: []validation{{
			allEmpty(wrong),
			objectPhrase + " + 'must not lead to the address ' + " + short(joinLists(wrong)) + " + ' (allowed: ' + (" + ranges + ".orValue([]).size() > 0 ? " + ranges + ".value().map(r, string(r)).join(', ') : 'none') + '): select Pods with spec.selector of the Service'",
		}},
	}
}

// addressAnnotations are the annotations of Services with the addresses that a load balancer takes, as
// MetalLB, Cilium, kube-vip, Calico, PureLB, OpenStack, Azure and AWS document them: lists with commas, of
// Calico in JSON.
const addressAnnotations = "['metallb.io/loadBalancerIPs', 'metallb.universe.tf/loadBalancerIPs', 'lbipam.cilium.io/ips', 'io.cilium/lb-ipam-ips', 'kube-vip.io/loadbalancerIPs', 'kube-vip.io/requestedIP'" +
	", 'projectcalico.org/loadBalancerIPs', 'purelb.io/addresses', 'loadbalancer.openstack.org/load-balancer-address', 'service.beta.kubernetes.io/azure-additional-public-ips'" +
	", 'service.beta.kubernetes.io/azure-load-balancer-ipv4', 'service.beta.kubernetes.io/azure-load-balancer-ipv6', 'service.beta.kubernetes.io/aws-load-balancer-private-ipv4-addresses', 'service.beta.kubernetes.io/aws-load-balancer-ipv6-addresses']"

// sharesBalancer is CEL that is true if the annotation k in the annotations m of a Service shares a load
// balancer with Services of other namespaces, or takes over what exists already: a load balancer by its
// identifier or its name, a reserved address by its name, or a firewall. MetalLB and PureLB compare a key with
// those of all namespaces, so that a key begins with the namespace. Cilium shares within a namespace, unless
// an annotation names others; Antrea shares with every Service.
const sharesBalancer = "(k in ['metallb.io/allow-shared-ip', 'metallb.universe.tf/allow-shared-ip', 'purelb.io/allow-shared-ip'] && m[k] != request.namespace && !m[k].startsWith(request.namespace + '/'))" +
	" || (k in ['lbipam.cilium.io/sharing-cross-namespace', 'io.cilium/lb-ipam-sharing-cross-namespace'] && m[k] != request.namespace)" +
	" || k in ['service.antrea.io/allow-shared-load-balancer-ip', 'kube-vip.io/hwaddr', 'networking.gke.io/load-balancer-ip-addresses', 'load-balancer.hetzner.cloud/name'" +
	", 'service.beta.kubernetes.io/aws-load-balancer-eip-allocations', 'service.beta.kubernetes.io/aws-load-balancer-security-groups', 'service.beta.kubernetes.io/aws-load-balancer-extra-security-groups'" +
	", 'service.beta.kubernetes.io/azure-pip-name', 'service.beta.kubernetes.io/azure-pip-name-ipv6', 'service.beta.kubernetes.io/azure-pip-prefix-id', 'service.beta.kubernetes.io/azure-pip-prefix-id-ipv6', 'service.beta.kubernetes.io/azure-shared-securityrule']" +
	" || k.matches('(load-?balancer-id|/elb[.]id|tke-existed-lbid)$')"

// hostAnnotations are the annotations with further hosts of an object, as lists with commas. external-dns
// and the dns-controller of kOps publish them; ingress-nginx, HAProxy Ingress, Kong and the controller of
// Azure's gateway serve them.
const hostAnnotations = "['dns.alpha.kubernetes.io/external', 'dns.alpha.kubernetes.io/internal', 'external-dns.alpha.kubernetes.io/hostname', 'external-dns.alpha.kubernetes.io/internal-hostname', 'nginx.ingress.kubernetes.io/server-alias'" +
	", 'haproxy-ingress.github.io/server-alias', 'ingress.kubernetes.io/server-alias', 'haproxy-ingress.github.io/redirect-from', 'ingress.kubernetes.io/redirect-from'" +
	", 'konghq.com/host-aliases', 'appgw.ingress.kubernetes.io/hostname-extension']"

// CEL of [hosts] about the kind of the object.
const (
	isIngress = "request.resource.resource == 'ingresses'"
	isGateway = "request.resource.resource == 'gateways'"
	isCanary  = "request.resource.resource == 'canaries'"
	listens   = "request.resource.resource in ['gateways', 'listenersets', 'xlistenersets']"
	// unnamed are the kinds that have hosts in annotations only; [flagger] has the other hosts of a Canary.
	unnamed = "request.resource.resource in ['services', 'canaries', 'tcproutes', 'udproutes']"
)

// hostNames returns CEL for lists of the hosts of an object of [hosts]; an empty host stands for all hosts.
// A route of a mesh, whose parents are only Services, applies to requests to these Services.
func hostNames(object string) string {
	return fmt.Sprintf("((%[2]s ? [%[1]s.?spec.?rules.orValue([]).map(r, r.?host.orValue(''))] + %[1]s.?spec.?tls.orValue([]).map(t, t.?hosts.orValue([])) + (has(%[1]s.spec.defaultBackend) ? [['']] : [])"+
		" : %[3]s ? [%[1]s.?spec.?listeners.orValue([]).map(l, l.?hostname.orValue(''))]"+
		" : %[4]s || %[1]s.?spec.?parentRefs.orValue([]).size() > 0 && %[1]s.spec.parentRefs.all(r, r.?kind.orValue('') == 'Service') ? []"+
		" : %[1]s.?spec.?hostnames.orValue([]).size() == 0 ? [['']] : [%[1]s.spec.hostnames.map(h, string(h))])"+
		" + %[6]s.map(m, %[5]s.map(a, m[?a].orValue('')).join(',').split(',').map(h, h.trim()).filter(h, h != '')))",
		object, isIngress, listens, unnamed, hostAnnotations, serviceAnnotations(object))
}

// plainHost is CEL that is true if h is a host, or a pattern with a star, in any script. nginx reads an
// alias that begins with ~ as a regular expression, which may match every name although it ends like a host
// of the tenant.
const plainHost = `h.matches(r'^[*\pL\pM\pN._-]*$')`

// ingressClasses returns CEL for the classes of an Ingress, or for an empty class if it has none. The class
// was an annotation before it was a field. The API server lets an update set both, and controllers read
// either.
func ingressClasses(object string) string {
	return fmt.Sprintf("[[%[1]s.?spec.?ingressClassName, %[1]s.metadata.?annotations[?'kubernetes.io/ingress.class']].filter(c, c.hasValue()).map(c, c.value())].map(l, l.size() == 0 ? [''] : l)[0]", object)
}

// isDefault returns CEL that is true if a Gateway is a default Gateway.
func isDefault(object string) string {
	return "(" + object + ".?spec.?defaultScope.orValue('None') != 'None')"
}

// parents returns CEL for the objects that a route or a set of listeners is attached to.
func parents(object string) string {
	return fmt.Sprintf("(%[1]s.?spec.?parentRefs.orValue([]) + %[1]s.?spec.?parentRef.optMap(p, [p]).orValue([]))", object)
}

// hosts returns the rule about the names and the classes of Ingresses, Gateways and routes.
func hosts() Rule {
	list := optional("network.hosts")
	return Rule{
		Name: Prefix + "hosts", Rows: []string{"W5"},
		Title: "Ingresses, Gateways, routes, Services and Canaries use the hosts and the classes that the tenant may use",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupNetworking, "ingresses"), on(writes, "", "services"), on(writes, groupFlagger, "canaries"),
			on(writes, groupGateway, "gateways", "listenersets", "httproutes", "grpcroutes", "tcproutes", "tlsroutes", "udproutes"),
			on(writes, groupOlderGateway, "xlistenersets"),
		},
		scope:      tenantObjects,
		conditions: notOperator,
		variables: []admissionregistrationv1.Variable{
			{Name: "wrongHosts", Expression: "[oldObject == null ? [] : " + hostNames("oldObject") + "].map(before, " + hostNames("object") + ".map(l, l.filter(h, !before.exists(o, h in o) && !((" + list + ".hasValue() ? (h.startsWith('*') ? " + list + ".?allowed.orValue([]).exists(e, " + matchesName("e", "h") + ") : " + permitsIfSet("network.hosts", "h") + ") : !h.startsWith('*')) && " + plainHost + "))))[0]"},
			{Name: "wrongClasses", Expression: "!(" + isIngress + ") ? [] : " + ingressClasses("object") + ".filter(c, !(oldObject != null && c in " + ingressClasses("oldObject") + ") && !" + permitsClass("network.ingressClasses", "c") + ")"},
			// A route whose parent is a Service, for a mesh, affects the requests of the route's own
			// namespace.
			{Name: "wrongParents", Expression: parents("object") + ".filter(r, r.?kind.orValue('Gateway') != 'Service' && !(r.?namespace.orValue(request.namespace) == request.namespace)" +
				" && !(oldObject != null && r in " + parents("oldObject") + ") && !" + permits("network.gateways", "r.namespace + '/' + r.name") + ")"},
		},
		validations: []validation{
			{
				allEmpty("variables.wrongHosts"),
				objectPhrase + " + 'must not have ' + " + short(joinLists("variables.wrongHosts.map(l, l.map(h, h == '' ? 'no host, which matches every name' : 'host ' + h))")) + " + ' (allowed: ' + (" + list + ".hasValue() ? " + short(named("network.hosts")) + " : 'names without *') + ')'",
			},
			{
				"variables.wrongClasses.size() == 0",
				objectPhrase + " + 'must not have ingress class \\'' + " + short("variables.wrongClasses.join(', ')") + " + '\\' (allowed: ' + " + short(namedClasses("network.ingressClasses")) + " + ')'",
			},
			{
				"!(" + isGateway + ") || oldObject != null && oldObject.?spec.?gatewayClassName == object.?spec.?gatewayClassName || " + permitsClass("network.gatewayClasses", "object.spec.gatewayClassName"),
				objectPhrase + " + 'must not have gateway class ' + " + short("object.?spec.?gatewayClassName.orValue('')") + " + ' (allowed: ' + " + short(namedClasses("network.gatewayClasses")) + " + ')'",
			},
			{
				// Routes of all namespaces may ask for the default Gateways, and DNS controllers lead their hosts there.
				"!(" + isGateway + ") || !" + isDefault("object") + " || oldObject != null && " + isDefault("oldObject") + " || " + permitsIfSet("network.gateways", "request.namespace + '/' + object.metadata.name"),
				objectPhrase + " + 'must not be a default Gateway, to which routes of all namespaces attach (allowed: ' + (" + optional("network.gateways") + ".hasValue() ? " + short(named("network.gateways")) + " : 'none') + '): leave out spec.defaultScope'",
			},
			{
				// A pattern for the Gateways of all namespaces matches this name too.
				"object.?spec.?useDefaultGateways.orValue('None') == 'None' || oldObject != null && object.?spec.?useDefaultGateways == oldObject.?spec.?useDefaultGateways || " + permits("network.gateways", "'*/*'"),
				objectPhrase + " + 'must not attach to all default Gateways: name a Gateway in spec.parentRefs (allowed: those of ' + request.namespace + ', ' + " + short(named("network.gateways")) + " + ')'",
			},
			{
				"variables.wrongParents.size() == 0",
				objectPhrase + " + 'must not attach to ' + " + short("variables.wrongParents.map(r, r.?kind.orValue('Gateway') + ' ' + r.namespace + '/' + r.name).join(', ')") + " + ' (allowed: those of ' + request.namespace + ', ' + " + short(named("network.gateways")) + " + ')'",
			},
		},
	}
}

// ingressAnnotations returns the rule about the annotations of Ingresses, of the Services behind them, and of the
// Services that controllers make of a Gateway or a Canary, with
// which a tenant reaches into an ingress controller that others use: they write text into its configuration, join the load
// balancer of a group of Ingresses, lead requests to target groups or Services of others, use a certificate of the
// cloud account, have the controller send requests to an address within the cluster, or name an object of another
// namespace. The controller may connect to all tenants' Pods. The names are those of the controllers' documentation:
// ingress-nginx, NGINX, HAProxy, AWS, GKE, Azure, APISIX, Skipper, Traefik, and load balancers of clouds. Traefik joins namespace
// and name with a hyphen, so that no expression can tell whose object an annotation names.
//
// Addresses may be those of a Provider, those of the Ingress itself, which ingress-nginx calls $host, and
// those of Services of the namespace.
func ingressAnnotations() Rule {
	publicOrOwn := "[m[k]].all(a, a.matches('^https://[$]host(/[A-Za-z0-9._~/-]*)?([?]|$)') || a.matches('^https?://[a-z0-9-]+[.]' + request.namespace + '[.]svc([.]cluster[.]local)?(:[0-9]+)?(/|$)')" +
		" || " + outside("a", posture+".notifications.addresses") + ")"
	annotated := func(object string) string {
		return "(" + serviceAnnotations(object) + " + (" + isGateway + " ? " + object + ".?spec.?listeners.orValue([]).map(l, l.?tls.?options.orValue({})) : []))"
	}
	asks := "k.matches('/(auth-url|mirror-target)$') && !(" + publicOrOwn + ")"
	const (
		text  = "k.matches('(-snippets?|/(server-alias|redirect-from)-regex|(^|[.])ingress[.]kubernetes[.]io/config-[a-z-]+|[.]github[.]io/config-[a-z-]+|^getambassador[.]io/config|^zalando[.]org/skipper-(filter|routes))$')"
		group = "k in ['alb.ingress.kubernetes.io/group.name', 'alb.ingress.kubernetes.io/security-groups', 'kubernetes.io/ingress.global-static-ip-name', 'kubernetes.io/ingress.regional-static-ip-name']"
		// GKE has the name of a certificate in an option of a Gateway too, and an empty one has no meaning. A certificate is for
		// hosts, so that it is refused where the tenant's hosts are limited.
		certificates = "k.matches('(/certificate-arn|-ssl-cert|/pre-shared-certs?|/certmap|-certificate-ids?|[-.]cert-id|/http-certificates|/appgw-(ssl|trusted-root)-certificate|/default-tls-container-ref)$') && m[k] != ''"
		joined       = "k.matches('^traefik[.].*[.](middlewares|options|serverstransport)$') && m[k].contains('@')"
		// The name of a field in JSON may have other letters.
		forwards = "k.startsWith('alb.ingress.kubernetes.io/actions.') && m[k].matches('(?i)targetgroup(arn|name)|\\\\\\\\u')"
		backends = "k == 'k8s.apisix.apache.org/svc-namespace' && !(m[k] in ['', request.namespace])"
		foreign  = "k.matches('(secret|configmap|set-headers|/custom-headers|/server-c(a|rt)|/cr-backend|/policies)$') && m[k].split(',').exists(v, v.contains('/') && !v.trim().startsWith(request.namespace + '/'))"
	)
	return Rule{
		Name: Prefix + "ingress-annotations", Rows: []string{"W13"},
		Title:      "annotations of Ingresses, Services, Gateways and Canaries change no controller's configuration and use no objects of others",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, groupNetworking, "ingresses"), on(writes, "", "services"), on(writes, groupGateway, "gateways"), on(writes, groupFlagger, "canaries")},
		scope:      tenantObjects,
		conditions: notOperator,
		variables: []admissionregistrationv1.Variable{{Name: "reaching", Expression: annotated("object") + ".map(m, m.filter(k, (" + text + " || " + group + " || " + certificates + " && " + optional("network.hosts") + ".hasValue() || " + backends + " || " + joined + " || " + forwards + " || " + asks + " || " + foreign + ")" +
			" && !(oldObject != null && " + annotated("oldObject") + ".exists(o, k in o && o[k] == m[k])) && !" + permitsIfSet("network.ingressAnnotations", "k") + "))"}},
		validations: []validation{{
			allEmpty("variables.reaching"),
			objectPhrase + " + 'must not have the annotation ' + " + short(joinLists("variables.reaching")) + " + ', which reaches beyond the tenant (allowed: ' + (" + optional("network.ingressAnnotations") + ".hasValue() ? " + short(named("network.ingressAnnotations")) + " : 'none') + ')'",
		}},
	}
}
