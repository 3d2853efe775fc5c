package catalog

import (
	"context"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// noChart matches the message of helm-controller when the dependencies of a release are ready and it does
// not find the chart.
var noChart = regexp.MustCompile(`could not get Source object`)

func addForeignDependency(register func(...Attack)) {
	attack := Attack{
		ID: "S5", Via: API,
		Kinds:      []string{"Kustomization"},
		Title:      "lets its Kustomization depend on another tenant's, and so learns the state of that Kustomization",
		Controls:   []string{"policy on spec.dependsOn"},
		References: []string{"kustomize-controller: dependsOn and readyExpr"},
		Fix:        Fix{Advice: "refuse spec.dependsOn[].namespace in tenants' Kustomizations and HelmReleases with a ValidatingAdmissionPolicy: no flag of Flux limits it"},
		Deep:       true,
		Source:     true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			return e.dependsOn(ctx, e.kustomization, messageMatches(pathNotFound))
		},
	}
	register(attack)
	attack.Kind, attack.Source, attack.Kinds = "HelmRelease", false, []string{"HelmRelease"}
	attack.Title = "lets its HelmRelease depend on another tenant's, and so learns the state of that HelmRelease"
	attack.References = []string{"helm-controller: dependsOn and readyExpr"}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		return e.dependsOn(ctx, e.chartless, messageMatches(noChart))
	}
	register(attack)
}

// chartless returns a HelmRelease of the tenant with a chart that does not exist.
func (e *Scenario) chartless(id, folder string, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"interval":           "1h",
		"timeout":            "20s",
		"serviceAccountName": e.Account.Name,
		"chartRef":           map[string]any{"kind": "OCIRepository", "name": name(id + "-" + folder)},
	}
	if change != nil {
		change(spec)
	}
	return object("helm.toolkit.fluxcd.io/v2", "HelmRelease", e.Namespace, name(id), map[string]any{"spec": spec})
}

// dependsOn creates a suspended canary of the kind in the victim's namespace, and an object of the tenant
// that depends on it under a condition on the canary's content. The object names a missing path. If it
// fails at the path, the controller has read the canary, and the condition was true.
func (e *Scenario) dependsOn(ctx context.Context, make delivery, past func(readiness) bool) Finding {
	canary := make("s5-canary", "nowhere", func(spec map[string]any) { spec["suspend"] = true })
	foreign, own := canary, canary.DeepCopy()
	foreign.SetNamespace(e.Victim.Namespace)
	on := func(dependency *unstructured.Unstructured) func(map[string]any) {
		return func(spec map[string]any) {
			spec["dependsOn"] = []any{map[string]any{
				"name": dependency.GetName(), "namespace": dependency.GetNamespace(),
				"readyExpr": "dep.spec.suspend && dep.metadata.namespace == '" + dependency.GetNamespace() + "'",
			}}
		}
	}
	if err := e.Admin.Create(ctx, foreign); err != nil {
		return notProven("cannot make the canary: " + firstLine(err.Error()))
	}
	defer e.remove(foreign)
	said, err := e.apply(ctx, make("s5", missingFolder, on(foreign)), func() {})
	var f Finding
	control, refused := controlOf(said.message)
	switch {
	case err != nil:
		f = judge(err, "")
	case past(said):
		return gotThrough(fmt.Sprintf("Flux read %s %s/%s for it, and showed it the content", foreign.GetKind(), foreign.GetNamespace(), foreign.GetName()))
	case refused:
		f = stopped(control, firstLine(said.message))
	default:
		return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
	}
	if f.Outcome != Stopped {
		return f
	}
	if err := e.create(ctx, own); err != nil {
		if judge(err, "").Control == f.Control {
			return e.withPositiveControl(ctx, f)
		}
		return notProven("the tenant cannot make an object to depend on: " + firstLine(err.Error()))
	}
	defer e.remove(own)
	return e.positiveControl(ctx, f, make("s5-own", missingFolder, on(own)), past)
}
