package tenantrepo

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"sigs.k8s.io/yaml"
)

// SyncPrefix begins the names of the platform's Flux Kustomizations that apply one tenant
// each.
const SyncPrefix = "tenant-"

// The Kustomization of a tenant takes copiedFields from the Kustomization of its
// environment, and leaves ownFields out. An environment whose Kustomization has any other
// field applies its tenants together: the field changes the tenants' objects, and does not
// mean the same in a Kustomization of one tenant.
var (
	copiedFields = []string{"commonMetadata", "decryption", "dependsOn", "force", "interval", "postBuild", "prune", "retryInterval",
		"serviceAccountName", "sourceRef", "timeout", "wait"}
	ownFields = []string{"deletionPolicy", "healthCheckExprs", "healthChecks", "path", "suspend"}
)

// neutralFields are the fields of an environment's kustomization.yaml that do not change
// the objects of all its tenants. A namespace is removed, see dropNamespace.
var neutralFields = []string{"apiVersion", "kind", "metadata", "namespace", "patches", "patchesStrategicMerge", "resources", "sortOptions"}

// sync is a Flux Kustomization of the platform.
type sync struct {
	file, name, path string
	spec             map[string]any
}

func (k sync) decrypts() bool { return k.spec["decryption"] != nil }

// tenant returns the tenant that the Kustomization applies alone, as Create writes it, or "".
func (k sync) tenant() string {
	if name := path.Base(k.path); k.name == SyncPrefix+name && path.Dir(k.file) == path.Dir(k.path) {
		return name
	}
	return ""
}

// syncOf returns the Kustomization that applies a tenant. It has no tenant's label: it is
// the platform's.
func (o overlay) syncOf(tenant string) object {
	spec := map[string]any{}
	for _, field := range copiedFields {
		if value, ok := o.sync.spec[field]; ok {
			spec[field] = value
		}
	}
	spec["path"] = "./" + path.Join(o.dir, tenant)
	if spec["prune"] == true {
		spec["deletionPolicy"] = "WaitForTermination"
	}
	return object{"Applies this tenant alone, so that a refused object does not delay other tenants. When this object\nis deleted, it stays until Flux has deleted all objects that it applied.", map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
		"metadata": map[string]any{"name": SyncPrefix + tenant, "namespace": systemNamespace},
		"spec":     spec,
	}}
}

// syncFile returns the file of the Kustomization that applies the tenant in an environment.
func (c *creation) syncFile(o overlay) string { return path.Join(o.dir, c.Tenant.Name+".yaml") }

// chooseSyncs decides which environments apply the tenant by its own Kustomization. An
// environment applies the tenant together with all others if it already has the tenant, if
// there is no Kustomization to copy, or if the copy would lack a setting for all tenants.
func (c *creation) chooseSyncs() error {
	for i := range c.layout.overlays {
		o := &c.layout.overlays[i]
		if o.sync == nil || slices.Contains(resourceDirs(c.Set, o.dir), c.dir) {
			continue
		}
		reason, err := c.sharedBy(*o)
		if err != nil {
			return err
		}
		if o.own = reason == "" || c.Exists(c.syncFile(*o)); !o.own {
			c.plan.note("%s for all tenants, so %s applies this one together with the others: what is refused of one holds up all", reason, o.sync.name)
		}
	}
	return nil
}

// sharedBy returns the setting by which an environment changes the objects of all its
// tenants, or "".
func (c *creation) sharedBy(o overlay) (string, error) {
	for _, field := range sortedKeys(o.sync.spec) {
		if !slices.Contains(copiedFields, field) && !slices.Contains(ownFields, field) {
			return fmt.Sprintf("%s sets spec.%s", o.sync.file, field), nil
		}
	}
	name := path.Join(o.dir, kustomizationFile)
	if !c.Exists(name) {
		return "", nil
	}
	raw, err := c.Read(name)
	if err != nil {
		return "", err
	}
	k, err := yamledit.Decode(raw)
	if err != nil {
		return "", fmt.Errorf("cannot edit %s: %w", name, err)
	}
	for _, field := range sortedKeys(k) {
		if !slices.Contains(neutralFields, field) {
			return fmt.Sprintf("%s sets %s", name, field), nil
		}
	}
	patches, _ := k["patches"].([]any)
	if slices.ContainsFunc(patches, patchesMany) {
		return name + " has a patch", nil
	}
	return "", nil
}

