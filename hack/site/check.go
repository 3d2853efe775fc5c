package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// page holds the links of a page, and the anchors that links to the page can name.
type page struct {
	links   []string // href of a, and all that the browser loads
	loads   []string // what the browser loads by itself: scripts, styles, images, frames
	anchors map[string]bool
}

// check returns the broken links of the site's pages, and the files that its pages load from other
// hosts. root is the path of the site's address, which ends with a slash. Links to other hosts are
// not followed.
func check(site fs.FS, root string) ([]string, error) {
	pages := map[string]*page{}
	var problems []string
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		switch path.Ext(name) {
		case ".html":
			if pages[name], err = parse(content); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		case ".css":
			for _, address := range loadedByStyle(string(content)) {
				problems = append(problems, fmt.Sprintf("%s: loads %s from another host", name, address))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read the site: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, address := range pages[name].loads {
			if u, err := url.Parse(address); err != nil || u.Host != "" {
				problems = append(problems, fmt.Sprintf("%s: loads %s from another host", name, address))
			}
		}
		for _, link := range pages[name].links {
			if problem := follow(site, pages, root, name, link); problem != "" {
				problems = append(problems, fmt.Sprintf("%s: the link %s %s", name, link, problem))
			}
		}
	}
	return problems, nil
}

// otherHost matches what a style loads from another host.
var otherHost = regexp.MustCompile(`(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)`)

// loadedByStyle returns what a style loads from other hosts.
func loadedByStyle(style string) []string {
	var addresses []string
	for _, m := range otherHost.FindAllStringSubmatch(style, -1) {
		addresses = append(addresses, m[1])
	}
	return addresses
}

// follow returns the reason why a link of the named page is broken, or "".
func follow(site fs.FS, pages map[string]*page, root, name, link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return "cannot be read"
	}
	if u.Scheme != "" || u.Host != "" {
		return ""
	}
	to := (&url.URL{Path: root + name}).ResolveReference(u)
	if to.Path+"/" == root {
		to.Path = root
	}
	file, inside := strings.CutPrefix(to.Path, root)
	if !inside {
		return "leaves the site"
	}
	if file == "" || strings.HasSuffix(file, "/") {
		file += "index.html"
	}
	if info, err := fs.Stat(site, file); err != nil || info.IsDir() {
		return "leads to no page"
	}
	if to.Fragment != "" && pages[file] != nil && !pages[file].anchors[to.Fragment] {
		return "names nothing on its page"
	}
	return ""
}

// loading are the elements that make the browser load something, with the attribute that names
// it.
var loading = map[string]string{
	"audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "object": "data",
	"script": "src", "source": "src", "track": "src", "video": "src",
}

// parse reads a page.
func parse(content []byte) (*page, error) {
	document, err := html.Parse(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	p := &page{anchors: map[string]bool{}}
	for node := range document.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		attributes := map[string]string{}
		for _, a := range node.Attr {
			attributes[a.Key] = a.Val
		}
		if node.Data == "style" && node.FirstChild != nil {
			p.loads = append(p.loads, loadedByStyle(node.FirstChild.Data)...)
		}
		p.loads = append(p.loads, loadedByStyle(attributes["style"])...)
		if id := attributes["id"]; id != "" {
			p.anchors[id] = true
		}
		if address := attributes["href"]; address != "" {
			p.links = append(p.links, address)
			// A link element loads its target, unless the target is the address of the page.
			if node.Data == "link" && attributes["rel"] != "canonical" {
				p.loads = append(p.loads, address)
			}
		}
		if address := attributes[loading[node.Data]]; address != "" {
			p.links, p.loads = append(p.links, address), append(p.loads, address)
		}
		for candidate := range strings.SplitSeq(attributes["srcset"], ",") {
			if fields := strings.Fields(candidate); len(fields) > 0 {
				p.links, p.loads = append(p.links, fields[0]), append(p.loads, fields[0])
			}
		}
	}
	return p, nil
}
