package tenantrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"sigs.k8s.io/yaml"
)

// Options describe a new tenant and its place in the fleet.
type Options struct {
	Tenant Tenant
	// Environments are the environments that the tenant is delivered to; at least one.
	Environments []Environment
	// TenantsDir is the folder with base and the environments, or "" to search for it.
	TenantsDir string
	// Seal returns the tenant's encrypted Secret for a file in the fleet. It is called only if the
	// file does not exist; nil if the repository needs no credentials.
	Seal func(file string) ([]byte, error)
	// DecryptionSecret returns the name of the platform's Secret with which Flux decrypts the
	// result of Seal for a file.
	DecryptionSecret func(file string) string
}

// Plan holds the files of a change.
type Plan struct {
	// Object is true if Create plans a Tenant object.
	Object bool
	// Notes tell the user about findings and remaining steps.
	Notes []string
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

// Create plans the files of a new tenant. It keeps existing files; the plan is empty if all
// files exist. It returns [ErrInvalid] for options that are not valid, [ErrLayout] if the
// fleet's layout is not understood, [ErrExists] if a file exists with other content, [ErrTaken] for a
// namespace that is not the tenant's, and [ErrOthers] if the plan would change more than this tenant.
func Create(s *workspace.Set, o Options) (*Plan, error) {
	if err := o.Tenant.Validate(); err != nil {
		return nil, err
	}
	if err := o.Tenant.validateRepository(); err != nil {
		return nil, err
	}
	if o.Tenant.Name+".yaml" == kustomizationFile {
		return nil, fmt.Errorf("the tenant name %q %w: the tenant's file in an environment's folder would be %s, which kustomize reads as its own: choose another name", o.Tenant.Name, ErrInvalid, kustomizationFile)
	}
	if o.TenantsDir == "" {
		if set, err := findTenantSet(s.FS()); err != nil || set != nil {
			if err == nil {
				return set.addInput(s, o)
			}
			return nil, err
		}
	}
	if len(o.Environments) == 0 {
		if advice := teamFileAdvice(s.FS(), o.Tenant); advice != "" {
			return nil, fmt.Errorf("%w: %s", ErrLayout, advice)
		}
		return nil, errors.New("no environment is named: say where the tenant is delivered to with --environment NAME=PATH, such as staging=./staging")
	}
	l, err := findLayout(s, o.TenantsDir, o.Environments)
	if err != nil {
		if errors.Is(err, ErrLayout) && o.TenantsDir == "" {
			if advice := layoutAdvice(s.FS(), o.Tenant); advice != "" {
				return nil, fmt.Errorf("%w: %s", ErrLayout, advice)
			}
		}
		return nil, err
	}
	c := creation{Set: s, Options: o, layout: l, dir: path.Join(l.base, o.Tenant.Name), plan: &Plan{}}
	for _, step := range []func() error{c.chooseForm, c.checkOwners, c.checkRole, c.checkManager, c.writeBase, c.writeAuth, c.chooseSyncs, c.writeOverlays, c.decrypt} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("cannot create the tenant %s: %w", o.Tenant.Name, err)
		}
	}
	c.plan.Object = c.Tenant.Object
	if len(s.Changed()) == 0 {
		return c.plan, nil
	}
	if err := c.checkBuilds(); err != nil {
		return nil, fmt.Errorf("cannot create the tenant %s: %w", o.Tenant.Name, err)
	}
	return c.plan, nil
}

// creation is a tenant on its way into the fleet.
type creation struct {
	*workspace.Set
	Options
	layout layout
	dir    string // the tenant's folder
	plan   *Plan
	// resources are the tenant's files and folders, in order.
	resources []string
}

// ownObjects returns the tenant's objects that every environment has to deliver.
func (c *creation) ownObjects() []object {
	var objects []object
	for _, f := range c.baseFiles() {
		objects = append(objects, f.objects...)
	}
	if c.Tenant.SecretName != "" {
		objects = append(objects, object{"", map[string]any{"kind": "Secret",
			"metadata": map[string]any{"name": c.Tenant.SecretName, "namespace": c.Tenant.Namespaces[0]}}})
	}
	return objects
}

// checkOwners returns an error for a namespace that the fleet gives to another tenant, or that the
// platform has for itself: a file anywhere in the fleet defines it without a tenant's label. Of several
// definitions, one for this tenant suffices: the others may be patches.
func (c *creation) checkOwners() error { return checkOwners(c.FS(), c.Tenant) }

