// Build compiles Tenure's programs into a folder and shows the progress:
//
//	go run ./hack/build [-C ROOT] [-o bin] [-version v0.1.0] tenure tenure-cluster source-controller …
//
// A first build spends most of its time on Kubernetes and Flux, a few thousand packages, and
// the go command prints nothing while it compiles them. This program asks the go command which
// packages are not in the build cache yet, and counts them down: on a terminal in one line per
// program, elsewhere in a line every ten seconds.
//
// It builds programs one after another, because the go command uses every core by itself. It
// links a program under a temporary name and renames it, so an interrupted build, or a full
// disk, leaves the old program or none.
//
// Make decides whether a program has to be built: see Makefile.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run builds the programs named in args and returns the exit code: 0, 1 if a program could not
// be built, 2 for invalid args, 130 after an interrupt.
func run(ctx context.Context, args []string, out *os.File, errOut io.Writer) int {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.SetOutput(errOut)
	root := flags.String("C", ".", "root of the repository")
	version := flags.String("version", "", "version as which Tenure's programs are built, such as v0.1.0 (default: as the go command records it)")
	repository := flags.String("repository", "", "repository of the image that their manifests name")
	dir := flags.String("o", "bin", "folder that the programs go to, relative to the root")
	flags.Usage = func() {
		fmt.Fprintf(errOut, "usage: build [-C ROOT] [-o DIR] [-version VERSION] [-repository REPOSITORY] PROGRAM…\nprograms: %s\n", strings.Join(names(), " "))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return 2
	}
	stamp, err := stampFlags(*version, *repository)
	if err != nil {
		fmt.Fprintf(errOut, "✗ %v\n", err)
		return 2
	}
	programs, err := selected(flags.Args())
	if err != nil {
		fmt.Fprintf(errOut, "✗ %v\n", err)
		return 2
	}
	bin := *dir
	if !filepath.IsAbs(bin) {
		bin = filepath.Join(*root, bin)
	}
	// The go command runs in the folder of a module, so the target has to be
	// absolute.
	if bin, err = filepath.Abs(bin); err != nil {
		fmt.Fprintf(errOut, "✗ %v\n", err)
		return 1
	}
	if err := os.MkdirAll(bin, 0o750); err != nil {
		fmt.Fprintf(errOut, "✗ cannot make the folder of programs: %v\n", err)
		return 1
	}
	for _, p := range programs {
		err := build(ctx, builder{root: *root, bin: bin, stamp: stamp, progress: newProgress(out, p.name)}, p)
		if ctx.Err() != nil {
			fmt.Fprintln(errOut, "✗ interrupted: the next build goes on where this one stopped")
			return 130
		}
		if err != nil {
			fmt.Fprintf(errOut, "✗ %v\n", err)
			return 1
		}
	}
	return 0
}
