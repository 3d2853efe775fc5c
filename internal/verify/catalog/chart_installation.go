package catalog

import (
	"context"

	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installsChart is [Scenario.reconciles] for a HelmRelease of the tenant. The folders aimed and own contain
// charts, see [charts].
func (e *Scenario) installsChart(ctx context.Context, id string, canary, own *unstructured.Unstructured, change func(spec map[string]any)) Finding {
	return e.delivered(ctx, e.release, id, canary, own, change)
}

// charts returns the files of an attack by a HelmRelease: a chart with an object outside of
// the tenant's namespaces, and a chart with the positive control.
func charts(aimed, own *unstructured.Unstructured) map[string]string {
	const chart = "apiVersion: v2\nname: canary\nversion: 1.0.0\n"
	return map[string]string{
		"aimed/Chart.yaml": chart, "aimed/templates/canary.yaml": manifest(aimed),
		"own/Chart.yaml": chart, "own/templates/canary.yaml": manifest(own),
	}
}

// deliversByChart is [deliversManifests] for a HelmRelease. Its canary has a name of its own: the attack by
// a Kustomization may run at the same time.
func deliversByChart(a Attack, kind string, canary, own func(*Scenario) *unstructured.Unstructured) Attack {
	a.Via, a.Kind, a.Deep, a.Kinds = Git, string(flux.HelmRelease), true, []string{kind}
	released := func(e *Scenario) *unstructured.Unstructured {
		u := canary(e)
		u.SetName(u.GetName() + "-release")
		return u
	}
	a.Files = func(e *Scenario) map[string]string { return charts(e.asCustomary(released(e)), e.asCustomary(own(e))) }
	a.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return e.installsChart(ctx, a.Key(), released(e), own(e), e.asItSyncs)
	}
	return a
}

// release returns a HelmRelease of the tenant with the tenant's own account, for a chart in a folder of the
// tenant's repository, or for the chart that the attack pushed beside the tenant's artifact. The
// HelmRelease waits for no object that it creates, and tries once.
func (e *Scenario) release(id, folder string, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"interval":           "1h",
		"timeout":            "20s",
		"releaseName":        name(id),
		"serviceAccountName": e.Account.Name,
		"install":            map[string]any{"disableWait": true},
		"chart": map[string]any{"spec": map[string]any{
			"interval":  "1h",
			"chart":     "./" + folder,
			"sourceRef": e.sourceRef(e.Namespace),
		}},
	}
	if e.charts != "" {
		spec["chart"] = map[string]any{"spec": map[string]any{
			"interval":  "1h",
			"chart":     chartName,
			"version":   chartVersion(folder),
			"sourceRef": map[string]any{"kind": string(flux.HelmRepository), "name": e.charts},
		}}
	}
	if change != nil {
		change(spec)
	}
	return object(flux.HelmRelease.GroupVersionKind().GroupVersion().String(), string(flux.HelmRelease), e.Namespace, name(id), map[string]any{"spec": spec})
}

// suspendedRelease returns a suspended HelmRelease of the tenant, for requests about which the API server
// alone decides.
func (e *Scenario) suspendedRelease(id string, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"interval": "1h", "suspend": true, "serviceAccountName": e.Account.Name,
		"chart": map[string]any{"spec": map[string]any{
			"chart": "any", "sourceRef": map[string]any{"kind": "HelmRepository", "name": "any"},
		}},
	}
	if change != nil {
		change(spec)
	}
	return object(flux.HelmRelease.GroupVersionKind().GroupVersion().String(), string(flux.HelmRelease), e.Namespace, name(id), map[string]any{"spec": spec})
}

// removeRelease removes a Flux object and the objects that Flux created for it, except for the canaries of
// a HelmRelease.
func (e *Scenario) removeRelease(u *unstructured.Unstructured) {
	if u.GetKind() != string(flux.HelmRelease) {
		e.remove(u)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupPatience)
	// Helm uninstalls with the rights of the release's account. If the account may not
	// delete the objects, Helm would retry without end.
	_ = e.Admin.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))
	cancel()
	e.remove(u)
	// The steps above may have used up the time of the context.
	ctx, cancel = context.WithTimeout(context.Background(), cleanupPatience)
	defer cancel()
	if chart := helmChartOf(u); e.Admin.Get(ctx, keyOf(chart), chart) == nil {
		e.remove(chart)
	}
	releaseName, _, _ := unstructured.NestedString(u.Object, "spec", "releaseName")
	storage, found, _ := unstructured.NestedString(u.Object, "spec", "storageNamespace")
	if !found {
		storage = u.GetNamespace()
	}
	_ = e.Admin.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(storage), client.MatchingLabels{"owner": "helm", "name": releaseName})
}

// helmChartOf returns the HelmChart that helm-controller creates for a HelmRelease, in the namespace of the
// chart's source.
func helmChartOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	namespace, found, _ := unstructured.NestedString(u.Object, "spec", "chart", "spec", "sourceRef", "namespace")
	if !found {
		namespace = u.GetNamespace()
	}
	return object(flux.HelmChart.GroupVersionKind().GroupVersion().String(), string(flux.HelmChart), namespace, u.GetNamespace()+"-"+u.GetName(), nil)
}
