package yamlpath

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// ErrStyle reports that the style of a file is not supported, such as aliases: a person has to
// edit the file.
var ErrStyle = ErrUneditable

// AddEntry adds a string to a top-level list of a YAML file, such as a folder to the
// components of a kustomization file. It creates a missing list. It changes nothing if the
// list has the entry already, and never changes other content. It returns [ErrStyle], or an
// error for invalid YAML.
func AddEntry(text, list, entry string) (string, error) {
	s, err := Parse(text)
	if err != nil {
		return "", err
	}
	switch n, err := top(s, list); {
	case err != nil:
		return "", err
	case n == nil:
		err = s.Add(0, list, list+":\n  - "+Scalar(entry)+"\n")
		return s.Text, err
	case slices.Contains(Strs(n), entry):
		return text, nil
	}
	err = s.AppendItem(0, Scalar(entry)+"\n", list)
	return s.Text, err
}

// RemoveEntry undoes [AddEntry]: it removes the entry, and a list that becomes empty. It
// returns the errors of [Parse], and [ErrUneditable] if the style of the list cannot be edited.
func RemoveEntry(text, list, entry string) (string, error) {
	s, err := Parse(text)
	if err != nil {
		return "", err
	}
	n, err := top(s, list)
	if err != nil || n == nil {
		return text, err
	}
	i := slices.Index(Strs(n), entry)
	if i < 0 {
		return text, nil
	}
	if n.Style&yaml.FlowStyle != 0 && len(n.Content) > 1 {
		err = s.SetStrings(0, slices.DeleteFunc(Strs(n), func(e string) bool { return e == entry }), list)
		return s.Text, err
	}
	if len(n.Content) > 1 {
		err = s.RemoveItem(0, i, list)
		return s.Text, err
	}
	key := 0
	for i := 0; i < len(s.Docs[0].Content); i += 2 {
		if s.Docs[0].Content[i].Value == list {
			key = s.Docs[0].Content[i].Line
		}
	}
	lines := slices.Delete(s.lines(), key-1, n.Content[0].Line)
	err = s.commit(lines, 0, func(v any) any {
		delete(v.(map[string]any), list)
		return v
	})
	return s.Text, err
}

// ReplaceInPatches replaces a value in the patches of a kustomization file that contain the
// name of the field and the value. It reports whether there were any. It returns the errors of
// [Parse], and [ErrUneditable] if the style of a patch cannot be edited.
func ReplaceInPatches(text, field, from, to string) (string, bool, error) {
	s, err := Parse(text)
	if err != nil {
		return "", false, err
	}
	patches, err := top(s, "patches")
	if err != nil || patches == nil {
		return text, false, err
	}
	value := regexp.MustCompile(`\b` + regexp.QuoteMeta(from) + `\b`)
	found := false
	for i := range patches.Content {
		entry := At(s.Docs[0], "patches", i)
		if patch := Str(entry, "patch"); !regexp.MustCompile(`\b`+regexp.QuoteMeta(field)+`\b`).MatchString(patch) || !value.MatchString(patch) {
			continue
		}
		found = true
		if err := s.ReplaceIn(0, value, to, "patches", i, "patch"); err != nil {
			return "", false, fmt.Errorf("cannot edit patch %d: %w", i+1, err)
		}
	}
	return s.Text, found, nil
}

// top returns a top-level list of the first document, or nil if there is none.
func top(s *Stream, list string) (*yaml.Node, error) {
	if len(s.Docs) == 0 || s.Docs[0] == nil || s.Docs[0].Kind != yaml.MappingNode {
		return nil, errors.New("cannot edit a file that is no object")
	}
	n := At(s.Docs[0], list)
	if n != nil && n.Kind != yaml.SequenceNode {
		return nil, ErrUneditable
	}
	return n, nil
}
