package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults is the name of the policy that sets default classes and metadata on the objects of tenants.
const Defaults = Prefix + "defaults"

// maxPulled is the maximum number of containers, and of init containers, that get a pull policy.
const maxPulled = 64

// DefaultsPolicy returns the policy, and its binding, that sets defaults in tenants' namespaces. Objects
// get their default classes. Pods, Services and EndpointSlices get the labels and annotations of the
// tenant. Pods get the pull policy of the tenant; Pods and DaemonSets get the nodes of the tenant. Claims
// in namespaces of Capsule's Tenants get a selector for the volumes of their Tenant. The policy reads the
// TenantParameters of the namespace. It needs Kubernetes 1.36, where MutatingAdmissionPolicies are stable.
// No rule depends on it: the rules about classes check the object that it returns.
//
// An update of an object does not get a class, since the fields of most kinds are immutable; only an
// Ingress that loses its class gets the default.
func DefaultsPolicy() (*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	fail := admissionregistrationv1.Fail
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: Defaults, Labels: labels(), Annotations: map[string]string{
			"tenure.dev/title": "objects get the classes and the metadata that are their tenant's default",
		}},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind:          paramKind("TenantParameters"),
			FailurePolicy:      &fail,
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: withDefaults(),
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{
					on(writes, "", "pods", "services"), on(writes, "discovery.k8s.io", "endpointslices"), on(creates, "", "persistentvolumeclaims"),
					on(writes, groupNetworking, "ingresses"), on(creates, groupGateway, "gateways"),
					// The controller of a DaemonSet creates a Pod for each node that matches the template.
					on(writes, "apps", "daemonsets"),
				},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "applies", Expression: "request.resource.resource == 'persistentvolumeclaims' || has(params.spec.defaultClasses) || " + ownMetadata + ".hasValue() || " + optional("workloads.nodes") + ".hasValue() || " + optional("workloads.images.pullPolicy") + ".hasValue()",
			}},
			Variables: []admissionregistrationv1.Variable{
				{Name: "metadata", Expression: "request.resource.resource in ['pods', 'services', 'endpointslices'] ? " + ownMetadata + ".orValue({}) : {}"},
			},
		},
	}
	for _, patches := range defaultPatches() {
		policy.Spec.Mutations = append(policy.Spec.Mutations, admissionregistrationv1.Mutation{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: patches},
		})
	}
	params := paramRef(v1alpha1.ParametersName)
	params.ParameterNotFoundAction = new(admissionregistrationv1.AllowAction)
	return policy, &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingAdmissionPolicyBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: Defaults, Labels: labels()},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: Defaults, ParamRef: params},
	}
}

// withDefaults returns a selector of the namespaces in which the tenant may have defaults: a policy that
// matches a request costs time, even if its match condition is false.
func withDefaults() *metav1.LabelSelector {
	s := where(metav1.LabelSelectorOpExists, v1alpha1.LabelParameters)
	s.MatchExpressions = append(s.MatchExpressions, labelled(metav1.LabelSelectorOpNotIn, v1alpha1.LabelParameters, v1alpha1.ParametersWithoutDefaults).MatchExpressions...)
	return s
}

// ownMetadata is CEL for the labels and annotations that Pods of the tenant get, or its Services and
// EndpointSlices.
const ownMetadata = "(request.resource.resource == 'pods' ? params.spec.tenants.?workloads.?metadata : params.spec.tenants.?network.?services.?metadata)"

// defaultPatches returns the patches of [DefaultsPolicy], each a CEL expression. Variables can hold neither
// patches nor optional values.
func defaultPatches() []string {
	class := func(name string) string { return "params.spec.?defaultClasses.?" + name }
	// unnamed returns the patches that add the default class if an object names none.
	unnamed := func(resource, name, condition, field, more string) string {
		return fmt.Sprintf("request.resource.resource == '%s' && request.operation == 'CREATE' && %s.hasValue() && %s ? [JSONPatch{op: 'add', path: '/spec/%s', value: %[2]s.value()}]%[5]s : []",
			resource, class(name), condition, field, more)
	}
	// free is a condition: the object names no class, or the API server chose it. The API server's own
	// plugins set the default class of the cluster before this policy; managedFields show what the client
	// sent.
	free := func(class string) string {
		fields := "object.metadata.?managedFields.orValue([])"
		return fmt.Sprintf("(!has(object.spec.%[1]s) || object.spec.%[1]s == '' || %[2]s.size() > 0 && !%[2]s.exists(m, 'f:%[1]s' in m.?fieldsV1[?'f:spec'].orValue({})))", class, fields)
	}
	// dropped is the patch for an update that removes the class of an Ingress.
	dropped := fmt.Sprintf("request.resource.resource == 'ingresses' && request.operation == 'UPDATE' && %[1]s.hasValue() && has(oldObject.spec.ingressClassName) && !has(object.spec.ingressClassName)"+
		" && !('kubernetes.io/ingress.class' in object.metadata.?annotations.orValue({})) ? [JSONPatch{op: 'add', path: '/spec/ingressClassName', value: %[1]s.value()}] : []", class("ingressClass"))
	const (
		// The API server computes these fields from the class. It computes them again after this policy,
		// and refuses other values.
		computed = " + (has(object.spec.priority) ? [JSONPatch{op: 'remove', path: '/spec/priority'}] : []) + (has(object.spec.preemptionPolicy) ? [JSONPatch{op: 'remove', path: '/spec/preemptionPolicy'}] : [])"
	)
	// entries returns the patches that add labels or annotations.
	entries := func(field string) string {
		values := "variables.metadata.?" + field
		return fmt.Sprintf("%[1]s.orValue({}).size() == 0 ? [] : (has(object.metadata.%[2]s) ? [] : [JSONPatch{op: 'add', path: '/metadata/%[2]s', value: {}}])"+
			" + %[1]s.value().map(k, JSONPatch{op: 'add', path: '/metadata/%[2]s/' + jsonpatch.escapeKey(k), value: %[1]s.value()[k]})", values, field)
	}
	// pinned returns the patches that add the selector and the tolerations of the tenant's nodes to the
	// spec of a Pod.
	pinned := func(resource, spec, path string) []string {
		applies := "request.resource.resource == '" + resource + "'"
		if resource == "pods" {
			applies += " && request.operation == 'CREATE'"
		}
		key := fmt.Sprintf("%[1]s && %[2]s.orValue({}).size() > 0 ? (has(%[3]s.nodeSelector) ? [] : [JSONPatch{op: 'add', path: '%[4]s/nodeSelector', value: {}}])"+
			" + %[2]s.value().map(k, k).filter(k, !(k in %[3]s.?nodeSelector.orValue({}))).map(k, JSONPatch{op: 'add', path: '%[4]s/nodeSelector/' + jsonpatch.escapeKey(k), value: %[2]s.value()[k]}) : []",
			applies, nodeSelector, spec, path)
		tolerate := fmt.Sprintf("%[1]s && %[2]s.orValue([]).size() > 0 ? (has(%[3]s.tolerations) ? [] : [JSONPatch{op: 'add', path: '%[4]s/tolerations', value: []}])"+
			" + %[2]s.value().filter(t, !%[5]s).map(t, JSONPatch{op: 'add', path: '%[4]s/tolerations/-', value: {'key': t.key, 'operator': t.?operator.orValue('Equal'), 'value': t.?value.orValue(''), 'effect': t.?effect.orValue('')}}) : []",
			applies, nodeTolerations, spec, path, given("t", spec+".?tolerations.orValue([])", "h"))
		return []string{key, tolerate}
	}
	// pulled returns the patches that give containers the pull policy of the tenant. CEL has no index of an
	// element, so the expression contains a list of indexes.
	pulled := func(list string) string {
		var indexes []string
		for i := range maxPulled {
			indexes = append(indexes, strconv.Itoa(i))
		}
		return fmt.Sprintf("request.resource.resource == 'pods' && request.operation == 'CREATE' && %[1]s.hasValue() ? [%[2]s].filter(i, i < object.spec.?%[3]s.orValue([]).size() && object.spec.%[3]s[i].?imagePullPolicy.orValue('') != %[1]s.value())"+
			".map(i, JSONPatch{op: 'add', path: '/spec/%[3]s/' + string(i) + '/imagePullPolicy', value: %[1]s.value()}) : []",
			optional("workloads.images.pullPolicy"), strings.Join(indexes, ", "), list)
	}
	// ofTenant is the patch that makes a claim in a namespace of a Capsule Tenant select only volumes with
	// the label of the Tenant.
	ofTenant := fmt.Sprintf("request.resource.resource == 'persistentvolumeclaims' && request.operation == 'CREATE' && '%[1]s' in namespaceObject.metadata.?labels.orValue({}) && (has(object.spec.selector) || object.spec.?volumeName.orValue('') != '')"+
		" ? [JSONPatch{op: 'add', path: '/spec/selector', value: {'matchLabels': dyn(object.spec.?selector.?matchLabels.orValue({}).transformMap(k, v, k != '%[1]s', v)),"+
		" 'matchExpressions': dyn(object.spec.?selector.?matchExpressions.orValue([]).filter(e, e.key != '%[1]s') + [dyn({'key': dyn('%[1]s'), 'operator': dyn('In'), 'values': dyn([namespaceObject.metadata.labels['%[1]s']])})])}}] : []",
		v1alpha1.LabelCapsuleTenant)
	return slices.Concat([]string{
		unnamed("pods", "priorityClass", free("priorityClassName"), "priorityClassName", computed),
		unnamed("pods", "runtimeClass", "object.spec.?runtimeClassName.orValue('') == ''", "runtimeClassName", ""),
		unnamed("ingresses", "ingressClass", free("ingressClassName")+" && !('kubernetes.io/ingress.class' in object.metadata.?annotations.orValue({}))", "ingressClassName", ""),
		dropped,
		unnamed("gateways", "gatewayClass", "object.spec.?gatewayClassName.orValue('') == ''", "gatewayClassName", ""),
		unnamed("persistentvolumeclaims", "storageClass", "(!has(object.spec.storageClassName) || object.spec.storageClassName != '') && "+free("storageClassName"), "storageClassName", ""),
		ofTenant,
		entries("labels"),
		entries("annotations"),
		pulled("initContainers"),
		pulled("containers"),
	}, pinned("pods", "object.spec", "/spec"), pinned("daemonsets", "object.spec.template.spec", "/spec/template/spec"))
}
