package yamledit

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEdit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		text   string
		edit   func(*Stream) error
		want   string // "" for an edit that is refused
	}{
		"SetPlain":     {"a comment after it stays", "a: b # c\n", func(s *Stream) error { return s.Set(0, "d", "a") }, "a: d # c\n"},
		"SetQuoted":    {"quotes go with what they quote", "a: \"b\" # c\n", func(s *Stream) error { return s.Set(0, "true", "a") }, "a: 'true' # c\n"},
		"SetFlow":      {"in one line", "{a: {b: c}, d: e}\n", func(s *Stream) error { return s.Set(0, "x", "a", "b") }, "{a: {b: x}, d: e}\n"},
		"SetSecond":    {"other documents stay as they are", "---\n# one\na:   b\n---\na: b\n", func(s *Stream) error { return s.Set(1, "c", "a") }, "---\n# one\na:   b\n---\na: c\n"},
		"SetWide":      {"columns are characters", "{ü: ä, a: b}\n", func(s *Stream) error { return s.Set(0, "c", "a") }, "{ü: ä, a: c}\n"},
		"SetEscaped":   {"what is written with escapes is left alone", `a: "\x62"` + "\n", func(s *Stream) error { return s.Set(0, "c", "a") }, ""},
		"SetBlock":     {"so is a block", "a: |\n  b\n", func(s *Stream) error { return s.Set(0, "c", "a") }, ""},
		"SetAlias":     {"so is what is in two places", "a: &x b\nc: *x\n", func(s *Stream) error { return s.Set(0, "c", "a") }, ""},
		"AddBlock":     {"after the last key, before the comment of what follows", "a:\n  b: c\n\n# of d\nd: e\n", func(s *Stream) error { return s.Add(0, "f", "f: g\n", "a") }, "a:\n  b: c\n  f: g\n\n# of d\nd: e\n"},
		"AddNested":    {"with its own contents", "a:\n  b: c\n", func(s *Stream) error { return s.Add(0, "f", "f:\n  g: h\n", "a") }, "a:\n  b: c\n  f:\n    g: h\n"},
		"AddFlow":      {"in one line, first", "a: {b: c}\n", func(s *Stream) error { return s.Add(0, "f", "f: g\n", "a") }, "a: {f: g, b: c}\n"},
		"AddTwice":     {"not what is there", "a: {b: c}\n", func(s *Stream) error { return s.Add(0, "b", "b: g\n", "a") }, ""},
		"AddNoEnd":     {"a file without a line's end at its end", "a:\n  b: c", func(s *Stream) error { return s.Add(0, "f", "f: g\n", "a") }, "a:\n  b: c\n  f: g"},
		"AddText":      {"after a text of many lines", "a:\n  b: |\n    # not a comment\n\n    c\nd: e\n", func(s *Stream) error { return s.Add(0, "f", "f: g\n", "a") }, "a:\n  b: |\n    # not a comment\n\n    c\n  f: g\nd: e\n"},
		"AppendBlock":  {"a sequence that is not indented", "a:\n- b\n# of c\nc: d\n", func(s *Stream) error { return s.AppendItem(0, "e\n", "a") }, "a:\n- b\n- e\n# of c\nc: d\n"},
		"AppendFlow":   {"in one line", "a: [b, c] # d\n", func(s *Stream) error { return s.AppendItem(0, "e\n", "a") }, "a: [b, c, e] # d\n"},
		"AppendObject": {"more than one line", "a:\n  - b: c\n", func(s *Stream) error { return s.AppendItem(0, "d: e\nf: g\n", "a") }, "a:\n  - b: c\n  - d: e\n    f: g\n"},
		"StringsBlock": {"what stays keeps its comment", "a:\n  - b # of b\n  - c\n", func(s *Stream) error { return s.SetStrings(0, []string{"b", "d"}, "a") }, "a:\n  - b # of b\n  - d\n"},
		"RemoveItem":   {"an item of many lines", "a:\n  - b: c\n    d: e\n  # of f\n  - f: g\n", func(s *Stream) error { return s.RemoveItem(0, 0, "a") }, "a:\n  # of f\n  - f: g\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Parse(tc.text)
			if err == nil {
				err = tc.edit(s)
			}
			if err != nil {
				if tc.want != "" {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, s.Text); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzEdit checks, for any file, that an edited document parses and has the change, that
// another edit changes nothing, and that all other documents stay the same, byte by byte if
// they are separate.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{
		"a: b\n---\na: {b: c}\n", "a:\n- b\n- c\n", "a: |\n  x\nb: 'y'\n", "a: [b, 'c', \"d\"]\n", "# c\n\na: &x b\nc: *x\n", "{a: [b]}", "a:\n  a: b\n  # x\n\nb: c", "? a\n: b\n", "\xef\xbb\xbfa: b\r\n",
	} {
		f.Add(seed, uint8(0), uint8(0))
		f.Add(seed, uint8(1), uint8(1))
	}
	edits := []struct {
		do    func(*Stream, int) error
		check func(*Stream, int) bool
	}{
		{do: func(s *Stream, d int) error { return s.Set(d, "tenure", "a") }, check: func(s *Stream, d int) bool { return Str(s.Docs[d], "a") == "tenure" }},
		{do: func(s *Stream, d int) error { return s.Add(d, "tenure", "tenure: x\n") }, check: func(s *Stream, d int) bool { return Str(s.Docs[d], "tenure") == "x" }},
		{do: func(s *Stream, d int) error { return s.Add(d, "tenure", "tenure: x\n", "a") }, check: func(s *Stream, d int) bool { return Str(s.Docs[d], "a", "tenure") == "x" }},
		{do: func(s *Stream, d int) error { return s.AppendItem(d, "tenure\n", "a") }, check: func(s *Stream, d int) bool {
			all := Strs(s.Docs[d], "a")
			return len(all) > 0 && all[len(all)-1] == "tenure"
		}},
		{do: func(s *Stream, d int) error { return s.SetStrings(d, []string{"b", "tenure"}, "a") }, check: func(s *Stream, d int) bool { return reflect.DeepEqual(Strs(s.Docs[d], "a"), []string{"b", "tenure"}) }},
	}
	f.Fuzz(func(t *testing.T, text string, which, doc uint8) {
		s, err := Parse(text)
		if err != nil || int(doc) >= len(s.Docs) || s.Docs[doc] == nil {
			return
		}
		before, err := s.values()
		if err != nil {
			return
		}
		edit := edits[int(which)%len(edits)]
		if err := edit.do(s, int(doc)); err != nil {
			if s.Text != text {
				t.Errorf("what was refused has changed %q to %q", text, s.Text)
			}
			return
		}
		again, err := Parse(s.Text)
		if err != nil {
			t.Fatalf("%q became %q, which does not parse: %v", text, s.Text, err)
		}
		if !edit.check(again, int(doc)) {
			t.Errorf("%q became %q, which does not have the change", text, s.Text)
		}
		after, err := again.values()
		if err != nil || len(after) != len(before) {
			t.Fatalf("%q became %q, with other documents: %v", text, s.Text, err)
		}
		for i := range before {
			if i != int(doc) && !reflect.DeepEqual(before[i], after[i]) {
				t.Errorf("%q became %q: another document has changed", text, s.Text)
			}
		}
		if removed := lost(text, s.Text); len(removed) > 2 {
			t.Errorf("%q became %q, with %d lines lost", text, s.Text, len(removed))
		}
	})
}

// lost returns the lines of before that after lacks.
func lost(before, after string) []string {
	count := map[string]int{}
	for _, line := range strings.Split(after, "\n") {
		count[line]++
	}
	var all []string
	for _, line := range strings.Split(before, "\n") {
		if count[line]--; count[line] < 0 {
			all = append(all, line)
		}
	}
	return all
}

// TestRemoveKey checks that a key goes with its content, and nothing else.
func TestRemoveKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, before, after string }{
		{"the last key, in a mapping of the second document", "a: b\n---\nspec:\n  one: 1\n  # about two\n  two:\n    - x: |\n        # in a text\n\n        text\n# the end\n", "a: b\n---\nspec:\n  one: 1\n  # about two\n# the end\n"},
		{"a key before a comment of the next one", "a: b\n---\nspec:\n  two: [1]\n  # about one\n  one: 1\n", "a: b\n---\nspec:\n  # about one\n  one: 1\n"},
		{"the only key, which would leave null", "a: b\n---\nspec:\n  two: 1\n", ""},
		{"flow style", "a: b\n---\nspec: {two: 1, one: 1}\n", ""},
		{"another key", "a: b\n---\nspec:\n  one: 1\n", ""},
	} {
		s, err := Parse(tc.before)
		if err != nil {
			t.Fatal(err)
		}
		err = s.RemoveKey(1, "two", "spec")
		if tc.after == "" {
			if !errors.Is(err, ErrUneditable) || s.Text != tc.before {
				t.Errorf("%s: got %v and %q", tc.reason, err, s.Text)
			}
			continue
		}
		if err != nil || s.Text != tc.after {
			t.Errorf("%s: got %q, %v; want %q", tc.reason, s.Text, err, tc.after)
		}
	}
}
