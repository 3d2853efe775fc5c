package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type object = map[string]any

// schema returns the schema of the chart's values: JSON Schema, draft 7. The profile has the
// schema of the TenancyProfile's spec. Unknown values are errors.
func schema(crd *unstructured.Unstructured) (string, error) {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return "", fmt.Errorf("cannot make the schema of the values: %w", err)
	}
	if len(versions) != 1 {
		return "", fmt.Errorf("cannot make the schema of the values: the TenancyProfile has %d versions, want 1", len(versions))
	}
	version, _ := versions[0].(object)
	spec, found, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
	if err != nil || !found {
		return "", errors.Join(errors.New("cannot make the schema of the values: the TenancyProfile has no schema"), err)
	}
	quantities := object{"type": "object", "additionalProperties": object{"type": []string{"string", "number"}}}
	resources := closed(object{"limits": quantities, "requests": quantities})
	replicas := func(least int) object { return object{"type": "integer", "minimum": least, "maximum": 100} }
	boolean := object{"type": "boolean"}
	root := closed(object{
		// Helm adds it to the values of a chart in another chart.
		"global": object{"type": "object"},
		"image": closed(object{
			"repository": object{"type": "string", "pattern": `^[a-zA-Z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`},
			"tag":        object{"type": "string", "pattern": `^([a-zA-Z0-9_][a-zA-Z0-9._-]{0,127})?$`},
			"digest":     object{"type": "string", "pattern": `^(sha256:[0-9a-f]{64})?$`},
		}),
		"manager": closed(object{"replicas": replicas(0), "resources": resources, "release": boolean}),
		"proxy": closed(object{
			"enabled": boolean, "replicas": replicas(0), "resources": resources,
			"hosts": object{"type": "array", "items": object{"type": "string", "pattern": `^[a-zA-Z0-9.:*-]{1,253}$`}},
		}),
		"check": closed(object{
			"enabled": boolean,
			// Five fields, or a name such as @hourly.
			"schedule":  object{"type": "string", "pattern": `^(@[a-z]+|\S+( \S+){4})$`},
			"resources": resources,
		}),
		"monitoring": closed(object{
			"enabled": boolean,
			"labels":  object{"type": "object", "additionalProperties": object{"type": "string"}},
		}),
		"networkPolicies": closed(object{
			"apiServerPorts": object{"type": "array", "minItems": 1, "items": object{"type": "integer", "minimum": 1, "maximum": 65535}},
		}),
		"capsule": closed(object{"enabled": boolean}),
		// What the rules for tenants do.
		"mode":     object{"enum": []string{"enforce", "warn"}},
		"defaults": closed(object{"enabled": boolean}),
		"shards":   closed(object{"enabled": boolean}),
		"profile":  strict(spec),
	})
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return "", fmt.Errorf("cannot write the schema of the values: %w", err)
	}
	return string(text) + "\n", nil
}

// closed returns the schema of an object that has no other properties.
func closed(properties object) object {
	return object{"type": "object", "properties": properties, "additionalProperties": false}
}

// copied are the keywords that mean the same in a CustomResourceDefinition and in JSON Schema.
var copied = []string{
	"type", "enum", "pattern", "required", "minimum", "maximum", "minLength", "maxLength",
	"minItems", "maxItems", "minProperties", "maxProperties",
}

// strict returns the JSON Schema for a schema of a CustomResourceDefinition. Unlike the API
// server, which ignores unknown fields, it refuses them. It leaves out rules in CEL.
func strict(from object) object {
	to := object{}
	for _, keyword := range copied {
		if value, there := from[keyword]; there {
			to[keyword] = value
		}
	}
	if from["x-kubernetes-int-or-string"] == true {
		to["type"] = []string{"integer", "string"}
	}
	if items, ok := from["items"].(object); ok {
		to["items"] = strict(items)
	}
	if more, ok := from["additionalProperties"].(object); ok {
		to["additionalProperties"] = strict(more)
	}
	if properties, ok := from["properties"].(object); ok {
		known := object{}
		for name, property := range properties {
			known[name] = strict(property.(object))
		}
		to["properties"] = known
		if from["x-kubernetes-preserve-unknown-fields"] != true {
			to["additionalProperties"] = false
		}
	}
	return to
}
