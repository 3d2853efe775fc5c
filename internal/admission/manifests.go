package admission

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

//go:generate go run ../../hack/policies ../../config/admission ../../docs/reference

// Manifests returns the policies and bindings of all rules as YAML documents.
func Manifests() ([]byte, error) {
	policies, bindings := Policies()
	out := bytes.NewBufferString("# The rules for tenants. Generated from internal/admission; do not edit.\n")
	write := func(object any) error {
		// Through a map, so that what an object does not have is left out.
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("cannot convert a policy: %w", err)
		}
		delete(content, "status")
		document, err := yaml.Marshal(content)
		if err != nil {
			return fmt.Errorf("cannot write a policy: %w", err)
		}
		_, err = fmt.Fprintf(out, "---\n%s", document)
		return err
	}
	for i := range policies {
		if err := write(&policies[i]); err != nil {
			return nil, err
		}
	}
	for i := range bindings {
		if err := write(&bindings[i]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
