package flux

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/fluxcd/pkg/kustomize/filesys"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"
)

// building is held during a build: what kustomize knows of kinds is the process's.
var building sync.Mutex

// Build builds the kustomization in the folder dir as kustomize-controller would:
// nothing outside root is read, and nothing is fetched from elsewhere: a remote base is
// [ErrRemoteBase].
func Build(root, dir string) ([]*unstructured.Unstructured, error) {
	err := checkRemote(root, dir)
	var resources resmap.ResMap
	if err == nil {
		resources, err = build(root, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot build the kustomization: %w", err)
	}
	// As JSON, which is read in a fraction of the time that YAML takes.
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

// build does what SecureBuild of fluxcd/pkg/kustomize does, with one difference: the
// schema of Kubernetes' kinds, which takes longer to read than most folders take to be
// built, is kept from one build to the next, unless a kustomization brought its own.
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
