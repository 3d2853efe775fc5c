package admission

// always says whether the rule denies in warn mode too. These rules make up for rights
// that RBAC cannot narrow, such as the right of owners to patch namespaces: where one of
// them only warns, whoever has the right has all of it.
func (r Rule) always() bool { return r.unbound || r.ofNamespaces || r.ofOwners || r.profiled }

// LabelComponent is the label by which a fleet's patch selects the bindings that it sets
// to warn: those with the value [Component]. The bindings of rules that always deny have
// the value [ComponentAlways].
const (
	LabelComponent  = "app.kubernetes.io/component"
	Component       = "admission"
	ComponentAlways = "admission-always"
)

func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "tenure", LabelComponent: Component}
}

// labels are those of the rule's policies and bindings.
func (r Rule) labels() map[string]string {
	l := labels()
	if r.always() {
		l[LabelComponent] = ComponentAlways
	}
	return l
}
