package capsule

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Request is an admission request to which the rules of a Capsule Tenant apply.
type Request struct {
	User   string
	Groups []string
	// Object is the object with its kind. Old is the object before an update, and nil for other requests.
	Object, Old *unstructured.Unstructured
}

// checkedValue is a value of an object that rules check, with its path.
type checkedValue struct {
	value, path string
	// key is the key of a label or annotation, and target the use of an image, such as a container.
	key, target string
}

// auditedPart is a part of the rules: the values that it checks, and how an entry matches a value.
type auditedPart struct {
	// name is the beginning of the message, and kind is the word before rule in it.
	name, kind string
	// empty is set if an empty value counts as a value; otherwise it counts as a missing value.
	empty  bool
	values func(o *unstructured.Unstructured) []checkedValue
	// matches returns the text of the entry that matches the value, or "".
	matches func(e *ruleEnforcement, v checkedValue) string
	// lists reports whether the rule has entries about the value. It is nil for metadata, which [Refusals]
	// omits.
	lists func(e *ruleEnforcement, v checkedValue) bool
	// unlisted is a value that needs no entry to be allowed; "" if there is none.
	unlisted string
}

// NeedsWebhook reports whether a Tenant has rules that the webhook for rules implements: rules with the
// action audit, and rules with default or managed metadata or with policies for resources.
func NeedsWebhook(tenant *v1beta2.Tenant) bool {
	return slices.ContainsFunc(tenant.Spec.Rules, func(raw v1beta2.Unknown) bool {
		rule, err := decodeRule(raw.Raw)
		return err == nil && rule.Enforce != nil && (rule.Enforce.Action == actionAudit || rule.Enforce.Workloads.Resources != nil || slices.ContainsFunc(rule.Enforce.Metadata, func(m metadataRule) bool {
			return len(defaults(m.Labels))+len(defaults(m.Annotations))+len(managed(m.Labels))+len(managed(m.Annotations)) > 0
		}))
	})
}

// defaults returns the default values of labels or annotations.
func defaults(rules map[string]ruleMetadata) map[string]string {
	values := map[string]string{}
	for key, m := range rules {
		if m.Default != nil && len(validation.IsQualifiedName(key)) == 0 {
			values[key] = *m.Default
		}
	}
	return values
}

// covers reports whether a rule about metadata covers a kind.
func (m *metadataRule) covers(group, version, kind string) bool {
	return slices.ContainsFunc(m.Kinds, func(k string) bool { return star(k, kind) }) && ofGroup(m.APIGroups, group, version)
}

// Audit returns a message for each value of an object that a rule with the action audit matches. For an
// update it returns messages only about the changed values. It ignores rules that cannot be decoded, which
// the manager never writes.
func Audit(status *v1beta2.RuleStatusStatus, r Request) []string {
	var messages []string
	for i := range status.Rules {
		rule := &tenantRule{}
		if json.Unmarshal(status.Rules[i].Raw, rule) != nil || rule.Enforce == nil || rule.Enforce.Action != actionAudit || !speaksTo(rule, status.Audiences, r) {
			continue
		}
		for _, part := range auditedParts(r.Object) {
			var before []checkedValue
			if r.Old != nil {
				before = part.values(r.Old)
			}
			for _, v := range part.values(r.Object) {
				if v.value == "" && !part.empty || slices.ContainsFunc(before, func(b checkedValue) bool { return b.value == v.value && b.key == v.key }) {
					continue
				}
				if text := part.matches(rule.Enforce, v); text != "" {
					messages = append(messages, part.message(v, text))
				}
			}
		}
	}
	messages = append(messages, auditResources(status, r)...)
	slices.Sort(messages)
	return slices.Compact(messages)
}

func (p *auditedPart) message(v checkedValue, entry string) string {
	if v.value == "" {
		return fmt.Sprintf("empty hostname detected at %s by audit %s rule: %s", v.path, p.kind, entry)
	}
	return fmt.Sprintf("%s %q at %s matched audit %s rule: %s", p.name, v.value, v.path, p.kind, entry)
}

// speaksTo reports whether the audience of a rule contains the user of a request.
func speaksTo(rule *tenantRule, audiences []v1beta2.RuleAudience, r Request) bool {
	if len(rule.Audience) == 0 {
		return true
	}
	for _, a := range rule.Audience {
		switch a.Kind {
		case kindCustom:
			for _, custom := range audiences {
				if custom.Name == a.Name && (slices.Contains(custom.Users, r.User) || slices.ContainsFunc(custom.Groups, func(g string) bool { return slices.Contains(r.Groups, g) })) {
					return true
				}
			}
		case "Group":
			if slices.Contains(r.Groups, a.Name) {
				return true
			}
		default:
			if r.User == a.Name {
				return true
			}
		}
	}
	return false
}

