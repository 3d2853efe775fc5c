package replication

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Bounds of templates, which tenants write and the manager runs.
const (
	// maxTemplate is the maximum length of a template, in bytes.
	maxTemplate = 16 << 10
	// maxOutput is the maximum length of the text that a template becomes, and of each text that a
	// function returns, in bytes.
	maxOutput = 64 << 10
	// maxSteps is the maximum number of rounds of loops, function calls and executions in a plan.
	maxSteps = 20000
)

// stepFunction is the name of the function that counts the steps.
const stepFunction = "_step"

// Template is a Go template of objects, in YAML, with a few of the functions that Helm's templates
// have. It reads nothing but its data.
type Template struct {
	// Where is the place of the template in its declaration.
	Where  string
	parsed *template.Template
}

// ParseTemplate parses a template. missingKey is the option of Go's templates with this name:
// invalid, zero, which is the default, or error.
func ParseTemplate(where, text, missingKey string) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("it is longer than %d bytes", maxTemplate)
	}
	if missingKey == "" {
		missingKey = "zero"
	}
	if missingKey != "invalid" && missingKey != "zero" && missingKey != "error" {
		return nil, fmt.Errorf("missingKey %q is none of invalid, zero and error", missingKey)
	}
	unlimited := &steps{left: maxSteps}
	parsed, err := template.New("template").Option("missingkey=" + missingKey).Funcs(unlimited.functions()).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("it is no template: %w", err)
	}
	step, err := template.New("step").Funcs(unlimited.functions()).Parse("{{" + stepFunction + "}}")
	if err != nil {
		return nil, fmt.Errorf("cannot parse the step: %w", err)
	}
	for _, t := range parsed.Templates() {
		if t.Tree != nil && t.Root != nil {
			count(t.Root, step.Root.Nodes[0])
			prepend(t.Root, step.Root.Nodes[0])
		}
	}
	return &Template{Where: where, parsed: parsed}, nil
}

// count adds the step to the body of each loop.
func count(list *parse.ListNode, step parse.Node) {
	if list == nil {
		return
	}
	branch := func(b *parse.BranchNode) {
		count(b.List, step)
		count(b.ElseList, step)
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.RangeNode:
			branch(&n.BranchNode)
			prepend(n.List, step)
		case *parse.IfNode:
			branch(&n.BranchNode)
		case *parse.WithNode:
			branch(&n.BranchNode)
		}
	}
}

func prepend(list *parse.ListNode, step parse.Node) {
	list.Nodes = append([]parse.Node{step.Copy()}, list.Nodes...)
}

// objects runs the template and returns the objects of its output.
func (t *Template) objects(data map[string]any, s *steps) ([]*unstructured.Unstructured, error) {
	bound, err := t.parsed.Clone()
	if err != nil {
		return nil, fmt.Errorf("cannot copy the template: %w", err)
	}
	out := &limitedBuffer{}
	if err := bound.Funcs(s.functions()).Execute(out, data); err != nil {
		return nil, fmt.Errorf("cannot run the template: %w", err)
	}
	var objects []*unstructured.Unstructured
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(&out.Buffer)); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the output of the template: %w", err)
		}
		raw, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, fmt.Errorf("the output of the template is no YAML: %w", err)
		}
		if string(raw) == "null" {
			continue
		}
		u, err := decode(raw)
		if err != nil {
			return nil, err
		}
		objects = append(objects, u)
	}
}

// limitedBuffer refuses more than [maxOutput] bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("the output is longer than %d bytes", maxOutput)
	}
	return b.Buffer.Write(p)
}

// steps counts what the templates of a plan do.
type steps struct{ left int }

func (s *steps) take() error {
	if s.left == 0 {
		return fmt.Errorf("the templates of a declaration take more than %d steps", maxSteps)
	}
	s.left--
	return nil
}
