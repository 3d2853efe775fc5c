// Benchmarks writes the figures of a run of benchmarks into the page that its argument names.
// It reads the output of `go test -bench` from the standard input and repeats it. Figures of
// benchmarks that are not in the output stay in the page as they are, with the commit that
// they were measured at.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: benchmarks FILE < output of go test -bench")
		os.Exit(2)
	}
	if err := update(os.Args[1], io.TeeReader(os.Stdin, os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// update puts the results of a run into a page. It returns an error if the output has no
// results or the page cannot be read or written.
func update(file string, output io.Reader) error {
	results, err := read(output)
	if err != nil {
		return fmt.Errorf("cannot read the output of the benchmarks: %w", err)
	}
	if len(results) == 0 {
		return fmt.Errorf("the output has no results: %s stays as it is", file)
	}
	old, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	page := parse(string(old))
	page.add(results, where())
	return os.WriteFile(file, []byte(page.String()), 0o644) //nolint:gosec // a page that everybody may read
}

// where describes the commit, the day and the machine of a run.
func where() string {
	commit := "an unknown commit"
	if out, err := exec.Command("git", "describe", "--always", "--dirty=, with changes").Output(); err == nil {
		commit = "commit " + strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("%s, %s, %d cores, %s/%s", commit, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}
