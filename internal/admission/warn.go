package admission

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// always reports whether the rule also denies in warn mode. Such rules compensate for rights that RBAC
// cannot narrow, such as the right of owners to patch namespaces: if such a rule only warned, users could
// use the whole right.
func (r Rule) always() bool {
	return r.scope == allNamespaces || r.scope == namespaceObjects || r.scope == ownerNamespaces || r.scope == allNamespacesProfiled || r.compensates
}

// LabelComponent is the label by which the patch of warn mode selects the bindings that it
// switches to warn: those with the value [Component] or [ComponentObjects].
const (
	LabelComponent = "app.kubernetes.io/component"
	Component      = "admission"
	// ComponentObjects is the value of the label in the bindings of [Objects]. These bindings may warn only
	// if the bindings of [ObjectsAlways] are installed. A patch that selects [Component] alone does not
	// select them.
	ComponentObjects = "admission-objects"
	// ComponentAlways is the value of the label in the bindings of rules that always deny.
	ComponentAlways = "admission-always"
)

// WarnSelector is the label selector of the bindings that warn in warn mode.
const WarnSelector = "app.kubernetes.io/name=tenure," + LabelComponent + " in (" + Component + "," + ComponentObjects + ")"

// MayWarn reports whether the bindings with a value of [LabelComponent] warn in warn mode.
func MayWarn(component string) bool { return component == Component || component == ComponentObjects }

func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "tenure", LabelComponent: Component}
}

// labels returns the labels of the rule's policies and bindings.
func (r Rule) labels() map[string]string {
	l := labels()
	switch {
	case r.always():
		l[LabelComponent] = ComponentAlways
	case r.scope == tenantObjects:
		l[LabelComponent] = ComponentObjects
	}
	return l
}

// ObjectsAlways is the name of the policy with the rules of [Objects] that always deny. The actions of a
// binding apply to all rules of a policy, so in warn mode the bindings of [Objects] warn, and this policy
// denies. It is installed in warn mode only: otherwise each request of a tenant would match one more
// policy, for rules that [Objects] already enforces.
const ObjectsAlways = Objects + "-always"

// WarnPolicies returns the policies and the bindings that a cluster needs in warn mode in
// addition to those of [Policies].
func WarnPolicies() ([]admissionregistrationv1.ValidatingAdmissionPolicy, []admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	return objectPolicies(ObjectsAlways, Rule.always)
}
