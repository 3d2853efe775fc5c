// Package version is `tenure version`.
package version

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/complete"
	"github.com/tenure-dev/tenure/internal/release"
	"github.com/tenure-dev/tenure/internal/ui"
)

// info is the output of the command. The fields stay as they are in later versions.
type info struct {
	// Version is a version such as v0.1.0, or "(devel)" for a build that records none.
	Version string `json:"version"`
	// Commit is the commit of the sources, if the build recorded it.
	Commit string `json:"commit,omitempty"`
	// Go and Platform are the version of Go and the system that the program was built with and for.
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Kubernetes is the version that the local cluster runs, and Flux the version whose manifests
	// the program contains.
	Kubernetes string `json:"kubernetes"`
	Flux       string `json:"flux"`
}

// NewCommand returns `version`.
func NewCommand(streams ui.IO) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of tenure and of its Kubernetes and Flux",
		Example: `  tenure version
  tenure version -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := current().format(output)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(streams.Out, text)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "how to print it: text, json or yaml")
	complete.Flag(cmd, "output", complete.Words("text", "json", "yaml"))
	return cmd
}

func current() info {
	build := release.Current()
	return info{
		Version: build.Version, Commit: build.Commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kubernetes: release.Kubernetes, Flux: config.FluxVersion(),
	}
}

// format returns the output in a format.
func (i info) format(output string) (string, error) {
	switch output {
	case "text":
		first := fmt.Sprintf("tenure %s (%s, %s)\n", i.Version, i.Go, i.Platform)
		if i.Commit != "" {
			first += "commit " + i.Commit + "\n"
		}
		return first + fmt.Sprintf("Kubernetes %s, Flux %s\n", i.Kubernetes, i.Flux), nil
	case "json":
		text, err := json.MarshalIndent(i, "", "  ")
		return string(text) + "\n", err
	case "yaml":
		text, err := yaml.Marshal(i)
		return string(text), err
	}
	return "", fmt.Errorf("-o is text, json or yaml, not %q", output)
}
