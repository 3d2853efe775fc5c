package catalog

import (
	"context"
	"errors"
	"regexp"

	"github.com/tenure-dev/tenure/internal/flux"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pathNotFound is what kustomize-controller says when it has fetched an artifact
// and does not find the path in it.
var pathNotFound = regexp.MustCompile(`path not found|no such file or directory`)

func addCrossNamespaceSource(register func(...Attack)) {
	register(Attack{
		ID: "S1", Via: API,
		Title:      "uses a source of another namespace",
		Controls:   []string{"flag --no-cross-namespace-refs", "policy on spec.sourceRef"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start kustomize-controller, helm-controller and the image controllers with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("kustomize-controller")},
		},
		Layers: []Layer{
			flagLayer(noCrossNamespaceRefs("kustomize-controller")),
			admissionLayer("policy on spec.sourceRef", func(e *Scenario) *unstructured.Unstructured {
				return e.kustomization("s1", missingFolder, e.foreignSource)
			}),
		},
		Deep: true,
		Run:  crossNamespaceSource,
	})
}

func addCrossNamespaceSourceByRelease(register func(...Attack)) {
	register(Attack{
		ID: "S1", Via: API, Kind: "HelmRelease",
		Title:      "takes a chart from a source of another namespace",
		Controls:   []string{"flag --no-cross-namespace-refs", "policy on spec.chart and spec.chartRef"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start helm-controller with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("helm-controller")},
		},
		Layers: []Layer{
			flagLayer(noCrossNamespaceRefs("helm-controller")),
			admissionLayer("policy on spec.chart", func(e *Scenario) *unstructured.Unstructured {
				// Another rule may deny a chart from a GitRepository, so this one comes
				// from a HelmRepository.
				return e.suspendedRelease("s1", func(spec map[string]any) {
					spec["chart"].(map[string]any)["spec"].(map[string]any)["sourceRef"] = map[string]any{"kind": "HelmRepository", "name": "any", "namespace": e.Platform}
				})
			}),
			admissionLayer("policy on spec.chartRef", func(e *Scenario) *unstructured.Unstructured { return e.release("s1", missingFolder, e.foreignChartRef) }),
		},
		Deep:  true,
		Files: func(e *Scenario) map[string]string { return charts(ownConfigMap("s1")(e), ownConfigMap("s1")(e)) },
		Run:   crossNamespaceChart,
	})
}

// crossNamespaceChart tries both ways to name a chart of another namespace. helm-controller
// reports nothing when it refuses a chart of a foreign source. So the message comes from a
// reference to a foreign HelmChart, and the evidence is the HelmChart that helm-controller
// would create in the foreign namespace.
func crossNamespaceChart(ctx context.Context, e *Scenario) Finding {
	const key = "S1-api-HelmRelease"
	template := e.release(key, missingFolder, e.foreignChart)
	made := helmChartOf(template)
	templateErr := e.As.Create(ctx, template)
	if templateErr == nil {
		defer e.removeRelease(template)
	}
	said, err := e.apply(ctx, e.release(key+"-ref", missingFolder, e.foreignChartRef), func() {})
	if err == nil {
		err = refusedByFlux(said)
	}
	f := judge(err, "helm-controller looked for a HelmChart of "+e.Platform+" for it")
	if f.Outcome != Stopped {
		return f
	}
	if said.message != "" {
		f.Message = firstLine(said.message)
	}
	own := ownConfigMap("s1")(e)
	// The honest one comes last: when it is done, helm-controller has had the
	// time for the first.
	if f = e.confirm(ctx, e.release, key, own, f); f.Outcome != Stopped {
		return f
	}
	if exists, err := e.exists(ctx, made); err != nil {
		return notProven("cannot look after the canary: " + firstLine(err.Error()))
	} else if exists {
		return gotThrough("helm-controller made HelmChart " + made.GetNamespace() + "/" + made.GetName() + " from " + e.Root.String() + " for it")
	}
	if templateErr != nil {
		if g := judge(templateErr, ""); g.Outcome != Stopped {
			return g
		}
	}
	return f
}

// refusedByFlux returns the error that Flux's condition reports. It returns nil if Flux
// applied the object, or looked for the source and did not find it.
func refusedByFlux(said readiness) error {
	refusal := errors.New(firstLine(said.message))
	switch _, known := controlOf(said.message); {
	case known:
		return apierrors.NewForbidden(schema.GroupResource{}, "", refusal)
	case said.ready == metav1.ConditionTrue || sourceNotFound.MatchString(said.message):
		return nil
	}
	return refusal
}

// missingFolder is a path that no source has.
const missingFolder = "tenure-attack/nowhere"

// noCrossNamespaceRefs is the flag that closes references to other namespaces.
func noCrossNamespaceRefs(controller string) Flag {
	return Flag{Controller: controller, Flag: "--no-cross-namespace-refs=true"}
}

// sourceNotFound is what helm-controller says when it has looked for a source
// and there is none.
var sourceNotFound = regexp.MustCompile(`could not get Source object: .* not found`)

// foreignChart makes a HelmRelease use the platform's own source.
func (e *Scenario) foreignChart(spec map[string]any) {
	spec["chart"].(map[string]any)["spec"].(map[string]any)["sourceRef"] = map[string]any{"kind": string(flux.GitRepository), "name": e.Root.Name, "namespace": e.Root.Namespace}
}

// foreignChartRef makes a HelmRelease use a HelmChart of the platform's.
func (e *Scenario) foreignChartRef(spec map[string]any) {
	delete(spec, "chart")
	spec["chartRef"] = map[string]any{"kind": string(flux.HelmChart), "name": name("s1"), "namespace": e.Platform}
}

// foreignSource makes a Kustomization use the platform's own source.
func (e *Scenario) foreignSource(spec map[string]any) {
	spec["sourceRef"] = map[string]any{"kind": "GitRepository", "name": e.Root.Name, "namespace": e.Root.Namespace}
}

// crossNamespaceSource names the platform's own source, with a path that it does
// not have: that the path is missed shows that the artifact was fetched.
func crossNamespaceSource(ctx context.Context, e *Scenario) Finding {
	if e.Repository == nil {
		return e.noRepository()
	}
	said, err := e.apply(ctx, e.kustomization("s1", missingFolder, e.foreignSource), func() {})
	var f Finding
	control, refused := controlOf(said.message)
	switch {
	case err != nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)):
		f = judge(err, "")
	case err != nil:
		return notProven(firstLine(err.Error()))
	case said.ready == "True" || pathNotFound.MatchString(said.message):
		return gotThrough("kustomize-controller opened the artifact of " + e.Root.String() + " for it")
	case refused:
		f = stopped(control, firstLine(said.message))
	default:
		return notProven("the answer is neither yes nor a refusal: " + firstLine(said.message))
	}
	own, err := e.apply(ctx, e.kustomization("s1-own", missingFolder, nil), func() {})
	if apierrors.IsForbidden(err) && judge(err, "").Control == f.Control {
		return e.withPositiveControl(ctx, f)
	}
	switch {
	case err != nil:
		return notProven("the same with the tenant's own source fails: " + firstLine(err.Error()))
	case !pathNotFound.MatchString(own.message):
		return notProven("the same with the tenant's own source does not reach its artifact: " + firstLine(own.message))
	}
	return f
}
