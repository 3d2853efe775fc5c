package yamledit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// ErrUneditable reports that the style of a YAML file is not supported. The file is then left
// unchanged, and only advice in words is possible.
var ErrUneditable = errors.New("cannot edit YAML that is written like this")

// Stream is a file of YAML documents. It is edited as text, so that all other content stays
// the same, including spaces. After each edit it is parsed again and must have exactly the
// intended content.
type Stream struct {
	Text string
	Docs []*yaml.Node // the content of each document, nil for an empty one
}

// Parse reads a file. One with aliases is refused: an edit could be in two places. It returns
// [ErrUneditable] for a file with aliases or another style that it cannot edit, and another
// error if the text is not valid YAML.
func Parse(text string) (s *Stream, err error) {
	// The parser panics on some inputs that only a fuzzer writes.
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, fmt.Errorf("cannot parse YAML: %v", r)
		}
	}()
	// Line endings of YAML that this package does not split at would shift the line numbers.
	if strings.ContainsAny(text, "\r\u0085\u2028\u2029") {
		return nil, ErrUneditable
	}
	s = &Stream{Text: text}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		doc := &yaml.Node{}
		if err := decoder.Decode(doc); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot parse YAML: %w", err)
		}
		var content *yaml.Node
		if len(doc.Content) == 1 {
			content = doc.Content[0]
		}
		if content != nil && hasAnchorOrAlias(content) {
			return nil, ErrUneditable
		}
		s.Docs = append(s.Docs, content)
	}
}

// hasAnchorOrAlias reports whether a document has YAML features that no manifest needs:
// anchors, aliases, tags, or keys that are not strings.
func hasAnchorOrAlias(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return true
	}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Tag != yaml.NodeTagString {
			return true
		}
	}
	return slices.ContainsFunc(n.Content, hasAnchorOrAlias)
}