// patchesMany reports whether a patch can select several objects: its target has no name,
// or a pattern for one.
func patchesMany(entry any) bool {
	patch, _ := entry.(map[string]any)
	target, ok := patch["target"].(map[string]any)
	name, _ := target["name"].(string)
	return ok && CheckName("name", name) != nil
}

// writeSync writes the Kustomization that applies only the tenant in an environment, and the
// folder that it applies.
func (c *creation) writeSync(o overlay) error {
	name, dir := c.syncFile(o), path.Join(o.dir, c.Tenant.Name)
	wanted := o.syncOf(c.Tenant.Name)
	if !c.Exists(name) {
		if c.Exists(path.Join(dir, kustomizationFile)) {
			return fmt.Errorf("the folder %s %w: it is not the tenant's", dir, ErrExists)
		}
		if err := c.appendObjects(name, []object{wanted}); err != nil {
			return err
		}
	}
	// The copied fields may have changed since, in either place.
	wanted.content["spec"] = map[string]any{"path": wanted.content["spec"].(map[string]any)["path"]}
	if err := c.compare(name, wanted); err != nil {
		return err
	}
	if err := c.makeKustomization(o.dir); err != nil {
		return err
	}
	if err := c.dropNamespace(path.Join(o.dir, kustomizationFile), systemNamespace); err != nil {
		return err
	}
	if err := c.edit(path.Join(o.dir, kustomizationFile), "resources", path.Base(name)); err != nil {
		return err
	}
	return c.addTo(dir, o, "patch.yaml")
}

// compare returns an error if the object of a file differs from the wanted one.
func (c *creation) compare(name string, wanted object) error {
	raw, err := c.Read(name)
	if err != nil {
		return err
	}
	var have map[string]any
	if err := yaml.Unmarshal(raw, &have); err != nil {
		return fmt.Errorf("cannot parse %s: %w", name, err)
	}
	_, err = c.missing(map[string]located{id(wanted.content): {name, have}}, []object{wanted})
	return err
}

// decrypting returns the Kustomization of an environment that has to decrypt the tenant's
// credentials.
func (c *creation) decrypting(o overlay) (sync, error) {
	if !o.own {
		return *o.sync, nil
	}
	raw, err := c.Read(c.syncFile(o))
	if err != nil {
		return sync{}, err
	}
	for _, k := range syncsIn(c.syncFile(o), raw) {
		if k.name == SyncPrefix+c.Tenant.Name {
			return k, nil
		}
	}
	return sync{}, fmt.Errorf("%w: %s has no Kustomization %s", ErrLayout, c.syncFile(o), SyncPrefix+c.Tenant.Name)
}

// buildDirs returns the folders that deliver the tenant, and the objects that each of them
// has to deliver.
func (c *creation) buildDirs() (dirs []string, wanted map[string][]object) {
	wanted = map[string][]object{}
	for _, o := range c.layout.overlays {
		dir := o.dir
		if o.own {
			dirs, wanted[dir] = append(dirs, dir), []object{o.syncOf(c.Tenant.Name)}
			dir = path.Join(dir, c.Tenant.Name)
		}
		dirs, wanted[dir] = append(dirs, dir), c.ownObjects()
	}
	return dirs, wanted
}

// removeSyncs removes the Kustomizations that apply only the tenant, and their folders.
func (d *deletion) removeSyncs() error {
	for _, k := range d.syncs {
		if err := d.removeFolder(k.path); err != nil {
			return err
		}
		err := d.removeObjects(k.file, func(m metadata) bool { return m.delivers() && m.Metadata.Name == k.name })
		if err != nil {
			return err
		}
	}
	d.parents = slices.DeleteFunc(d.parents, func(parent string) bool {
		return slices.ContainsFunc(d.syncs, func(k sync) bool { return strings.HasPrefix(parent, k.path+"/") })
	})
	return nil
}
