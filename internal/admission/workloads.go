package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// optional returns CEL for a field of the tenant's limits, as an optional value.
func optional(field string) string {
	return posture + ".?" + strings.ReplaceAll(field, ".", ".?")
}

// permits returns CEL that is true if a field of type AllowedNames is unset or matches a name.
func permits(field, name string) string {
	names := optional(field)
	return fmt.Sprintf("(!%[1]s.hasValue() || %[2]s)", names, permitsIfSet(field, name))
}

// permitsIfSet returns CEL that is true if a field of type AllowedNames is set and matches a name.
func permitsIfSet(field, name string) string {
	return fmt.Sprintf("(%[1]s.?allowed.orValue([]).exists(e, %[2]s) || %[1]s.?expression.hasValue() && (%[3]s).matches(%[1]s.expression.value()))",
		optional(field), matchesName("e", "("+name+")"), name)
}

// selectedClasses maps a field of type AllowedClasses to the list in the TenantParameters with the classes
// that the field's selector selects. The TenancyProfile has no such lists, so selectors allow nothing in a
// namespace without parameters.
var selectedClasses = map[string]string{
	"workloads.priorityClasses": "priorityClasses",
	"workloads.runtimeClasses":  "runtimeClasses",
	"workloads.deviceClasses":   "deviceClasses",
	"network.ingressClasses":    "ingressClasses",
	"network.gatewayClasses":    "gatewayClasses",
	"storage.classes":           "storageClasses",
}

// permitsClass returns CEL that is true if a field of type AllowedClasses is unset or allows a
// class.
func permitsClass(field, name string) string {
	return fmt.Sprintf("(!%s.hasValue() || %s)", optional(field), permitsClassIfSet(field, name))
}

// permitsClassIfSet returns CEL that is true if a field of type AllowedClasses is set and allows
// a class, by its name or by its labels.
func permitsClassIfSet(field, name string) string {
	return fmt.Sprintf("(%s || (%s) in params.spec.?selectedClasses.?%s.orValue([]))", permitsIfSet(field, name), name, selectedClasses[field])
}

// namedClasses returns CEL for the text of a field of type AllowedClasses.
func namedClasses(field string) string {
	return fmt.Sprintf("[%s, %s.?selector.hasValue() ? 'classes whose labels match the selector' : ''].filter(t, t != '').join(', ')", named(field), optional(field))
}

// named returns CEL for the text of a field of type AllowedNames.
func named(field string) string {
	return fmt.Sprintf("(%[1]s.?allowed.orValue([]).map(p, string(p)) + (%[1]s.?expression.hasValue() ? ['names that match ' + %[1]s.expression.value()] : [])).join(', ')", optional(field))
}

// podSpec returns CEL for the spec of a Pod, or of the Pods that a controller creates from the template of
// an object. The spec is empty if there is none.
func podSpec(object string) string {
	return fmt.Sprintf("(request.resource.resource == 'pods' ? %[1]s.?spec : %[1]s.?spec.?template.?spec.or(%[1]s.?spec.?jobTemplate.?spec.?template.?spec).or(%[1]s.?template.?spec)).orValue({})", object)
}

// ofPod returns CEL that is true if an expression holds for the new spec p and the old spec q. Without an
// old object, q is empty.
func ofPod(expression string) string {
	return fmt.Sprintf("[%s].all(p, [oldObject == null ? {} : %s].all(q, %s))", podSpec("object"), podSpec("oldObject"), expression)
}

// samePod is CEL that is true if an update leaves the spec of a Pod or of a template unchanged, such as the
// removal of a finalizer. The checks of such an update could cost more than those of the creation, and more
// than the API server allows: then nobody could remove the finalizer, and the namespace would stay for ever.
var samePod = "oldObject != null && " + podSpec("object") + " == " + podSpec("oldObject")

// containersOf returns CEL for all containers in the spec of a Pod.
func containersOf(spec string) string {
	return fmt.Sprintf("(%[1]s.?containers.orValue([]) + %[1]s.?initContainers.orValue([]) + %[1]s.?ephemeralContainers.orValue([]))", spec)
}

// imagesIn returns CEL for the images of all containers and image volumes in the spec of a
// Pod.
func imagesIn(spec string) string {
	return fmt.Sprintf("(%s.map(c, c.?image.orValue('')) + %s.?volumes.orValue([]).filter(v, has(v.image)).map(v, v.image.?reference.orValue('')))", containersOf(spec), spec)
}

