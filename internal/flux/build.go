package flux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fluxcd/pkg/kustomize/filesys"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// building is held during a build, since kustomize stores its schemas of kinds in global variables.
var building sync.Mutex

// Build builds the kustomization in the folder dir as kustomize-controller would:
// nothing outside root is read, and nothing is fetched from elsewhere: a remote base is
// [ErrRemoteBase]. The error of a file that is not YAML is a [SyntaxError] with the path below root.
func Build(root, dir string) ([]*unstructured.Unstructured, error) {
	err := checkRemote(root, dir)
	var resources resmap.ResMap
	if err == nil {
		resources, err = build(root, dir)
	}
	if err != nil {
		// kustomize names the folders on the way to a broken file, and not its line.
		if folder, relErr := filepath.Rel(root, dir); relErr == nil {
			if broken := CheckSyntax(os.DirFS(root), []string{filepath.ToSlash(folder)}, nil); broken != nil {
				err = broken
			}
		}
		return nil, fmt.Errorf("cannot build the kustomization: %w", err)
	}
	// JSON, which is parsed in a fraction of the time of YAML.
	var manifests bytes.Buffer
	encoder := json.NewEncoder(&manifests)
	for _, r := range resources.Resources() {
		content, err := r.Map()
		if err == nil {
			err = encoder.Encode(content)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot build the kustomization: cannot write %s: %w", r.CurId(), err)
		}
	}
	return ReadObjects(manifests.Bytes())
}

// BuildFolder builds the folder dir as a Kustomization of Flux does: its kustomization file or,
// without one, everything in it but links. It puts the objects into targetNamespace, if that is
// not empty. See [Build] for root. It returns an error if the folder does not build, or if one of its files cannot be read or parsed.
func BuildFolder(root, dir, targetNamespace string) ([]*unstructured.Unstructured, error) {
	if _, _, err := KustomizationFile(os.DirFS(dir), "."); err == nil {
		objects, err := Build(root, dir)
		return moved(objects, targetNamespace), err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, entry := range entries {
		var objects []*unstructured.Unstructured
		at := filepath.Join(dir, entry.Name())
		switch ext := filepath.Ext(entry.Name()); {
		case entry.IsDir():
			objects, err = BuildFolder(root, at, targetNamespace)
		case entry.Type().IsRegular() && (ext == ".yaml" || ext == ".yml"):
			var content []byte
			if content, err = os.ReadFile(at); err == nil {
				objects, err = ReadObjects(content)
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, moved(objects, targetNamespace)...)
	}
	return all, nil
}

// moved puts objects into a namespace, if there is one.
func moved(objects []*unstructured.Unstructured, namespace string) []*unstructured.Unstructured {
	for _, o := range objects {
		if namespace != "" && o.GetKind() != "Namespace" && !strings.HasPrefix(o.GetKind(), "Cluster") {
			o.SetNamespace(namespace)
		}
	}
	return objects
}

// build builds a folder as SecureBuild of fluxcd/pkg/kustomize does, with one difference: it keeps
// the schema of Kubernetes' kinds from one build to the next, unless a kustomization has its own
// schema. Reading the schema takes longer than building most folders.
func build(root, dir string) (_ resmap.ResMap, err error) {
	files, err := filesys.MakeFsOnDiskSecure(root)
	if err != nil {
		return nil, err
	}
	building.Lock()
	defer building.Unlock()
	builtin := openapi.GetSchemaVersion()
	// The schema of a kustomization adds to the schema that is loaded already.
	_ = openapi.Schema()
	defer func() {
		if openapi.GetSchemaVersion() != builtin {
			openapi.ResetOpenAPI()
		}
	}()
	defer func() {
		// Objects that are not valid make kustomize panic.
		if r := recover(); r != nil {
			openapi.ResetOpenAPI()
			err = fmt.Errorf("kustomize panicked: %v", r)
		}
	}()
	return krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone,
		PluginConfig:     types.DisabledPluginConfig(),
	}).Run(files, dir)
}
