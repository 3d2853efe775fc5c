package tenantrepo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/fleet/workspace"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"sigs.k8s.io/yaml"
)

// Delete plans the removal of a tenant from the fleet, in two commits.
//
// Flux prunes a tenant's objects with the tenant's own account. If one commit removed the
// account, its RoleBinding and the namespaces together with the tenant's Kustomization, all of
// them would be deleted at the same moment: the API server would refuse Flux's requests, and
// Flux would give up. Helm releases would stay installed, and objects in remaining namespaces
// would stay. So the first commit removes the tenant's Flux objects, and the second one all
// other objects, once the cluster has no Flux objects of the tenant. The content of the fleet
// shows which commit is next. With atOnce there is one commit, for fleets that no cluster runs
// yet, and for a tenant that is nothing but a Tenant object: the manager ends the deliveries before
// it deletes the namespaces. It returns [ErrInvalid] for a name that is not valid, [ErrNotFound] if the fleet has no
// such tenant, [ErrLayout] if a person wrote its Tenant, and [ErrOthers] if the removal would change more than this tenant.
func Delete(s *workspace.Set, name string, atOnce bool) (*Plan, error) {
	if err := CheckName("tenant name", name); err != nil {
		return nil, err
	}
	d := deletion{Set: s, name: name, atOnce: atOnce, plan: &Plan{}, namespaces: map[string]bool{}, delivery: map[string][]string{}}
	for _, step := range []func() error{d.findSyncs, d.findFolders, d.findParents, d.edit, d.check} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("cannot delete the tenant %s: %w", name, err)
		}
	}
	return d.plan, nil
}

// deletion is a tenant on its way out.
type deletion struct {
	*workspace.Set
	name   string
	atOnce bool
	plan   *Plan

	folders    []string            // the tenant's
	namespaces map[string]bool     // the tenant's
	delivery   map[string][]string // the tenant's Flux objects, by file
	parents    []string            // kustomization.yaml files that include the folders
	built      []string            // folders that are built before and after
	syncs      []sync              // the platform's Kustomizations that apply the tenant alone
	object     bool                // whether the tenant is a Tenant object
	others     bool                // whether the folders have objects besides the delivery
}

// metadata are the fields of an object that a deletion reads.
type metadata struct {
	APIVersion, Kind string
	Metadata         struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec map[string]any
}

func (m metadata) isTenant() bool {
	group, _, _ := strings.Cut(m.APIVersion, "/")
	return m.Kind == tenantKind && group == v1alpha1.GroupVersion.Group
}

// namespaces returns the namespaces that a Tenant object lists.
func (m metadata) namespaces() []string {
	namespaces, _ := m.Spec["namespaces"].(map[string]any)
	return list(namespaces["create"])
}

// owned returns the namespaces that the object defines, and their tenant or "".
func (m metadata) owned() (tenant string, namespaces []string) {
	switch {
	case m.isTenant():
		return m.Metadata.Name, m.namespaces()
	case m.Kind == "Namespace":
		tenant, _ = tenancy.TenantOf(m.Metadata.Labels)
		return tenant, []string{m.Metadata.Name}
	}
	return "", nil
}

func (m metadata) id() string {
	return id(map[string]any{"kind": m.Kind, "metadata": map[string]any{"name": m.Metadata.Name, "namespace": m.Metadata.Namespace}})
}

// delivers reports whether the object makes Flux deliver something.
func (m metadata) delivers() bool {
	if m.isTenant() {
		return true
	}
	group, _, _ := strings.Cut(m.APIVersion, "/")
	return strings.HasSuffix(group, ".toolkit.fluxcd.io")
}

// readMetadata returns the metadata of the objects of a YAML stream. For a document that is
// not an object, it has no kind.
func readMetadata(content []byte) []metadata {
	var objects []metadata
	for _, doc := range documents(content) {
		var m metadata
		if yaml.Unmarshal(doc, &m) != nil {
			m = metadata{}
		}
		objects = append(objects, m)
	}
	return objects
}

// findSyncs finds the Kustomizations that apply only the tenant.
func (d *deletion) findSyncs() error {
	syncs, err := findSyncs(d.FS())
	for _, k := range syncs {
		if k.tenant() == d.name {
			d.syncs = append(d.syncs, k)
			d.built = append(d.built, path.Dir(k.file))
		}
	}
	return err
}

