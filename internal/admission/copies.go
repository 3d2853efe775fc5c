package admission

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// copyingAnnotations is a regular expression for the annotations by which a controller with rights in all
// namespaces copies an object into other namespaces. The names are those of the documentation of kubernetes-replicator,
// reflector and config-syncer.
const copyingAnnotations = "^(replicator[.]v1[.]mittwald[.]de/replicate-to(-matching)?|reflector[.]v1[.]k8s[.]emberstack[.]com/reflection-auto-[a-z-]+|kubed[.]appscode[.]com/sync(-contexts)?)$"

// fillingAnnotations is a CEL list of the annotations by which such a controller copies the object that the value
// names, as NAMESPACE/NAME, into the annotated object.
const fillingAnnotations = "['replicator.v1.mittwald.de/replicate-from', 'reflector.v1.k8s.emberstack.com/reflects']"

// copies returns the rule about the annotations by which a controller copies an object from or into a namespace of
// others. A copy of a RoleBinding would give rights there.
func copies() Rule {
	reaching := "object.metadata.?annotations.orValue({}).filter(k, (k.matches('" + copyingAnnotations + "') && object.metadata.annotations[k] != 'false'" +
		" || k in " + fillingAnnotations + " && !object.metadata.annotations[k].startsWith(request.namespace + '/'))" +
		" && !(oldObject != null && oldObject.metadata.?annotations[?k] == optional.of(object.metadata.annotations[k])) && !" + permitsIfSet("storage.copyAnnotations", "k") + ")"
	return Rule{
		Name: Prefix + "copies", Rows: []string{"W16"},
		Title:      "annotations have no controller copy an object from or into namespaces of others",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, "", "secrets", "configmaps", "serviceaccounts"), on(writes, groupRBAC, "roles", "rolebindings")},
		scope:      tenantObjects,
		early:      true,
		conditions: notOperator,
		// Most objects have no such annotation.
		together: "!has(object.metadata.annotations) || object.metadata.annotations.all(k, !k.matches('" + copyingAnnotations + "') && !(k in " + fillingAnnotations + "))",
		validations: []validation{{
			"(" + reaching + ").size() == 0",
			objectPhrase + " + 'must not have the annotation ' + " + short("("+reaching+").join(', ')") + " + ', by which a controller copies objects between namespaces (allowed: ' + (" + optional("storage.copyAnnotations") + ".hasValue() ? " + short(named("storage.copyAnnotations")) + " : 'none') + ')'",
		}},
	}
}