// repository returns CEL for the repository of an image, with its registry and without tag and digest. An
// image without a registry belongs to Docker Hub, and there, without a user, to the user library.
func repository(image string) string {
	full := namesRegistry("r") + " ? r : r.contains('/') ? 'docker.io/' + r : 'docker.io/library/' + r"
	return fmt.Sprintf("[%s.split('@')[0]].map(r, r.lastIndexOf(':') > r.lastIndexOf('/') ? r.substring(0, r.lastIndexOf(':')) : r).map(r, %s)"+
		".map(r, r.matches('^docker[.]io/[^/]+$') ? 'docker.io/library/' + r.substring(10) : r)[0]", image, full)
}

// namesRegistry returns CEL that is true if an image names its registry.
func namesRegistry(image string) string {
	return fmt.Sprintf("(%[1]s.contains('/') && (%[1]s.split('/')[0].contains('.') || %[1]s.split('/')[0].contains(':') || %[1]s.split('/')[0] == 'localhost'))", image)
}

// registryExpression is the field with an expression for the names of registries.
const registryExpression = "workloads.images.registryExpression"

// fromRegistries returns CEL that is true if an image comes from an allowed repository. A container runtime
// could read a name with other characters than clean allows as another registry. The first part of the
// expression is a shortcut that needs no repository name: most images name their registry and match a
// pattern whose only * is at its end.
func fromRegistries(image string) string {
	const (
		clean  = `^[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9._-]+)+$`
		common = `^[a-z0-9][a-z0-9-]*[.:][a-z0-9.:-]*(/[a-z0-9._-]+)+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$`
		below  = "p.endsWith('/**') ? %[1]s.startsWith(p.substring(0, size(p) - 2)) : p.endsWith('/*') && %[1]s.startsWith(p.substring(0, size(p) - 1)) && %[1]s.lastIndexOf('/') == size(p) - 2"
	)
	registries, expression := optional("workloads.images.registries"), optional(registryExpression)
	return fmt.Sprintf("(size(%[1]s) <= %[2]d && %[1]s.matches('%[3]s') && !%[1]s.startsWith('docker.io/') && %[4]s.orValue([]).exists(p, %[5]s)", image, maxAddress, common, registries, fmt.Sprintf(below, image)) +
		fmt.Sprintf(" || [%s].all(n, size(n) <= %d && n.matches('%s') && (%s.orValue([]).exists(p, %[5]s) || %[6]s.hasValue() && n.split('/')[0].matches(%[6]s.value()))))",
			repository(image), maxAddress, clean, registries, matchesRepository, expression)
}

// matchesRepository is CEL that is true if the name n of a repository matches the pattern p. A pattern
// with one * at its end needs no regular expression, which the API server would compile for each image.
const matchesRepository = "(!p.contains('*') ? n == p" +
	" : p.endsWith('/**') && p.indexOf('*') == size(p) - 2 ? n.startsWith(p.substring(0, size(p) - 2)) && size(n) > size(p) - 2" +
	" : p.indexOf('*') == size(p) - 1 ? n.startsWith(p.substring(0, size(p) - 1)) && n.lastIndexOf('/') < size(p) - 1" +
	" : n.startsWith(p.split('*')[0]) && n.matches('^' + p.replace('.', '[.]').replace('/**', '/<>').replace('*', '[^/]*').replace('/<>', '/.+') + '$'))"

// nodeSelector and nodeTolerations are the labels and the tolerations of the tenant's nodes.
var (
	nodeSelector    = optional("workloads.nodes.selector")
	nodeTolerations = optional("workloads.nodes.tolerations")
)

// given returns CEL that is true if a list contains a given toleration; element is the name that the
// expression gives to an element of the list.
func given(toleration, list, element string) string {
	return fmt.Sprintf("%[2]s.exists(%[3]s, %[1]s.?key.orValue('') == %[3]s.key && %[1]s.?operator.orValue('Equal') == %[3]s.?operator.orValue('Equal')"+
		" && %[1]s.?value.orValue('') == %[3]s.?value.orValue('') && %[1]s.?effect.orValue('') == %[3]s.?effect.orValue(''))", toleration, list, element)
}

