package local

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// FolderRead reports which manifests in a cluster's folder were applied.
type FolderRead struct {
	// Files and Objects are the numbers of YAML files in the folder and of objects in
	// them.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// Applied is the number of files whose objects were applied, or that were used to
	// build an applied object.
	Applied int `json:"applied"`
	// NotApplied are the other files.
	NotApplied []NotApplied `json:"NotApplied,omitempty"`
}

// Summary returns the numbers of files and objects that were read and applied, as text.
func (r *FolderRead) Summary(folder string) string {
	return fmt.Sprintf("%s of %s with %s; %s applied, %d not", ui.Number(r.Files, "file"), folder, ui.Number(r.Objects, "object"), ui.Number(r.Applied, "file"), len(r.NotApplied))
}

// LeftOut lists the files that were not applied for one reason.
type LeftOut struct {
	// Reason is the reason, and Files are the files with the names of their objects.
	Reason string
	Files  []string
}

// ByReason returns the files that were not applied, by reason.
func (r *FolderRead) ByReason() []LeftOut {
	var all []LeftOut
	for _, n := range r.NotApplied {
		i := slices.IndexFunc(all, func(l LeftOut) bool { return l.Reason == n.Reason })
		if i < 0 {
			i = len(all)
			all = append(all, LeftOut{Reason: n.Reason})
		}
		file := n.File
		if len(n.Objects) > 0 {
			file += " (" + strings.Join(n.Objects, ", ") + ")"
		}
		all[i].Files = append(all[i].Files, file)
	}
	return all
}

// NotApplied is a file with objects that were not applied.
type NotApplied struct {
	File    string   `json:"file"`
	Objects []string `json:"objects,omitempty"`
	Reason  string   `json:"reason"`
}

// delivery is an object of Flux, or the bootstrap, that applies manifests of the fleet.
type delivery struct {
	object string
	// path is the folder that it applies, and file the only file that it applies; "" for none.
	path, file string
	// failed is the reason why nothing was applied, or "".
	failed string
	// inventory lists the applied objects in Flux's format.
	inventory []string
	// renames reports that it changes the names of objects.
	renames bool
	// deletions are the patches that remove objects.
	deletions []deletion
}

// ReadFolder returns a report about the manifests in the cluster's folder: which were applied in
// the cluster, and which were not. It returns an error if the cluster's objects or the folder
// cannot be read.
func ReadFolder(ctx context.Context, cluster *localcluster.Cluster) (*FolderRead, error) {
	all, err := deliveries(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return readFolder(cluster.Fleet, all)
}

// deliveries returns what applies the fleet's folders in a cluster: the bootstrap or the
// FluxInstance, the Kustomizations with the fleet as source, and the ResourceSets.
func deliveries(ctx context.Context, cluster *localcluster.Cluster) ([]delivery, error) {
	kube, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		return nil, err
	}
	all := installers(cluster.Fleet, cluster.Installed())
	kinds := []flux.Kind{flux.Kustomization}
	if cluster.Fleet.UsesOperator() {
		kinds = append(kinds, flux.ResourceSet)
	}
	sync := cluster.Fleet.Sync
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersionKind())
		if err := kube.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot read the applied objects: %w", err)
		}
		for _, u := range list.Items {
			source, _, _ := unstructured.NestedStringMap(u.Object, "spec", "sourceRef")
			ofFleet := source["name"] == sync.Source && cmp.Or(source["namespace"], u.GetNamespace()) == sync.Namespace && source["kind"] == sync.Kind
			if kind == flux.ResourceSet || ofFleet {
				all = append(all, newDelivery(&u))
			}
		}
	}
	return all, nil
}

// installers returns the deliveries of what the local cluster applied itself: a bootstrap applies
// the system folder and the file of the root objects; of the folder of a FluxInstance, only the
// FluxInstance is applied.
func installers(f *layout.Fleet, installed []*unstructured.Unstructured) []delivery {
	if f.Instance != nil {
		all := []delivery{{
			object: "FluxInstance/" + f.Instance.GetNamespace() + "/" + f.Instance.GetName(), file: f.InstanceFile,
			inventory: inventoryOf([]*unstructured.Unstructured{f.Instance}),
		}}
		if f.RootFile != "" {
			all = append(all, delivery{object: bootstrap, file: f.RootFile, inventory: inventoryOf(installed)})
		}
		return all
	}
	inventory := inventoryOf(installed)
	all := []delivery{{object: bootstrap, path: f.System, inventory: inventory}}
	if f.RootFile != "" {
		all = append(all, delivery{object: bootstrap, file: f.RootFile, inventory: inventory})
	}
	return all
}

