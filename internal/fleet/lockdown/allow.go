package lockdown

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
)

// allowed are the kinds of --allow, and the fields of spec.tenants.sources.
var allowed = []string{"git", "helm", "oci"}

// parseAllow reads KIND=PATTERN.
func parseAllow(text string) (kind, pattern string, err error) {
	kind, pattern, _ = strings.Cut(text, "=")
	if !slices.Contains(allowed, kind) {
		return "", "", fmt.Errorf("cannot read --allow %s: write git=, helm= or oci= and an address such as https://github.com/acme/*", text)
	}
	if err := tenancy.CheckPattern(pattern); err != nil {
		return "", "", fmt.Errorf("cannot take --allow %s: %q is no pattern of addresses: %w", text, pattern, err)
	}
	if p := v1alpha1.AddressPattern(pattern); kind == "helm" && helmHost(p) != p && pattern != string(helmHost(p))+"/**" {
		return "", "", fmt.Errorf("cannot allow the Helm repository %s: its index may send Flux to any address, so approve the host as a whole, with --allow helm=%s, or use an OCI registry", pattern, helmHost(p))
	}
	return kind, pattern, nil
}

// Allow adds addresses to the manifest of a TenancyProfile. Each address is KIND=PATTERN, where
// the kind is git, helm or oci. Allow changes nothing else in the manifest, and skips an
// address that it has already. It returns an error if the manifest is not valid YAML, or if an
// address has another form.
func Allow(manifest string, addresses []string) (string, error) {
	if len(addresses) == 0 {
		return manifest, nil
	}
	profile, err := yaml.Parse(manifest)
	if err != nil {
		return "", fmt.Errorf("cannot read the TenancyProfile: %w", err)
	}
	changed := false
	for _, text := range addresses {
		kind, pattern, err := parseAllow(text)
		if err != nil {
			return "", err
		}
		list, err := profile.Pipe(yaml.LookupCreate(yaml.SequenceNode, "spec", "tenants", "sources", kind))
		if err != nil {
			return "", fmt.Errorf("cannot add %s to the TenancyProfile: %w", pattern, err)
		}
		if slices.ContainsFunc(list.Content(), func(n *yaml.Node) bool { return n.Value == pattern }) {
			continue
		}
		if err := list.PipeE(yaml.Append(yaml.NewStringRNode(pattern).YNode())); err != nil {
			return "", fmt.Errorf("cannot add %s to the TenancyProfile: %w", pattern, err)
		}
		changed = true
	}
	if !changed {
		return manifest, nil
	}
	return profile.String()
}
