package lockdown

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/yaml"
)

// Export returns Flux and the objects of Tenure for a cluster without a fleet, as YAML
// documents in the order in which they can be applied. Components are Flux's manifests, with
// its objects in the namespace flux-system. Without o.Tenants, Export returns them unchanged.
// It returns an error if an option is not valid or the manifests do not build.
func Export(components []byte, o Options) ([]byte, error) {
	if !o.Tenants {
		return components, nil
	}
	const namespace = "flux-system"
	c := &component{Namespace: namespace, Warn: o.warns(), Pins: o.Pins, DefaultAccount: noRights}
	if len(o.Pins) > 0 {
		manager, err := managerManifests(namespace, "", o.ManagerImage)
		if err != nil {
			return nil, err
		}
		if c.Manager, err = pinnedManager(manager); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Shards, err = shardsFrom(o.Shards, nil); err != nil {
		return nil, err
	}
	if c.Blocked, err = blockedRanges(o.ClusterRanges, nil); err != nil {
		return nil, err
	}
	objects, err := flux.ReadObjects(components)
	if err != nil {
		return nil, fmt.Errorf("cannot read Flux's manifests: %w", err)
	}
	if err := c.limitEgress(o, nil, "", objects); err != nil {
		return nil, err
	}
	shards, err := c.shardFiles("../../gotk-components.yaml")
	if err != nil {
		return nil, err
	}
	content := map[string]string{
		"gotk-components.yaml": string(components),
		"kustomization.yaml":   "resources: [gotk-components.yaml, tenure.yaml]\ncomponents: [tenure]\n",
	}
	for _, name := range []string{"account.yaml", "network.yaml", "rights.yaml", "kustomization.yaml"} {
		text, err := c.render(name)
		if err != nil {
			return nil, err
		}
		content[Own+"/"+name] = text
	}
	for name, text := range shards {
		content[Own+"/"+name] = text
	}
	// Without a fleet, no source exists for the Kustomizations in sync.yaml.
	content[Own+"/kustomization.yaml"] = strings.Replace(content[Own+"/kustomization.yaml"], "  - sync.yaml\n", "", 1)
	// The shards' policy is beside the shards' controllers.
	o.Shards = nil
	own, err := Objects(namespace, o)
	if err != nil {
		return nil, err
	}
	content["tenure.yaml"] = string(own)
	return build(content)
}

// build builds a kustomization from files.
func build(content map[string]string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "tenure-profile-")
	if err != nil {
		return nil, fmt.Errorf("cannot build the manifests: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := fill(dir, content); err != nil {
		return nil, err
	}
	objects, err := flux.Build(dir, filepath.Clean(dir))
	if err != nil {
		return nil, noPath(err, dir)
	}
	if wrong := FlagStates(objects); slices.ContainsFunc(wrong, func(s FlagState) bool { return !s.OK() }) {
		return nil, fmt.Errorf("cannot lock Flux down: flags are not in force: %v", wrong)
	}
	var out strings.Builder
	for _, o := range objects {
		document, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("cannot write the manifests: %w", err)
		}
		fmt.Fprintf(&out, "---\n%s", document)
	}
	return []byte(out.String()), nil
}
