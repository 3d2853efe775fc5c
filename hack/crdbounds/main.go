// Command crdbounds adds bounds to generated CustomResourceDefinitions, for fields with
// Kubernetes' own Go types, which cannot have markers: quantities and ports. If a value passes
// the schema but cannot be decoded, a controller cannot read any object of the kind; and
// without a maximum length no CEL rule may read a quantity.
//
// It also removes defaults from a kind that shares a type with another one: the manager leaves
// the names of the TenancyProfile's protectedNamespaces out of TenantParameters, and the API
// server must not restore them.
//
// go generate runs it after controller-gen, with the files to change.
package main

import (
	"fmt"
	"os"
	"strings"
)

const (
	intOrString = "x-kubernetes-int-or-string: true"
	// anyExponent is the end of Kubernetes' own pattern of quantities. It allows
	// exponents such as 1.5, which no program can parse.
	anyExponent = `([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	wholeNumber = `([eE](\+|-)?[0-9]{1,3}))?$`
)

func main() {
	for _, file := range os.Args[1:] {
		if err := change(file); err != nil {
			fmt.Fprintln(os.Stderr, "crdbounds:", err)
			os.Exit(1)
		}
	}
}

func change(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	manifest := bounded(string(content))
	if strings.HasSuffix(file, "_tenantparameters.yaml") {
		manifest = withoutDefault(manifest, "protectedNamespaces")
	}
	return os.WriteFile(file, []byte(manifest), 0o600)
}

// withoutDefault returns the manifest without the default of a list field.
func withoutDefault(manifest, field string) string {
	var lines []string
	within, dropping := "", false
	for line := range strings.Lines(manifest) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		switch {
		case strings.TrimSpace(line) == field+":":
			within = indent + "  "
		case within != "" && line == within+"default:\n":
			dropping = true
			continue
		case dropping && strings.HasPrefix(line, within+"- "):
			continue
		case len(indent) < len(within):
			within = ""
		}
		dropping = false
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// bounded returns the manifest with the bounds.
func bounded(manifest string) string {
	var lines []string
	quantity := false
	for line := range strings.Lines(manifest) {
		field := strings.TrimSpace(line)
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		switch {
		case strings.HasPrefix(field, "pattern: ") && strings.HasSuffix(field, anyExponent):
			quantity = true
			line = strings.TrimSuffix(line, anyExponent+"\n") + wholeNumber + "\n"
		case field == intOrString && quantity:
			lines = append(lines, indent+"maxLength: 32\n")
			quantity = false
		case field == intOrString:
			lines = append(lines, indent+"maxLength: 63\n", indent+"maximum: 65535\n", indent+"minimum: 0\n")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
