package autofix

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// setLabels adds missing labels to the tenant's Namespaces. It adds a note if the name of such a Namespace is a variable of
// a Kustomization, because other tenants may share the manifest.
func (t *tree) setLabels(tenant discovery.Tenant, labels map[string]string) {
	names := t.manifestNames(tenant.Namespaces)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, o := range t.objects("Namespace") {
			if !slices.Contains(names, o.name()) || yamledit.Str(o.node, "metadata", "labels", key) == labels[key] {
				continue
			}
			done := t.edit(o.file, func(s *yamledit.Stream) error {
				line := key + ": " + yamledit.Scalar(labels[key]) + "\n"
				switch there := yamledit.At(s.Docs[o.doc], "metadata", "labels"); {
				case there == nil:
					return s.Add(o.doc, "labels", "labels:\n  "+line, "metadata")
				case yamledit.At(there, key) == nil:
					return s.Add(o.doc, key, line, "metadata", "labels")
				}
				return s.Set(o.doc, labels[key], "metadata", "labels", key)
			})
			if !done {
				continue
			}
			t.expects = append(t.expects, labelled(o.name(), key, labels[key]))
			if variable.MatchString(o.name()) {
				t.note(fmt.Sprintf("the label %s is for each namespace that %s makes, since its name is %s", key, o.file, o.name()))
			}
		}
	}
}

// variable matches a variable that Flux replaces in manifests.
var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// manifestNames returns the names of namespaces as the manifests have them. For a namespace without a manifest
// under its name, this is the name with variables that fits, and of several such names the one with most other text.
func (t *tree) manifestNames(namespaces []string) []string {
	var names, withVariables []string
	for _, o := range t.objects("Namespace") {
		if variable.MatchString(o.name()) {
			withVariables = append(withVariables, o.name())
		} else {
			names = append(names, o.name())
		}
	}
	length := func(name string) int { return len(variable.ReplaceAllString(name, "")) }
	slices.SortStableFunc(withVariables, func(a, b string) int { return length(b) - length(a) })
	var found []string
	for _, namespace := range namespaces {
		if slices.Contains(names, namespace) {
			found = append(found, namespace)
			continue
		}
		fits := func(name string) bool {
			parts := variable.Split(name, -1)
			for i := range parts {
				parts[i] = regexp.QuoteMeta(parts[i])
			}
			return regexp.MustCompile("^" + strings.Join(parts, ".+") + "$").MatchString(namespace)
		}
		if i := slices.IndexFunc(withVariables, fits); i >= 0 {
			found = append(found, withVariables[i])
		}
	}
	return found
}

// labelled returns the expectation that every Namespace of a name has a label.
func labelled(name, key, value string) expectation {
	return func(after built) bool {
		all := after.find(func(o *unstructured.Unstructured) bool { return o.GetKind() == "Namespace" && o.GetName() == name })
		return len(all) > 0 && !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GetLabels()[key] != value })
	}
}
