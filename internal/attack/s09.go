package attack

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func init() {
	source := func(e *Env, kind, url string) *unstructured.Unstructured {
		return object("source.toolkit.fluxcd.io/v1", kind, e.Namespace, name("s9"), map[string]any{"spec": map[string]any{
			"interval": "1h", "url": url,
		}})
	}
	register(Attack{
		ID: "S9", Via: API,
		Title:      "fetches from an address that nobody has approved, or from within the cluster",
		Controls:   []string{"policy on the addresses of sources"},
		References: []string{"flux2-multi-tenancy: tenancy policies"},
		Fix:        Fix{Advice: "allow sources of tenants by address, with a ValidatingAdmissionPolicy on GitRepository, HelmRepository, OCIRepository and Bucket"},
		Run: requests(
			request{what: "name any Git host", aimed: creating(func(e *Env) *unstructured.Unstructured {
				return source(e, "GitRepository", "https://git.unapproved.example.net/any/thing")
			})},
			request{what: "name any Helm repository", aimed: creating(func(e *Env) *unstructured.Unstructured {
				return source(e, "HelmRepository", "https://charts.unapproved.example.net")
			})},
			request{what: "name a Service of the cluster as a Git host", aimed: creating(func(e *Env) *unstructured.Unstructured {
				return source(e, "GitRepository", "http://source-controller."+e.Platform+".svc.cluster.local/any")
			})},
		),
	})
}
