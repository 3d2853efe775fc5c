package catalog

import (
	"context"

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
		Title:      "reads the list of the artifacts of all tenants, which a kustomization.yaml names by its address at source-controller",
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
			"own/kustomization.yaml":   generatorOf(e, name("s16"), "list.txt"),
			"own/list.txt":             "own\n",
		}
	}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return e.reconciles(ctx, attack.Key(), canary(e.Namespace), canary(e.Namespace), e.asItSyncs)
	}
	register(attack)
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