// auditedParts returns the parts of rules that cover objects of the kind, with the paths and names in the
// API server's refusals.
func auditedParts(o *unstructured.Unstructured) []auditedPart {
	parts := []auditedPart{metadataPart(o, "label", "labels"), metadataPart(o, "annotation", "annotations")}
	kind := o.GroupVersionKind().GroupKind().String()
	switch {
	case kind == "Pod":
		parts = append(parts, podParts()...)
	case kind == "Service":
		parts = append(parts, serviceParts()...)
	case slices.Contains([]string{"Ingress.networking.k8s.io", "Route.route.openshift.io"}, kind) || strings.HasSuffix(kind, ".gateway.networking.k8s.io"):
		parts = append(parts, hostPart(o.GetKind()))
	}
	return parts
}

func metadataPart(o *unstructured.Unstructured, word, field string) auditedPart {
	group, version, kind := o.GroupVersionKind().Group, o.GroupVersionKind().Version, o.GetKind()
	return auditedPart{
		name: "metadata " + word, kind: "namespace",
		values: func(o *unstructured.Unstructured) []checkedValue {
			have := o.GetLabels()
			if field == "annotations" {
				have = o.GetAnnotations()
			}
			var all []checkedValue
			for _, key := range slices.Sorted(maps.Keys(have)) {
				if !reservedMetadata.MatchString(key) {
					all = append(all, checkedValue{value: have[key], key: key, path: "metadata." + field + "[" + strconv.Quote(key) + "]"})
				}
			}
			return all
		},
		matches: func(e *ruleEnforcement, v checkedValue) string {
			for _, m := range e.Metadata {
				if !m.covers(group, version, kind) {
					continue
				}
				rules := m.Labels
				if field == "annotations" {
					rules = m.Annotations
				}
				for _, key := range slices.Sorted(maps.Keys(rules)) {
					if !star(key, v.key) || rules[key].Managed != nil && *rules[key].Managed == v.value {
						continue
					}
					if len(rules[key].Values) == 0 {
						return key
					}
					if text := firstMatch(rules[key].Values, v.value); text != "" {
						return text
					}
				}
			}
			return ""
		},
	}
}

// ofGroup reports whether the groups of a rule contain a group with a version. A group of a rule may be a group, or a
// group and a version; an * in it matches any characters.
func ofGroup(groups []string, group, version string) bool {
	if len(groups) == 0 {
		groups = []string{""}
	}
	return slices.ContainsFunc(groups, func(g string) bool {
		if g == "" || g == "v1" {
			return group == ""
		}
		target := group
		if strings.Contains(g, "/") {
			target = schema.GroupVersion{Group: group, Version: version}.String()
		}
		return Matches(v1alpha1.ValuePattern(g), target)
	})
}

// star reports whether an expression, in which an * that follows no dot matches any characters, matches a
// text.
func star(expression, text string) bool {
	r, err := regexp.Compile("^(?:" + strings.ReplaceAll(strings.ReplaceAll(expression, ".*", "*"), "*", ".*") + ")$")
	return err == nil && r.MatchString(text)
}

// firstMatch returns the text of the first expression that matches a value, or "".
func firstMatch(all []ruleExpression, value string) string {
	for _, e := range all {
		if e.matches(value) {
			return e.String()
		}
	}
	return ""
}

func (e ruleExpression) matches(value string) bool {
	hit := slices.Contains(e.Exact, value)
	if !hit && e.Exp != "" {
		r, err := regexp.Compile(e.Exp)
		hit = err == nil && r.MatchString(value)
	}
	return hit != e.Negate
}

// String returns the expression in the form of the API server's refusals.
func (e ruleExpression) String() string {
	not := map[bool]string{true: "not "}[e.Negate]
	var parts []string
	if len(e.Exact) > 0 {
		parts = append(parts, not+"exact: "+strings.Join(e.Exact, ", "))
	}
	if e.Exp != "" {
		parts = append(parts, not+"exp: "+e.Exp)
	}
	return strings.Join(parts, "; ")
}

// convert converts an object to its type. The API server has already decoded the object, so the conversion
// cannot fail; if it failed, the object would have no values.
func convert[T any](o *unstructured.Unstructured) *T {
	out := new(T)
	content, err := o.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(content, out)
	}
	if err != nil {
		return new(T)
	}
	return out
}

