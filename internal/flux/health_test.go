package flux

import (
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	reflectorv1 "github.com/fluxcd/image-reflector-controller/api/v1"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checking returns the row of a Kustomization that checks the health of a HelmRelease.
func checking(wait bool, message string) Row {
	o := &kustomizev1.Kustomization{
		ObjectMeta: at("flux-system", "apps", 1),
		Spec: kustomizev1.KustomizationSpec{
			Wait:      wait,
			SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"},
		},
		Status: kustomizev1.KustomizationStatus{
			ObservedGeneration: 1,
			Conditions: append(ready("Unknown", meta.ProgressingReason, "Reconciliation in progress", 1),
				metav1.Condition{Type: meta.ReconcilingCondition, Status: metav1.ConditionTrue, Reason: meta.ProgressingReason, Message: message}),
			Inventory: &kustomizev1.ResourceInventory{Entries: []kustomizev1.ResourceRef{
				{ID: "web_app_helm.toolkit.fluxcd.io_HelmRelease"}, {ID: "web_app_apps_Deployment"},
				{ID: "flux-system_apps_kustomize.toolkit.fluxcd.io_Kustomization"},
			}},
		},
	}
	if !wait {
		o.Spec.HealthChecks = []meta.NamespacedObjectKindReference{{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Namespace: "web", Name: "app"}}
	}
	row, _ := describe(o)
	return row
}

// TestHealthChecks checks that a Kustomization that waits for a failed object has failed, as its
// timeout would say later.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	fleet := git("fleet", revisionA, Ready)
	release := Row{Namespace: "web", Kind: HelmRelease, Name: "app", State: Failed, Message: "no chart"}
	working := release
	working.State, working.Message = Working, "installing"
	running := healthChecks + " for revision " + revisionA + " with a timeout of 5m0s"
	for name, tc := range map[string]struct {
		reason          string
		row             Row
		release         Row
		awaited, failed int
		lacks           bool
	}{
		"wait, failed":     {"the release will not become ready, so neither will the Kustomization", checking(true, running), release, 0, 2, true},
		"checks, failed":   {"the same for spec.healthChecks", checking(false, running), release, 0, 2, true},
		"wait, working":    {"the release may become ready", checking(true, running), working, 2, 0, false},
		"before the check": {"nothing is known before the objects are applied", checking(true, "Reconciliation in progress"), release, 1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Assess([]Row{fleet, tc.row, tc.release})
			if len(got.Awaited) != tc.awaited || len(got.Failed) != tc.failed {
				t.Errorf("%s: %d awaited, %d failed: %+v", tc.reason, len(got.Awaited), len(got.Failed), got)
			}
			for _, f := range got.Failed {
				if f.Row.Kind == Kustomization && (f.Lacks != tc.lacks || f.Reason != "waits for HelmRelease/web/app (failed)") {
					t.Errorf("%s: lacks %v, reason %s", tc.reason, f.Lacks, cmp.Diff("waits for HelmRelease/web/app (failed)", f.Reason))
				}
			}
		})
	}
}

// TestNamedHealthChecks checks that a Kustomization which waits for an object of another kind than Flux's
// names it.
func TestNamedHealthChecks(t *testing.T) {
	t.Parallel()
	o := &kustomizev1.Kustomization{ObjectMeta: at("flux-system", "apps", 1)}
	o.Spec.SourceRef = kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"}
	o.Spec.HealthChecks = []meta.NamespacedObjectKindReference{{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "web", Name: "app"}}
	running := healthChecks + " for revision main@sha1:1 with a timeout of 5m0s"
	o.Status.ObservedGeneration = 1
	o.Status.Conditions = append(ready("Unknown", meta.ProgressingReason, "Reconciliation in progress", 1),
		metav1.Condition{Type: meta.ReconcilingCondition, Status: metav1.ConditionTrue, Reason: meta.ProgressingReason, Message: running})
	row, _ := describe(o)
	got := Assess([]Row{git("fleet", revisionA, Ready), row})
	if len(got.Awaited) != 1 || got.Awaited[0].Reason != running+" of Deployment/web/app" {
		t.Errorf("%+v", got)
	}
}

