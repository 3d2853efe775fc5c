package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the objects with expressions.
type manifests struct {
	validating []admissionregistrationv1.ValidatingAdmissionPolicy
	mutating   []admissionregistrationv1.MutatingAdmissionPolicy
	webhooks   []admissionregistrationv1.ValidatingWebhookConfiguration
	schemas    []*schema.Structural
}

// readManifests reads the manifests of Tenure in a folder. Flux's in it are not ours.
func readManifests(folder string) (manifests, error) {
	var all manifests
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "flux" {
			return fs.SkipDir
		}
		if filepath.Ext(file) != ".yaml" {
			return nil
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			if err := all.add([]byte(document)); err != nil {
				return fmt.Errorf("cannot read %s: %w", file, err)
			}
		}
		return nil
	})
	return all, err
}

// add adds the object in a document if it can have expressions.
func (m *manifests) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "ValidatingAdmissionPolicy":
		return unmarshal(document, &m.validating)
	case "MutatingAdmissionPolicy":
		return unmarshal(document, &m.mutating)
	case "ValidatingWebhookConfiguration":
		return unmarshal(document, &m.webhooks)
	case "CustomResourceDefinition":
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(document, &definition); err != nil {
			return err
		}
		for _, version := range definition.Spec.Versions {
			var internal apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
				return err
			}
			structural, err := schema.NewStructural(&internal)
			if err != nil {
				return err
			}
			m.schemas = append(m.schemas, structural)
		}
	}
	return nil
}

// unmarshal appends the object in a document to a list.
func unmarshal[T any](document []byte, all *[]T) error {
	var object T
	err := yaml.UnmarshalStrict(document, &object)
	*all = append(*all, object)
	return err
}

// expressions returns all expressions.
func (m manifests) expressions() (all []string) {
	add := func(expression string) {
		if expression != "" {
			all = append(all, expression)
		}
	}
	for _, p := range m.validating {
		for _, v := range p.Spec.Variables {
			add(v.Expression)
		}
		for _, v := range p.Spec.Validations {
			add(v.Expression)
			add(v.MessageExpression)
		}
		for _, c := range p.Spec.MatchConditions {
			add(c.Expression)
		}
	}
	for _, p := range m.mutating {
		for _, v := range p.Spec.Variables {
			add(v.Expression)
		}
		for _, mutation := range p.Spec.Mutations {
			add(mutationOf(mutation))
		}
		for _, c := range p.Spec.MatchConditions {
			add(c.Expression)
		}
	}
	for _, configuration := range m.webhooks {
		for _, w := range configuration.Webhooks {
			for _, c := range w.MatchConditions {
				add(c.Expression)
			}
		}
	}
	for _, s := range m.schemas {
		_ = eachSchema(s, true, func(s *schema.Structural, _ bool) error {
			for _, v := range s.XValidations {
				add(v.Rule)
				add(v.MessageExpression)
			}
			return nil
		})
	}
	return all
}

// mutationOf returns the expression of a mutation.
func mutationOf(m admissionregistrationv1.Mutation) string {
	if m.JSONPatch != nil {
		return m.JSONPatch.Expression
	}
	return m.ApplyConfiguration.Expression
}

// eachSchema calls a function for a schema and all schemas in it, and says whether each is the
// schema of a whole object.
func eachSchema(s *schema.Structural, whole bool, visit func(*schema.Structural, bool) error) error {
	if err := visit(s, whole || s.XEmbeddedResource); err != nil {
		return err
	}
	for name := range s.Properties {
		property := s.Properties[name]
		if err := eachSchema(&property, false, visit); err != nil {
			return err
		}
	}
	if s.Items != nil {
		if err := eachSchema(s.Items, false, visit); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		return eachSchema(s.AdditionalProperties.Structural, false, visit)
	}
	return nil
}
