package admission

// always reports whether the rule denies in warn mode too. These rules compensate for
// rights that RBAC cannot narrow, such as the right of owners to patch namespaces: if
// such a rule only warned, every user with the right could use all of it.
func (r Rule) always() bool { return r.unbound || r.ofNamespaces || r.ofOwners || r.profiled }

// LabelComponent is the label by which a fleet's patch selects the bindings that it
// switches to warn: those with the value [Component]. The bindings of rules that always
// deny have the value [ComponentAlways].
const (
	LabelComponent  = "app.kubernetes.io/component"
	Component       = "admission"
	ComponentAlways = "admission-always"
)

func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "tenure", LabelComponent: Component}
}

// labels returns the labels of the rule's policies and bindings.
func (r Rule) labels() map[string]string {
	l := labels()
	if r.always() {
		l[LabelComponent] = ComponentAlways
	}
	return l
}
