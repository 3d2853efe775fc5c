package yamledit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEntries(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reason, before, after string }{
		{
			"a list is made, and goes when its last entry does",
			"# Flux\nkind: Kustomization\nresources:\n  - a.yaml # first\n",
			"# Flux\nkind: Kustomization\nresources:\n  - a.yaml # first\ncomponents:\n  - tenure\n",
		},
		{
			"a list in block style grows at its end",
			"components:\n- other\n# the end\nkind: Kustomization\n",
			"components:\n- other\n- tenure\n# the end\nkind: Kustomization\n",
		},
		{
			"a list in flow style stays one",
			"components: [other]\nkind: Kustomization\n",
			"components: [other, tenure]\nkind: Kustomization\n",
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				added, err := AddEntry(tt.before, "components", "tenure")
				if err != nil || added != tt.after {
					t.Fatalf("got %q, %v; want %q", added, err, tt.after)
				}
				if again, err := AddEntry(added, "components", "tenure"); err != nil || again != added {
					t.Errorf("again: got %q, %v; want no change", again, err)
				}
				if removed, err := RemoveEntry(added, "components", "tenure"); err != nil || removed != tt.before {
					t.Errorf("removed: got %q, %v; want %q", removed, err, tt.before)
				}
			}
		})
	}
}

func TestEntriesRefused(t *testing.T) {
	t.Parallel()
	for reason, text := range map[string]string{
		"not YAML":        "components: [\n",
		"no object":       "- a\n",
		"an empty file":   "",
		"not a list":      "components: tenure\n",
		"with an alias":   "a: &a [b]\ncomponents: *a\n",
		"an empty flow":   "components: []\n",
		"carriage return": "kind: Kustomization\r\n",
	} {
		if got, err := AddEntry(text, "components", "tenure"); err == nil && reason != "an empty flow" {
			t.Errorf("%s: got %q; want an error", reason, got)
		}
	}
}

// FuzzEntries checks that an entry that was added and removed again leaves the same bytes, in a
// list that has entries or does not exist.
func FuzzEntries(f *testing.F) {
	for _, seed := range []string{
		handWritten, "resources: [a]\n", "resources: [ a , b ] # c\n", "resources:\n- a", "kind: x", "kind: x\n# end\n", "resources:\n- a\n# note\n",
		"resources:\n  - a\n    # deep\n\n# c\nkind: x\n", "resources:\n- |\n  a\n  # no comment\n\n# c\n", "resources:\n-\n  a\n", "{resources: [a]}\n",
		"--- # c\nresources:\n- a\n...\n", "\"resources\":\n- a: b\n  c: d\n---\nkind: y\n", "  kind: x\n  # c\n",
	} {
		f.Add(seed, "../base/new")
		f.Add(seed, "yes: # 'no'")
	}
	f.Fuzz(func(t *testing.T, text, entry string) {
		s, list, err := parseList(text, "resources")
		if err != nil || list == nil && At(s.Docs[0], "resources") != nil || list != nil && len(list.Content) == 0 {
			return
		}
		added, err := AddEntry(text, "resources", entry)
		if err != nil || added == text {
			return
		}
		removed, err := RemoveEntry(added, "resources", entry)
		if err != nil {
			t.Fatalf("cannot remove what was added: %v\n%s", err, added)
		}
		if diff := cmp.Diff(text, removed); diff != "" {
			t.Fatalf("adding and removing %q changed the text (-before +after):\n%s\nadded:\n%s", entry, diff, added)
		}
	})
}
