package catalog

import (
	"context"
	"path"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// artifactProxy is the control that stops S16: kustomize-controller reaches source-controller through a proxy
// alone, which passes on requests for an artifact by its digest.
const artifactProxy = "HTTP_PROXY of kustomize-controller"

func addArtifactList(register func(...Attack)) {
	canary := func(namespace string) *unstructured.Unstructured { return configMap(namespace, name("s16")) }
	attack := Attack{
		ID: "S16", Via: Git,
		Kinds:      []string{"Kustomization"},
		Title:      "reads the list of the artifacts of all tenants, or an artifact of another by its name, which a kustomization.yaml names by its address at source-controller",
		Controls:   []string{artifactProxy},
		References: []string{"kustomize documentation: configMapGenerator reads files from URLs"},
		Fix: Fix{
			Advice: "run `tenure-server artifact-proxy` in the Pod of kustomize-controller, name it in HTTP_PROXY, and leave source-controller out of NO_PROXY; `tenure profile multi-tenant` does so",
		},
		Deep: true,
	}
	attack.Files = func(e *Scenario) map[string]string {
		// Flux writes the host with a dot at its end.
		list := "http://source-controller." + e.Platform + ".svc.cluster.local./"
		return map[string]string{
			"aimed/kustomization.yaml": generatorOf(e, name("s16"), list),
			// A server may refuse the list and still serve the artifacts to everyone who knows their names.
			latestFolder + "/kustomization.yaml": generatorOf(e, name("s16"), list+latestArtifact(e.Root)),
			"own/kustomization.yaml":             generatorOf(e, name("s16"), "list.txt"),
			"own/list.txt":                       "own\n",
		}
	}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		list := e.reconciles(ctx, attack.Key(), canary(e.Namespace), canary(e.Namespace), e.asItSyncs)
		if list.Outcome == GotThrough {
			return list
		}
		latest := e.reconciles(ctx, attack.Key(), canary(e.Namespace), canary(e.Namespace), func(spec map[string]any) {
			e.asItSyncs(spec)
			spec["path"] = "./" + path.Join(folder(attack.Key()), latestFolder)
		})
		return worstFinding([]Finding{list, latest})
	}
	register(attack)
}

// latestFolder is the folder of S16 that names an artifact.
const latestFolder = "latest"

// latestArtifact returns the path at source-controller of the latest artifact of a source.
func latestArtifact(source flux.Ref) string {
	return path.Join(strings.ToLower(string(source.Kind)), source.Namespace, source.Name, "latest.tar.gz")
}

// generatorOf returns a kustomization.yaml that makes a ConfigMap from a file, which may be an address.
func generatorOf(e *Scenario, name, file string) string {
	return manifest(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": e.Namespace,
		"generatorOptions": map[string]any{"disableNameSuffixHash": true},
		"configMapGenerator": []any{map[string]any{
			"name": name, "literals": []any{"touched=by tenure verify"}, "files": []any{"content=" + file},
		}},
	}})
}