// values returns the decoded documents.
func (s *Stream) values() ([]any, error) {
	var all []any
	for _, doc := range s.Docs {
		var v any
		if doc != nil {
			if err := doc.Decode(&v); err != nil {
				return nil, fmt.Errorf("cannot read YAML: %w", err)
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// At finds a node by keys of mappings and indexes of sequences.
func At(n *yaml.Node, path ...any) *yaml.Node {
	for _, step := range path {
		if n == nil {
			return nil
		}
		switch step := step.(type) {
		case int:
			if n.Kind != yaml.SequenceNode || step >= len(n.Content) {
				return nil
			}
			n = n.Content[step]
		case string:
			n = valueOf(n, step)
		}
	}
	return n
}

func valueOf(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// Str returns the string at a path, or "" if there is none.
func Str(n *yaml.Node, path ...any) string {
	if n = At(n, path...); n == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

// Strs returns the strings of a sequence.
func Strs(n *yaml.Node, path ...any) []string {
	var all []string
	if n = At(n, path...); n != nil && n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			all = append(all, item.Value)
		}
	}
	return all
}

// commit stores the lines of an edited file if they decode to the previous documents with one
// change.
func (s *Stream) commit(lines []string, doc int, change func(any) any) error {
	want, err := s.values()
	if err != nil {
		return err
	}
	want[doc] = change(want[doc])
	edited, err := Parse(strings.Join(lines, "\n"))
	if err != nil {
		return ErrUneditable
	}
	got, err := edited.values()
	if err != nil || !reflect.DeepEqual(got, want) {
		return ErrUneditable
	}
	*s = *edited
	return nil
}

func (s *Stream) lines() []string { return strings.Split(s.Text, "\n") }

// cut cuts the line on which a node begins there. Columns count characters.
func cut(lines []string, n *yaml.Node) (head, rest string, ok bool) {
	if n.Line < 1 || n.Line > len(lines) {
		return "", "", false
	}
	line := []rune(lines[n.Line-1])
	if n.Column < 1 || n.Column > len(line) {
		return "", "", false
	}
	return string(line[:n.Column-1]), string(line[n.Column-1:]), true
}

// PlainScalar matches strings that need no quotes and cannot be parsed as another type.
var PlainScalar = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([._/-][A-Za-z0-9]+)*$`)

// Scalar writes a string as a YAML scalar, with quotes where it needs them.
func Scalar(value string) string {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
	default:
		if PlainScalar.MatchString(value) {
			return value
		}
	}
	return "'" + strings.ReplaceAll(value, "'", "''") + "'"
}

// Set changes a string. It returns [ErrUneditable] if the path has no string, or if the style
// cannot be edited.
func (s *Stream) Set(doc int, value string, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.ScalarNode || n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return ErrUneditable
	}
	lines := s.lines()
	head, rest, ok := cut(lines, n)
	if !ok {
		return ErrUneditable
	}
	old := n.Value
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && rest != "" {
		old = rest[:1] + n.Value + rest[:1]
	}
	after, ok := strings.CutPrefix(rest, old)
	if !ok {
		return ErrUneditable
	}
	lines[n.Line-1] = head + Scalar(value) + after
	return s.commit(lines, doc, func(v any) any { return with(v, func(any) any { return value }, path...) })
}

// SetBool changes a boolean. It returns [ErrUneditable] if the path has none.
func (s *Stream) SetBool(doc int, value bool, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag != yaml.NodeTagBool {
		return ErrUneditable
	}
	lines := s.lines()
	head, rest, ok := cut(lines, n)
	after, found := strings.CutPrefix(rest, n.Value)
	if !ok || !found {
		return ErrUneditable
	}
	lines[n.Line-1] = head + strconv.FormatBool(value) + after
	return s.commit(lines, doc, func(v any) any { return with(v, func(any) any { return value }, path...) })
}

// Add adds a key with its content, as lines without indentation, to a mapping without this key:
// as the last key, or as the first key of a mapping in flow style. It returns [ErrUneditable]
// if the path has no mapping, or if the style cannot be edited.
func (s *Stream) Add(doc int, key, content string, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.MappingNode || len(n.Content) == 0 || valueOf(n, key) != nil {
		return ErrUneditable
	}
	var value any
	if err := yaml.Unmarshal([]byte(content), &value); err != nil {
		return ErrUneditable
	}
	value = value.(map[string]any)[key]
	lines := s.lines()
	if n.Style&yaml.FlowStyle != 0 {
		head, rest, ok := cut(lines, n)
		inner, brace := strings.CutPrefix(rest, "{")
		if strings.Contains(strings.TrimSpace(content), "\n") || !ok || !brace {
			return ErrUneditable
		}
		lines[n.Line-1] = head + "{" + strings.TrimSpace(content) + ", " + inner
	} else {
		end := blockEnd(lines, n.Line-1, n.Column-1)
		lines = slices.Insert(lines, end, Indented(content, n.Column-1)...)
	}
	return s.commit(lines, doc, func(v any) any {
		return with(v, func(m any) any {
			m.(map[string]any)[key] = value
			return m
		}, path...)
	})
}

// AppendItem appends an item, given as lines without indentation, to a sequence. It returns
// [ErrUneditable] if the path has no sequence, or if the style cannot be edited.
func (s *Stream) AppendItem(doc int, content string, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.SequenceNode {
		return ErrUneditable
	}
	var value any
	if err := yaml.Unmarshal([]byte(content), &value); err != nil {
		return ErrUneditable
	}
	lines := s.lines()
	appended := func(v any) any {
		return with(v, func(items any) any { return append(items.([]any), value) }, path...)
	}
	if n.Style&yaml.FlowStyle != 0 {
		item := ""
		switch value := value.(type) {
		case string:
			item = Scalar(value)
		case map[string]any:
			item = Flow(value)
		default:
			return ErrUneditable
		}
		if !appendFlow(lines, n, item) {
			return ErrUneditable
		}
		return s.commit(lines, doc, appended)
	}
	item := Indented(content, n.Column+1)
	item[0] = strings.Repeat(" ", n.Column-1) + "- " + strings.TrimLeft(item[0], " ")
	lines = slices.Insert(lines, blockEnd(lines, n.Line-1, n.Column-1), item...)
	return s.commit(lines, doc, appended)
}

// Flow writes a mapping on one line, with its keys sorted and values that are not strings as JSON.
func Flow(fields map[string]any) string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		written, err := json.Marshal(fields[key])
		if text, ok := fields[key].(string); ok || err != nil {
			written = []byte(Scalar(text))
		}
		pairs = append(pairs, key+": "+string(written))
	}
	return "{" + strings.Join(pairs, ", ") + "}"
}

// appendFlow appends an item to a sequence in flow style, and reports whether it could: the
// sequence must be on one line, without quotes and comments.
func appendFlow(lines []string, n *yaml.Node, item string) bool {
	head, rest, ok := cut(lines, n)
	end := strings.Index(rest, "]")
	if !ok || end < 0 || rest[0] != '[' || strings.ContainsAny(rest[:end], `'"#`) || len(n.Content) == 0 {
		return false
	}
	items := strings.TrimRight(rest[:end], " ")
	lines[n.Line-1] = head + items + ", " + item + rest[len(items):]
	return true
}

// removeFlow removes an item from a sequence in flow style, and reports whether it could. It
// undoes appendFlow.
func removeFlow(lines []string, n *yaml.Node, index int) bool {
	item := n.Content[index]
	head, rest, ok := cut(lines, item)
	if !ok || item.Kind != yaml.ScalarNode || item.Line != n.Line {
		return false
	}
	if index+1 < len(n.Content) {
		_, following, ok := cut(lines, n.Content[index+1])
		if !ok || n.Content[index+1].Line != n.Line {
			return false
		}
		lines[n.Line-1] = head + following
		return true
	}
	written := item.Value
	if item.Style&yaml.SingleQuotedStyle != 0 {
		written = Scalar(item.Value)
	}
	after, ok := strings.CutPrefix(rest, written)
	before, separated := strings.CutSuffix(strings.TrimRight(head, " "), ",")
	lines[n.Line-1] = before + after
	return ok && separated
}

// SetStrings changes a sequence of strings. Remaining entries keep their lines. It returns
// [ErrUneditable] if the path has no sequence of strings, or if the style cannot be edited.
func (s *Stream) SetStrings(doc int, values []string, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.SequenceNode || len(values) == 0 {
		return ErrUneditable
	}
	lines := s.lines()
	if n.Style&yaml.FlowStyle != 0 {
		head, rest, ok := cut(lines, n)
		end := strings.Index(rest, "]")
		if !ok || end < 0 || rest[0] != '[' || strings.ContainsAny(rest[:end], `'"#`) && !reflect.DeepEqual(Strs(n), []string{"*"}) {
			return ErrUneditable
		}
		var all []string
		for _, v := range values {
			all = append(all, Scalar(v))
		}
		lines[n.Line-1] = head + "[" + strings.Join(all, ", ") + rest[end:]
	} else {
		old := Strs(n)
		end := blockEnd(lines, n.Line-1, n.Column-1)
		for _, v := range values {
			if !slices.Contains(old, v) {
				lines = slices.Insert(lines, end, strings.Repeat(" ", n.Column-1)+"- "+Scalar(v))
				end++
			}
		}
		for i := len(n.Content) - 1; i >= 0; i-- {
			if !slices.Contains(values, old[i]) {
				lines = slices.Delete(lines, n.Content[i].Line-1, n.Content[i].Line)
			}
		}
	}
	return s.commit(lines, doc, func(v any) any {
		return with(v, func(any) any {
			var all []any
			for _, v := range values {
				all = append(all, v)
			}
			return all
		}, path...)
	})
}

// RemoveItem removes an item from a block sequence. It returns [ErrUneditable] if the path has
// no block sequence with this item and another one, or if the style cannot be edited.
func (s *Stream) RemoveItem(doc, index int, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.SequenceNode || n.Style&yaml.FlowStyle != 0 || len(n.Content) < 2 || index >= len(n.Content) {
		return ErrUneditable
	}
	lines := s.lines()
	first := n.Content[index].Line - 1
	lines = slices.Delete(lines, first, blockEnd(lines, first, n.Column))
	return s.commit(lines, doc, func(v any) any {
		return with(v, func(items any) any { return slices.Delete(items.([]any), index, index+1) }, path...)
	})
}

// ReplaceIn replaces the matches of an expression in a string, which may have several lines. It
// returns [ErrUneditable] if the path has no string, or if the style cannot be edited.
func (s *Stream) ReplaceIn(doc int, re *regexp.Regexp, replacement string, path ...any) error {
	n := At(s.Docs[doc], path...)
	if n == nil || n.Kind != yaml.ScalarNode {
		return ErrUneditable
	}
	lines := s.lines()
	for i, left := n.Line-1, strings.Count(n.Value, "\n")+2; i < len(lines) && left > 0; i, left = i+1, left-1 {
		lines[i] = re.ReplaceAllLiteralString(lines[i], replacement)
	}
	return s.commit(lines, doc, func(v any) any {
		return with(v, func(old any) any { return re.ReplaceAllLiteralString(old.(string), replacement) }, path...)
	})
}

// with changes the value at a path of a decoded document.
func with(v any, change func(any) any, path ...any) any {
	if len(path) == 0 {
		return change(v)
	}
	switch step := path[0].(type) {
	case int:
		v.([]any)[step] = with(v.([]any)[step], change, path[1:]...)
	case string:
		v.(map[string]any)[step] = with(v.(map[string]any)[step], change, path[1:]...)
	}
	return v
}

// blockEnd returns the line after the end of a block collection, given its first line (from 0)
// and its indentation. Empty lines after the collection, and comments that are not indented more,
// belong to the following content. A line that looks like a comment with more indentation may be
// a part of a string.
func blockEnd(lines []string, first, indent int) int {
	if first < 0 || first >= len(lines) {
		return len(lines)
	}
	end := first + 1
	dash := len(lines[first]) > indent && lines[first][indent] == '-'
	for i := first + 1; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " ")
		at := len(lines[i]) - len(line)
		if line == "" || strings.HasPrefix(line, "#") && at <= indent {
			continue
		}
		sibling := at == indent && (!dash || strings.HasPrefix(line, "- ") || line == "-")
		if at < indent || !sibling && at == indent || strings.HasPrefix(lines[i], "---") || strings.HasPrefix(lines[i], "...") {
			break
		}
		end = i + 1
	}
	return end
}

// Indented returns the lines of content, each indented by a number of spaces. It does not
// indent empty lines.
func Indented(content string, by int) []string {
	lines := strings.Split(strings.TrimRight(content, "\n"), "\n")
	for i := range lines {
		if lines[i] != "" {
			lines[i] = strings.Repeat(" ", by) + lines[i]
		}
	}
	return lines
}
