// Command site makes the pages of docs/ a site in dist/site, with Hugo, and checks its links.
//
// The pages stay as they are: content/_content.gotmpl reads them. Without a version the pages go
// to the site's root, and with one to its folder; versions.js, which all pages load, lists the
// versions of which the site has a folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	var s site
	flag.StringVar(&s.output, "o", "dist/site", "the folder of the site")
	flag.StringVar(&s.source, "source", ".", "the working tree whose pages are made")
	flag.StringVar(&s.version, "version", "", "the version of the pages, such as v0.1.0; empty for those of the main branch")
	flag.StringVar(&s.address, "address", "http://localhost:8080/", "the address of the site")
	flag.StringVar(&s.hugo, "hugo", "bin/hugo", "the program hugo")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	problems, err := s.make(ctx)
	if err == nil && len(problems) > 0 {
		err = errors.New(strings.Join(problems, "\n"))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "✗ cannot make the site: %v\n", err)
		stop()
		os.Exit(1)
	}
	fmt.Println(s.folder())
}
