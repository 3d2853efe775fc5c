package attack

import (
	"context"
	"net/url"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func init() {
	noRemoteBases := Flag{Controller: "kustomize-controller", Flag: "--no-remote-bases=true"}
	canary := func(e *Env) *unstructured.Unstructured { return configMap(e.Namespace, name("s7")) }
	attack := Attack{
		ID: "S7", Via: Git,
		Title:      "builds on a remote base, past the sources that the platform knows",
		Controls:   []string{"flag --no-remote-bases"},
		References: []string{"flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start kustomize-controller with --no-remote-bases=true",
			Flags:  []Flag{noRemoteBases},
		},
		Deep: true,
	}
	attack.Files = func(e *Env) map[string]string {
		base := folder(attack.Key()) + "/base"
		return map[string]string{
			"base/kustomization.yaml":  kustomizationFile("canary.yaml"),
			"base/canary.yaml":         manifest(canary(e)),
			"aimed/kustomization.yaml": kustomizationFile(remoteBase(e.Repository.URL, base, e.Repository.Branch)),
			"own/kustomization.yaml":   kustomizationFile("../base"),
		}
	}
	attack.Run = func(ctx context.Context, e *Env) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return unproven(firstLine(err.Error()))
		}
		return e.reconciles(ctx, attack.Key(), canary(e), canary(e), e.asItSyncs)
	}
	register(attack)
}

// remoteBase is the address of a folder of a repository as kustomize takes it.
// The tenant's own repository stands for any other: it is what is reachable in a
// cluster without a network.
func remoteBase(repository, folder, branch string) string {
	if u, err := url.Parse(repository); err == nil && u.Scheme == "ssh" {
		// The same host and path are served over HTTPS.
		repository = "https://" + u.Hostname() + u.EscapedPath()
	}
	return repository + "//" + folder + "?ref=" + url.QueryEscape(branch)
}

// kustomizationFile is a kustomization.yaml with these resources.
func kustomizationFile(resources ...string) string {
	return manifest(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources,
	}})
}
