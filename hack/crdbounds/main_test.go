package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBounded(t *testing.T) {
	t.Parallel()
	const before = `hard:
  additionalProperties:
    anyOf:
    - type: integer
    - type: string
    pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$
    x-kubernetes-int-or-string: true
port:
  anyOf:
  - type: integer
  - type: string
  x-kubernetes-int-or-string: true
`
	const after = `hard:
  additionalProperties:
    anyOf:
    - type: integer
    - type: string
    pattern: ^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,3}))?$
    maxLength: 32
    x-kubernetes-int-or-string: true
port:
  anyOf:
  - type: integer
  - type: string
  maxLength: 63
  maximum: 65535
  minimum: 0
  x-kubernetes-int-or-string: true
`
	if diff := cmp.Diff(after, bounded(before)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWithoutDefault(t *testing.T) {
	t.Parallel()
	const after = `properties:
  protectedNamespaces:
    items:
      type: string
    type: array
  providers:
    default:
    - generic
    type: array
`
	const field = "  protectedNamespaces:\n"
	before := strings.Replace(after, field, field+"    default:\n    - '*-system'\n    - vault\n", 1)
	if diff := cmp.Diff(after, withoutDefault(before, "protectedNamespaces")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
