package lockdown

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// instanceFleet returns a fleet whose FluxInstance is in a file with the content.
func instanceFleet(t *testing.T, content string) *layout.Fleet {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"clusters/prod/flux.yaml": content,
		"clusters/prod/apps.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec: {path: ./apps}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: named, namespace: flux-system}
spec: {path: ./named, serviceAccountName: kustomize-controller}
---
apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: teams, namespace: flux-system}
spec:
  resources:
    - apiVersion: helm.toolkit.fluxcd.io/v2
      kind: HelmRelease
      metadata: {name: app, namespace: << inputs.tenant >>}
      spec: {interval: 1h}
`,
	}
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := layout.Load(dir, "clusters/prod", layout.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const (
	instanceHead = "apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\nmetadata: {name: flux, namespace: flux-system}\nspec:\n"
	instanceSync = "  sync: {kind: GitRepository, url: https://git.example.com/fleet, ref: refs/heads/main, path: clusters/prod} # the fleet\n"
)

// TestFluxInstance checks that the profile changes its own fields of a FluxInstance and no others.
func TestFluxInstance(t *testing.T) {
	t.Parallel()
	chart := "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: flux}\nspec:\n  values:\n    instance:\n"
	inChart := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
	}
	for name, tc := range map[string]struct {
		reason, before, after string
		single                bool
	}{
		"Missing":       {reason: "nothing is set", before: instanceHead + instanceSync, after: instanceHead + instanceSync + "  cluster:\n    multitenant: true\n"},
		"Cluster":       {reason: "other fields stay", before: instanceHead + instanceSync + "  cluster:\n    type: aws\n", after: instanceHead + instanceSync + "  cluster:\n    type: aws\n    multitenant: true\n"},
		"Flow":          {reason: "in flow style, with the network open", before: instanceHead + "  cluster: {multitenant: false, networkPolicy: false}\n" + instanceSync, after: instanceHead + "  cluster: {multitenant: true, networkPolicy: true}\n" + instanceSync},
		"Done":          {reason: "it is locked down", before: instanceHead + instanceSync + "  cluster: {multitenant: true}\n"},
		"Chart":         {reason: "the values of the chart", before: chart + inChart(instanceSync), after: chart + inChart(instanceSync+"  cluster:\n    multitenant: true\n")},
		"Single":        {reason: "the way back", single: true, before: instanceHead + "  cluster: {multitenant: true, networkPolicy: true}\n" + instanceSync, after: instanceHead + "  cluster: {multitenant: false, networkPolicy: true}\n" + instanceSync},
		"NothingToUndo": {reason: "it was never locked down", single: true, before: instanceHead + instanceSync},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := Make(instanceFleet(t, tc.before), Options{Tenants: !tc.single})
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			after := ""
			for _, change := range plan.Changes {
				if change.Path != "clusters/prod/flux.yaml" {
					t.Errorf("%s: %s is changed", tc.reason, change.Path)
				}
				after = *change.After
			}
			if diff := cmp.Diff(tc.after, after); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			notes := strings.Join(plan.Notes, "\n")
			for _, lost := range []string{"HelmRelease app in clusters/prod/apps.yaml", "Kustomization apps in clusters/prod/apps.yaml"} {
				if strings.Contains(notes, lost) == tc.single {
					t.Errorf("%s: %s names no account; the notes say so: %t", tc.reason, lost, tc.single)
				}
			}
			if strings.Contains(notes, "Kustomization named") {
				t.Errorf("%s: the notes name an object with an account: %s", tc.reason, notes)
			}
		})
	}
}

// TestFluxInstanceOptions checks that a flag which a FluxInstance cannot have is refused.
func TestFluxInstanceOptions(t *testing.T) {
	t.Parallel()
	yes := true
	for want, o := range map[string]Options{
		"spec.sharding":        {Shards: []string{"gold"}},
		"spec.distribution":    {Pins: []Pin{{}}},
		"Tenure's chart":       {Proxy: &yes},
		"as a value of Tenure": {Warn: true},
	} {
		o.Tenants = true
		if _, err := Make(instanceFleet(t, instanceHead+instanceSync), o); !errors.Is(err, errInstance) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	anchored := instanceHead + strings.Replace(instanceSync, "url: ", "url: &url ", 1)
	if _, err := Make(instanceFleet(t, anchored), Options{Tenants: true}); err == nil || !strings.Contains(err.Error(), "only a person can edit") {
		t.Errorf("an anchor: got %v", err)
	}
}

// TestFluxInstanceDrift checks the states of the fields, with the defaults of the kind.
func TestFluxInstanceDrift(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		spec string
		got  []string
	}{
		"defaults": {"", []string{"false", "default", "true", ""}},
		"all set":  {"  cluster: {multitenant: true, tenantDefaultServiceAccount: flux, networkPolicy: true}\n  kustomize: {patches: [{patch: \"value: --storage-addr=$(POD):9090\"}]}\n", []string{"true", "flux", "true", "set"}},
	} {
		states, err := Drift(instanceFleet(t, instanceHead+instanceSync+tc.spec))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range states {
			got = append(got, s.Got)
		}
		if diff := cmp.Diff(tc.got, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// TestOperated checks the results of the check of a cluster for flags that flux-operator writes.
func TestOperated(t *testing.T) {
	t.Parallel()
	deployment := func(labels map[string]any) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "kustomize-controller", "labels": labels}}}}
	}
	if !operated(deployment(map[string]any{"app.kubernetes.io/managed-by": "flux-operator"})) || operated(deployment(map[string]any{"app.kubernetes.io/managed-by": "helm"})) {
		t.Error("the label of flux-operator decides")
	}
	if advice := instanceAdvice(Flag{Name: "--no-remote-bases"}); !strings.Contains(advice, "spec.cluster.multitenant") {
		t.Errorf("got %q", advice)
	}
	if advice := instanceAdvice(Flag{Name: storageFlag}); !strings.Contains(advice, "spec.kustomize.patches") {
		t.Errorf("got %q", advice)
	}
}

// TestOperatorAccount checks the result about flux-operator's own flag.
func TestOperatorAccount(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, container string
		ruled, ok         bool
		want              string
	}{
		{"the flag", "args: [--default-service-account=flux]", false, true, "in force"},
		{"the variable", "env: [{name: DEFAULT_SERVICE_ACCOUNT, value: flux}]", false, true, "in force"},
		{"an empty variable", "env: [{name: DEFAULT_SERVICE_ACCOUNT}]", false, false, "multitenancy.enabled"},
		{"neither, and the rule", "args: [--log-level=info]", true, true, "tenure-resource-sets"},
		{"neither", "args: [--log-level=info]", false, false, "applied as cluster-admin"},
	} {
		got := operatorAccount(parsed(t, "{kind: Deployment, spec: {template: {spec: {containers: [{"+tc.container+"}]}}}}"), tc.ruled)
		if got.OK != tc.ok || !strings.Contains(got.Message, tc.want) {
			t.Errorf("%s: got %+v, want %t and %q", tc.reason, got, tc.ok, tc.want)
		}
	}
	binding := "{kind: ValidatingAdmissionPolicyBinding, spec: {policyName: tenure-flux-objects, validationActions: [%s]}}"
	if !deniesFluxObjects(parsed(t, strings.Replace(binding, "%s", "Deny", 1))) || deniesFluxObjects(parsed(t, strings.Replace(binding, "%s", "Warn, Audit", 1))) {
		t.Error("only a binding that denies counts")
	}
}

// TestOperatedExpected checks that the check of a cluster that flux-operator runs expects the objects of
// the chart alone, and advises to install it.
func TestOperatedExpected(t *testing.T) {
	t.Parallel()
	c := Cluster{Namespace: "flux-system", operated: true}
	expected, err := c.expected(nil, parts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range expected {
		if o.GetName() == "tenure-kustomize-controller" {
			t.Errorf("%s is expected, which the chart does not install", ObjectName(o))
		}
	}
	if advice := c.rulesAdvice("--defaults", "defaults.enabled: true"); advice != "install Tenure's chart with defaults.enabled: true, see docs/how-to/install.md" {
		t.Errorf("got %q", advice)
	}
	if advice := (Cluster{}).rulesAdvice("--defaults", "defaults.enabled: true"); advice != lockDown+" with --defaults" {
		t.Errorf("a fleet with a bootstrap: got %q", advice)
	}
}
