package tenantrepo

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// resourceSet is a ResourceSet of flux-operator that creates namespaces, or a static provider of
// its inputs.
type resourceSet struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Type              string           `json:"type"`
		Inputs            []map[string]any `json:"inputs"`
		InputsFrom        []map[string]any `json:"inputsFrom"`
		DefaultValues     map[string]any   `json:"defaultValues"`
		Resources         []map[string]any `json:"resources"`
		ResourcesTemplate string           `json:"resourcesTemplate"`
	} `json:"spec"`
}

// makesNamespaces reports whether a ResourceSet has a template of a Namespace.
func (r resourceSet) makesNamespaces() bool {
	return r.Kind == "ResourceSet" && (strings.Contains(r.Spec.ResourcesTemplate, "kind: Namespace") ||
		slices.ContainsFunc(r.Spec.Resources, func(o map[string]any) bool { return o["kind"] == "Namespace" }))
}

// inputOf returns the fields of one input, and the field that names the tenant: the first text
// of the names that fleets use, or any other.
func (r resourceSet) inputOf() (fields map[string]any, tenantField string) {
	fields = r.Spec.DefaultValues
	if len(r.Spec.Inputs) > 0 {
		fields = r.Spec.Inputs[0]
	}
	for _, candidate := range []string{"tenant", "team", "name", "namespace"} {
		if _, ok := fields[candidate].(string); ok {
			return fields, candidate
		}
	}
	return fields, ""
}

// resourceSetAdvice returns how to add a tenant to a fleet whose tenants come from ResourceSets:
// the file and the input to add. It returns "" for a fleet without them.
func resourceSetAdvice(fleet fs.FS, tenant Tenant) string {
	advice := ""
	err := eachFile(fleet, ".", func(name string, content []byte) error {
		if advice != "" || !bytes.Contains(content, []byte("ResourceSet")) {
			return nil
		}
		for _, doc := range documents(content) {
			var set resourceSet
			if yaml.Unmarshal(doc, &set) != nil || !set.makesNamespaces() {
				continue
			}
			if len(set.Spec.Inputs) == 0 && len(set.Spec.InputsFrom) > 0 {
				advice = fmt.Sprintf("the ResourceSet %s in %s makes a tenant's objects from its providers of inputs: add a ResourceSetInputProvider of type Static with the label that its spec.inputsFrom selects, and the tenant's values in spec.defaultValues", set.Metadata.Name, name)
				return nil
			}
			advice = fmt.Sprintf("the ResourceSet %s in %s makes a tenant's objects from an input: add to its spec.inputs\n%s", set.Metadata.Name, name, exampleInput(set, tenant))
			return nil
		}
		return nil
	})
	if err != nil {
		return "" // the error of the layout is reported in any case
	}
	return advice
}

// exampleInput returns an input for the tenant, as an entry of a YAML list: the first input with
// the tenant's name, repository and branch in their fields.
func exampleInput(set resourceSet, tenant Tenant) string {
	fields, tenantField := set.inputOf()
	entry := map[string]any{}
	for key, value := range fields {
		old, isText := value.(string)
		switch {
		case key == tenantField:
			value = tenant.Name
		case isText && strings.Contains(old, "://"):
			value = tenant.URL
		case key == "branch":
			value = tenant.Branch
		}
		entry[key] = value
	}
	out, err := yaml.Marshal([]map[string]any{entry})
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(out), "\n")
}