func podParts() []auditedPart {
	return []auditedPart{
		{
			name: "image", kind: "registry", values: func(o *unstructured.Unstructured) []checkedValue { return images(convert[corev1.Pod](o)) },
			lists: func(e *ruleEnforcement, v checkedValue) bool { return e.ofImages(v.target) },
			matches: func(e *ruleEnforcement, v checkedValue) string {
				if !e.ofImages(v.target) {
					return ""
				}
				for _, r := range e.Workloads.Registries {
					if r.matches(v.value) {
						return r.String()
					}
				}
				return ""
			},
		},
		{
			// The API server writes this scheduler into Pods that name no scheduler.
			name: "scheduler", kind: "namespace", unlisted: corev1.DefaultSchedulerName,
			values: func(o *unstructured.Unstructured) []checkedValue {
				return []checkedValue{{value: convert[corev1.Pod](o).Spec.SchedulerName, path: "spec.schedulerName"}}
			},
			lists:   func(e *ruleEnforcement, _ checkedValue) bool { return len(e.Workloads.Schedulers) > 0 },
			matches: func(e *ruleEnforcement, v checkedValue) string { return firstMatch(e.Workloads.Schedulers, v.value) },
		},
		{
			name: "QoS class", kind: "namespace",
			values: func(o *unstructured.Unstructured) []checkedValue {
				return []checkedValue{{value: string(qosClass(convert[corev1.Pod](o))), path: "status.qosClass"}}
			},
			lists:   func(e *ruleEnforcement, _ checkedValue) bool { return len(e.Workloads.QoSClasses) > 0 },
			matches: func(e *ruleEnforcement, v checkedValue) string { return among(e.Workloads.QoSClasses, v.value) },
		},
	}
}

func among(all []string, value string) string {
	if slices.Contains(all, value) {
		return value
	}
	return ""
}

func images(pod *corev1.Pod) []checkedValue {
	var all []checkedValue
	add := func(image, list string, i int, target string) {
		all = append(all, checkedValue{value: image, path: fmt.Sprintf("%s[%d]", list, i), target: target})
	}
	for i, c := range pod.Spec.InitContainers {
		add(c.Image, "initContainers", i, "pod/initcontainers")
	}
	for i, c := range pod.Spec.Containers {
		add(c.Image, "containers", i, "pod/containers")
	}
	for i, c := range pod.Spec.EphemeralContainers {
		add(c.Image, "ephemeralContainers", i, "pod/ephemeralcontainers")
	}
	for i, v := range pod.Spec.Volumes {
		if v.Image != nil {
			all = append(all, checkedValue{value: v.Image.Reference, path: fmt.Sprintf("volumes[%d](%s)", i, v.Name), target: "pod/volumes"})
		}
	}
	return all
}

// qosClass returns the QoS class that the API server gives a Pod. The API server sets the class after the
// mutating webhooks.
func qosClass(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	var all []corev1.ResourceRequirements
	if r := pod.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		all = append(all, *r)
	} else {
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			all = append(all, c.Resources)
		}
	}
	guaranteed, any := len(all) > 0, false
	for _, r := range all {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			any = any || !request.IsZero() || !limit.IsZero()
			guaranteed = guaranteed && !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !any:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func serviceParts() []auditedPart {
	of := func(kind corev1.ServiceType, values func(s *corev1.Service) []checkedValue) func(*unstructured.Unstructured) []checkedValue {
		return func(o *unstructured.Unstructured) []checkedValue {
			s := convert[corev1.Service](o)
			if s.Spec.Type != kind && (kind != corev1.ServiceTypeNodePort || s.Spec.Type != corev1.ServiceTypeLoadBalancer) {
				return nil
			}
			return values(s)
		}
	}
	return []auditedPart{
		{
			name: "service type", kind: "namespace",
			values: func(o *unstructured.Unstructured) []checkedValue {
				return []checkedValue{{value: string(convert[corev1.Service](o).Spec.Type), path: "spec.type"}}
			},
			lists:   func(e *ruleEnforcement, _ checkedValue) bool { return len(e.Services.Types) > 0 },
			matches: func(e *ruleEnforcement, v checkedValue) string { return among(e.Services.Types, v.value) },
		},
		{
			name: "externalName hostname", kind: "namespace",
			values: of(corev1.ServiceTypeExternalName, func(s *corev1.Service) []checkedValue {
				return []checkedValue{{value: s.Spec.ExternalName, path: "spec.externalName"}}
			}),
			lists: func(e *ruleEnforcement, _ checkedValue) bool { return len(e.Services.ExternalNames.Hostnames) > 0 },
			matches: func(e *ruleEnforcement, v checkedValue) string {
				return firstMatch(e.Services.ExternalNames.Hostnames, v.value)
			},
		},
		{
			name: "loadBalancer CIDR", kind: "namespace",
			values: of(corev1.ServiceTypeLoadBalancer, func(s *corev1.Service) []checkedValue {
				all := []checkedValue{{value: s.Spec.LoadBalancerIP, path: "spec.loadBalancerIP"}}
				for i, r := range s.Spec.LoadBalancerSourceRanges {
					all = append(all, checkedValue{value: r, path: fmt.Sprintf("spec.loadBalancerSourceRanges[%d]", i)})
				}
				return all
			}),
			lists: func(e *ruleEnforcement, _ checkedValue) bool { return len(e.Services.LoadBalancers.CIDRs) > 0 },
			matches: func(e *ruleEnforcement, v checkedValue) string {
				return network(e.Services.LoadBalancers.CIDRs, v.value)
			},
		},
		{
			name: "nodePort", kind: "namespace",
			values: of(corev1.ServiceTypeNodePort, func(s *corev1.Service) []checkedValue {
				var all []checkedValue
				for i, p := range s.Spec.Ports {
					if p.NodePort != 0 {
						all = append(all, checkedValue{value: strconv.Itoa(int(p.NodePort)), path: fmt.Sprintf("spec.ports[%d].nodePort", i)})
					}
				}
				return all
			}),
			lists: func(e *ruleEnforcement, _ checkedValue) bool { return len(e.Services.NodePorts.Ports) > 0 },
			matches: func(e *ruleEnforcement, v checkedValue) string {
				for _, p := range e.Services.NodePorts.Ports {
					if port, err := strconv.Atoi(v.value); err == nil && int32(port) >= p.From && int32(port) <= p.To { //nolint:gosec // a port
						return fmt.Sprintf("%d-%d", p.From, p.To)
					}
				}
				return ""
			},
		},
	}
}

// network returns the network in a list that contains an address or a network, or "".
func network(all []string, value string) string {
	inner, ok := addressRange(value)
	if !ok {
		return ""
	}
	for _, text := range all {
		if outer, ok := addressRange(text); ok && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr()) {
			return text
		}
	}
	return ""
}

