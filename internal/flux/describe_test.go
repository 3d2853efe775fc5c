package flux

import (
	"testing"
	"time"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	reflectorv1 "github.com/fluxcd/image-reflector-controller/api/v1"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	notificationv1b3 "github.com/fluxcd/notification-controller/api/v1beta3"
	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const revisionA = "main@sha1:0123456789abcdef0123456789abcdef01234567"

// at is metadata of an object at a generation.
func at(namespace, name string, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: generation}
}

// ready is a condition Ready about a generation.
func ready(status metav1.ConditionStatus, reason, message string, generation int64) []metav1.Condition {
	return []metav1.Condition{{Type: meta.ReadyCondition, Status: status, Reason: reason, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(time.Unix(0, 0))}}
}

func with(conditions []metav1.Condition, conditionType string) []metav1.Condition {
	return append(conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue})
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		obj    client.Object
		want   Row
	}{
		"new": {
			reason: "flux get says False and waiting where there is no condition",
			obj:    &sourcev1.GitRepository{ObjectMeta: at("a", "b", 1), Status: sourcev1.GitRepositoryStatus{ObservedGeneration: -1}},
			want:   Row{Namespace: "a", Kind: GitRepository, Name: "b", Ready: "False", Message: "waiting to be reconciled", State: Working},
		},
		"set": {
			reason: "a ResourceSet has no Go type here; its dependencies may be any objects",
			obj: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "fluxcd.controlplane.io/v1", "kind": "ResourceSet", "metadata": map[string]any{"namespace": "a", "name": "b", "generation": int64(2)},
				"spec": map[string]any{"dependsOn": []any{
					map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": "a"},
					map[string]any{"apiVersion": "fluxcd.controlplane.io/v1", "kind": "ResourceSet", "name": "y", "namespace": "c"},
				}},
				"status": map[string]any{"lastAppliedRevision": "sha256:1", "conditions": []any{map[string]any{
					"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "done", "observedGeneration": int64(2), "lastTransitionTime": "2026-01-01T00:00:00Z",
				}}},
			}},
			want: Row{Namespace: "a", Kind: ResourceSet, Name: "b", Ready: "True", Message: "done", Revision: "sha256:1", State: Ready, Needs: []Ref{{ResourceSet, "c", "y"}}},
		},
		"disabled": {
			reason: "flux-operator's objects are suspended by an annotation",
			obj: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "fluxcd.controlplane.io/v1", "kind": "FluxInstance",
				"metadata": map[string]any{"namespace": "a", "name": "b", "annotations": map[string]any{"fluxcd.controlplane.io/reconcile": "disabled"}},
			}},
			want: Row{Namespace: "a", Kind: FluxInstance, Name: "b", Ready: "False", Message: "waiting to be reconciled", Suspended: true, State: Suspended},
		},
		"ready": {
			reason: "the whole revision is kept; dependencies and source get the namespace they default to",
			obj: &kustomizev1.Kustomization{
				ObjectMeta: at("a", "b", 1),
				Spec: kustomizev1.KustomizationSpec{
					SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"},
					DependsOn: []kustomizev1.DependencyReference{{Name: "x"}, {Namespace: "other", Name: "y"}},
				},
				Status: kustomizev1.KustomizationStatus{
					ObservedGeneration: 1, LastAppliedRevision: revisionA,
					Conditions: ready("True", "ReconciliationSucceeded", "Applied revision: "+revisionA, 1),
				},
			},
			want: Row{
				Namespace: "a", Kind: Kustomization, Name: "b", Source: "GitRepository/a/fleet", Revision: revisionA,
				Ready: "True", Message: "Applied revision: " + revisionA, State: Ready,
				Needs: []Ref{{GitRepository, "a", "fleet"}, {Kustomization, "a", "x"}, {Kustomization, "other", "y"}},
			},
		},
		"path missing": {
			reason: "Flux gives it the reason of a source that is not ready, but nothing is awaited",
			obj: &kustomizev1.Kustomization{
				ObjectMeta: at("a", "b", 1),
				Spec:       kustomizev1.KustomizationSpec{SourceRef: kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"}},
				Status: kustomizev1.KustomizationStatus{
					ObservedGeneration: -1, LastAttemptedRevision: revisionA,
					Conditions: ready("False", meta.ArtifactFailedReason, "kustomization path not found: stat /tmp/x: no such file or directory", 1),
				},
			},
			want: Row{
				Namespace: "a", Kind: Kustomization, Name: "b", Source: "GitRepository/a/fleet",
				Ready: "False", Message: "kustomization path not found: stat /tmp/x: no such file or directory",
				State: Failed, Needs: []Ref{{GitRepository, "a", "fleet"}},
			},
		},
		"ready at an old generation": {
			reason: "the status is about a spec that is no more",
			obj: &sourcev1.GitRepository{ObjectMeta: at("a", "b", 2), Status: sourcev1.GitRepositoryStatus{
				ObservedGeneration: 1, Conditions: ready("True", "Succeeded", "stored", 1),
			}},
			want: Row{Namespace: "a", Kind: GitRepository, Name: "b", Ready: "True", Message: "stored", State: Working},
		},
		"failed without an observed generation": {
			reason: "a controller that fails leaves status.observedGeneration at -1; the condition tells the generation",
			obj: &sourcev1.GitRepository{ObjectMeta: at("a", "b", 1), Status: sourcev1.GitRepositoryStatus{
				ObservedGeneration: -1, Conditions: with(ready("False", "GitOperationFailed", "no route", 1), meta.ReconcilingCondition),
			}},
			want: Row{Namespace: "a", Kind: GitRepository, Name: "b", Ready: "False", Message: "no route", State: Failed},
		},
		"blocked": {
			reason: "the reason says that another object is to blame",
			obj: &sourcev1.HelmChart{
				ObjectMeta: at("a", "b", 1),
				Spec:       sourcev1.HelmChartSpec{SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: "HelmRepository", Name: "r"}},
				Status:     sourcev1.HelmChartStatus{Conditions: ready("False", "NoSourceArtifact", "no artifact", 1)},
			},
			want: Row{
				Namespace: "a", Kind: HelmChart, Name: "b", Source: "HelmRepository/a/r", Ready: "False", Message: "no artifact",
				State: Blocked, Needs: []Ref{{HelmRepository, "a", "r"}},
			},
		},
		"stalled": {
			reason: "stalled is final whatever Ready says",
			obj: &helmv2.HelmRelease{
				ObjectMeta: at("a", "b", 1),
				Spec:       helmv2.HelmReleaseSpec{ChartRef: &helmv2.CrossNamespaceSourceReference{Kind: "OCIRepository", Namespace: "c", Name: "r"}},
				Status:     helmv2.HelmReleaseStatus{Conditions: with(ready("Unknown", "Progressing", "x", 1), meta.StalledCondition)},
			},
			want: Row{
				Namespace: "a", Kind: HelmRelease, Name: "b", Source: "OCIRepository/c/r", Ready: "Unknown", Message: "x",
				State: Failed, Needs: []Ref{{OCIRepository, "c", "r"}},
			},
		},
		"helm release with a chart template": {
			reason: "it waits for the HelmChart that helm-controller makes beside the source, and shows the chart's version",
			obj: &helmv2.HelmRelease{
				ObjectMeta: at("a", "b", 1),
				Spec: helmv2.HelmReleaseSpec{Chart: &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{
					SourceRef: helmv2.CrossNamespaceObjectReference{Kind: "HelmRepository", Namespace: "s", Name: "r"},
				}}},
				Status: helmv2.HelmReleaseStatus{
					ObservedGeneration: 1, LastAttemptedRevision: "1.1.0", History: helmv2.Snapshots{{ChartVersion: "1.0.0"}},
					Conditions: with(ready("True", "InstallSucceeded", "ok", 1), meta.ReconcilingCondition),
				},
			},
			want: Row{
				Namespace: "a", Kind: HelmRelease, Name: "b", Source: "HelmRepository/s/r", Revision: "1.0.0", Ready: "True", Message: "ok",
				State: Working, Needs: []Ref{{HelmChart, "s", "a-b"}},
			},
		},
		"suspended": {
			reason: "suspended wins over everything else",
			obj: &sourcev1.Bucket{ObjectMeta: at("a", "b", 2), Spec: sourcev1.BucketSpec{Suspend: true},
				Status: sourcev1.BucketStatus{Conditions: ready("False", "Failed", "x", 1)}},
			want: Row{Namespace: "a", Kind: Bucket, Name: "b", Suspended: true, Ready: "False", Message: "x", State: Suspended},
		},
		"helm repository of type oci": {
			reason: "it is not reconciled, so it has no status to wait for",
			obj: &sourcev1.HelmRepository{ObjectMeta: at("a", "b", 1), Spec: sourcev1.HelmRepositorySpec{Type: "oci"},
				Status: sourcev1.HelmRepositoryStatus{ObservedGeneration: -1}},
			want: Row{Namespace: "a", Kind: HelmRepository, Name: "b", Ready: "True", Message: "Helm repository is Ready", State: Ready},
		},
		"external artifact without conditions": {
			reason: "consumers ask for the artifact alone",
			obj:    &sourcev1.ExternalArtifact{ObjectMeta: at("a", "b", 3), Status: sourcev1.ExternalArtifactStatus{Artifact: &meta.Artifact{Revision: "v1"}}},
			want:   Row{Namespace: "a", Kind: ExternalArtifact, Name: "b", Revision: "v1", Ready: "True", State: Ready},
		},
		"alert": {
			reason: "alerts have no status; flux get calls them ready",
			obj:    &notificationv1b3.Alert{ObjectMeta: at("a", "b", 1)},
			want:   Row{Namespace: "a", Kind: Alert, Name: "b", Ready: "True", Message: "Alert is Ready", State: Ready},
		},
		"image policy": {
			reason: "flux get shows image and tag in place of a revision",
			obj: &reflectorv1.ImagePolicy{ObjectMeta: at("a", "b", 1), Spec: reflectorv1.ImagePolicySpec{ImageRepositoryRef: meta.NamespacedObjectReference{Name: "app"}}, Status: reflectorv1.ImagePolicyStatus{
				LatestRef: &reflectorv1.ImageRef{Name: "example.com/app", Tag: "1.2.3"}, Conditions: ready("True", "Succeeded", "latest", 1),
			}},
			want: Row{Namespace: "a", Kind: ImagePolicy, Name: "b", Source: "example.com/app", Revision: "1.2.3", Ready: "True", Message: "latest", State: Ready, Needs: []Ref{{ImageRepository, "a", "app"}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := describe(tt.obj)
			if !ok {
				t.Fatalf("%s\n%T is not described", tt.reason, tt.obj)
			}
			// Without Row.Equal, which would compare the fields below too.
			type row Row
			got.generation, got.observed, got.attempted = 0, 0, ""
			if diff := cmp.Diff(row(tt.want), row(got), cmpopts.IgnoreUnexported(row{})); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestEveryKindIsDescribed fails for a kind that was added to the list of kinds
// and not to describe.
func TestEveryKindIsDescribed(t *testing.T) {
	t.Parallel()
	scheme := NewScheme()
	for _, kind := range OperatorKinds() {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(kind.GroupVersionKind())
		if row, ok := describe(obj); !ok || row.Kind != kind || row.State != Working {
			t.Errorf("describe(%s) = %+v, %v", kind, row, ok)
		}
	}
	for _, kind := range AllKinds() {
		obj, err := scheme.New(kind.GroupVersionKind())
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		row, ok := describe(obj.(client.Object))
		if !ok || row.Kind != kind {
			t.Errorf("describe(%s) = %+v, %v", kind, row, ok)
		}
		if _, err := newMapper().RESTMapping(kind.GroupVersionKind().GroupKind(), kind.GroupVersionKind().Version); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
