package catalog

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pathNotFound matches the message of kustomize-controller when it has fetched an artifact and does not
// find the path in it.
var pathNotFound = regexp.MustCompile(`path not found|no such file or directory`)

func addCrossNamespaceSource(register func(...Attack)) {
	register(Attack{
		ID: "S1", Via: API,
		Kinds:      []string{"Kustomization"},
		Title:      "uses a source of another namespace, of any kind",
		Controls:   []string{"flag --no-cross-namespace-refs", "policy on spec.sourceRef"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start kustomize-controller, helm-controller and the image controllers with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("kustomize-controller")},
		},
		Layers: []Layer{
			flagLayer(noCrossNamespaceRefs("kustomize-controller")),
			admissionLayer("policy on spec.sourceRef", func(e *Scenario) *unstructured.Unstructured {
				return e.kustomization("s1", missingFolder, e.foreignSource(flux.GitRepository))
			}),
		},
		Deep:   true,
		Source: true,
		Run:    crossNamespaceSource,
	})
}

func addCrossNamespaceSourceByRelease(register func(...Attack)) {
	register(Attack{
		ID: "S1", Via: API, Kind: "HelmRelease",
		Kinds:      []string{"HelmRelease"},
		Title:      "takes a chart from a source of another namespace, of any kind",
		Controls:   []string{"flag --no-cross-namespace-refs", "policy on spec.chart and spec.chartRef"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start helm-controller with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("helm-controller")},
		},
		Layers: []Layer{
			flagLayer(noCrossNamespaceRefs("helm-controller")),
			admissionLayer("policy on spec.chart", func(e *Scenario) *unstructured.Unstructured {
				// Another rule may deny a chart from a GitRepository, so the chart comes from a
				// HelmRepository.
				return e.suspendedRelease("s1", func(spec map[string]any) {
					spec["chart"].(map[string]any)["spec"].(map[string]any)["sourceRef"] = map[string]any{"kind": "HelmRepository", "name": "any", "namespace": e.Platform}
				})
			}),
			admissionLayer("policy on spec.chartRef", func(e *Scenario) *unstructured.Unstructured {
				return e.release("s1", missingFolder, e.foreignChartRef(flux.HelmChart))
			}),
		},
		Deep:  true,
		Files: func(e *Scenario) map[string]string { return charts(ownConfigMap("s1")(e), ownConfigMap("s1")(e)) },
		Run:   crossNamespaceChart,
	})
}

// chartSources and chartRefs are the kinds from which a HelmRelease may take a chart: by a template of a
// HelmChart, and by a reference.
var (
	chartSources = []flux.Kind{flux.GitRepository, flux.HelmRepository, flux.Bucket}
	chartRefs    = []flux.Kind{flux.HelmChart, flux.OCIRepository, flux.ExternalArtifact}
)

// crossNamespaceChart tries both ways to name a chart of another namespace, with every kind of source.
// helm-controller reports nothing when it refuses a chart of a foreign source. So the message comes from a
// reference to a foreign HelmChart, and the evidence is the HelmChart that helm-controller would create in
// the foreign namespace.
func crossNamespaceChart(ctx context.Context, e *Scenario) Finding {
	const key = "S1-api-HelmRelease"
	made := map[*unstructured.Unstructured]flux.Kind{}
	var refusals []error
	for _, kind := range chartSources {
		template := e.release(key+"-"+string(kind), missingFolder, e.foreignChart(kind))
		if err := e.createOrChange(ctx, template); err != nil {
			refusals = append(refusals, err)
			continue
		}
		defer e.removeRelease(template)
		made[helmChartOf(template)] = kind
	}
	var f Finding
	for _, kind := range chartRefs {
		said, err := e.apply(ctx, e.release(key+"-ref", missingFolder, e.foreignChartRef(kind)), func() {})
		if err == nil && kind != chartRefs[0] && kindIsOff.MatchString(said.message) {
			continue
		}
		if err == nil {
			err = refusedByFlux(said)
		}
		g := judge(err, "helm-controller looked for "+article(kind)+" of "+e.Platform+" for it")
		if g.Outcome != Stopped {
			return g
		}
		if said.message != "" {
			g.Message = firstLine(said.message)
		}
		if f.Outcome == "" {
			f = g
		}
		f = f.and(g)
	}
	own := ownConfigMap("s1")(e)
	// The positive control comes last: when it has ended, helm-controller has had time for
	// the attack.
	if f = e.confirm(ctx, e.release, key, own, f); f.Outcome != Stopped {
		return f
	}
	for chart, kind := range made {
		if exists, err := e.exists(ctx, chart); err != nil {
			return notProven("cannot read the canary: " + firstLine(err.Error()))
		} else if exists {
			from := article(kind) + " of " + e.Platform
			if kind == e.Root.Kind {
				from = e.Root.String()
			}
			return gotThrough("helm-controller made HelmChart " + chart.GetNamespace() + "/" + chart.GetName() + " from " + from + " for it")
		}
	}
	for _, err := range refusals {
		if g := judge(err, ""); g.Outcome != Stopped {
			return g
		}
	}
	return f
}

