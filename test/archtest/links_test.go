package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

var (
	// links are the forms of a link or an image: [text](target), [name]: target, and HTML.
	links = []*regexp.Regexp{
		regexp.MustCompile(`\]\(([^)\s]+)(?: +"[^"]*")?\)`),
		regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]: +(\S+)`),
		regexp.MustCompile(`<(?:a|img)\b[^>]*\b(?:href|src)="([^"]*)"`),
	}
	heading    = regexp.MustCompile(`(?m)^#+ (.+?) *$`)
	linkedText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	fences     = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inlineCode = regexp.MustCompile("`[^`\n]+`")
)

// TestLinks checks the links between the pages of the documentation, and to other files of
// the repository: the file exists, and has the heading.
func TestLinks(t *testing.T) {
	t.Parallel()
	tree := os.DirFS("../..")
	pages, err := fs.Glob(tree, "*.md")
	if err != nil || len(pages) < 6 {
		t.Fatalf("the repository has only the pages %q: %v", pages, err)
	}
	err = fs.WalkDir(tree, "docs", func(name string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(name, ".md") {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, page := range pages {
		dead, all, err := deadLinks(tree, page)
		if err != nil {
			t.Fatal(err)
		}
		checked += all
		for _, d := range dead {
			t.Error(d)
		}
	}
	if checked < 200 {
		t.Errorf("only %d links were found", checked)
	}
}

// TestDeadLinks checks that each kind of dead link is found.
func TestDeadLinks(t *testing.T) {
	t.Parallel()
	const other = "# Other\n\n## Use `it` [here](x)\n\n## Twice\n\n## Twice\n\n```\n# a comment\n```\n"
	for name, tc := range map[string]struct{ reason, page, want string }{
		"File":       {"A link to a file that does not exist is dead.", "[a](missing.md)", "docs/page.md: the link missing.md leads to no file"},
		"Outside":    {"Links lead out of docs/ as they do in the repository.", "[a](../LICENSE)", ""},
		"Image":      {"An image is a link.", "![a](images/missing.svg)", "docs/page.md: the link images/missing.svg leads to no file"},
		"Reference":  {"A link can be defined elsewhere.", "[a]\n\n[a]: missing.md", "docs/page.md: the link missing.md leads to no file"},
		"HTML":       {"HTML has links too.", `<a href="missing.md">`, "docs/page.md: the link missing.md leads to no file"},
		"Titled":     {"A link can have a title.", `[a](missing.md "the title")`, "docs/page.md: the link missing.md leads to no file"},
		"Address":    {"Addresses are not fetched.", "[a](https://example.com/missing.md) [b](mailto:a@example.com)", ""},
		"Code":       {"Code has no links.", "`[a](missing.md)`\n\n```\n[a](missing.md)\n```", ""},
		"Heading":    {"A heading loses its punctuation and its links.", "[a](other.md#use-it-here)", ""},
		"NoHeading":  {"A heading that does not exist is dead.", "[a](other.md#use)", "docs/page.md: the link other.md#use names no heading of docs/other.md"},
		"Second":     {"The second heading of the same name gets a number.", "[a](other.md#twice-1)", ""},
		"Third":      {"There is no third one.", "[a](other.md#twice-2)", "docs/page.md: the link other.md#twice-2 names no heading of docs/other.md"},
		"Comment":    {"A comment in code is no heading.", "[a](other.md#a-comment)", "docs/page.md: the link other.md#a-comment names no heading of docs/other.md"},
		"OwnHeading": {"A page links to its own headings.", "# Page\n\n[a](#page) [b](#missing)", "docs/page.md: the link #missing names no heading of docs/page.md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dead, _, err := deadLinks(fstest.MapFS{
				"LICENSE":       {},
				"docs/page.md":  {Data: []byte(tc.page)},
				"docs/other.md": {Data: []byte(other)},
			}, "docs/page.md")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(dead, "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// deadLinks returns the links of a page that lead nowhere, and the number of all its links to
// files. It does not fetch addresses.
func deadLinks(tree fs.FS, page string) (dead []string, checked int, err error) {
	content, err := fs.ReadFile(tree, page)
	if err != nil {
		return nil, 0, err
	}
	text := inlineCode.ReplaceAllString(fences.ReplaceAllString(string(content), ""), "")
	for _, form := range links {
		for _, m := range form.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue
			}
			checked++
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := fs.Stat(tree, file); err != nil {
				dead = append(dead, fmt.Sprintf("%s: the link %s leads to no file", page, m[1]))
				continue
			}
			if anchor == "" {
				continue
			}
			linked, err := fs.ReadFile(tree, file)
			if err != nil {
				return nil, 0, err
			}
			if !anchors(string(linked))[anchor] {
				dead = append(dead, fmt.Sprintf("%s: the link %s names no heading of %s", page, m[1], file))
			}
		}
	}
	return dead, checked, nil
}

// anchors returns the anchors of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		var name strings.Builder
		for _, r := range strings.ToLower(linkedText.ReplaceAllString(m[1], "$1")) {
			switch {
			case r == ' ':
				name.WriteByte('-')
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
				name.WriteRune(r)
			}
		}
		anchor := name.String()
		for i := 1; all[anchor]; i++ {
			anchor = fmt.Sprintf("%s-%d", name.String(), i)
		}
		all[anchor] = true
	}
	return all
}
