package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestResourceSets checks the rule about ResourceSets and input providers of tenants, in a namespace that
// the profile governs and in one with parameters of its own.
func TestResourceSets(t *testing.T) {
	t.Parallel()
	_, tenant, restConfig := cluster(t)
	other := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "opened", Groups: []string{"system:authenticated"}})
	testwait.For(t, "the API server to know the tenant's rights", patience, func() (bool, string) {
		err := other.Create(t.Context(), parse(t, opened("opened", secretWith("any", "x"))), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	of := func(kind, spec string) string { return object("fluxcd.controlplane.io/v1", kind, spec) }
	const account, resources = "serviceAccountName: dev-team, ", "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]"
	depends := func(on string) string {
		return of("ResourceSet", account+"dependsOn: [{apiVersion: v1, kind: ConfigMap, name: x"+on+"}], "+resources)
	}
	annotated := func(annotation, value, manifest string) string {
		return strings.Replace(manifest, "namespace: apps}", "namespace: apps, annotations: {fluxcd.controlplane.io/"+annotation+": "+value+"}}", 1)
	}
	const onlyOwn, onlyStatic, platforms = "must depend on objects of its own namespace only", "must have type Static", "is for the platform only"
	for _, tc := range []struct{ reason, manifest, want string }{
		{"an ordinary set", of("ResourceSet", account+resources), ""},
		{"the operator's own rights", of("ResourceSet", resources), "ResourceSet x needs spec.serviceAccountName, one of: "},
		{"another account", of("ResourceSet", "serviceAccountName: builder, "+resources), "needs spec.serviceAccountName"},
		{"a dependency of its own", depends(", namespace: apps"), ""},
		{"another tenant's object", depends(", namespace: kube-system"), onlyOwn},
		{"an object of the cluster", depends(""), onlyOwn},
		{"static inputs", of("ResourceSetInputProvider", "type: Static, defaultValues: {a: b}"), ""},
		{"an address within the cluster", of("ResourceSetInputProvider", "type: ExternalService, url: 'https://kubernetes.default.svc/'"), onlyStatic},
		{"an interval of a second", annotated("reconcileEvery", "1s", of("ResourceSet", account+resources)), "ResourceSet x needs a longer interval in its annotation fluxcd.controlplane.io/reconcileEvery: at least 30s, not 1s"},
		{"an interval of an hour", annotated("reconcileEvery", "1h", of("ResourceSet", account+resources)), ""},
		{"a timeout of a day", annotated("reconcileTimeout", "24h", of("ResourceSet", account+resources)), "needs a shorter timeout in its annotation fluxcd.controlplane.io/reconcileTimeout: at most 15m"},
		{"inputs every second", annotated("reconcileEvery", "1s", of("ResourceSetInputProvider", "type: Static, defaultValues: {a: b}")), "ResourceSetInputProvider x needs a longer interval"},
		{"a Flux of its own", of("FluxInstance", "distribution: {version: 2.x, registry: ghcr.io/fluxcd}"), "FluxInstance x " + platforms},
		{"a report of its own", of("FluxReport", "distribution: {}"), platforms},
	} {
		for namespace, c := range map[string]client.Client{"apps": tenant, "opened": other} {
			t.Run(namespace+" "+tc.reason, func(t *testing.T) {
				manifest := tc.manifest
				if namespace != "apps" {
					manifest = opened(namespace, manifest)
				}
				err := c.Create(t.Context(), parse(t, manifest), client.DryRunAll)
				if tc.want == "" && err != nil || tc.want != "" && !strings.Contains(fmt.Sprint(err), tc.want) {
					t.Errorf("want %q, got %v", tc.want, err)
				}
			})
		}
	}
}