// portsOfNode returns CEL for the ports that each container in the spec of a Pod opens on the node: a list
// of lists, in which 0 is no port. The API server sets hostPort in a Pod with the network of the node, but
// not in a template.
func portsOfNode(spec string) string {
	return containersOf(spec) + ".map(c, c.?ports.orValue([]).map(n, n.?hostPort.orValue(" + spec + ".?hostNetwork.orValue(false) ? n.containerPort : 0)))"
}

// hostsOfProbes returns CEL for the hosts in the probes and lifecycle hooks of each container in the spec
// of a Pod: a list of lists. Without such a host, the kubelet connects to the Pod itself.
func hostsOfProbes(spec string) string {
	var hosts []string
	for _, handler := range []string{"livenessProbe", "readinessProbe", "startupProbe", "lifecycle.?postStart", "lifecycle.?preStop"} {
		for _, action := range []string{"httpGet", "tcpSocket"} {
			hosts = append(hosts, fmt.Sprintf("?c.?%s.?%s.?host", handler, action))
		}
	}
	return fmt.Sprintf("%s.map(c, [%s].filter(h, h != ''))", containersOf(spec), strings.Join(hosts, ", "))
}

// inRanges returns CEL that is true if a port is in one of the ranges, an optional list of
// [v1alpha1.PortRange].
func inRanges(ranges, port string) string {
	return fmt.Sprintf("%[1]s.orValue([]).exists(r, r.split('-').map(e, int(e)).exists(e, %[2]s >= e) && r.split('-').map(e, int(e)).exists(e, %[2]s <= e))", ranges, port)
}

// portRanges returns CEL for the text of an optional list of [v1alpha1.PortRange].
func portRanges(ranges string) string {
	return "[" + ranges + ".orValue([]).map(r, string(r)).join(', ')].map(t, t == '' ? 'none' : t)[0]"
}

// affinityTerms returns CEL for the terms of the affinities and anti-affinities to other Pods in the spec
// of a Pod: a list of lists.
func affinityTerms(spec string) string {
	return fmt.Sprintf("[%[1]s.?affinity.?podAffinity, %[1]s.?affinity.?podAntiAffinity].filter(a, a.hasValue()).map(a, a.value().?requiredDuringSchedulingIgnoredDuringExecution.orValue([])"+
		" + a.value().?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(w, w.podAffinityTerm))", spec)
}

// addressed is CEL that is true if a volume v of a Pod is storage outside of the cluster that the Pod names
// by its address. The Pod Security level restricted refuses such volumes, except volumes of CSI drivers,
// which no level refuses. The drivers for NFS, SMB, Azure Files and Azure Blob read the address in these
// attributes, two of them without regard to case, and may mount the volume with an identity of the node.
const addressed = "(has(v.csi) && v.csi.?volumeAttributes.orValue({}).exists(k, k.lowerAscii() in ['server', 'source', 'share', 'sharename', 'containername', 'storageaccount', 'storageaccountname'])" +
	" || has(v.nfs) || has(v.iscsi) || has(v.fc) || has(v.cephfs) || has(v.rbd) || has(v.glusterfs) || has(v.awsElasticBlockStore) || has(v.gcePersistentDisk)" +
	" || has(v.azureDisk) || has(v.azureFile) || has(v.cinder) || has(v.vsphereVolume) || has(v.portworxVolume) || has(v.quobyte) || has(v.scaleIO) || has(v.storageos)" +
	" || has(v.flexVolume) || has(v.flocker) || has(v.photonPersistentDisk))"

// podCheck is CEL about the specs p and q of [ofPod] that must be true, and CEL for the end of the message
// if it is false.
type podCheck struct{ holds, message string }

// fromPod returns CEL for the text of an expression about the specs p and q of [ofPod].
func fromPod(expression string) string {
	return short(fmt.Sprintf("[%s].map(p, [oldObject == null ? {} : %s].map(q, %s)[0])[0]", podSpec("object"), podSpec("oldObject"), expression))
}

