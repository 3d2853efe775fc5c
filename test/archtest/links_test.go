package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fences  = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestLinks checks the links between the pages of the documentation: the file exists, and
// has the heading.
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
		for _, m := range link.FindAllStringSubmatch(fences.ReplaceAllString(read(t, tree, page), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			checked++
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := fs.Stat(tree, file); err != nil {
				t.Errorf("%s: the link %s leads nowhere: %v", page, m[1], err)
				continue
			}
			if anchor != "" && !strings.Contains(anchors(read(t, tree, file)), " "+anchor+" ") {
				t.Errorf("%s: the link %s names no heading of %s", page, m[1], file)
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d links were found", checked)
	}
}

func read(t *testing.T, tree fs.FS, name string) string {
	t.Helper()
	content, err := fs.ReadFile(tree, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// anchors returns the anchors of a page's headings, as GitHub makes them, between spaces.
func anchors(page string) string {
	all := " "
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		for _, r := range strings.ToLower(m[1]) {
			switch {
			case r == ' ':
				all += "-"
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
				all += string(r)
			}
		}
		all += " "
	}
	return all
}
