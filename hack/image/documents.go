package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/tenure-dev/tenure/internal/cli"
	"github.com/tenure-dev/tenure/internal/ui"
)

// documentation returns the files beside the program in an archive: the licence, the README, the
// man pages and the scripts for shell completion.
func documentation(root string, created time.Time) ([]file, error) {
	var files []file
	for _, name := range []string{"LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("cannot pack the documentation: %w", err)
		}
		files = append(files, file{name: name, mode: 0o644, content: content})
	}
	cmd := cli.NewCommand(ui.IO{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	completions, err := completionScripts(cmd)
	if err != nil {
		return nil, err
	}
	pages, err := manPages(cmd, created)
	if err != nil {
		return nil, err
	}
	return slices.Concat(files, completions, pages), nil
}

// completionScripts returns the scripts for completion under the names that the shells expect.
func completionScripts(cmd *cobra.Command) ([]file, error) {
	var files []file
	for _, script := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"completions/tenure.bash", func(w io.Writer) error { return cmd.GenBashCompletionV2(w, true) }},
		{"completions/tenure.fish", func(w io.Writer) error { return cmd.GenFishCompletion(w, true) }},
		{"completions/_tenure", cmd.GenZshCompletion},
	} {
		var text bytes.Buffer
		if err := script.write(&text); err != nil {
			return nil, fmt.Errorf("cannot write %s: %w", script.name, err)
		}
		files = append(files, file{name: script.name, mode: 0o644, content: text.Bytes()})
	}
	return files, nil
}

// manPages returns a man page for a command and each of its subcommands.
func manPages(cmd *cobra.Command, created time.Time) ([]file, error) {
	if cmd.Hidden || cmd.Name() == "help" {
		return nil, nil
	}
	cmd.DisableAutoGenTag = true
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	var page bytes.Buffer
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: &created, Source: "Tenure", Manual: "Tenure"}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return nil, fmt.Errorf("cannot write the man page of %s: %w", cmd.CommandPath(), err)
	}
	pages := []file{{name: "man/man1/" + name + ".1", mode: 0o644, content: page.Bytes()}}
	for _, sub := range cmd.Commands() {
		more, err := manPages(sub, created)
		if err != nil {
			return nil, err
		}
		pages = append(pages, more...)
	}
	return pages, nil
}