// scheduling returns the checks of nodes, schedulers, tolerations, affinities, volumes, ports, probes and priority
// classes.
func scheduling() []podCheck {
	schedulers, tolerations, priority := optional("workloads.schedulers"), optional("workloads.tolerations"), optional("workloads.priorityClasses")
	tolerated := fmt.Sprintf("(t.?key.orValue('').startsWith('node.kubernetes.io/') || t in q.?tolerations.orValue([]) || %s.orValue([]).exists(k, %s) || %s)",
		tolerations, matchesName("k", "t.?key.orValue('')"), given("t", nodeTolerations+".orValue([])", "k"))
	hostPorts := optional("workloads.hostPorts")
	// The scheduler keeps all Pods that an anti-affinity term selects off the nodes of the Pod with the
	// term. So a term may select Pods of its own namespace only.
	const foreign = "(has(t.namespaceSelector) || t.?namespaces.orValue([]).exists(n, n != request.namespace))"
	const wrongClones = "p.?volumes.orValue([]).filter(v, has(v.gitRepo) && !(v in q.?volumes.orValue([])))"
	wrongVolumes := "p.?volumes.orValue([]).filter(v, " + addressed + " && !(v in q.?volumes.orValue([])))"
	wrongClasses := "p.?volumes.orValue([]).filter(v, has(v.ephemeral) && !(v in q.?volumes.orValue([]))).map(v, v.ephemeral.?volumeClaimTemplate.?spec.?storageClassName.orValue(''))" +
		".filter(n, n != '' && !" + permitsClassIfSet("storage.classes", "n") + ")"
	wrongPorts := portsOfNode("p") + ".map(l, l.filter(n, n > 0 && !" + portsOfNode("q") + ".exists(o, n in o) && !" + inRanges(hostPorts, "n") + "))"
	wrongHosts := hostsOfProbes("p") + ".map(l, l.filter(h, !" + hostsOfProbes("q") + ".exists(o, h in o)))"
	return []podCheck{
		{
			"!has(p.nodeName) || p.nodeName == '' || p.?nodeName == q.?nodeName",
			"'choose node ' + " + fromPod("p.?nodeName.orValue('')") + " + ' in spec.nodeName, which bypasses the scheduler: leave it out'",
		},
		{
			"!has(p.schedulerName) || p.schedulerName == 'default-scheduler' || p.?schedulerName == q.?schedulerName || p.schedulerName in " + schedulers + ".orValue([]) || '*' in " + schedulers + ".orValue([])",
			"'have scheduler ' + " + fromPod("p.?schedulerName.orValue('')") + " + ' (allowed: default-scheduler' + " + schedulers + ".orValue([]).map(s, ', ' + s).join('') + ')'",
		},
		{
			"!has(p.tolerations) || p.tolerations.all(t, " + tolerated + ")",
			"'tolerate taints ' + " + fromPod("p.?tolerations.orValue([]).filter(t, !"+tolerated+").map(t, t.?key.orValue('of every key')).join(', ')") +
				" + ' (allowed: node.kubernetes.io/*' + " + tolerations + ".orValue([]).map(k, ', ' + string(k)).join('') + " + nodeTolerations + ".orValue([]).map(k, ', ' + k.key + (k.?value.hasValue() ? '=' + string(k.value) : '')).join('') + ')'",
		},
		{
			"!has(p.affinity) || oldObject != null && p.?affinity == q.?affinity || " + affinityTerms("p") + ".all(l, l.all(t, !" + foreign + "))",
			"'choose or avoid nodes by the Pods of other namespaces: leave out namespaceSelector and namespaces in spec.affinity'",
		},
		{
			"!has(p.volumes) || " + optional("storage.existingVolumes") + ".orValue(false) || " + wrongVolumes + ".size() == 0",
			"'mount existing storage by its address in volume ' + " + fromPod(wrongVolumes+".map(v, v.name).join(', ')") + " + ': use a claim with a storage class, or ask the platform team for storage.existingVolumes'",
		},
		{
			// Kubelets before 1.33, and later ones with the gate GitRepoVolumeDriver, run git on the node, with its
			// network and as root (CVE-2024-10220). The Pod Security level restricted refuses such volumes.
			"!has(p.volumes) || " + wrongClones + ".size() == 0",
			"'have the node clone a repository in volume ' + " + fromPod(wrongClones+".map(v, v.name).join(', ')") + " + ': clone it in an init container'",
		},
		{
			// A claim without a class may get one before the rule about claims checks it.
			"!has(p.volumes) || !" + optional("storage.classes") + ".hasValue() || " + wrongClasses + ".size() == 0",
			"'have a volume with storage class ' + " + fromPod(wrongClasses+".join(', ')") + " + ' (allowed: ' + " + short(namedClasses("storage.classes")) + " + ')'",
		},
		{
			// Most containers have no ports.
			containersOf("p") + ".all(c, !has(c.ports)) || " + allEmpty(wrongPorts),
			"'open port ' + " + fromPod(joinLists(wrongPorts+".map(l, l.map(n, string(n)))")) + " + ' of its node in hostPort (allowed: ' + " + portRanges(hostPorts) + " + ')'",
		},
		{
			// A Pod with the network of its node reaches what the kubelet reaches.
			// Many containers have neither probes nor hooks.
			containersOf("p") + ".all(c, !has(c.livenessProbe) && !has(c.readinessProbe) && !has(c.startupProbe) && !has(c.lifecycle)) || p.?hostNetwork.orValue(false) || " + allEmpty(wrongHosts),
			"'have the kubelet connect to ' + " + fromPod(joinLists(wrongHosts)) + " + ' from the network of the node, past all NetworkPolicies: leave out host in probes and lifecycle hooks, so that the kubelet connects to the Pod'",
		},
		{
			"!has(p.priorityClassName) || p.priorityClassName == '' || p.?priorityClassName == q.?priorityClassName || (" + priority + ".hasValue() ? " +
				permitsClassIfSet("workloads.priorityClasses", "p.priorityClassName") + " : !p.priorityClassName.startsWith('system-'))",
			"'have priority class ' + " + fromPod("p.?priorityClassName.orValue('')") + " + ' (allowed: ' + (" + priority + ".hasValue() ? " + short(namedClasses("workloads.priorityClasses")) + " : 'all but system-*') + ')'",
		},
	}
}