// bootstrap names the delivery of the local cluster itself.
const bootstrap = "the bootstrap"

// inventoryOf returns the entries of objects in an inventory of Flux.
func inventoryOf(objects []*unstructured.Unstructured) []string {
	inventory := []string{}
	for _, u := range objects {
		inventory = append(inventory, u.GetNamespace()+entry(u.GetName(), u.GroupVersionKind().Group, u.GetKind()))
	}
	return inventory
}

// entry returns the entry of an object in an inventory of Flux, without the namespace.
func entry(name, group, kind string) string {
	return "_" + strings.ReplaceAll(name, ":", "__") + "_" + group + "_" + kind
}

// newDelivery returns the delivery of a Kustomization or a ResourceSet.
func newDelivery(u *unstructured.Unstructured) delivery {
	d := delivery{object: u.GetKind() + "/" + u.GetNamespace() + "/" + u.GetName(), inventory: []string{}}
	if u.GetKind() == string(flux.Kustomization) {
		at, _, _ := unstructured.NestedString(u.Object, "spec", "path")
		d.path = cmp.Or(strings.TrimPrefix(path.Join("/", at), "/"), ".")
	}
	for _, field := range []string{"namePrefix", "nameSuffix"} {
		value, _, _ := unstructured.NestedString(u.Object, "spec", field)
		d.renames = d.renames || value != ""
	}
	patches, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "patches")
	d.deletions = deletionsOf(nil, "", patches)
	if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); suspended {
		d.failed = "is suspended"
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	ready, message := "", "says nothing"
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == "Ready" {
			ready, _ = condition["status"].(string)
			message, _ = condition["message"].(string)
		}
	}
	switch {
	case message == flux.AssumedMessage:
		d.failed = "is assumed to be ready, so it was not applied here"
	case d.failed == "" && ready != "True":
		d.failed = "is not ready: " + flux.WithoutApplied(message)
	}
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		id, _ := entry["id"].(string)
		d.inventory = append(d.inventory, id)
	}
	return d
}

// readFolder returns a report about the manifests in the cluster's folder: which were
// applied, and which were not.
func readFolder(f *layout.Fleet, all []delivery) (*FolderRead, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	defer func() { _ = root.Close() }()
	// uses are the deliveries that use each file. The objects of a file are applied if one of
	// them uses it as a resource.
	uses := map[string][]use{}
	for _, d := range all {
		if d.file != "" {
			uses[d.file] = append(uses[d.file], use{d, fileUse{resource: true}})
		}
		if d.path == "" {
			continue
		}
		w := walker{files: root.FS(), used: map[string]fileUse{}, seen: map[string]bool{}}
		w.folder(d.path)
		d.deletions = append(d.deletions, w.deletions...)
		for file, how := range w.used {
			uses[file] = append(uses[file], use{d, how})
		}
	}
	read := &FolderRead{}
	err = fs.WalkDir(root.FS(), f.Path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() || !isManifest(file) && path.Ext(file) != ".json":
			return nil
		}
		content, err := fs.ReadFile(root.FS(), file)
		objects := objectsIn(content)
		if path.Ext(file) == ".json" && len(objects) == 0 {
			return nil // settings of other tools, or a dashboard
		}
		read.Files++
		read.Objects += len(objects)
		reason, missing := "", []string(nil)
		if err != nil {
			reason = "it cannot be read"
		}
		if reason == "" {
			reason, missing = dropped(objects, uses[file], all)
		}
		if reason == "" {
			read.Applied++
			return nil
		}
		read.NotApplied = append(read.NotApplied, NotApplied{file, missing, reason})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", f.Path, err)
	}
	return read, nil
}

// use is the use of a file by a delivery.
type use struct {
	delivery
	fileUse
}

// applied reports whether the delivery applied an object of the file, or removes it on purpose.
func (u use) applied(o manifestObject) bool {
	if slices.ContainsFunc(u.deletions, func(d deletion) bool { return d.removes(o) }) {
		return true
	}
	return slices.ContainsFunc(u.inventory, func(id string) bool { return o.is(id, u.delivery.renames || u.fileUse.renames) })
}

