package catalog

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addRemoteBase(register func(...Attack)) {
	noRemoteBases := Flag{Controller: "kustomize-controller", Flag: "--no-remote-bases=true"}
	canary := func(namespace string) *unstructured.Unstructured { return configMap(namespace, name("s7")) }
	attack := Attack{
		ID: "S7", Via: Git,
		Kinds:      []string{"Kustomization"},
		Title:      "builds on a remote base, which bypasses the approved sources",
		Controls:   []string{"flag --no-remote-bases"},
		References: []string{"flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start kustomize-controller with --no-remote-bases=true",
			Flags:  []Flag{noRemoteBases},
		},
		Deep: true,
	}
	attack.Files = func(e *Scenario) map[string]string {
		return map[string]string{
			"aimed/kustomization.yaml": kustomizationOf(e, "https://"+baseHost+basePath+"?ref="+baseBranch),
			"own/kustomization.yaml":   kustomizationOf(e, "base.yaml"),
			"own/base.yaml":            manifest(canary("")),
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

// The repository that S7 uses as a base stands for any public repository: no mapping redirects it, and it
// needs no credentials, since kustomize has none. RFC 2606 reserves the name of its host.
const (
	baseHost   = "bases.tenure.invalid"
	basePath   = "/attacks/s7"
	baseBranch = "main"
)

// serveBase serves the repository that S7 uses as a base.
func serveBase(ctx context.Context, git *githost.Host, outside Outside) error {
	if git == nil || outside == nil {
		return nil
	}
	if _, served := git.Head("https://"+baseHost+basePath, baseBranch); served {
		return nil // an earlier attack on this cluster created it
	}
	files := map[string]string{"kustomization.yaml": kustomizationFile("base.yaml"), "base.yaml": manifest(configMap("", name("s7")))}
	if err := git.AddFiles(ctx, "https://"+baseHost+basePath, baseBranch, files); err != nil {
		return fmt.Errorf("cannot serve a repository to build on: %w", err)
	}
	outside.Handle(baseHost, basePath, git)
	return nil
}

// kustomizationOf returns a kustomization.yaml that adds a resource to the tenant's namespace.
func kustomizationOf(e *Scenario, resource string) string {
	return kustomizationFile(resource) + "namespace: " + e.Namespace + "\n"
}

// kustomizationFile returns a kustomization.yaml with these resources.
func kustomizationFile(resources ...string) string {
	return manifest(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources,
	}})
}