// limits returns the checks of node selectors, tokens and runtime classes. Every Pod passes them if the
// tenant's parameters do not limit workloads.
func limits() []podCheck {
	return []podCheck{
		{
			nodeSelector + ".orValue({}).all(k, p.?nodeSelector[?k].orValue(request.resource.resource == 'pods' ? '' : " + nodeSelector + ".value()[k]) == " + nodeSelector + ".value()[k]) || oldObject != null && p.?nodeSelector == q.?nodeSelector",
			"'run on nodes of others: spec.nodeSelector needs ' + " + nodeSelector + ".orValue({}).map(k, k + ': ' + string(" + nodeSelector + ".value()[k])).join(', ')",
		},
		{
			optional("workloads.automountTokens") + ".orValue('') != '" + v1alpha1.AutomountForbidden + "' || p.?automountServiceAccountToken.orValue(true) == false || oldObject != null && p.?automountServiceAccountToken == q.?automountServiceAccountToken",
			"'mount a token of its account automatically: set spec.automountServiceAccountToken to false'",
		},
		{
			"!has(p.runtimeClassName) || p.runtimeClassName == '' || p.?runtimeClassName == q.?runtimeClassName || " + permitsClass("workloads.runtimeClasses", "p.runtimeClassName"),
			"'have runtime class ' + " + fromPod("p.?runtimeClassName.orValue('')") + " + ' (allowed: ' + " + short(namedClasses("workloads.runtimeClasses")) + " + ')'",
		},
	}
}

