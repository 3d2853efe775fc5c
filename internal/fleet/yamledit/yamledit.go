// Package yamledit edits YAML files that people write: entries of a list in a
// kustomization.yaml, a field of an object. If possible it adds and removes whole lines, so
// that comments, blank lines, quotes and indentation stay. It then checks that the edited text
// decodes to the wanted content. If a text cannot be edited by lines (flow style, anchors),
// kyaml rewrites it, which keeps comments but not blank lines.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// ErrNotMapping reports that a text is not a single YAML mapping.
var ErrNotMapping = errors.New("is not one YAML mapping")

// Append adds an entry at the end of the list in a field of the document. It creates a missing
// field. The entry is a string or a map of strings with one key. If the list already has the
// entry, Append returns the text unchanged.
func Append(text []byte, field string, entry any) ([]byte, error) {
	return editList(text, field, func(list []any) ([]any, int) {
		if slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, entry) }) {
			return list, -1
		}
		return append(slices.Clone(list), entry), -1
	})
}

// Remove removes the first entry for which match returns true. If the list becomes empty,
// Remove removes the field. It returns a text without such an entry unchanged.
func Remove(text []byte, field string, match func(entry any) bool) ([]byte, error) {
	return editList(text, field, func(list []any) ([]any, int) {
		at := slices.IndexFunc(list, match)
		if at < 0 {
			return list, -1
		}
		return slices.Delete(slices.Clone(list), at, at+1), at
	})
}

// editList changes the list in a field: change returns it with one entry more at
// its end, or without the entry at an index.
func editList(text []byte, field string, change func([]any) ([]any, int)) ([]byte, error) {
	content, err := Decode(text)
	if err != nil {
		return nil, err
	}
	before, ok := content[field].([]any)
	if content[field] != nil && !ok {
		return nil, fmt.Errorf("cannot edit %s: it is not a list", field)
	}
	after, removed := change(before)
	if len(after) == len(before) {
		return text, nil
	}
	if content[field] = after; len(after) == 0 {
		delete(content, field)
	}
	var edited []byte
	switch {
	case removed < 0:
		edited, err = appendLines(text, field, after[len(after)-1])
	default:
		edited, err = removeLines(text, field, removed)
	}
	if err == nil && decodesTo(edited, content) {
		return edited, nil
	}
	return rewrite(text, content, field)
}

// RemoveField removes a field of the document. It returns a text without the field unchanged.
func RemoveField(text []byte, field string) ([]byte, error) {
	content, err := Decode(text)
	if err != nil {
		return nil, err
	}
	if _, ok := content[field]; !ok {
		return text, nil
	}
	delete(content, field)
	lines, err := parseLines(text)
	if err == nil {
		if edited := lines.without(lines.field(field)); decodesTo(edited, content) {
			return edited, nil
		}
	}
	return rewrite(text, content, field)
}

// Empty adds a field with an empty list to a document without the field.
func Empty(text []byte, field string) ([]byte, error) {
	content, err := Decode(text)
	if err != nil {
		return nil, err
	}
	if _, ok := content[field]; ok {
		return text, nil
	}
	content[field] = []any{}
	if d, err := parseLines(text); err == nil {
		edited := d.with(d.trim(0, len(d.lines), 0), strings.Repeat(" ", d.root.Column-1)+field+": []")
		if decodesTo(edited, content) {
			return edited, nil
		}
	}
	return rewrite(text, content, field)
}

// Decode reads a text that is one mapping; an empty one is an empty mapping.
func Decode(text []byte) (map[string]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var content any
	if err := decoder.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot parse the YAML: %w", err)
	}
	if content == nil {
		content = map[string]any{}
	}
	mapping, ok := content.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("cannot edit the YAML: it %w", ErrNotMapping)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot edit the YAML: it %w, there is a second document", ErrNotMapping)
	}
	return mapping, nil
}

func decodesTo(text []byte, want map[string]any) bool {
	got, err := Decode(text)
	return err == nil && reflect.DeepEqual(got, want)
}

// rewrite sets or removes a field by way of kyaml.
func rewrite(text []byte, content map[string]any, field string) ([]byte, error) {
	node, err := yaml.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("cannot parse the YAML: %w", err)
	}
	if value, ok := content[field]; ok {
		raw, err := yaml.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("cannot edit %s: %w", field, err)
		}
		replacement, err := yaml.Parse(string(raw))
		if err != nil {
			return nil, fmt.Errorf("cannot edit %s: %w", field, err)
		}
		err = node.PipeE(yaml.SetField(field, replacement))
		if err != nil {
			return nil, fmt.Errorf("cannot edit %s: %w", field, err)
		}
	} else if err := node.PipeE(yaml.Clear(field)); err != nil {
		return nil, fmt.Errorf("cannot edit %s: %w", field, err)
	}
	edited, err := node.String()
	if err != nil {
		return nil, fmt.Errorf("cannot edit %s: %w", field, err)
	}
	if !decodesTo([]byte(edited), content) {
		return nil, fmt.Errorf("cannot edit %s: the file is written in a way that this program does not understand", field)
	}
	return []byte(edited), nil
}

// marshal returns a value as one line of YAML, without the line ending.
func marshal(value any) (string, error) {
	raw, err := yaml.Marshal(value)
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(string(raw), "\n")
	if strings.Contains(text, "\n") {
		return "", errors.New("the entry needs more than one line")
	}
	return text, nil
}
