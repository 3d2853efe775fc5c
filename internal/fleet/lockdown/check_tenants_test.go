package lockdown

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// beforeRules names what applies a tenant's namespace without waiting for the manager.
func TestBeforeRules(t *testing.T) {
	t.Parallel()
	const sync = "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: flux-system, "
	const manager = sync + "name: tenure-manager}}"
	namespace := func(name, by string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + ", labels: {toolkit.fluxcd.io/tenant: team, " + by + "}}}"
	}
	by := func(name string) string {
		return "kustomize.toolkit.fluxcd.io/namespace: flux-system, kustomize.toolkit.fluxcd.io/name: " + name
	}
	for reason, tc := range map[string]struct {
		objects []string
		want    string
	}{
		"it waits":                             {[]string{manager, sync + "name: tenants}, spec: {dependsOn: [{name: tenure-manager}]}}", namespace("team", by("tenants"))}, ""},
		"it does not":                          {[]string{manager, sync + "name: tenants}, spec: {dependsOn: [{name: infrastructure}]}}", namespace("team", by("tenants")), namespace("other", by("tenants"))}, "Kustomization flux-system/tenants applies Namespace team of a tenant and does not depend on tenure-manager: "},
		"what it depends on waits":             {[]string{manager, sync + "name: tenants}, spec: {dependsOn: [{name: policies}]}}", sync + "name: policies}, spec: {dependsOn: [{name: tenure-manager, namespace: flux-system}]}}", namespace("team", by("tenants"))}, ""},
		"another namespace's manager":          {[]string{manager, sync + "name: tenants}, spec: {dependsOn: [{name: policies, namespace: elsewhere}]}}", sync + "name: policies}, spec: {dependsOn: [{name: tenure-manager}]}}", namespace("team", by("tenants"))}, "flux-system/tenants"},
		"what applies it waits":                {[]string{manager, sync + "name: team, labels: {" + by("tenants") + "}}}", sync + "name: tenants}, spec: {dependsOn: [{name: tenure-manager}]}}", namespace("team", by("team"))}, ""},
		"they depend on each other":            {[]string{manager, sync + "name: tenants}, spec: {dependsOn: [{name: others}]}}", sync + "name: others}, spec: {dependsOn: [{name: tenants}]}}", namespace("team", by("tenants"))}, "flux-system/tenants"},
		"the root":                             {[]string{manager, sync + "name: flux-system, labels: {" + by("flux-system") + "}}}", namespace("team", by("flux-system"))}, "flux-system/flux-system"},
		"nobody's namespace":                   {[]string{manager, sync + "name: tenants}}", "{apiVersion: v1, kind: Namespace, metadata: {name: x, labels: {" + by("tenants") + "}}}"}, ""},
		"a namespace that discovery found":     {[]string{manager, sync + "name: tenants}}", "{apiVersion: v1, kind: Namespace, metadata: {name: sites, labels: {" + by("tenants") + "}}}"}, "Namespace sites"},
		"nobody applies the manager":           {[]string{sync + "name: tenants}}", namespace("team", by("tenants"))}, ""},
		"a release of a chart, which has none": {[]string{manager, namespace("team", "helm.toolkit.fluxcd.io/namespace: flux-system, helm.toolkit.fluxcd.io/name: tenants")}, ""},
		"a Kustomization that is gone":         {[]string{manager, namespace("team", by("tenants"))}, ""},
	} {
		var namespaces []*unstructured.Unstructured
		kube := fake.NewClientBuilder()
		for _, manifest := range tc.objects {
			u := parsed(t, manifest)
			if u.GetKind() == "Namespace" {
				namespaces = append(namespaces, u)
			}
			kube = kube.WithObjects(u)
		}
		got, err := Cluster{Client: kube.Build(), Namespace: "flux-system", TenantNamespaces: map[string]string{"team": "team", "other": "other", "sites": "sites"}}.beforeRules(t.Context(), namespaces)
		if text := strings.Join(got, "; "); err != nil || len(got) > 1 || (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) {
			t.Errorf("%s: got %q and %v, want %q", reason, text, err, tc.want)
		}
	}
}

func TestNotInForce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct{ reason, status, want string }{
		{"it is in force", `{conditions: [{type: Ready, status: "True", message: all}]}`, ""},
		{"it is not", `{conditions: [{type: Ready, status: "False", message: no such rule}]}`, "no such rule"},
		{"it has just been changed", `{conditions: [{type: Ready, status: Unknown, message: in force in 1 of 2, lastTransitionTime: "2026-11-22T11:59:30Z"}]}`, ""},
		{"it does not come into force", `{conditions: [{type: Ready, status: Unknown, message: in force in 1 of 2, lastTransitionTime: "2026-11-22T11:58:30Z"}]}`, "in force in 1 of 2"},
		{"nobody has looked", "{}", ""},
	} {
		if got := notInForce(parsed(t, "{status: "+tc.status+"}"), now); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
