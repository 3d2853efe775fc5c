package yamledit

import (
	"errors"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// top returns a top-level list of the first document, or nil if there is none.
func top(s *Stream, field string) (*yaml.Node, error) {
	if len(s.Docs) == 0 || s.Docs[0] == nil || s.Docs[0].Kind != yaml.MappingNode {
		return nil, errors.New("cannot edit a file that is no object")
	}
	n := At(s.Docs[0], field)
	if n != nil && n.Kind != yaml.SequenceNode {
		return nil, ErrUneditable
	}
	return n, nil
}

// appendEntry appends an entry to a top-level list of the first document, which it creates if it
// does not exist.
func (s *Stream) appendEntry(field string, entry any) error {
	list, err := top(s, field)
	if err != nil {
		return err
	}
	item, err := marshal(entry)
	switch {
	case err != nil:
		return err
	case list == nil:
		return s.Add(0, field, field+":\n  - "+item+"\n")
	case len(list.Content) > 0:
		return s.AppendItem(0, item+"\n", field)
	}
	lines := s.lines()
	key, indent := s.key(field), strings.Repeat(" ", s.Docs[0].Column-1)
	if lines[key] != indent+field+": []" {
		return ErrUneditable
	}
	lines = slices.Replace(lines, key, key+1, indent+field+":", indent+"  - "+item)
	return s.commit(lines, 0, func(v any) any { return with(v, func(any) any { return []any{entry} }, field) })
}

// removeEntry removes an entry from a top-level list of the first document, with the comment
// above it, or the field with the last entry.
func (s *Stream) removeEntry(field string, index int) error {
	list, err := top(s, field)
	if err != nil || list == nil {
		return ErrUneditable
	}
	if len(list.Content) == 1 {
		return s.removeField(field)
	}
	lines := s.lines()
	if list.Style&yaml.FlowStyle != 0 {
		if !removeFlow(lines, list, index) {
			return ErrUneditable
		}
	} else {
		key := s.key(field)
		// A comment above an entry is about it.
		first := func(i int) int { return aboveComment(lines, list.Content[i].Line-1, key, list.Column-1) }
		to := blockEnd(lines, list.Content[index].Line-1, list.Column)
		if index+1 < len(list.Content) {
			to = first(index + 1)
		}
		lines = slices.Delete(lines, first(index), to)
	}
	return s.commit(lines, 0, func(v any) any {
		return with(v, func(items any) any { return slices.Delete(items.([]any), index, index+1) }, field)
	})
}

// aboveComment returns the first line, from 0, of the comment directly above a line and below
// another, with an indentation; or the line itself.
func aboveComment(lines []string, at, below, indent int) int {
	for at > below+1 && strings.HasPrefix(lines[at-1], strings.Repeat(" ", indent)+"#") {
		at--
	}
	return at
}

// key returns the line of a field of the first document, from 0, or -1.
func (s *Stream) key(field string) int { return keyLine(s.Docs[0], field) }

// keyLine returns the line of a key of a mapping, from 0, or -1.
func keyLine(n *yaml.Node, key string) int {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i].Line - 1
		}
	}
	return -1
}

// removeField removes a field of the first document, which is in block style, up to the comment
// before the next field.
func (s *Stream) removeField(field string) error { return s.RemoveKey(0, field) }

// RemoveKey removes a key and its content from a mapping in block style, up to the comment before the
// next key. It returns [ErrUneditable] if the path has no such mapping with this key and another one,
// or if the style cannot be edited.
func (s *Stream) RemoveKey(doc int, key string, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle != 0 || valueOf(n, key) == nil {
		return ErrUneditable
	}
	lines, first := s.lines(), keyLine(n, key)
	end := blockEnd(lines, first, n.Column-1)
	for i := 0; i < len(n.Content); i += 2 {
		if line := n.Content[i].Line - 1; line > first {
			end = min(end, line)
		}
	}
	for end > first+1 && isOutside(lines[end-1], n.Column-1) {
		end--
	}
	return s.commit(slices.Delete(lines, first, end), doc, func(v any) any {
		return with(v, func(m any) any {
			delete(m.(map[string]any), key)
			return m
		}, path...)
	})
}

// isOutside reports whether a line is blank, or a comment that is not indented more than a field.
func isOutside(line string, indent int) bool {
	text := strings.TrimLeft(line, " ")
	return text == "" || strings.HasPrefix(text, "#") && len(line)-len(text) <= indent
}
