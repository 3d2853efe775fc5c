package main

import (
	"bytes"
	"fmt"
	"text/template"

	"github.com/tenure-dev/tenure/internal/release"
)

// krewTemplate is the manifest for krew, by which `kubectl tenure` is installed:
// https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
const krewTemplate = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: tenure
spec:
  version: {{.Version}}
  homepage: {{.Home}}
  shortDescription: Make a cluster with Flux multi-tenant, and prove it
  description: |
    Tenure turns a Kubernetes cluster with Flux into a multi-tenant platform and
    proves that its tenants are isolated.
  platforms:
{{- range .Archives}}
    - selector:
        matchLabels: {os: {{.OS}}, arch: {{.Arch}}}
      uri: {{.URL}}
      sha256: {{.Sum}}
      bin: tenure
      files:
        - {from: tenure, to: .}
        - {from: LICENSE, to: .}
{{- end}}
`

// formulaTemplate is the formula for Homebrew: https://docs.brew.sh/Formula-Cookbook.
const formulaTemplate = `class Tenure < Formula
  desc "Make a Kubernetes cluster with Flux multi-tenant, and prove it"
  homepage "{{.Home}}"
  version "{{.Number}}"
  license "{{.Licence}}"
{{range .Systems}}
  on_{{.Name}} do
{{- range .Archives}}
    on_{{.CPU}} do
      url "{{.URL}}"
      sha256 "{{.Sum}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "tenure"
    bin.install_symlink "tenure" => "kubectl-tenure"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completions/tenure.bash" => "tenure"
    fish_completion.install "completions/tenure.fish"
    zsh_completion.install "completions/_tenure"
  end

  test do
    assert_match "tenure {{.Version}} ", shell_output("#{bin}/tenure version")
  end
end
`

// packaged is an archive in a file for a package manager.
type packaged struct{ OS, Arch, CPU, URL, Sum string }

// packagedSystem holds the archives for an operating system, by Homebrew's name.
type packagedSystem struct {
	Name     string
	Archives []packaged
}

// packageFile returns a file for a package manager, with the addresses and the checksums of the
// archives of tenure.
func (s *source) packageFile(from string, sums map[string]string) ([]byte, error) {
	values := struct {
		Version, Number, Home, Licence string
		Archives                       []packaged
		Systems                        []packagedSystem
	}{Version: s.version, Number: s.chartVersion(), Home: sourceURL, Licence: licence}
	for _, on := range s.systems {
		name := s.archiveName("tenure", on) + gzipped
		if sums[name] == "" {
			return nil, fmt.Errorf("cannot write the file for package managers: there is no %s", name)
		}
		// Homebrew's names of systems and processors.
		cpu, home := map[string]string{"amd64": "intel", "arm64": "arm"}[on.arch], map[string]string{"darwin": "macos", "linux": "linux"}[on.os]
		archive := packaged{OS: on.os, Arch: on.arch, CPU: cpu, URL: release.DefaultArchives + "/" + s.tag() + "/" + name, Sum: sums[name]}
		values.Archives = append(values.Archives, archive)
		if n := len(values.Systems); n == 0 || values.Systems[n-1].Name != home {
			values.Systems = append(values.Systems, packagedSystem{Name: home})
		}
		last := &values.Systems[len(values.Systems)-1]
		last.Archives = append(last.Archives, archive)
	}
	parsed, err := template.New("").Parse(from)
	if err != nil {
		return nil, fmt.Errorf("cannot write the file for package managers: %w", err)
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, values); err != nil {
		return nil, fmt.Errorf("cannot write the file for package managers: %w", err)
	}
	return text.Bytes(), nil
}