// TestOperatorHealth checks that an object of flux-operator which waits for its objects has failed as
// soon as one of them has failed, and not only at its timeout.
func TestOperatorHealth(t *testing.T) {
	t.Parallel()
	operator := func(kind Kind, spec map[string]any) Row {
		object := map[string]any{
			"apiVersion": operatorVersion.String(), "kind": string(kind),
			"metadata": map[string]any{"name": "flux", "namespace": "flux-system", "generation": int64(1)},
			"spec":     spec,
			"status": map[string]any{"observedGeneration": int64(1), "conditions": []any{
				map[string]any{"type": "Ready", "status": "Unknown", "reason": "Progressing", "message": "Reconciliation in progress"},
			}},
		}
		row, ok := describe(&unstructured.Unstructured{Object: object})
		if !ok {
			t.Fatalf("%s is no kind of flux-operator", kind)
		}
		return row
	}
	applied := func(state string, labels map[string]string) Row {
		o := &kustomizev1.Kustomization{ObjectMeta: at("flux-system", "flux-system", 1)}
		o.Labels, o.Spec.SourceRef = labels, kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"}
		o.Status.ObservedGeneration, o.Status.Conditions = 1, ready(metav1.ConditionStatus(state), meta.ReconciliationFailedReason, "dry-run failed", 1)
		row, _ := describe(o)
		return row
	}
	byInstance := map[string]string{"fluxcd.controlplane.io/name": "flux", "fluxcd.controlplane.io/namespace": "flux-system"}
	bySet := map[string]string{"resourceset.fluxcd.controlplane.io/name": "flux", "resourceset.fluxcd.controlplane.io/namespace": "flux-system"}
	for name, tc := range map[string]struct {
		reason          string
		operator, child Row
		awaited, failed int
	}{
		"instance":             {"a FluxInstance waits unless it says otherwise", operator(FluxInstance, nil), applied("False", byInstance), 0, 2},
		"instance, no wait":    {"it becomes ready by itself", operator(FluxInstance, map[string]any{"wait": false}), applied("False", byInstance), 1, 1},
		"set":                  {"a ResourceSet waits if it says so", operator(ResourceSet, map[string]any{"wait": true}), applied("False", bySet), 0, 2},
		"set, no wait":         {"it becomes ready by itself", operator(ResourceSet, nil), applied("False", bySet), 1, 1},
		"another one's object": {"the failed object is not the set's", operator(ResourceSet, map[string]any{"wait": true}), applied("False", byInstance), 1, 1},
		"working":              {"the object may become ready", operator(ResourceSet, map[string]any{"wait": true}), applied("Unknown", bySet), 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Assess([]Row{git("fleet", revisionA, Ready), tc.operator, tc.child})
			if len(got.Awaited) != tc.awaited || len(got.Failed) != tc.failed {
				t.Errorf("%s: %d awaited, %d failed: %+v", tc.reason, len(got.Awaited), len(got.Failed), got)
			}
			for _, f := range got.Failed {
				if f.Row.Kind != Kustomization && (!f.Lacks || f.Reason != "waits for Kustomization/flux-system/flux-system (failed)") {
					t.Errorf("%s: lacks %v, reason %s", tc.reason, f.Lacks, f.Reason)
				}
			}
		})
	}
}

// TestReleaseHealth checks that a HelmRelease that waits for the objects of its chart has failed as soon
// as one of Flux's among them has failed, and not only at its timeout.
func TestReleaseHealth(t *testing.T) {
	t.Parallel()
	release := func(message string, disableWait bool) Row {
		o := &helmv2.HelmRelease{ObjectMeta: at("flux-system", "spoke", 1)}
		o.Spec.Install = &helmv2.Install{DisableWait: disableWait}
		o.Status.ObservedGeneration, o.Status.Conditions = 1, ready(metav1.ConditionUnknown, meta.ProgressingReason, message, 1)
		row, _ := describe(o)
		return row
	}
	const installs = "Running 'install' action with timeout of 5m0s"
	child := func(state metav1.ConditionStatus, owner string) Row {
		o := &kustomizev1.Kustomization{ObjectMeta: at("flux-system", "nodes", 1)}
		o.Labels = map[string]string{"helm.toolkit.fluxcd.io/name": owner, "helm.toolkit.fluxcd.io/namespace": "flux-system"}
		o.Spec.SourceRef = kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"}
		o.Status.ObservedGeneration, o.Status.Conditions = 1, ready(state, meta.ReconciliationFailedReason, "dry-run failed", 1)
		row, _ := describe(o)
		return row
	}
	for name, tc := range map[string]struct {
		reason          string
		release, child  Row
		awaited, failed int
	}{
		"failed":         {"the object will not become ready, so neither will the release", release(installs, false), child("False", "spoke"), 0, 2},
		"working":        {"the object may become ready", release(installs, false), child("Unknown", "spoke"), 2, 0},
		"no wait":        {"it becomes ready by itself", release(installs, true), child("False", "spoke"), 1, 1},
		"other release":  {"the failed object is not the release's", release(installs, false), child("False", "other"), 1, 1},
		"before it runs": {"the object may be of the release before", release("Fulfilling prerequisites", false), child("False", "spoke"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Assess([]Row{git("fleet", revisionA, Ready), tc.release, tc.child})
			if len(got.Awaited) != tc.awaited || len(got.Failed) != tc.failed {
				t.Errorf("%s: %d awaited, %d failed: %+v", tc.reason, len(got.Awaited), len(got.Failed), got)
			}
		})
	}
}

// TestImagePolicyOfAFailedScan checks that a policy whose images cannot be listed is not awaited.
func TestImagePolicyOfAFailedScan(t *testing.T) {
	t.Parallel()
	o := &reflectorv1.ImagePolicy{ObjectMeta: at("a", "policy", 1), Spec: reflectorv1.ImagePolicySpec{ImageRepositoryRef: meta.NamespacedObjectReference{Name: "images"}}}
	o.Status.Conditions = ready("False", meta.DependencyNotReadyReason, "retrying in 30s error: no tags in database", 1)
	policy, _ := describe(o)
	got := Assess([]Row{policy, {Namespace: "a", Kind: ImageRepository, Name: "images", State: Failed, Message: "scan failed"}})
	if len(got.Awaited) != 0 || len(got.Failed) != 2 || got.Failed[0].Reason != "waits for ImageRepository/a/images (failed)" {
		t.Errorf("%+v", got)
	}
}