// dropped returns the objects of a file that were not applied, and the reason, or "" if
// all were. A ResourceSet that was applied and applied nothing itself counts as not applied.
func dropped(objects []manifestObject, uses []use, all []delivery) (reason string, missing []string) {
	if len(uses) == 0 {
		return "no applied Kustomization leads to it", names(objects)
	}
	// An object that fails may have applied its files before, and fail at the health of their objects.
	working := slices.DeleteFunc(slices.Clone(uses), func(u use) bool { return u.failed != "" && len(u.inventory) == 0 })
	if len(working) == 0 {
		return uses[0].object + " " + uses[0].failed, names(objects)
	}
	resource := slices.ContainsFunc(uses, func(u use) bool { return u.resource })
	bySet := func(o manifestObject) bool {
		return slices.ContainsFunc(all, func(d delivery) bool { return d.path == "" && use{delivery: d}.applied(o) })
	}
	for _, o := range objects {
		if resource && !o.patch && !bySet(o) && !slices.ContainsFunc(working, func(u use) bool { return u.applied(o) }) {
			missing = append(missing, o.String())
		}
	}
	if len(missing) > 0 && working[0].failed != "" {
		return working[0].object + " " + working[0].failed, missing
	}
	if len(missing) > 0 {
		return "it is not among what " + working[0].object + " applied: it may be ignored, patched away or left to others", missing
	}
	for _, o := range objects {
		for _, d := range all {
			if o.kind != string(flux.ResourceSet) || d.object != o.kind+"/"+o.namespace+"/"+o.name {
				continue
			}
			if d.failed == "" && len(d.inventory) == 0 {
				d.failed = "applied nothing: it may have no inputs"
			}
			if d.failed != "" {
				return d.object + " " + d.failed, []string{"its resources"}
			}
		}
	}
	return "", nil
}

func names(objects []manifestObject) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.String())
	}
	return names
}

// manifestObject is an object in a file. A patch may have any name.
type manifestObject struct {
	group, kind, namespace, name string
	patch                        bool
}

// is reports whether an entry of an inventory is the object. The namespace may be set elsewhere,
// and a kustomization that renames objects may add a prefix and a suffix to the name.
func (o manifestObject) is(id string, renamed bool) bool {
	if renamed {
		return strings.HasSuffix(id, "_"+o.group+"_"+o.kind) && strings.Contains(id, strings.ReplaceAll(o.name, ":", "__"))
	}
	namespace, ok := strings.CutSuffix(id, entry(o.name, o.group, o.kind))
	return ok && !strings.Contains(namespace, "_")
}

// String returns the kind, the namespace and the name of the object.
func (o manifestObject) String() string {
	return strings.TrimSuffix(o.kind+" "+strings.TrimPrefix(o.namespace+"/"+o.name, "/"), " ")
}

// objectsIn returns the Kubernetes objects in a file, without kustomize's own kinds.
func objectsIn(content []byte) []manifestObject {
	var all []manifestObject
	for _, document := range flux.SplitYAML(content) {
		var o struct {
			APIVersion string
			Kind       string
			Metadata   struct{ Name, Namespace string }
			Patch      string `json:"$patch"`
			Items      []json.RawMessage
		}
		if yaml.Unmarshal(document, &o) != nil || o.Kind == "" || strings.HasPrefix(o.APIVersion, "kustomize.config.k8s.io/") {
			continue
		}
		if strings.HasSuffix(o.Kind, "List") && len(o.Items) > 0 {
			for _, item := range o.Items {
				all = append(all, objectsIn(item)...)
			}
			continue
		}
		// An object with a missing name, or a name that Flux fills in, cannot be found by
		// name.
		unclear := o.Patch != "" || o.Metadata.Name == "" || strings.Contains(o.Metadata.Name, "$")
		group, _, grouped := strings.Cut(o.APIVersion, "/")
		if !grouped {
			group = ""
		}
		all = append(all, manifestObject{group, o.Kind, o.Metadata.Namespace, o.Metadata.Name, unclear})
	}
	return all
}

func isManifest(file string) bool {
	ext := path.Ext(file)
	return ext == ".yaml" || ext == ".yml"
}
