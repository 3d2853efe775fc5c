package tenantrepo

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"sigs.k8s.io/yaml"
)

// writeOverlays adds the tenant to its environments.
func (c *creation) writeOverlays() error {
	for _, o := range c.layout.overlays {
		if o.sync == nil {
			c.plan.note("no Flux Kustomization applies %s yet", o.dir)
		}
		write := c.writeShared
		if o.own {
			write = c.writeSync
		}
		if err := write(o); err != nil {
			return err
		}
	}
	return nil
}

func patchFile(tenant string) string { return tenant + "-patch.yaml" }

// writeShared adds the tenant to the folder of all tenants of an environment.
func (c *creation) writeShared(o overlay) error {
	if err := c.makeKustomization(o.dir); err != nil {
		return err
	}
	keep := ""
	if len(c.Tenant.Namespaces) == 1 && !c.Tenant.Object {
		keep = c.Tenant.Namespaces[0]
	}
	if err := c.dropNamespace(path.Join(o.dir, kustomizationFile), keep); err != nil {
		return err
	}
	return c.addTo(o.dir, o, patchFile(c.Tenant.Name))
}

// addTo adds the tenant's base to a folder of an environment, and the patch for it.
func (c *creation) addTo(dir string, o overlay, patch string) error {
	if err := c.makeKustomization(dir); err != nil {
		return err
	}
	file := path.Join(dir, patch)
	wanted := c.Tenant.patch(o.Path)
	if !c.Exists(file) {
		if err := c.appendObjects(file, wanted); err != nil {
			return err
		}
	}
	if err := c.compare(file, wanted[0]); err != nil {
		return err
	}
	base, err := filepath.Rel(filepath.FromSlash(dir), filepath.FromSlash(c.dir))
	if err != nil {
		return fmt.Errorf("cannot refer to %s in %s: %w", c.dir, dir, err)
	}
	name := path.Join(dir, kustomizationFile)
	if !slices.Contains(resourceDirs(c.Set, dir), c.dir) {
		if err := c.edit(name, "resources", filepath.ToSlash(base)); err != nil {
			return err
		}
	}
	return c.edit(name, "patches", map[string]any{"path": patch})
}

// makeKustomization writes a kustomization.yaml into a folder that has none.
func (c *creation) makeKustomization(dir string) error {
	name := path.Join(dir, kustomizationFile)
	if c.Exists(name) {
		return nil
	}
	if err := c.checkEmpty(dir); err != nil {
		return err
	}
	return c.Write(name, []byte(kustomizationHead))
}

// checkEmpty returns an error if a folder has manifests but no kustomization.yaml: a new
// kustomization.yaml would stop Flux from applying all of them.
func (c *creation) checkEmpty(dir string) error {
	entries, _ := fs.ReadDir(c.FS(), dir)
	for _, e := range entries {
		if ext := path.Ext(e.Name()); ext == ".yaml" || ext == ".yml" || e.IsDir() {
			return fmt.Errorf("%w: %s has manifests but no %s, which Flux then writes by itself; run `kustomize create --autodetect` there first",
				ErrLayout, dir, kustomizationFile)
		}
	}
	return nil
}

// dropNamespace removes a namespace other than keep from an overlay, since it would move the
// objects of every tenant there. The guide of flux2-multi-tenancy has one, which does no harm
// with one tenant in one namespace. The later build of the overlay shows whether other tenants
// need the line.
func (c *creation) dropNamespace(name, keep string) error {
	raw, err := c.Read(name)
	if err != nil {
		return err
	}
	k, err := yamledit.Decode(raw)
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", name, err)
	}
	ns, _ := k["namespace"].(string)
	if ns == "" || ns == keep {
		return nil
	}
	c.plan.note("%s puts everything into the namespace %s, this tenant's objects too, so that line goes", name, ns)
	edited, err := yamledit.RemoveField(raw, "namespace")
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", name, err)
	}
	return c.Write(name, edited)
}

// decrypt enables decryption in the Kustomizations that apply the tenant.
func (c *creation) decrypt() error {
	if c.Seal == nil {
		return nil
	}
	secret := c.DecryptionSecret(c.authFile())
	for _, o := range c.layout.overlays {
		if o.sync == nil {
			continue
		}
		k, err := c.decrypting(o)
		if err != nil {
			return err
		}
		if k.decrypts() {
			continue
		}
		raw, err := c.Read(k.file)
		if err != nil {
			return err
		}
		edited, err := addDecryption(raw, k.name, secret)
		if err != nil {
			return fmt.Errorf("cannot edit %s: %w", k.file, err)
		}
		if err := c.Write(k.file, edited); err != nil {
			return err
		}
		c.plan.note("Flux decrypts %s with the Secret %s/%s, which has to be in the cluster", o.dir, systemNamespace, secret)
	}
	return nil
}

// addDecryption adds spec.decryption to a Flux Kustomization in a YAML stream.
func addDecryption(content []byte, name, secret string) ([]byte, error) {
	var out []byte
	done := false
	rest := content
	for _, doc := range documents(content) {
		// Copy the text between the documents, too.
		at := strings.Index(string(rest), string(doc))
		out, rest = append(out, rest[:at]...), rest[at+len(doc):]
		var k struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     map[string]any
		}
		if yaml.Unmarshal(doc, &k) != nil || k.Kind != "Kustomization" || k.Metadata.Name != name || done {
			out = append(out, doc...)
			continue
		}
		edited, err := insertBelow(string(doc), "spec:", "decryption:\n  provider: sops\n  secretRef:\n    name: "+secret+"\n")
		if err != nil {
			return nil, err
		}
		var after struct{ Spec map[string]any }
		if err := yaml.Unmarshal([]byte(edited), &after); err != nil || len(after.Spec) != len(k.Spec)+1 {
			return nil, fmt.Errorf("add spec.decryption with provider sops and secretRef %s to the Kustomization %s by hand", secret, name)
		}
		out, done = append(out, edited...), true
	}
	return append(out, rest...), nil
}

// insertBelow inserts lines as the first children of a key at the left margin,
// indented as the others.
func insertBelow(text, key, lines string) (string, error) {
	var out strings.Builder
	inserted := false
	all := strings.SplitAfter(text, "\n")
	for i, line := range all {
		out.WriteString(line)
		if inserted || strings.TrimRight(line, " \r\n") != key {
			continue
		}
		indent := "  "
		for _, next := range all[i+1:] {
			if trimmed := strings.TrimLeft(next, " "); trimmed != "" && trimmed[0] != '#' && trimmed[0] != '\n' {
				indent = next[:len(next)-len(trimmed)]
				break
			}
		}
		for l := range strings.Lines(lines) {
			out.WriteString(indent + l)
		}
		inserted = true
	}
	if !inserted {
		return "", fmt.Errorf("there is no line %q at the left margin", key)
	}
	return out.String(), nil
}