// tenantImages returns the checks of images. Like the checks of [limits], every Pod passes them if the
// tenant's parameters do not limit workloads. An update may keep an image of the old object.
func tenantImages() []podCheck {
	registries, policies := optional("workloads.images.registries"), optional("workloads.images.pullPolicies")
	expression := optional(registryExpression)
	const digest = "i.matches('@sha256:[0-9a-f]{64}$')"
	added := func(holds string) (all, wrong string) {
		images := imagesIn("p") + ".filter(i, !" + holds + " && !(i in " + imagesIn("q") + "))"
		return images + ".size() == 0", fromPod(images + ".join(', ')")
	}
	unlisted, unlistedImages := added(fromRegistries("i"))
	undigested, undigestedImages := added(digest)
	nameless, namelessImages := added(namesRegistry("i"))
	// A container with unchanged image and pull policy is allowed, whatever else of it changes.
	pullPolicies := "(" + containersOf("p") + ".filter(c, !" + containersOf("q") + ".exists(o, o.name == c.name && o.?image == c.?image && o.?imagePullPolicy == c.?imagePullPolicy)).map(c, c.?imagePullPolicy.orValue('')) + p.?volumes.orValue([]).filter(v, has(v.image) && !(v in q.?volumes.orValue([]))).map(v, v.image.?pullPolicy.orValue('')))"
	return []podCheck{
		{
			"!" + registries + ".hasValue() && !" + expression + ".hasValue() || " + unlisted,
			"'use image ' + " + unlistedImages + " + ' (allowed: ' + " + short("("+registries+".orValue([]).map(r, string(r)) + ("+expression+".hasValue() ? ['registries that match ' + "+expression+".value()] : [])).join(', ')") + " + ')'",
		},
		{
			optional("workloads.images.digests") + ".orValue('') != '" + v1alpha1.DigestsRequired + "' || " + undigested,
			"'use image ' + " + undigestedImages + " + ' without a digest: write it as REPOSITORY@sha256:DIGEST'",
		},
		{
			optional("workloads.images.registry") + ".orValue('') != '" + v1alpha1.RegistryRequired + "' || " + nameless,
			"'use image ' + " + namelessImages + " + ' without the name of its registry: write it out, such as docker.io/library/nginx'",
		},
		{
			// The Pods of a template get the pull policy of the tenant.
			"!" + policies + ".hasValue() || request.resource.resource != 'pods' && " + optional("workloads.images.pullPolicy") + ".hasValue() || " + pullPolicies + ".all(y, y in " + policies + ".value())",
			"'have imagePullPolicy ' + " + fromPod(pullPolicies+".filter(y, !(y in "+policies+".value())).join(', ')") + " + ' (allowed: ' + " + policies + ".value().join(', ') + ')'",
		},
	}
}

// workloads returns the rule about the images, classes, schedulers, volumes, probes and nodes of Pods.
// Controllers of Kubernetes create the Pods of tenants' workloads, so the rule also checks Pods that they
// create. It does not check templates that they write.
func workloads() Rule {
	r := Rule{
		Name: Prefix + "workloads", Rows: []string{"W6", "W7", "W10", "W11"},
		Title:      "Pods use the images, classes, schedulers, tolerations and volumes that the tenant may use, choose no node, and have no probes of other addresses",
		resources:  append([]admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "pods", "pods/ephemeralcontainers")}, templated...),
		scope:      tenantObjects,
		early:      true,
		conditions: []string{"!(" + samePod + ")", "request.resource.resource == 'pods' || (" + notKubernetes + ")", "!(" + isListed + ")", "!" + isAdmin},
	}
	checks, limiting := scheduling(), append(limits(), tenantImages()...)
	for _, c := range append(slices.Clone(checks), limiting...) {
		r.validations = append(r.validations, validation{ofPod(c.holds), objectPhrase + " + 'must not ' + " + c.message})
	}
	allHold := func(checks []podCheck) string {
		var all []string
		for _, c := range checks {
			all = append(all, c.holds)
		}
		return join(all, " && ")
	}
	r.together = samePod + " || " + ofPod(allHold(checks)+" && (!has("+posture+".workloads) || "+allHold(limiting)+")")
	return r
}

// reachingAnnotations is a regular expression for the annotations of Pods that give a Pod something beyond
// the tenant: an address or a network from a network plugin, a role in a cloud from an agent of the node, a
// device from a container runtime, or a host under which a controller publishes its address. The names come
// from the documentation of Multus, Calico, Cilium, Antrea, Kube-OVN, OVN-Kubernetes, the plugin of AWS,
// GKE, kiam, kube2iam, CRI-O, CDI, external-dns and kOps.
const reachingAnnotations = "^(k8s[.]v1[.]cni[.]cncf[.]io/networks|v1[.]multus-cni[.]io/default-network" +
	"|cni[.]projectcalico[.]org/(ipAddrs|ipAddrsNoIpam|floatingIPs|hwAddr|ipv4pools|ipv6pools|[aA]llowedSourcePrefixes)" +
	"|ipam[.]cilium[.]io/.*|cni[.]cilium[.]io/mac-address|ipam[.]antrea[.]io/.*|([a-z0-9.-]+[.])?ovn[.]kubernetes[.]io/.*|k8s[.]ovn[.]org/.*" +
	"|vpc[.]amazonaws[.]com/.*|networking[.]gke[.]io/(interfaces|default-interface)|iam[.]amazonaws[.]com/.*|io[.]kubernetes[.]cri-o[.]Devices|devices[.]crio[.]io(/.*)?|cdi[.]k8s[.]io/.*" +
	"|dns[.]alpha[.]kubernetes[.]io/(external|internal)|external-dns[.]alpha[.]kubernetes[.]io/(internal-)?hostname)$"

