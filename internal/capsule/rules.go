package capsule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/template"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// tenantRule is an entry of spec.rules of a Capsule Tenant.
type tenantRule struct {
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Audience          []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"audience,omitempty"`
	Enforce     *ruleEnforcement `json:"enforce,omitempty"`
	Permissions struct {
		Bindings []struct {
			ClusterRoleName string            `json:"clusterRoleName"`
			Subjects        []rbacv1.Subject  `json:"subjects"`
			Labels          map[string]string `json:"labels,omitempty"`
			Annotations     map[string]string `json:"annotations,omitempty"`
		} `json:"bindings,omitempty"`
		Promotions []rulePromotion `json:"promotions,omitempty"`
	} `json:"permissions,omitzero"`
	Quota []struct {
		Name string `json:"name"`
		corev1.ResourceQuotaSpec
	} `json:"quota,omitempty"`
}

// rulePromotion gives roles to the promoted service accounts that a selector selects by their labels.
type rulePromotion struct {
	ClusterRoles []string              `json:"clusterRoles,omitempty"`
	Selector     *metav1.LabelSelector `json:"selector,omitempty"`
}

// ruleEnforcement is the part of a rule that allows, denies or audits values.
type ruleEnforcement struct {
	Action    string `json:"action,omitempty"`
	Workloads struct {
		Targets    []string `json:"targets,omitempty"`
		QoSClasses []string `json:"qosClasses,omitempty"`
		Registries []struct {
			ruleExpression
			Policy []string `json:"policy,omitempty"`
		} `json:"registries,omitempty"`
		Schedulers []ruleExpression `json:"schedulers,omitempty"`
		Resources  *resourceRules   `json:"resources,omitempty"`
	} `json:"workloads,omitzero"`
	Services struct {
		Types         []string `json:"types,omitempty"`
		LoadBalancers struct {
			CIDRs []string `json:"cidrs,omitempty"`
		} `json:"loadBalancers,omitzero"`
		ExternalNames struct {
			Hostnames []ruleExpression `json:"hostnames,omitempty"`
		} `json:"externalNames,omitzero"`
		NodePorts struct {
			Ports []struct{ From, To int32 } `json:"ports,omitempty"`
		} `json:"nodePorts,omitzero"`
	} `json:"services,omitzero"`
	Ingress struct {
		Types     []string         `json:"types,omitempty"`
		Hostnames []ruleExpression `json:"hostnames,omitempty"`
	} `json:"ingress,omitzero"`
	Metadata []metadataRule `json:"metadata,omitempty"`
}

// metadataRule is the part of a rule about the labels and annotations of some kinds.
type metadataRule struct {
	APIGroups   []string                `json:"apiGroups,omitempty"`
	Kinds       []string                `json:"kinds"`
	Labels      map[string]ruleMetadata `json:"labels,omitempty"`
	Annotations map[string]ruleMetadata `json:"annotations,omitempty"`
}

// ruleExpression matches a text by its exact value or by a regular expression.
type ruleExpression struct {
	Exact  []string `json:"exact,omitempty"`
	Exp    string   `json:"exp,omitempty"`
	Negate bool     `json:"negate,omitempty"`
}

// ruleMetadata is the part of a rule about one label or annotation.
type ruleMetadata struct {
	Required bool             `json:"required,omitempty"`
	Values   []ruleExpression `json:"values,omitempty"`
	Default  *string          `json:"default,omitempty"`
	Managed  *string          `json:"managed,omitempty"`
}

// Actions of rules.
const (
	actionAllow = "allow"
	actionDeny  = "deny"
	actionAudit = "audit"
)

// anyScheduler is the entry of workloads.schedulers that allows every scheduler.
const anyScheduler = "*"

// kindCustom is the kind of audiences that Capsule defines.
const kindCustom = "Custom"

// kindNamespace is the kind in rules about the metadata of namespaces.
const kindNamespace = "Namespace"

// Custom audiences. The controllers of the cluster are exempt from rules, so the last audience is empty.
const (
	audienceUsers          = "CapsuleUser"
	audienceOwners         = "TenantOwner"
	audienceAdministrators = "Administrator"
	audienceControllers    = "Controller"
)

var (
	customAudiences = []string{audienceUsers, audienceOwners, audienceAdministrators, audienceControllers}
	// ownerAudiences contain the owners of the tenant.
	ownerAudiences = []string{audienceUsers, audienceOwners}
)

// Audiences returns the users of the custom audiences that the rules of a Tenant name. result is the
// translation of the Tenant, which contains its owners; configuration may be nil.
func Audiences(tenant *v1beta2.Tenant, configuration *v1beta2.CapsuleConfiguration, result *Result) []v1beta2.RuleAudience {
	named := map[string]bool{}
	for i := range tenant.Spec.Rules {
		rule, err := decodeRule(tenant.Spec.Rules[i].Raw)
		if err != nil {
			continue // [Rules] reports the error
		}
		for _, a := range rule.Audience {
			if a.Kind == kindCustom {
				named[a.Name] = true
			}
		}
	}
	var all []v1beta2.RuleAudience
	for _, name := range slices.Sorted(maps.Keys(named)) {
		audience := v1beta2.RuleAudience{Name: name}
		for _, o := range result.Spec.Owners {
			administrator := slices.ContainsFunc(result.Administrators, func(a v1alpha1.Owner) bool { return SameOwner(a, o) })
			if slices.Contains(ownerAudiences, name) && !administrator {
				audienceOwner(&audience, o)
			}
		}
		if configuration != nil {
			spec := &configuration.Spec
			var members []v1beta2.Identity
			switch name {
			case audienceAdministrators:
				members = spec.Administrators
			case audienceUsers:
				members = spec.Users
				audience.Users, audience.Groups = append(audience.Users, spec.UserNames...), append(audience.Groups, spec.UserGroups...)
			}
			for _, m := range members {
				if o, err := owner(m); err == nil {
					audienceOwner(&audience, o)
				}
			}
		}
		slices.Sort(audience.Users)
		slices.Sort(audience.Groups)
		audience.Users, audience.Groups = slices.Compact(audience.Users), slices.Compact(audience.Groups)
		all = append(all, audience)
	}
	return all
}

func audienceOwner(a *v1beta2.RuleAudience, o v1alpha1.Owner) {
	switch o.Kind {
	case rbacv1.GroupKind:
		a.Groups = append(a.Groups, o.Name)
	case rbacv1.ServiceAccountKind:
		a.Users = append(a.Users, "system:serviceaccount:"+o.Namespace+":"+o.Name)
	default:
		a.Users = append(a.Users, o.Name)
	}
}

// ofNamespaces reports whether the rule covers the metadata of namespaces. Only a rule that names the kind
// Namespace does.
func (r *tenantRule) ofNamespaces() bool {
	if r.Enforce == nil {
		return false
	}
	for _, m := range r.Enforce.Metadata {
		if slices.Contains(m.Kinds, kindNamespace) {
			return true
		}
	}
	return false
}

// rules translates spec.rules. The API server enforces them with the RuleStatus in each namespace with
// [v1beta2.LabelRules]; the Tenant of Tenure gets the label. If the limits of the Tenant of Tenure would
// refuse values that a rule allows, it gets wider limits.
func (t *translation) rules() {
	if len(t.tenant.Spec.Rules) == 0 {
		return
	}
	for i := range t.tenant.Spec.Rules {
		t.rule(fmt.Sprintf("spec.rules[%d]", i), t.tenant.Spec.Rules[i].Raw)
	}
	t.managedTwice()
	t.spec.Namespaces.Labels[v1beta2.LabelRules] = v1beta2.RulesEnforced
	if NeedsWebhook(t.tenant) {
		t.spec.Namespaces.Labels[v1beta2.LabelRules] = v1beta2.RulesAudited
	}
}

// misread describes the field of a rule that Tenure does not know. For an older field, it names the current
// form.
func misread(err error) string {
	var value *json.UnmarshalTypeError
	switch reason := strings.TrimPrefix(err.Error(), "json: "); {
	case errors.As(err, &value):
		return fmt.Sprintf("the field %s cannot be a JSON value of type %s", value.Field, value.Value)
	case reason == `unknown field "registries"`:
		return reason + ": write the images as enforce.workloads.registries, with exp in the place of url and the action allow, as Capsule v0.14 reads them"
	default:
		return "Tenure does not understand it: " + reason
	}
}

func (t *translation) rule(field string, raw []byte) {
	rule, err := decodeRule(raw)
	if err != nil {
		t.unenforced(field, misread(err))
		return
	}
	if rule.NamespaceSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(rule.NamespaceSelector); err != nil {
			t.note(Refused, field+".namespaceSelector", "it is no selector: %v", err)
		}
	}
	for i, a := range rule.Audience {
		switch at := fmt.Sprintf("%s.audience[%d]", field, i); {
		case strings.TrimSpace(a.Name) == "":
			t.note(Refused, at+".name", "it is empty, so the rule would apply to nobody")
		case a.Kind == "User" || a.Kind == "Group" || a.Kind == "ServiceAccount":
		case a.Kind != kindCustom || !slices.Contains(customAudiences, a.Name):
			t.unenforced(at, fmt.Sprintf("an audience %s of kind %s is not known", a.Name, a.Kind))
		case rule.ofNamespaces() && !slices.Contains(ownerAudiences, a.Name):
			t.unenforced(at, "rules about the metadata of namespaces do not know the audience "+a.Name)
		}
	}
	t.ruleQuotas(field+".quota", rule)
	t.checkPromotions(field+".permissions.promotions", rule.Permissions.Promotions)
	t.ruleBindings(field, rule)
	if rule.Enforce != nil {
		t.enforcement(field+".enforce", rule.Enforce)
		t.ruleMetadata(field+".enforce.metadata", rule)
		t.ruleServices(field+".enforce.services", rule)
	}
}

// ruleQuotas translates the quotas of a rule: bounds for all namespaces that the rule selects, together.
func (t *translation) ruleQuotas(field string, rule *tenantRule) {
	for i := range rule.Quota {
		q, at := &rule.Quota[i], fmt.Sprintf("%s[%d]", field, i)
		translated := v1alpha1.NewTenantQuota(quotaOfRule+q.Name, "Tenant", q.ResourceQuotaSpec)
		translated.NamespaceSelector = rule.NamespaceSelector.DeepCopy()
		switch twice := slices.ContainsFunc(t.spec.Quotas, func(other v1alpha1.TenantQuota) bool { return other.Name == translated.Name }); {
		case len(validation.IsDNS1123Label(q.Name)) > 0:
			t.note(Refused, at+".name", "it is a name of lower-case letters, digits and hyphens, as of a label of a domain")
		case twice:
			t.note(Refused, at+".name", "another quota of spec.rules has the name %s", q.Name)
		case len(q.Hard) == 0:
			t.note(Reported, at, "without hard it bounds nothing")
		case len(t.spec.Quotas) == maxQuotas:
			t.note(Refused, at, "at most %d quotas can be kept, with those of spec.resourceQuotas", maxQuotas)
		default:
			t.spec.Quotas = append(t.spec.Quotas, translated)
		}
	}
}

// decodeRule decodes a rule. It returns an error for fields that Tenure does not know.
func decodeRule(raw []byte) (*tenantRule, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	rule := &tenantRule{}
	if err := decoder.Decode(rule); err != nil {
		return nil, err
	}
	return rule, nil
}

// ruleBindings adds the role bindings of a rule.
func (t *translation) ruleBindings(field string, rule *tenantRule) {
	if n := len(t.spec.RoleBindings) + len(rule.Permissions.Bindings); n > maxBindings {
		t.note(Refused, field+".permissions.bindings", "with the other role bindings of the Tenant there are %d, and at most %d can be kept", n, maxBindings)
		return
	}
	for i, b := range rule.Permissions.Bindings {
		t.binding(fmt.Sprintf("%s.permissions.bindings[%d]", field, i), v1beta2.AdditionalRoleBinding{
			ClusterRoleName: b.ClusterRoleName, Subjects: b.Subjects, Labels: b.Labels, Annotations: b.Annotations,
		}, rule.NamespaceSelector)
	}
}

// enforcement checks the values of a rule, and widens the limits that the rule replaces.
func (t *translation) enforcement(field string, e *ruleEnforcement) {
	if !slices.Contains([]string{"", actionAllow, actionDeny, actionAudit}, e.Action) {
		t.note(Refused, field+".action", "%q is none of allow, deny and audit", e.Action)
	}
	t.checkNames(field, e)
	t.checkResources(field+".workloads", e)
	for i, r := range e.Workloads.Registries {
		t.ruleExpressions(fmt.Sprintf("%s.workloads.registries[%d]", field, i), r.ruleExpression)
	}
	t.ruleExpressions(field+".workloads.schedulers", e.Workloads.Schedulers...)
	if len(e.Workloads.Schedulers) > 0 {
		t.spec.Workloads.Schedulers = []string{anyScheduler}
	}
	t.ruleExpressions(field+".services.externalNames.hostnames", e.Services.ExternalNames.Hostnames...)
	t.ruleExpressions(field+".ingress.hostnames", e.Ingress.Hostnames...)
	for i, p := range e.Services.NodePorts.Ports {
		if p.From < 1 || p.To > 65535 || p.From > p.To {
			t.note(Refused, fmt.Sprintf("%s.services.nodePorts.ports[%d]", field, i), "%d to %d is no range of ports", p.From, p.To)
		}
	}
}

// checkNames refuses names that a rule would compare in vain: the policies would ignore this part of the rule.
func (t *translation) checkNames(field string, e *ruleEnforcement) {
	for _, part := range []struct {
		field        string
		given, known []string
	}{
		{"workloads.targets", e.Workloads.Targets, ruleTargets},
		{"workloads.qosClasses", e.Workloads.QoSClasses, qosClasses},
		{"services.types", e.Services.Types, serviceTypes},
		{"ingress.types", e.Ingress.Types, ingressTypes},
	} {
		for i, name := range part.given {
			if !slices.Contains(part.known, name) {
				t.note(Refused, fmt.Sprintf("%s.%s[%d]", field, part.field, i), "%q is none of %s", name, strings.Join(part.known, ", "))
			}
		}
	}
	switch {
	case len(e.Ingress.Hostnames) > 0 && len(e.Ingress.Types) == 0:
		t.note(Refused, field+".ingress.types", "hostnames need the kinds that they apply to, such as Ingress")
	case len(e.Ingress.Hostnames) == 0 && len(e.Ingress.Types) > 0:
		t.note(Refused, field+".ingress.hostnames", "types need the hostnames that they may have, or not")
	}
	for i, m := range e.Metadata {
		at := fmt.Sprintf("%s.metadata[%d]", field, i)
		if len(m.Kinds) == 0 {
			t.note(Refused, at+".kinds", "it is empty, so the rule would apply to no object")
		}
		for part, names := range map[string][]string{"kinds": m.Kinds, "apiGroups": m.APIGroups} {
			for j, name := range names {
				if name != strings.TrimSpace(name) || name == "" && part == "kinds" {
					t.note(Refused, fmt.Sprintf("%s.%s[%d]", at, part, j), "%q is no name: no object has it", name)
				}
			}
		}
	}
}

// Names in rules.
var (
	ruleTargets  = []string{targetPod, "pod/initcontainers", "pod/ephemeralcontainers", "pod/containers", "pod/volumes"}
	qosClasses   = []string{string(corev1.PodQOSGuaranteed), string(corev1.PodQOSBurstable), string(corev1.PodQOSBestEffort)}
	ingressTypes = []string{"Ingress", "Route", "ListenerSet", "HTTPRoute", "Gateway", "TLSRoute", "GRPCRoute"}
)

// everywhere reports whether the rule allows values in all namespaces and to all users. The policies for
// the rules then refuse all values that no rule allows, so the Tenant's limits need not.
func (r *tenantRule) everywhere() bool {
	return r.Enforce.Action == actionAllow && r.NamespaceSelector == nil && len(r.Audience) == 0
}

// ruleServices lets Services have the types and request the addresses that a rule allows.
func (t *translation) ruleServices(field string, rule *tenantRule) {
	services := &rule.Enforce.Services
	t.ruleTypes(rule)
	for i, text := range services.LoadBalancers.CIDRs {
		prefix, ok := addressRange(text)
		if !ok {
			t.note(Refused, fmt.Sprintf("%s.loadBalancers.cidrs[%d]", field, i), "%q is neither an address nor a network: write it in its usual form, such as 192.0.2.1 or 192.0.2.0/24", text)
			continue
		}
		switch {
		case rule.everywhere():
			t.loadBalancerIPs("0.0.0.0/0", "::/0")
		case rule.Enforce.Action == actionAllow:
			t.loadBalancerIPs(v1alpha1.AddressRange(prefix.Masked().String()))
		}
	}
	if out := t.spec.Network.Services; out != nil {
		t.bounded(field+".loadBalancers.cidrs", len(out.LoadBalancerIPs))
	}
}

// addressRange reads a network, or an address as the network with this address only. The policies of the API
// server cannot read an IPv4 address that is written as an IPv6 address, so addressRange does not either.
func addressRange(text string) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(text)
	if address, single := netip.ParseAddr(text); single == nil {
		prefix, err = address.Prefix(address.BitLen())
	}
	return prefix, err == nil && !prefix.Addr().Is4In6() && prefix.Addr().Zone() == ""
}

func (t *translation) loadBalancerIPs(ranges ...v1alpha1.AddressRange) {
	out := t.serviceLimits()
	for _, r := range ranges {
		if !slices.Contains(out.LoadBalancerIPs, r) {
			out.LoadBalancerIPs = append(out.LoadBalancerIPs, r)
		}
	}
}

// ruleTypes adds the Service types that a rule allows directly or through names and ports. A Tenant with
// allowedServices has only the types in allowedServices, as with Capsule.
func (t *translation) ruleTypes(rule *tenantRule) {
	if o := t.tenant.Spec.ServiceOptions; rule.Enforce.Action != actionAllow || o != nil && o.AllowedServices != nil {
		return
	}
	services := &rule.Enforce.Services
	types := slices.Clone(services.Types)
	if len(types) > 0 && rule.everywhere() {
		types = []string{string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeExternalName)}
	}
	if len(services.ExternalNames.Hostnames) > 0 {
		types = append(types, string(corev1.ServiceTypeExternalName))
	}
	if len(services.NodePorts.Ports) > 0 {
		types = append(types, string(corev1.ServiceTypeNodePort))
	}
	if len(types) == 0 {
		return
	}
	out := t.serviceLimits()
	if out.Types == nil {
		// This is the default of Tenure.
		out.Types = []string{string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeLoadBalancer)}
	}
	for _, kind := range types {
		if slices.Contains(serviceTypes, kind) && !slices.Contains(out.Types, kind) {
			out.Types = append(out.Types, kind)
		}
	}
}

var serviceTypes = []string{
	string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeExternalName),
}

// serviceLimits returns the limits of Services in the Tenant of Tenure.
func (t *translation) serviceLimits() *v1alpha1.Services {
	if t.spec.Network.Services == nil {
		t.spec.Network.Services = &v1alpha1.Services{}
	}
	return t.spec.Network.Services
}

func (t *translation) ruleMetadata(field string, rule *tenantRule) {
	for i := range rule.Enforce.Metadata {
		m := &rule.Enforce.Metadata[i]
		at := fmt.Sprintf("%s[%d]", field, i)
		if content, err := json.Marshal(m); err == nil && slices.Contains(m.Kinds, kindNamespace) && isTemplate(string(content)) {
			t.unenforced(at, "templates are not filled in for namespaces")
		}
		for part, all := range map[string]map[string]ruleMetadata{".labels": m.Labels, ".annotations": m.Annotations} {
			for _, key := range slices.Sorted(maps.Keys(all)) {
				t.ruleKey(at+part, key)
				t.ruleExpressions(at+part+"["+key+"].values", all[key].Values...)
				if all[key].Default != nil && slices.Equal(m.Kinds, []string{kindNamespace}) {
					t.note(Reported, at+part+"["+key+"].default", "it is not set in namespaces: use namespaceOptions.additionalMetadataList")
				}
			}
		}
		t.managedMetadata(at, rule, m)
	}
}

// ruleKey checks a key of a rule's metadata: a regular expression in which an * that follows no dot matches
// any characters.
func (t *translation) ruleKey(field, key string) {
	expression := strings.ReplaceAll(strings.ReplaceAll(key, ".*", "*"), "*", ".*")
	if err := compiles(expression); err != nil {
		t.note(Refused, field+"["+key+"]", "%v", err)
	}
}

func (t *translation) ruleExpressions(field string, all ...ruleExpression) {
	for i, e := range all {
		at := fmt.Sprintf("%s[%d]", field, i)
		if len(e.Exact) == 0 && e.Exp == "" {
			t.note(Refused, at, "it has neither exact nor exp")
			continue
		}
		if isTemplate(e.Exp) {
			continue
		}
		if err := compiles(e.Exp); err != nil {
			t.note(Refused, at+".exp", "%v", err)
		}
	}
}

func isTemplate(text string) bool { return strings.Contains(text, "{{") }

// Rules returns the rules of a Tenant that apply in a namespace, in the form of Capsule's RuleStatus: in
// the order of the Tenant, without the parts that select namespaces or give rights, and with expanded
// templates. Templates read the metadata of the Tenant and of the namespace. It returns an error that names
// the rule if a rule, its selector or its template is not valid.
func Rules(tenant *v1beta2.Tenant, namespace *metav1.ObjectMeta) ([]v1beta2.Unknown, error) {
	var all []v1beta2.Unknown
	data := map[string]any{"tenant": templateData(&tenant.ObjectMeta), "namespace": templateData(namespace)}
	for i := range tenant.Spec.Rules {
		rule, err := decodeRule(tenant.Spec.Rules[i].Raw)
		if err != nil {
			return nil, fmt.Errorf("spec.rules[%d]: %w", i, err)
		}
		fits, err := fitsNamespace(rule.NamespaceSelector, namespace)
		if err != nil {
			return nil, fmt.Errorf("spec.rules[%d].namespaceSelector: %w", i, err)
		}
		if rule.Enforce == nil || !fits {
			continue
		}
		body, err := ruleBody(tenant.Spec.Rules[i].Raw, data)
		if err != nil {
			return nil, fmt.Errorf("spec.rules[%d]: %w", i, err)
		}
		all = append(all, body)
	}
	return all, nil
}

func fitsNamespace(selector *metav1.LabelSelector, namespace *metav1.ObjectMeta) (bool, error) {
	if selector == nil {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	return s.Matches(labels.Set(namespace.Labels)), nil
}

// templateData returns the data of an object that templates can read. It contains all maps, so that the
// function index fails for missing keys and not for a missing map.
func templateData(o *metav1.ObjectMeta) map[string]any {
	text := func(m map[string]string) map[string]string {
		if m == nil {
			return map[string]string{}
		}
		return m
	}
	return map[string]any{"metadata": map[string]any{"name": o.Name, "labels": text(o.Labels), "annotations": text(o.Annotations)}}
}

// ruleBody returns the audience and the enforcement of a rule.
func ruleBody(raw []byte, data map[string]any) (v1beta2.Unknown, error) {
	var whole map[string]any
	if err := json.Unmarshal(raw, &whole); err != nil {
		return v1beta2.Unknown{}, err
	}
	body := map[string]any{"enforce": whole["enforce"]}
	if audience, ok := whole["audience"]; ok {
		body["audience"] = audience
	}
	filled, err := fill(body, data)
	if err != nil {
		return v1beta2.Unknown{}, err
	}
	if err := checkRendered(filled); err != nil {
		return v1beta2.Unknown{}, err
	}
	if err := checkManaged(body["enforce"]); err != nil {
		return v1beta2.Unknown{}, err
	}
	if enforce, ok := body["enforce"].(map[string]any); ok {
		nameCore(enforce)
		if _, set := enforce["action"]; !set {
			enforce["action"] = actionDeny
		}
	}
	content, err := json.Marshal(body)
	out := v1beta2.Unknown{}
	out.Raw = content
	return out, err
}

// nameCore writes v1 for the core group in the kinds of metadata rules, as Capsule does.
func nameCore(enforce map[string]any) {
	rules, _ := enforce["metadata"].([]any)
	for _, r := range rules {
		rule, _ := r.(map[string]any)
		groups, _ := rule["apiGroups"].([]any)
		for i, g := range groups {
			if g == "" {
				groups[i] = "v1"
			}
		}
	}
}

// maxRendered is the maximum length of the output of a template, in bytes.
const maxRendered = 512

// fill expands the templates in all texts of a value, which it changes. The output of a template stays
// within its own text, and cannot add fields.
func fill(value any, data map[string]any) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return render(v, data)
	case []any:
		for i := range v {
			if v[i], err = fill(v[i], data); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = fill(v[key], data); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

func render(text string, data map[string]any) (string, error) {
	if !isTemplate(text) {
		return text, nil
	}
	parsed, err := template.New("rule").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", fmt.Errorf("it is no template: %w", err)
	}
	out := &bytes.Buffer{}
	if err := parsed.Execute(out, data); err != nil {
		return "", fmt.Errorf("cannot fill in the template: %w", err)
	}
	if out.Len() > maxRendered {
		return "", fmt.Errorf("the template becomes longer than %d bytes", maxRendered)
	}
	return out.String(), nil
}

// checkRendered checks the regular expressions that templates produced. The API server would refuse every
// object if an expression did not compile.
func checkRendered(value any) error {
	switch v := value.(type) {
	case []any:
		for i := range v {
			if err := checkRendered(v[i]); err != nil {
				return err
			}
		}
	case map[string]any:
		if expression, ok := v["exp"].(string); ok {
			if err := compiles(expression); err != nil {
				return err
			}
		}
		for key := range v {
			if err := checkRendered(v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}
