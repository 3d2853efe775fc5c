package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestCheck checks that dead links and requests to other hosts are found.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, page, want string }{
		"Fine": {
			"Links to pages, files, headings and other hosts are fine.",
			`<link rel="canonical" href="https://tenure.example.com/tenure/a/"><link rel="stylesheet" href="/tenure/style.css">
			<a href="/tenure/b/">b</a> <a href="../b/#there">b</a> <a href="#here" id="here">here</a> <a href="/tenure/">home</a>
			<a href="https://example.com/">other</a> <img src="/tenure/image.svg"> <script>let x = "https://example.com"</script>`,
			"",
		},
		"NoPage":      {"The page does not exist.", `<a href="/tenure/c/">c</a>`, "a/index.html: the link /tenure/c/ leads to no page"},
		"NoHeading":   {"The heading does not exist.", `<a href="/tenure/b/#here">b</a>`, "a/index.html: the link /tenure/b/#here names nothing on its page"},
		"NoOwn":       {"The page's own heading does not exist.", `<a href="#there">b</a>`, "a/index.html: the link #there names nothing on its page"},
		"NoImage":     {"An image is a link.", `<img src="missing.svg">`, "a/index.html: the link missing.svg leads to no page"},
		"NoSlash":     {"A folder without a slash would be another request.", `<a href="/tenure/b">b</a>`, "a/index.html: the link /tenure/b leads to no page"},
		"Outside":     {"A path of the host that is not the site's.", `<a href="/b/">b</a>`, "a/index.html: the link /b/ leaves the site"},
		"Markdown":    {"A link between Markdown files that was not translated.", `<a href="../b.md">b</a>`, "a/index.html: the link ../b.md leads to no page"},
		"Script":      {"A script of another host.", `<script src="https://cdn.example.com/x.js"></script>`, "a/index.html: loads https://cdn.example.com/x.js from another host"},
		"NoScheme":    {"An address without a scheme is one of another host, too.", `<img src="//cdn.example.com/x.png">`, "a/index.html: loads //cdn.example.com/x.png from another host"},
		"Style":       {"A style of another host.", `<link rel="stylesheet" href="https://cdn.example.com/x.css">`, "a/index.html: loads https://cdn.example.com/x.css from another host"},
		"Preconnect":  {"A connection is a request.", `<link rel="preconnect" href="https://cdn.example.com">`, "a/index.html: loads https://cdn.example.com from another host"},
		"SourceSet":   {"Images for other screens.", `<img srcset="/tenure/image.svg 1x, https://cdn.example.com/2.svg 2x">`, "a/index.html: loads https://cdn.example.com/2.svg from another host"},
		"InlineStyle": {"A style in the page.", `<style>body { background: url(https://cdn.example.com/x.png) }</style>`, "a/index.html: loads https://cdn.example.com/x.png from another host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems, err := check(fstest.MapFS{
				"index.html":   {Data: []byte("home")},
				"a/index.html": {Data: []byte(tc.page)},
				"b/index.html": {Data: []byte(`<h2 id="there">There</h2>`)},
				"style.css":    {Data: []byte("body { background: url(image.svg) }")},
				"image.svg":    {},
			}, "/tenure/")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, strings.Join(problems, "\n")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestCheckStyles checks that fonts and images of other hosts are found in styles.
func TestCheckStyles(t *testing.T) {
	t.Parallel()
	problems, err := check(fstest.MapFS{
		"a.css": {Data: []byte(`@import "https://cdn.example.com/a.css"; @font-face { src: url('//cdn.example.com/b.woff2') } x { src: url(c.png) }`)},
	}, "/")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a.css: loads https://cdn.example.com/a.css from another host",
		"a.css: loads //cdn.example.com/b.woff2 from another host",
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("check (-want +got):\n%s", diff)
	}
}