// hostPart returns the part about the hosts of Ingresses, Routes, Gateways and the routes of Gateway API.
// An empty host stands for all hosts, which an audit reports.
func hostPart(kind string) auditedPart {
	return auditedPart{
		name: "ingress hostname", kind: "namespace", empty: true,
		values: hosts,
		lists:  func(e *ruleEnforcement, _ checkedValue) bool { return e.ofHosts(kind) },
		matches: func(e *ruleEnforcement, v checkedValue) string {
			if !e.ofHosts(kind) {
				return ""
			}
			if v.value == "" {
				return e.Ingress.Hostnames[0].String()
			}
			return firstMatch(e.Ingress.Hostnames, v.value)
		},
	}
}

func hosts(o *unstructured.Unstructured) []checkedValue {
	switch o.GetKind() {
	case "Ingress":
		return ingressHosts(o)
	case "Route":
		host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
		return []checkedValue{{value: host, path: "spec.host"}}
	case "Gateway", "ListenerSet":
		var all []checkedValue
		listeners, _, _ := unstructured.NestedSlice(o.Object, "spec", "listeners")
		for i, l := range listeners {
			listener, _ := l.(map[string]any)
			host, _, _ := unstructured.NestedString(listener, "hostname")
			all = append(all, checkedValue{value: host, path: fmt.Sprintf("spec.listeners[%d].hostname", i)})
		}
		return orEmpty(all, "spec.listeners[].hostname")
	}
	var all []checkedValue
	names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hostnames")
	for i, host := range names {
		all = append(all, checkedValue{value: host, path: fmt.Sprintf("spec.hostnames[%d]", i)})
	}
	return orEmpty(all, "spec.hostnames[]")
}

func orEmpty(all []checkedValue, path string) []checkedValue {
	if len(all) > 0 {
		return all
	}
	return []checkedValue{{path: path}}
}

func ingressHosts(o *unstructured.Unstructured) []checkedValue {
	var all []checkedValue
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	for i, r := range rules {
		rule, _ := r.(map[string]any)
		host, _, _ := unstructured.NestedString(rule, "host")
		all = append(all, checkedValue{value: host, path: fmt.Sprintf("spec.rules[%d].host", i)})
	}
	entries, _, _ := unstructured.NestedSlice(o.Object, "spec", "tls")
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(entry, "hosts")
		if len(names) == 0 {
			all = append(all, checkedValue{path: fmt.Sprintf("spec.tls[%d].hosts", i)})
		}
		for j, host := range names {
			all = append(all, checkedValue{value: host, path: fmt.Sprintf("spec.tls[%d].hosts[%d]", i, j)})
		}
	}
	return orEmpty(all, "spec.rules[].host")
}