// article returns a kind with its article.
func article(kind flux.Kind) string {
	if strings.ContainsAny(string(kind[:1]), "EIO") {
		return "an " + string(kind)
	}
	return "a " + string(kind)
}

// kindIsOff matches the message of a controller whose feature gate for a kind is off.
var kindIsOff = regexp.MustCompile(`feature gate`)

// refusedByFlux returns the error that Flux's condition reports. It returns nil if Flux applied the object,
// or looked for the source and did not find it.
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

// noCrossNamespaceRefs returns the flag that forbids references to other namespaces.
func noCrossNamespaceRefs(controller string) Flag {
	return Flag{Controller: controller, Flag: "--no-cross-namespace-refs=true"}
}

// sourceNotFound matches the message of helm-controller when it has looked for a source and found none.
var sourceNotFound = regexp.MustCompile(`could not get Source object: .* not found`)

// foreignRef returns a reference to a source of a kind in the platform's namespace: the platform's own
// source or, for another kind, an object that does not exist but that a controller looks for.
func (e *Scenario) foreignRef(kind flux.Kind) map[string]any {
	if kind == e.Root.Kind {
		return map[string]any{"kind": string(kind), "name": e.Root.Name, "namespace": e.Root.Namespace}
	}
	return map[string]any{"kind": string(kind), "name": name("s1"), "namespace": e.Platform}
}

// foreignChart makes a HelmRelease use a source of the platform's.
func (e *Scenario) foreignChart(kind flux.Kind) func(spec map[string]any) {
	return func(spec map[string]any) {
		spec["chart"].(map[string]any)["spec"].(map[string]any)["sourceRef"] = e.foreignRef(kind)
	}
}

// foreignChartRef makes a HelmRelease refer to a chart of the platform's.
func (e *Scenario) foreignChartRef(kind flux.Kind) func(spec map[string]any) {
	return func(spec map[string]any) {
		delete(spec, "chart")
		spec["chartRef"] = map[string]any{"kind": string(kind), "name": name("s1"), "namespace": e.Platform}
	}
}

// foreignSource makes a Kustomization use a source of the platform's.
func (e *Scenario) foreignSource(kind flux.Kind) func(spec map[string]any) {
	return func(spec map[string]any) { spec["sourceRef"] = e.foreignRef(kind) }
}

// kustomizationSources are the kinds of sources of a Kustomization.
var kustomizationSources = []flux.Kind{flux.GitRepository, flux.OCIRepository, flux.Bucket, flux.ExternalArtifact}

// kustomizationSourceMissing matches the message of kustomize-controller when it has looked for a source
// and found none: the API server's answer, which older versions of Flux replace by their own.
var kustomizationSourceMissing = regexp.MustCompile(`^(Source '.*'|\w+\.source\.toolkit\.fluxcd\.io "[^"]*") not found`)

// crossNamespaceSource names sources of the platform, of every kind. The platform's own source
// does not have the path: that the path is missed shows that the artifact was fetched. Of
// another kind, the source does not exist: that it is missed shows that the controller looked
// for it.
func crossNamespaceSource(ctx context.Context, e *Scenario) Finding {
	var f Finding
	for _, kind := range kustomizationSources {
		g := e.usesForeignSource(ctx, kind)
		switch {
		case g.Outcome != Stopped:
			return g
		case f.Outcome == "":
			f = g
		}
		f = f.and(g)
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

// usesForeignSource tries a Kustomization with a source of the platform's, of a kind.
func (e *Scenario) usesForeignSource(ctx context.Context, kind flux.Kind) Finding {
	said, err := e.apply(ctx, e.kustomization("s1", missingFolder, e.foreignSource(kind)), func() {})
	control, refused := controlOf(said.message)
	switch {
	case err != nil:
		return judge(err, "")
	case said.ready == "True" || pathNotFound.MatchString(said.message):
		return gotThrough("kustomize-controller opened the artifact of " + e.Root.String() + " for it")
	case kustomizationSourceMissing.MatchString(said.message):
		return gotThrough("kustomize-controller looked for " + article(kind) + " of " + e.Platform + " for it")
	case kindIsOff.MatchString(said.message):
		return stopped(notInstalled, firstLine(said.message))
	case refused:
		return stopped(control, firstLine(said.message))
	}
	return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
}
