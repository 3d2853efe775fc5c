package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// images returns the rule that Pods in the platform's namespaces have only pinned images that the profile
// or the namespace lists. It applies to all users: the controller that creates the Pods of Deployments has
// the same account for all of them.
func images() Rule {
	const withTag = `^[^@]*:[^/@]*@` // no port: that is before a slash
	without := fmt.Sprintf("(i.matches('%s') ? i.substring(0, i.substring(0, i.indexOf('@')).lastIndexOf(':')) + i.substring(i.indexOf('@')) : i)", withTag)
	return Rule{
		Name:  Prefix + "images",
		Title: "Pods in the platform's namespaces have pinned images",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, "", "pods", "pods/ephemeralcontainers"),
		},
		conditions: []string{"oldObject == null || object.spec != oldObject.spec"},
		variables: []admissionregistrationv1.Variable{
			{Name: "before", Expression: "oldObject == null ? [] : " + imagesOf("oldObject")},
			{Name: "allowed", Expression: fmt.Sprintf("(has(params.spec.platformImages) ? params.spec.platformImages.map(i, string(i)) : [])"+
				" + (has(namespaceObject.metadata.annotations) && '%[1]s' in namespaceObject.metadata.annotations ? namespaceObject.metadata.annotations['%[1]s'].split('\\n').map(i, i.trim()).filter(i, i != '') : [])",
				v1alpha1.AnnotationImages)},
			{Name: "wrong", Expression: fmt.Sprintf("(%s).filter(i, !(i in variables.before) && !(i.matches('@sha256:[0-9a-f]{64}$') && %s in variables.allowed))", imagesOf("object"), without)},
		},
		scope: platformNamespaces,
		validations: []validation{{
			"size(variables.allowed) == 0 || size(variables.wrong) == 0",
			"'Pod ' + variables.name + ' must not have the image ' + " + short("variables.wrong.join(', ')") +
				" + ': images are pinned in ' + request.namespace + ' (allowed: ' + " + short("variables.allowed.join(', ')") +
				" + '); pin it with tenure profile multi-tenant --verify-images, or list it in spec.platformImages of the TenancyProfile'",
		}},
	}
}

// imagesOf returns CEL for all images of a Pod, including images that are mounted as volumes.
func imagesOf(pod string) string {
	var lists []string
	for _, field := range []struct{ list, image string }{
		{"containers", "image"}, {"initContainers", "image"}, {"ephemeralContainers", "image"}, {"volumes", "image.reference"},
	} {
		each := fmt.Sprintf("c, has(c.%[1]s) ? c.%[1]s : ''", field.image)
		list := pod + ".spec." + field.list
		filtered := list
		if field.list == "volumes" {
			filtered += ".filter(c, has(c.image))"
		}
		lists = append(lists, fmt.Sprintf("(has(%s) ? %s.map(%s) : [])", list, filtered, each))
	}
	return strings.Join(lists, " + ")
}