// findFolders finds the folders with objects that have the tenant's label. removeSyncs removes
// the complete folders of the tenant's Kustomizations.
func (d *deletion) findFolders() error {
	owners := map[string]map[string]bool{}
	unlabelled := "" // the file of the Tenant without the label
	err := eachFile(d.FS(), ".", func(name string, content []byte) error {
		for _, m := range readMetadata(content) {
			owner := m.Metadata.Labels[TenantLabel]
			if owner == "" && m.isTenant() && m.Metadata.Name == d.name {
				unlabelled = name
			}
			if owner == "" {
				continue
			}
			dir := path.Dir(name)
			if owners[dir] == nil {
				owners[dir] = map[string]bool{}
			}
			owners[dir][owner] = true
			if owner == d.name {
				d.addNamespace(m)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for dir, of := range owners {
		switch {
		case !of[d.name]:
		case len(of) > 1 || dir == ".":
			return fmt.Errorf("%w: the folder %s holds objects of several tenants: %s", ErrOthers, dir, strings.Join(slices.Sorted(maps.Keys(of)), ", "))
		case !slices.ContainsFunc(d.syncs, func(k sync) bool { return k.path == dir }):
			d.folders = append(d.folders, dir)
		}
	}
	if len(d.folders) == 0 && unlabelled != "" {
		return fmt.Errorf("%w: %s has the Tenant, and this command removes only what `tenure create tenant` wrote: remove the Tenant from this file, and commit; the manager then deletes its namespaces", ErrLayout, unlabelled)
	}
	if len(d.folders) == 0 {
		return fmt.Errorf("%w: no object has the label %s=%s", ErrNotFound, TenantLabel, d.name)
	}
	slices.Sort(d.folders)
	return d.findDelivery()
}

func (d *deletion) addNamespace(m metadata) {
	for _, name := range m.namespaces() {
		if m.isTenant() {
			d.namespaces[name] = true
		}
	}
	switch {
	case m.Kind == "Namespace":
		d.namespaces[m.Metadata.Name] = true
	case m.Metadata.Namespace != "":
		d.namespaces[m.Metadata.Namespace] = true
	}
}

// findDelivery finds Flux objects in the tenant's folders, labelled or not.
func (d *deletion) findDelivery() error {
	for _, dir := range d.folders {
		err := eachFile(d.FS(), dir, func(name string, content []byte) error {
			for _, m := range readMetadata(content) {
				if m.delivers() {
					d.delivery[name] = append(d.delivery[name], m.id())
					d.object = d.object || m.isTenant()
				} else if m.Kind != "" && path.Base(name) != kustomizationFile {
					d.others = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *deletion) inside(name string) bool {
	return slices.ContainsFunc(d.folders, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// findParents finds the kustomizations that include the tenant's folders.
func (d *deletion) findParents() error {
	err := eachFile(d.FS(), ".", func(name string, content []byte) error {
		if path.Base(name) != kustomizationFile || d.inside(name) {
			return nil
		}
		k, err := yamledit.Decode(content)
		if err != nil {
			return nil //nolint:nilerr // not one that can include anything
		}
		for _, field := range []string{"resources", "components"} {
			if slices.ContainsFunc(list(k[field]), func(entry string) bool { return d.inside(path.Join(path.Dir(name), entry)) }) {
				d.parents, d.built = append(d.parents, name), append(d.built, path.Dir(name))
				return nil
			}
		}
		return nil
	})
	return err
}

// edit removes the first or the second half.
func (d *deletion) edit() error {
	names := strings.Join(slices.Sorted(maps.Keys(d.namespaces)), ", ")
	switch {
	case d.object && !d.others:
		d.plan.note("the manager stops the tenant's deliveries, and then deletes its namespaces with everything in them (%s): `kubectl get tenants.tenure.dev %s` shows what it waits for", names, d.name)
	case d.object && !d.atOnce:
		d.plan.note("this is the first of two commits: the fleet's objects in the namespaces %s stay until the manager has ended what the tenant delivered", names)
		d.plan.note("when it is in the cluster, wait until `kubectl get tenants.tenure.dev %s` finds none, and run this command again", d.name)
		return d.removeDelivery()
	case len(d.delivery) > 0 && !d.atOnce:
		d.plan.note("this is the first of two commits: the tenant's account stays until Flux has taken away, as that account, what the tenant delivered")
		d.plan.note("when it is in the cluster, wait until `tenure get all -A` shows nothing in the namespaces %s any more, and run this command again",
			names)
		return d.removeDelivery()
	}
	return d.removeAll()
}

// removeDelivery removes the tenant's Flux objects and the patches for them.
func (d *deletion) removeDelivery() error {
	gone := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(d.delivery)) {
		for _, object := range d.delivery[file] {
			gone[object] = true
		}
		if err := d.removeObjects(file, metadata.delivers); err != nil {
			return err
		}
	}
	for _, parent := range d.parents {
		if err := d.removePatches(parent, func(m metadata) bool { return gone[m.id()] }); err != nil {
			return err
		}
	}
	return nil
}

// removeObjects removes the objects of a file that match, and a file that is empty
// then from its kustomization.yaml.
func (d *deletion) removeObjects(file string, match func(metadata) bool) error {
	content, err := d.Read(file)
	if err != nil {
		return err
	}
	var kept [][]byte
	for i, doc := range documents(content) {
		if m := readMetadata(content)[i]; !match(m) && len(bytes.TrimSpace(doc)) > 0 {
			kept = append(kept, doc)
		}
	}
	if len(kept) > 0 {
		return d.Write(file, bytes.Join(kept, []byte("---\n")))
	}
	if err := d.Remove(file); err != nil {
		return err
	}
	return d.removeEntry(path.Join(path.Dir(file), kustomizationFile), "resources", func(entry string) bool { return path.Clean(entry) == path.Base(file) })
}

// removeAll removes the tenant's folders and all references to them.
func (d *deletion) removeAll() error {
	if err := d.removeSyncs(); err != nil {
		return err
	}
	for _, dir := range d.folders {
		if err := d.removeFolder(dir); err != nil {
			return err
		}
	}
	for _, parent := range d.parents {
		for _, field := range []string{"resources", "components"} {
			err := d.removeEntry(parent, field, func(entry string) bool { return d.inside(path.Join(path.Dir(parent), entry)) })
			if err != nil {
				return err
			}
		}
		if err := d.removePatches(parent, func(m metadata) bool { return d.isOwnObject(m.id()) }); err != nil {
			return err
		}
	}
	return nil
}

// removeFolder removes the files below a folder.
func (d *deletion) removeFolder(dir string) error {
	err := fs.WalkDir(d.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return d.Remove(name)
	})
	if err != nil {
		return fmt.Errorf("cannot read the folder %s: %w", dir, err)
	}
	return nil
}

// isOwnObject reports whether an object is in one of the tenant's namespaces, is one of these
// namespaces, or is the Kustomization that applies the tenant alone.
func (d *deletion) isOwnObject(object string) bool {
	kind, name, _ := strings.Cut(object, " ")
	if len(d.syncs) > 0 && kind == "Kustomization" && name == systemNamespace+"/"+SyncPrefix+d.name {
		return true
	}
	if kind == tenantKind && name == d.name {
		return true
	}
	if kind == "Namespace" {
		return d.namespaces[name]
	}
	ns, _, namespaced := strings.Cut(name, "/")
	return namespaced && d.namespaces[ns]
}

// removeEntry removes the matching entries of a list in a kustomization.yaml, if there is one.
func (d *deletion) removeEntry(name, field string, match func(entry string) bool) error {
	content, err := d.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	edited, err := removeEach(content, field, func(entry any) bool {
		text, ok := entry.(string)
		return ok && match(text)
	})
	if err == nil && field == "resources" && !bytes.Equal(edited, content) {
		// kustomize rejects a file without any list as a mistake, and then Flux would remove
		// nothing.
		edited, err = yamledit.Empty(edited, field)
	}
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", name, err)
	}
	return d.Write(name, edited)
}

func removeEach(content []byte, field string, match func(any) bool) ([]byte, error) {
	for {
		edited, err := yamledit.Remove(content, field, match)
		if err != nil || bytes.Equal(edited, content) {
			return edited, err
		}
		content = edited
	}
}

// removePatches removes the patches of an overlay that apply only to matching objects, and
// their files: a patch without its object is an error.
func (d *deletion) removePatches(parent string, match func(metadata) bool) error {
	content, err := d.Read(parent)
	if err != nil {
		return err
	}
	var files []string
	matchAll := func(patch []byte) bool {
		objects := readMetadata(patch)
		return len(objects) > 0 && !slices.ContainsFunc(objects, func(m metadata) bool { return m.Kind == "" || !match(m) })
	}
	matchFile := func(entry string) bool {
		name := path.Join(path.Dir(parent), entry)
		patch, err := d.Read(name)
		if err != nil || !matchAll(patch) {
			return false
		}
		files = append(files, name)
		return true
	}
	edited, err := removeEach(content, "patches", func(entry any) bool {
		e, _ := entry.(map[string]any)
		if file, ok := e["path"].(string); ok {
			return matchFile(file)
		}
		inline, _ := e["patch"].(string)
		return inline != "" && e["target"] == nil && matchAll([]byte(inline))
	})
	if err == nil {
		edited, err = removeEach(edited, "patchesStrategicMerge", func(entry any) bool {
			file, ok := entry.(string)
			return ok && matchFile(file)
		})
	}
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", parent, err)
	}
	for _, file := range files {
		if err := d.Remove(file); err != nil {
			return err
		}
	}
	return d.Write(parent, edited)
}

// check builds the kustomizations that include the tenant, and returns an error if objects of
// others change.
func (d *deletion) check() error {
	return compareBuilds(d.Set, d.built, func(dir string, before, after map[string]string) error {
		return unchanged(dir, before, after, d.isOwnObject)
	})
}
