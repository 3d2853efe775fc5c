package yamledit

import (
	"errors"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// errStyle reports that a text cannot be edited by lines.
var errStyle = errors.New("not written as a block")

// document is a text by lines, with the nodes that were parsed from it.
type document struct {
	lines []string // with their ends
	root  *yaml.Node
}

// span is lines from a first to before a last one, counted from 0.
type span struct{ from, to int }

func parseLines(text []byte) (*document, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	if len(node.Content) != 1 || node.Content[0].Kind != yaml.MappingNode || node.Content[0].Style&yaml.FlowStyle != 0 {
		return nil, errStyle
	}
	d := &document{root: node.Content[0]}
	for line := range strings.Lines(string(text)) {
		d.lines = append(d.lines, line)
	}
	return d, nil
}

// end returns the line ending of the document.
func (d *document) end() string {
	if len(d.lines) > 0 && strings.HasSuffix(d.lines[0], "\r\n") {
		return "\r\n"
	}
	return "\n"
}

// find returns the value of a field and the lines of the field, from its key to the comment
// before the next field.
func (d *document) find(name string) (*yaml.Node, span) {
	fields := d.root.Content
	for i := 0; i < len(fields); i += 2 {
		if fields[i].Value != name {
			continue
		}
		to := len(d.lines)
		if i+2 < len(fields) {
			to = fields[i+2].Line - 1
		}
		return fields[i+1], span{fields[i].Line - 1, d.trim(fields[i].Line, to, fields[i].Column)}
	}
	return nil, span{}
}

func (d *document) field(name string) span {
	_, lines := d.find(name)
	return lines
}

// trim moves the end of a span up over lines that belong to the following content: blank
// lines, document ends, and comments with less indentation than the column, which counts from
// 1.
func (d *document) trim(from, to, column int) int {
	for ; to > from; to-- {
		line := strings.TrimRight(d.lines[to-1], "\r\n")
		text := strings.TrimLeft(line, " ")
		outside := strings.HasPrefix(text, "#") && len(line)-len(text) < column
		if text != "" && !outside && line != "..." && line != "---" {
			break
		}
	}
	return to
}

// with returns the text with a line inserted.
func (d *document) with(at int, line string) []byte {
	var out strings.Builder
	for i, l := range d.lines[:at] {
		out.WriteString(l)
		if i == at-1 && !strings.HasSuffix(l, "\n") {
			out.WriteString(d.end())
		}
	}
	out.WriteString(line + d.end())
	for _, l := range d.lines[at:] {
		out.WriteString(l)
	}
	return []byte(out.String())
}

// without returns the text without a span of lines.
func (d *document) without(s span) []byte {
	return []byte(strings.Join(d.lines[:s.from], "") + strings.Join(d.lines[s.to:], ""))
}

func appendLines(text []byte, field string, entry any) ([]byte, error) {
	item, err := marshal(entry)
	if err != nil {
		return nil, err
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return []byte(string(text) + field + ":\n  - " + item + "\n"), nil
	}
	d, err := parseLines(text)
	if err != nil {
		return nil, err
	}
	list, lines := d.find(field)
	if list == nil {
		at := d.trim(0, len(d.lines), 0)
		indent := strings.Repeat(" ", d.root.Column-1)
		return d.with(at, indent+field+":"+d.end()+indent+"  - "+item), nil
	}
	if at := lines.from; strings.TrimSpace(d.lines[at]) == field+": []" {
		d.lines[at] = strings.Replace(d.lines[at], " []", "", 1)
		return d.with(at+1, strings.Repeat(" ", d.root.Column-1)+"  - "+item), nil
	}
	if list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 || len(list.Content) == 0 {
		return nil, errStyle
	}
	return d.with(lines.to, strings.Repeat(" ", list.Column-1)+"- "+item), nil
}

func removeLines(text []byte, field string, at int) ([]byte, error) {
	d, err := parseLines(text)
	if err != nil {
		return nil, err
	}
	list, lines := d.find(field)
	if list == nil || list.Kind != yaml.SequenceNode || list.Style&yaml.FlowStyle != 0 {
		return nil, errStyle
	}
	if len(list.Content) == 1 {
		return d.without(lines), nil
	}
	first := func(i int) int {
		line := list.Content[i].Line - 1
		for line > lines.from+1 && isComment(d.lines[line-1]) {
			line-- // a comment above an entry is about it
		}
		return line
	}
	gone := span{first(at), lines.to}
	if at+1 < len(list.Content) {
		gone.to = first(at + 1)
	}
	return d.without(gone), nil
}

func isComment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }
