// Package yamledit edits YAML files that people write. A [Stream] edits single fields and list
// entries, found by their path in one of several documents. It changes only the lines of the
// field, so that comments, blank lines, quotes and indentation stay, and checks that the edited
// text decodes to the wanted content. It returns [ErrUneditable] for a text that it cannot edit
// like this, such as one with anchors.
//
// [Append], [Remove], [RemoveField] and [Empty] edit a file with a Stream. Where that is not
// possible, kyaml rewrites the file, which keeps comments but not blank lines.
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
// entry, Append returns the text unchanged. It returns the errors of [Decode], and [ErrUneditable]
// if the style of the list cannot be edited.
func Append(text []byte, field string, entry any) ([]byte, error) {
	content, list, err := decodeList(text, field)
	if err != nil || slices.ContainsFunc(list, func(e any) bool { return reflect.DeepEqual(e, entry) }) {
		return text, err
	}
	content[field] = append(slices.Clone(list), entry)
	if item, err := marshal(entry); err == nil && len(bytes.TrimSpace(text)) == 0 {
		return []byte(string(text) + field + ":\n  - " + item + "\n"), nil
	}
	return edited(text, content, field, func(s *Stream) error { return s.appendEntry(field, entry) })
}

// Remove removes the first entry for which match returns true, with the comment above it. If the
// list becomes empty, Remove removes the field. It returns a text without such an entry unchanged.
// It returns the errors of [Decode], and [ErrUneditable] if the style of the list cannot be
// edited.
func Remove(text []byte, field string, match func(entry any) bool) ([]byte, error) {
	content, list, err := decodeList(text, field)
	at := slices.IndexFunc(list, match)
	if err != nil || at < 0 {
		return text, err
	}
	if content[field] = slices.Delete(slices.Clone(list), at, at+1); len(list) == 1 {
		delete(content, field)
	}
	return edited(text, content, field, func(s *Stream) error { return s.removeEntry(field, at) })
}

// RemoveField removes a field of the document. It returns a text without the field unchanged. It
// returns the errors of [Decode], and [ErrUneditable] if the style of the field cannot be edited.
func RemoveField(text []byte, field string) ([]byte, error) {
	content, err := Decode(text)
	if err != nil {
		return nil, err
	}
	if _, ok := content[field]; !ok {
		return text, nil
	}
	delete(content, field)
	return edited(text, content, field, func(s *Stream) error { return s.removeField(field) })
}

// Empty adds a field with an empty list to a document without the field. It returns the errors of
// [Decode], and [ErrUneditable] if the style of the document cannot be edited.
func Empty(text []byte, field string) ([]byte, error) {
	content, err := Decode(text)
	if err != nil {
		return nil, err
	}
	if _, ok := content[field]; ok {
		return text, nil
	}
	content[field] = []any{}
	return edited(text, content, field, func(s *Stream) error { return s.Add(0, field, field+": []\n") })
}

// AddEntry adds a string to a list of a file like [Append], but never rewrites the file: it
// returns [ErrUneditable] if the text cannot be edited by lines, and another error if it is not
// one mapping. [RemoveEntry] gives the same bytes again, unless the list was empty.
func AddEntry(text, field, entry string) (string, error) {
	s, list, err := parseList(text, field)
	if err != nil || slices.Contains(Strs(list), entry) {
		return text, err
	}
	err = s.appendEntry(field, entry)
	return s.Text, err
}

// RemoveEntry removes an entry from a list of a file like [Remove], but never rewrites the file.
// It returns the errors of [AddEntry].
func RemoveEntry(text, field, entry string) (string, error) {
	s, list, err := parseList(text, field)
	at := slices.Index(Strs(list), entry)
	if err != nil || at < 0 {
		return text, err
	}
	err = s.removeEntry(field, at)
	return s.Text, err
}

// parseList parses a text of one document, and returns the list in a field, or nil if the field
// does not exist.
func parseList(text, field string) (*Stream, *yaml.Node, error) {
	s, err := Parse(text)
	if err != nil {
		return nil, nil, err
	}
	list, err := top(s, field)
	return s, list, err
}

// decodeList decodes a text, and returns the list in a field.
func decodeList(text []byte, field string) (content map[string]any, list []any, err error) {
	if content, err = Decode(text); err != nil {
		return nil, nil, err
	}
	list, ok := content[field].([]any)
	if content[field] != nil && !ok {
		return nil, nil, fmt.Errorf("cannot edit %s: it is not a list", field)
	}
	return content, list, nil
}

// edited edits a text by lines. If that is not possible, kyaml rewrites the field, so that the
// text has the wanted content.
func edited(text []byte, want map[string]any, field string, edit func(*Stream) error) ([]byte, error) {
	plain, end := string(text), "\n"
	if strings.Count(plain, "\r\n") == strings.Count(plain, "\n") {
		plain, end = strings.ReplaceAll(plain, "\r\n", "\n"), "\r\n"
	}
	s, err := Parse(plain)
	if err != nil || len(s.Docs) == 0 || s.Docs[0] == nil || edit(s) != nil {
		return rewrite(text, want, field)
	}
	result := []byte(strings.ReplaceAll(s.Text, "\n", end))
	if !decodesTo(result, want) {
		return rewrite(text, want, field)
	}
	return result, nil
}

// Decode decodes a text that is one mapping; an empty text is an empty mapping. It returns
// [ErrNotMapping] for other content or several documents, and another error for a text that is not
// YAML.
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