// ownNetworks is CEL that is true if the annotation k in the annotations a of a Pod names only networks of
// the Pod's namespace, without addresses: NAME or NAMESPACE/NAME, separated by commas.
const ownNetworks = "(k == 'k8s.v1.cni.cncf.io/networks' && a[k].split(',').all(n, n.trim().matches('^(' + request.namespace + '/)?[a-z0-9][a-z0-9.-]*(@[a-z0-9]+)?$')))"

// podAnnotationsOf returns CEL for a list of the annotations of a Pod, or of the Pods that a controller
// creates from a template of an object.
func podAnnotationsOf(object string) string {
	return fmt.Sprintf("(request.resource.resource == 'pods' ? [%[1]s.metadata.?annotations.orValue({})]"+
		" : [%[1]s.?spec.?template.?metadata.?annotations, %[1]s.?spec.?jobTemplate.?spec.?template.?metadata.?annotations, %[1]s.?template.?metadata.?annotations].map(a, a.orValue({})))", object)
}

// podAnnotations returns the rule about annotations of Pods by which a tenant reaches networks, addresses,
// roles, devices and hosts of others. Controllers of the platform write some of them into existing Pods.
func podAnnotations() Rule {
	const creation = "request.resource.resource == 'pods' && request.operation == 'CREATE'"
	reaching := podAnnotationsOf("object") + ".map(a, a.filter(k, k.matches('" + reachingAnnotations + "') && !" + ownNetworks +
		" && !(oldObject != null && " + podAnnotationsOf("oldObject") + ".exists(o, k in o && o[k] == a[k])) && !" + permitsIfSet("workloads.podAnnotations", "k") + "))"
	return Rule{
		Name: Prefix + "pod-annotations", Rows: []string{"W14"},
		Title:      "annotations of Pods take no addresses, networks, roles, devices and hosts of others",
		resources:  append([]admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "pods")}, templated...),
		scope:      tenantObjects,
		early:      true,
		conditions: []string{creation + " || (" + notKubernetes + ")", "!(" + isListed + ")", creation + " || (" + notEverywhere + ")", "!" + isAdmin},
		// Most Pods have no such annotation. As with [samePod], an update without a change costs little.
		together: "oldObject != null && " + podAnnotationsOf("object") + " == " + podAnnotationsOf("oldObject") + " || (request.resource.resource == 'pods' ? !has(object.metadata.annotations) || object.metadata.annotations.all(k, !k.matches('" + reachingAnnotations + "'))" +
			" : " + podAnnotationsOf("object") + ".all(a, a.all(k, !k.matches('" + reachingAnnotations + "'))))",
		validations: []validation{{
			allEmpty(reaching),
			objectPhrase + " + 'must not have the annotation ' + " + short(joinLists(reaching)) + " + ' in its Pods, which reaches beyond the tenant (allowed: ' + (" + optional("workloads.podAnnotations") + ".hasValue() ? " + short(named("workloads.podAnnotations")) + " : 'none; of k8s.v1.cni.cncf.io/networks, names of networks in ' + request.namespace) + ')'",
		}},
	}
}

// nodes returns the rule that only a scheduler binds Pods to nodes. A Binding bypasses the
// scheduler as spec.nodeName does.
func nodes() Rule {
	return Rule{
		Name: Prefix + "nodes", Rows: []string{"W10"},
		Title:      "only a scheduler of the platform binds Pods to nodes",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(creates, "", "pods/binding", "bindings")},
		scope:      tenantObjects,
		conditions: append([]string{"request.userInfo.username != 'system:kube-scheduler'"}, notOperator...),
		validations: []validation{{
			"false", "'Pod ' + variables.name + ' must not be bound to a node, which bypasses the scheduler: leave this to the scheduler'",
		}},
	}
}
