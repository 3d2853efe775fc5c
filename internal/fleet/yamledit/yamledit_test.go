package yamledit

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func is(want any) func(any) bool { return func(e any) bool { return reflect.DeepEqual(e, want) } }

func patch(file string) any { return map[string]any{"path": file} }

const handWritten = `# What runs on staging.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization

resources:
  - ../base/billing   # the first
  # A second namespace of dev-team's.
  - ../base/dev-team-preview

# The environment's paths.
patches:
- path: "billing-patch.yaml"
- target: {kind: Deployment}
  patch: |
    - op: add
      path: /spec
      # not a comment
# the end
`

func TestAppend(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, text, field string
		entry               any
		want                string
	}{
		"resource": {
			reason: "one line comes in, below the last entry and above the comment of the next field",
			text:   handWritten, field: "resources", entry: "../base/new",
			want: strings.Replace(handWritten, "dev-team-preview\n", "dev-team-preview\n  - ../base/new\n", 1),
		},
		"patch": {
			reason: "the indentation of the list is kept, and a block of text is not cut",
			text:   handWritten, field: "patches", entry: patch("new.yaml"),
			want: strings.Replace(handWritten, "# the end", "- path: new.yaml\n# the end", 1),
		},
		"new field": {
			reason: "a field that is not there is made",
			text:   "resources:\n- a # one\n", field: "patches", entry: patch("p.yaml"),
			want: "resources:\n- a # one\npatches:\n  - path: p.yaml\n",
		},
		"twice":      {reason: "an entry that is there is not added", text: handWritten, field: "resources", entry: "../base/billing", want: handWritten},
		"flow":       {reason: "lists in flow style are edited too", text: "# top\nresources: [a]\n", field: "resources", entry: "b", want: "# top\nresources: [a, b]\n"},
		"empty":      {reason: "an empty list", text: "resources: []\n", field: "resources", entry: "b", want: "resources:\n  - b\n"},
		"null":       {reason: "a field without a value", text: "resources:\nkind: x\n", field: "resources", entry: "b", want: "resources:\n- b\nkind: x\n"},
		"nothing":    {reason: "an empty file", text: "", field: "resources", entry: "b", want: "resources:\n  - b\n"},
		"no newline": {reason: "a last line without an end", text: "resources:\n- a", field: "resources", entry: "b", want: "resources:\n- a\n- b"},
		"windows":    {reason: "line ends are kept", text: "resources:\r\n- a\r\n", field: "resources", entry: "b", want: "resources:\r\n- a\r\n- b\r\n"},
		"quotes":     {reason: "an entry that needs quotes gets them", text: "resources:\n- a\n", field: "resources", entry: "yes", want: "resources:\n- a\n- \"yes\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Append([]byte(tc.text), tc.field, tc.entry)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, text, field string
		entry               any
		want                string
	}{
		"first": {
			reason: "a line goes, the comment about the next entry stays",
			text:   handWritten, field: "resources", entry: "../base/billing",
			want: strings.Replace(handWritten, "  - ../base/billing   # the first\n", "", 1),
		},
		"last": {
			reason: "the comment above goes with its entry",
			text:   handWritten, field: "resources", entry: "../base/dev-team-preview",
			want: strings.Replace(handWritten, "  # A second namespace of dev-team's.\n  - ../base/dev-team-preview\n", "", 1),
		},
		"patch": {
			reason: "a patch beside one of several lines",
			text:   handWritten, field: "patches", entry: patch("billing-patch.yaml"),
			want: strings.Replace(handWritten, "- path: \"billing-patch.yaml\"\n", "", 1),
		},
		"only":   {reason: "an empty list goes", text: "kind: x\nresources:\n- a\n# end\n", field: "resources", entry: "a", want: "kind: x\n# end\n"},
		"absent": {reason: "nothing to do", text: handWritten, field: "resources", entry: "b", want: handWritten},
		"flow":   {reason: "flow style", text: "resources: [a, b]\n", field: "resources", entry: "a", want: "resources: [b]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Remove([]byte(tc.text), tc.field, is(tc.entry))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{
		"not YAML":              "a: [\n",
		"a list":                "- a\n",
		"two documents":         "a: b\n---\nc: d\n",
		"a field of other kind": "resources: text\n",
		"a tab":                 "resources:\n\t- a\n",
	} {
		if got, err := Append([]byte(text), "resources", "x"); err == nil {
			t.Errorf("%s: got no error but %q", reason, got)
		}
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	got, err := Empty([]byte("kind: x\n# end\n"), "resources")
	if want := "kind: x\nresources: []\n# end\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	got, err = Empty([]byte(handWritten), "resources")
	if err != nil || string(got) != handWritten {
		t.Errorf("a list with entries changed: %q, %v", got, err)
	}
}

func TestRemoveField(t *testing.T) {
	t.Parallel()
	got, err := RemoveField([]byte("# top\nkind: x\nnamespace: apps\n\nresources:\n- a\n"), "namespace")
	if want := "# top\nkind: x\n\nresources:\n- a\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// FuzzAppend checks that an edited text parses, has one more entry and no other change; that
// another Append changes nothing; and that Remove restores the content.
func FuzzAppend(f *testing.F) {
	for _, seed := range []string{
		handWritten, "", "resources: [a]\n", "resources:\n- a", "resources:\n  # only a comment\n", "resources: &x\n- a\npatches: *x\n",
		"resources:\n- |\n  a\n\n# c\n", "resources:\n-\n  a\n", "{resources: [a]}\n", "--- # c\nresources:\n- a\n...\n", "? resources\n: - a\n", "\"resources\":\n- a: b\n  c: d\n",
	} {
		f.Add(seed, "../base/new")
	}
	f.Fuzz(func(t *testing.T, text, entry string) {
		before, err := Decode([]byte(text))
		if err != nil {
			return // only YAML can be edited
		}
		list, _ := before["resources"].([]any)
		edited, err := Append([]byte(text), "resources", entry)
		if err != nil {
			return
		}
		after, err := Decode(edited)
		if err != nil {
			t.Fatalf("the edited text cannot be parsed: %v\n%s", err, edited)
		}
		want := list
		if !slices.ContainsFunc(list, is(entry)) {
			want = append(slices.Clone(list), entry)
		}
		before["resources"] = want
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("the content (-want +got):\n%s", diff)
		}
		again, err := Append(edited, "resources", entry)
		if err != nil || string(again) != string(edited) {
			t.Fatalf("doing it again changes something: %v\n%s", err, again)
		}
		if slices.ContainsFunc(list, is(entry)) {
			return
		}
		removed, err := Remove(edited, "resources", is(entry))
		if err != nil {
			t.Fatalf("cannot remove what was added: %v\n%s", err, edited)
		}
		if before["resources"] = list; len(list) == 0 {
			delete(before, "resources")
		}
		back, err := Decode(removed)
		if err != nil {
			t.Fatalf("cannot parse the text after removing: %v\n%s", err, removed)
		}
		if diff := cmp.Diff(before, back); diff != "" {
			t.Fatalf("the content after removing again (-want +got):\n%s", diff)
		}
	})
}
