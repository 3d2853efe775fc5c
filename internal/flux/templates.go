package flux

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var (
	// templateLine matches a line of a template with nothing but expressions, such as a condition.
	templateLine = regexp.MustCompile(`(?m)^\s*(?:<<[^\n]*?>>\s*)+$`)
	// templateExpression matches an expression within a line.
	templateExpression = regexp.MustCompile(`<<-?\s*(.*?)\s*-?>>`)
	// notPlain matches what a plain YAML scalar cannot have.
	notPlain = regexp.MustCompile(`[^A-Za-z0-9_. ]+`)
	// documentLine separates documents.
	documentLine = regexp.MustCompile(`(?m)^---\s*$`)
)

// Templates returns the objects in the templates of a ResourceSet, with the expressions in their text:
// those in spec.resources, and the documents in spec.resourcesTemplate. It evaluates no expression: an
// object in a condition is one of them, and a document that is no YAML without its expressions is not.
func Templates(set *unstructured.Unstructured) []map[string]any {
	all := entries(set, "spec", "resources")
	text, _, _ := unstructured.NestedString(set.Object, "spec", "resourcesTemplate")
	text = templateLine.ReplaceAllString(text, "")
	text = templateExpression.ReplaceAllStringFunc(text, func(expression string) string {
		words := strings.Fields(notPlain.ReplaceAllString(templateExpression.FindStringSubmatch(expression)[1], " "))
		return "<< " + strings.Join(words, " ") + " >>"
	})
	for _, document := range documentLine.Split(text, -1) {
		var object map[string]any
		if yaml.Unmarshal([]byte(document), &object) == nil && object["kind"] != nil {
			all = append(all, object)
		}
	}
	return all
}
