package catalog

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func addIngressAnnotations(register func(...Attack)) {
	annotated := func(annotation string, value func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := ingress(ownHost)(e)
			u.SetName(name("w13"))
			u.SetAnnotations(map[string]string{annotation: value(e)})
			return u
		}
	}
	plain := annotated("tenure.dev/attack", func(*Scenario) string { return "none" })
	is := func(value string) func(*Scenario) string { return func(*Scenario) string { return value } }
	snippet := annotated("nginx.ingress.kubernetes.io/server-snippet", is("# tenure-canary"))
	var all []request
	for _, reach := range []struct {
		what  string
		aimed func(*Scenario) *unstructured.Unstructured
	}{
		{"write into the configuration of an ingress controller that others use", snippet},
		{"have an ingress controller read a Secret of another namespace", annotated("nginx.ingress.kubernetes.io/auth-tls-secret", func(e *Scenario) string { return e.Victim.Namespace + "/canary" })},
		{"join the load balancer of other tenants' Ingresses", annotated("alb.ingress.kubernetes.io/group.name", is("shared"))},
		{"have an ingress controller ask a Service of another tenant", annotated("nginx.ingress.kubernetes.io/auth-url", func(e *Scenario) string { return "http://canary." + e.Victim.Namespace + ".svc.cluster.local/" })},
		{"use a middleware of another namespace", annotated("traefik.ingress.kubernetes.io/router.middlewares", func(e *Scenario) string { return e.Victim.Namespace + "-canary@kubernetescrd" })},
	} {
		all = append(all, request{what: reach.what, aimed: creating(reach.aimed, plain), own: creating(plain)})
	}
	service := func(annotation string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := object("v1", "Service", e.Namespace, name("w13"), map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(443)}}, "selector": map[string]any{"app": "canary"}}})
			u.SetAnnotations(map[string]string{annotation: "# tenure-canary"})
			return u
		}
	}
	behind := service("tenure.dev/attack")
	all = append(all, request{what: "write into the configuration of an ingress controller that others use, by a Service", aimed: creating(service("haproxy.org/backend-config-snippet"), behind), own: creating(behind)})
	alsoByGit(register, "Ingress", snippet, Attack{
		ID: "W13", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"Ingress", "Service"},
		Title:    "changes the configuration of a shared ingress controller with annotations of an Ingress or a Service",
		Controls: []string{"policy on the annotations of Ingresses and Services"},
		Fix:      Fix{Advice: "refuse annotations of Ingresses and Services that write configuration, join a group, or name objects of other namespaces or addresses within the cluster with a ValidatingAdmissionPolicy, and turn snippets off in the ingress controller"},
		Run:      requests(all...),
	})
}
