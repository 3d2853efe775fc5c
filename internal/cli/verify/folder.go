package verify

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// folderRead reports which manifests in a cluster's folder were applied.
type folderRead struct {
	// Files and Objects are the numbers of YAML files in the folder and of objects in
	// them.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// Applied is the number of files whose objects were applied, or that were used to
	// build an applied object.
	Applied int `json:"applied"`
	// NotApplied are the other files.
	NotApplied []notApplied `json:"notApplied,omitempty"`
}

// summary returns the numbers of files and objects that were read and applied, as text.
func (r *folderRead) summary(folder string) string {
	return fmt.Sprintf("%s of %s with %s; %d applied, %d not", number(r.Files, "file"), folder, number(r.Objects, "object"), r.Applied, len(r.NotApplied))
}

// leftOut lists the files that were not applied for one reason.
type leftOut struct {
	reason string
	files  []string
}

// byReason returns the files that were not applied, by reason.
func (r *folderRead) byReason() []leftOut {
	var all []leftOut
	for _, n := range r.NotApplied {
		i := slices.IndexFunc(all, func(l leftOut) bool { return l.reason == n.Reason })
		if i < 0 {
			i = len(all)
			all = append(all, leftOut{reason: n.Reason})
		}
		file := n.File
		if len(n.Objects) > 0 {
			file += " (" + strings.Join(n.Objects, ", ") + ")"
		}
		all[i].files = append(all[i].files, file)
	}
	return all
}

// notApplied is a file with objects that were not applied.
type notApplied struct {
	File    string   `json:"file"`
	Objects []string `json:"objects,omitempty"`
	Reason  string   `json:"reason"`
}

// delivery is a Kustomization of Flux, or the bootstrap, that applies a folder of the
// fleet.
type delivery struct {
	object, path string
	// failed is the reason why the folder was not applied, or "" if it was.
	failed string
	// inventory lists the applied objects in Flux's format; nil if it is not known.
	inventory []string
}

// deliveries returns the Kustomizations and the bootstrap that apply the fleet's folders
// in a cluster.
func deliveries(ctx context.Context, cluster *localcluster.Cluster) ([]delivery, error) {
	kube, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(flux.Kustomization.GroupVersionKind())
	if err := kube.List(ctx, list); err != nil {
		return nil, fmt.Errorf("cannot see what was applied: %w", err)
	}
	sync := cluster.Fleet.Sync
	all := []delivery{{object: "the bootstrap", path: cluster.Fleet.System}}
	for _, u := range list.Items {
		source, _, _ := unstructured.NestedStringMap(u.Object, "spec", "sourceRef")
		namespace := source["namespace"]
		if namespace == "" {
			namespace = u.GetNamespace()
		}
		if source["name"] == sync.Source && namespace == sync.Namespace && source["kind"] == sync.Kind {
			all = append(all, newDelivery(&u))
		}
	}
	return all, nil
}

// newDelivery returns the delivery of a Kustomization.
func newDelivery(u *unstructured.Unstructured) delivery {
	at, _, _ := unstructured.NestedString(u.Object, "spec", "path")
	d := delivery{object: "Kustomization/" + u.GetNamespace() + "/" + u.GetName(), path: strings.TrimPrefix(path.Join("/", at), "/")}
	if d.path == "" {
		d.path = "."
	}
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
		d.failed = "is not ready: " + message
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
func readFolder(f *layout.Fleet, all []delivery) (*folderRead, error) {
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the fleet: %w", err)
	}
	defer func() { _ = root.Close() }()
	// users are the deliveries that use each file. resources is true for a file whose own
	// objects are applied.
	users, resources := map[string][]delivery{}, map[string]bool{}
	for _, d := range all {
		w := walker{files: root.FS(), used: map[string]bool{}, seen: map[string]bool{}}
		w.folder(d.path)
		for file, resource := range w.used {
			users[file] = append(users[file], d)
			resources[file] = resources[file] || resource
		}
	}
	read := &folderRead{}
	err = fs.WalkDir(root.FS(), f.Path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() || !isManifest(file):
			return nil
		}
		content, err := fs.ReadFile(root.FS(), file)
		objects := objectsIn(content)
		read.Files++
		read.Objects += len(objects)
		reason, missing := "", []string(nil)
		if err != nil {
			reason = "it cannot be read"
		}
		if reason == "" {
			reason, missing = dropped(objects, users[file], resources[file])
		}
		if reason == "" {
			read.Applied++
			return nil
		}
		read.NotApplied = append(read.NotApplied, notApplied{file, missing, reason})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", f.Path, err)
	}
	return read, nil
}

// dropped returns the objects of a file that were not applied, and the reason, or "" if
// all were.
func dropped(objects []manifestObject, users []delivery, resource bool) (reason string, missing []string) {
	all := func() (names []string) {
		for _, o := range objects {
			names = append(names, o.String())
		}
		return names
	}
	if len(users) == 0 {
		return "no Kustomization leads to it", all()
	}
	working := slices.DeleteFunc(slices.Clone(users), func(d delivery) bool { return d.failed != "" })
	if len(working) == 0 {
		return users[0].object + " " + users[0].failed, all()
	}
	for _, o := range objects {
		if resource && !slices.ContainsFunc(working, func(d delivery) bool { return d.applied(o) }) {
			missing = append(missing, o.String())
		}
	}
	if len(missing) > 0 {
		return "it is not among what " + working[0].object + " applied: it may be ignored, patched away or left to others", missing
	}
	return "", nil
}

// applied reports whether an object is in the inventory, whose entries are
// NAMESPACE_NAME_GROUP_KIND. A kustomization may add a prefix or a suffix to a name.
func (d delivery) applied(o manifestObject) bool {
	if d.inventory == nil || o.patch {
		return true
	}
	return slices.ContainsFunc(d.inventory, func(id string) bool {
		return strings.HasSuffix(id, "_"+o.kind) && strings.Contains(id, strings.ReplaceAll(o.name, ":", "__"))
	})
}

// manifestObject is an object in a file. A patch may have any name.
type manifestObject struct {
	kind, namespace, name string
	patch                 bool
}

// String returns the kind, the namespace and the name of the object.
func (o manifestObject) String() string {
	return strings.TrimSuffix(o.kind+" "+strings.TrimPrefix(o.namespace+"/"+o.name, "/"), " ")
}

// objectsIn returns the Kubernetes objects in a file, without kustomize's own kinds.
func objectsIn(content []byte) []manifestObject {
	var all []manifestObject
	for _, document := range bytes.Split(append([]byte("\n"), content...), []byte("\n---")) {
		var o struct {
			APIVersion string
			Kind       string
			Metadata   struct{ Name, Namespace string }
			Patch      string `json:"$patch"`
		}
		if yaml.Unmarshal(document, &o) != nil || o.Kind == "" || strings.HasPrefix(o.APIVersion, "kustomize.config.k8s.io/") {
			continue
		}
		// An object with a missing name, or a name that Flux fills in, cannot be found by
		// name.
		unclear := o.Patch != "" || o.Metadata.Name == "" || strings.Contains(o.Metadata.Name, "$")
		all = append(all, manifestObject{o.Kind, o.Metadata.Namespace, o.Metadata.Name, unclear})
	}
	return all
}

func isManifest(file string) bool {
	ext := path.Ext(file)
	return ext == ".yaml" || ext == ".yml"
}