func checkOwners(fleet fs.FS, t Tenant) error {
	platform := map[string]string{} // files, by namespace
	mine := map[string]bool{}
	err := eachFile(fleet, ".", func(name string, content []byte) error {
		if !bytes.Contains(content, []byte("Namespace")) && !bytes.Contains(content, []byte(tenantKind)) {
			return nil
		}
		for _, o := range readMetadata(content) {
			owner, namespaces := o.owned()
			for _, ns := range namespaces {
				switch {
				case !slices.Contains(t.Namespaces, ns):
				case owner == t.Name:
					mine[ns] = true
				case owner != "":
					return fmt.Errorf("the namespace %s %w: it belongs to the tenant %s (%s); name another one with --with-namespace", ns, ErrTaken, owner, name)
				case platform[ns] == "":
					platform[ns] = name
				}
			}
		}
		return nil
	})
	if err != nil || t.SkipNamespace {
		return err
	}
	for _, ns := range t.Namespaces {
		file := platform[ns]
		if file == "" || mine[ns] {
			continue
		}
		wayOut := "add the label " + v1alpha1.LabelTenant + ": " + t.Name + " there"
		if !t.Object {
			wayOut = "use --skip-namespace, and add the label " + TenantLabel + ": " + t.Name + " there"
		}
		return fmt.Errorf("the namespace %s %w: %s defines it without a tenant's label, as a namespace of the platform; name another one with --with-namespace or, if it is for this tenant, %s", ns, ErrTaken, file, wayOut)
	}
	return nil
}

// checkRole adds a note if the fleet does not create the role: a RoleBinding to a missing role
// gives no rights, and reports no error.
func (c *creation) checkRole() error {
	if c.Tenant.Object || slices.Contains([]string{"cluster-admin", "admin", "edit", "view"}, c.Tenant.ClusterRole) {
		return nil // the manager's, or Kubernetes' own
	}
	found := false
	err := eachFile(c.FS(), ".", func(_ string, content []byte) error {
		if found || !bytes.Contains(content, []byte("ClusterRole")) {
			return nil
		}
		for _, doc := range documents(content) {
			var role struct {
				Kind     string
				Metadata struct{ Name string }
			}
			found = found || yaml.Unmarshal(doc, &role) == nil && role.Kind == "ClusterRole" && role.Metadata.Name == c.Tenant.ClusterRole
		}
		return nil
	})
	if err == nil && !found {
		c.plan.note("the ClusterRole %s is in no file of this fleet: the tenant can do nothing until it is in the cluster", c.Tenant.ClusterRole)
	}
	return err
}

// writeBase writes the tenant's own folder.
func (c *creation) writeBase() error {
	existing, err := c.existing()
	if err != nil {
		return err
	}
	for _, f := range c.baseFiles() {
		missing, err := c.missing(existing, f.objects)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			continue
		}
		if err := c.appendObjects(path.Join(c.dir, f.name), missing); err != nil {
			return err
		}
		c.resources = append(c.resources, f.name)
	}
	return nil
}

// existing returns the objects in the tenant's folder, with their files.
func (c *creation) existing() (map[string]located, error) {
	found := map[string]located{}
	err := eachFile(c.FS(), c.dir, func(name string, content []byte) error {
		for _, doc := range documents(content) {
			var o map[string]any
			if err := yaml.Unmarshal(doc, &o); err != nil {
				return fmt.Errorf("cannot parse %s: %w", name, err)
			}
			if o["kind"] == nil || path.Base(name) == kustomizationFile {
				continue
			}
			found[id(o)] = located{name, o}
		}
		return nil
	})
	return found, err
}

type located struct {
	file    string
	content map[string]any
}

// missing returns the wanted objects that do not exist, and an error if existing objects
// differ from the wanted ones.
func (c *creation) missing(existing map[string]located, wanted []object) ([]object, error) {
	var missing []object
	var differ []string
	for _, o := range wanted {
		have, ok := existing[id(o.content)]
		if !ok {
			missing = append(missing, o)
			continue
		}
		for _, d := range differences(have.content, o.content, c.Tenant.Chosen) {
			differ = append(differ, fmt.Sprintf("%s: %s: %s", have.file, id(o.content), d))
		}
	}
	if len(differ) > 0 {
		return nil, fmt.Errorf("it %w; edit the files, or delete the tenant first:\n%s", ErrExists, strings.Join(differ, "\n"))
	}
	return missing, nil
}

