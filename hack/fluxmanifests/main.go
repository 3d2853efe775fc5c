// Fluxmanifests writes the manifests of Flux that Tenure embeds, without a network: the output
// of `flux install --export` for the controllers that cluster/flux builds.
//
//	go -C hack/fluxmanifests run .           writes config/flux
//	go -C hack/fluxmanifests run . --check   fails when config/flux has drifted
//
// The flux command fetches its manifests from a release. This program makes the same release
// from modules that the Go module cache verifies: the controllers' config folders, at exactly
// the versions that cluster/flux/go.mod pins (so that image tags and programs cannot
// disagree), and the manifests folder and the templates of the flux2 module.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	// The module is needed for its Go types alone: controller-gen reads them.
	_ "github.com/fluxcd/source-watcher/api/v2/v1beta1"
)

// The files of config/flux.
const (
	componentsFile    = "gotk-components.yaml"
	imageFile         = "gotk-image-components.yaml"
	sourceWatcherFile = "gotk-source-watcher-crds.yaml"
)

func main() {
	check := flag.Bool("check", false, "compare with the files on disk instead of writing them")
	root := flag.String("root", filepath.Join("..", ".."), "the repository's `folder`")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "fluxmanifests:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	files, err := build(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "config", "flux")
	if check {
		return compare(dir, files)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compare reports every file that differs, so that one run shows all drift.
func compare(dir string, files map[string][]byte) error {
	var drift []error
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			drift = append(drift, err)
			continue
		}
		if !bytes.Equal(got, want) {
			drift = append(drift, fmt.Errorf("config/flux/%s has drifted from its sources: run `go -C hack/fluxmanifests run .` and commit the result", name))
		}
	}
	return errors.Join(drift...)
}