// appendObjects adds documents to a file.
func (c *creation) appendObjects(name string, objects []object) error {
	added, err := text(objects)
	if err != nil {
		return err
	}
	before, err := c.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.Write(name, added)
	case err != nil:
		return err
	}
	if before = bytes.TrimRight(before, "\n"); len(before) > 0 {
		added = slices.Concat(before, []byte("\n---\n"), added)
	}
	return c.Write(name, added)
}

func (c *creation) authFile() string { return path.Join(c.dir, "auth.yaml") }

// writeAuth writes the credentials, unless they exist: encrypted credentials cannot be compared,
// and a new key would not be the key that the Git host knows.
func (c *creation) writeAuth() error {
	if c.Seal == nil {
		return c.writeKustomization()
	}
	name := c.authFile()
	if c.Exists(name) {
		c.plan.note("%s is kept: remove it to make new credentials", name)
		return c.writeKustomization()
	}
	sealed, err := c.Seal(name)
	if err != nil {
		return err
	}
	if err := c.Write(name, sealed); err != nil {
		return err
	}
	c.resources = append(c.resources, "auth.yaml")
	return c.writeKustomization()
}

const kustomizationHead = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"

// writeKustomization creates the base's kustomization.yaml, or adds entries to it.
func (c *creation) writeKustomization() error {
	name := path.Join(c.dir, kustomizationFile)
	var components []string
	if !c.Exists(name) {
		head := kustomizationHead
		if len(c.Tenant.Namespaces) == 1 && !c.Tenant.Object {
			// The namespace applies to objects that the user adds later.
			head += "namespace: " + c.Tenant.Namespaces[0] + "\n"
		}
		if err := c.Write(name, []byte(head)); err != nil {
			return err
		}
		if components = c.commonComponents(); len(components) > 0 {
			c.plan.note("every tenant here has %s, so this one gets it too", strings.Join(components, " and "))
		}
	}
	// A namespace in the kustomization.yaml would be the Tenant object's, too.
	if (len(c.Tenant.Namespaces) > 1 || c.Tenant.Object) && len(components) > 0 {
		if err := c.writeNamespaceFolders(components); err != nil {
			return err
		}
		components = nil
	}
	for _, resource := range c.resources {
		if err := c.edit(name, "resources", resource); err != nil {
			return err
		}
	}
	for _, component := range components {
		if err := c.edit(name, "components", "../"+component); err != nil {
			return err
		}
	}
	return nil
}

// writeNamespaceFolders adds the components to a folder for each of several namespaces, since
// a kustomization.yaml can have only one namespace.
func (c *creation) writeNamespaceFolders(components []string) error {
	for _, ns := range c.Tenant.Namespaces {
		name := path.Join(c.dir, ns, kustomizationFile)
		if err := c.Write(name, []byte(kustomizationHead+"namespace: "+ns+"\n")); err != nil {
			return err
		}
		for _, component := range components {
			if err := c.edit(name, "components", "../../"+component); err != nil {
				return err
			}
		}
		c.resources = append(c.resources, ns)
	}
	return nil
}

// commonComponents returns the names of the components beside the tenants' folders that the
// kustomization of every tenant has.
func (c *creation) commonComponents() []string {
	entries, err := fs.ReadDir(c.FS(), c.layout.base)
	if err != nil {
		return nil // the first tenant
	}
	var common []string
	first := true
	for _, e := range entries {
		raw, err := c.Read(path.Join(c.layout.base, e.Name(), kustomizationFile))
		if err != nil {
			continue
		}
		k, err := yamledit.Decode(raw)
		if err != nil || k["kind"] == "Component" || e.Name() == c.Tenant.Name {
			continue
		}
		var mine []string
		for _, component := range list(k["components"]) {
			if name, ok := strings.CutPrefix(component, "../"); ok && !strings.Contains(name, "/") {
				mine = append(mine, name)
			}
		}
		if first {
			common, first = mine, false
		}
		common = slices.DeleteFunc(common, func(name string) bool { return !slices.Contains(mine, name) })
	}
	return common
}

// edit adds an entry to a list of a kustomization.yaml.
func (c *creation) edit(name, field string, entry any) error {
	raw, err := c.Read(name)
	if err != nil {
		return err
	}
	edited, err := yamledit.Append(raw, field, entry)
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", name, err)
	}
	return c.Write(name, edited)
}
