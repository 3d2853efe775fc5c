package flux

import (
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// The objects of TestUnhealthy: a namespace whose quota refuses Pods, one whose Pod gets no node, and a
// custom resource without a controller.
var unhealthyObjects = []string{
	`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: full, name: app, uid: d}, spec: {replicas: 1, selector: {matchLabels: {app: app}}}}`,
	`{apiVersion: v1, kind: Event, metadata: {namespace: full, name: old}, reason: FailedCreate, message: "no account", lastTimestamp: "2026-01-01T00:00:00Z",
  involvedObject: {kind: ReplicaSet, namespace: full, name: app-5d}}`,
	`{apiVersion: v1, kind: Event, metadata: {namespace: full, name: new}, reason: FailedCreate, message: "(combined from similar events): Error creating: pods \"app-5d-x2x\" is forbidden: exceeded quota", lastTimestamp: "2026-01-01T00:00:01Z",
  involvedObject: {kind: ReplicaSet, namespace: full, name: app-5d}}`,
	`{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: big, name: db, labels: {helm.toolkit.fluxcd.io/name: db, helm.toolkit.fluxcd.io/namespace: flux-system}}, spec: {selector: {matchLabels: {app: db}}}}`,
	`{apiVersion: v1, kind: Pod, metadata: {namespace: big, name: db-0, labels: {app: db}}, status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "Insufficient cpu"}]}}`,
	`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: fine, name: app, uid: f}, spec: {replicas: 1, selector: {matchLabels: {app: app}}}}`,
	`{apiVersion: v1, kind: Pod, metadata: {namespace: fine, name: app-1, labels: {app: app}}}`,
	`{apiVersion: example.com/v1, kind: Store, metadata: {namespace: fine, name: vault}}`,
}

// checkingOthers returns the row of a Kustomization that checks the health of the objects.
func checkingOthers(wait bool, objects ...meta.NamespacedObjectKindReference) Row {
	o := &kustomizev1.Kustomization{ObjectMeta: at("flux-system", "apps", 1)}
	o.Spec.SourceRef = kustomizev1.CrossNamespaceSourceReference{Kind: "GitRepository", Name: "fleet"}
	o.Spec.Wait, o.Status.ObservedGeneration = wait, 1
	o.Status.Conditions = append(ready("Unknown", meta.ProgressingReason, "Reconciliation in progress", 1),
		metav1.Condition{Type: meta.ReconcilingCondition, Status: metav1.ConditionTrue, Reason: meta.ProgressingReason, Message: healthChecks})
	o.Spec.HealthChecks = objects
	if wait {
		o.Status.Inventory = &kustomizev1.ResourceInventory{Entries: []kustomizev1.ResourceRef{{ID: "full_app_apps_Deployment", Version: "v1"}, {ID: "_gone__Namespace", Version: "v1"}}}
	}
	row, _ := describe(o)
	return row
}

// TestUnhealthy checks that objects which wait for the health of others have failed as soon as these
// cannot become healthy, and name them.
func TestUnhealthy(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, text := range unhealthyObjects {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		builder = builder.WithObjects(u)
	}
	c := builder.Build()
	release := func() Row {
		o := &helmv2.HelmRelease{ObjectMeta: at("flux-system", "db", 1)}
		o.Status.ObservedGeneration, o.Status.Conditions = 1, ready(metav1.ConditionUnknown, meta.ProgressingReason, "Running 'install' action with timeout of 5m0s", 1)
		row, _ := describe(o)
		return row
	}
	expressed := checkingOthers(false, meta.NamespacedObjectKindReference{APIVersion: "example.com/v1", Kind: "Store", Namespace: "fine", Name: "vault"})
	expressed.checked[0].Expressed = true
	deployment := func(namespace, name string) Row {
		return checkingOthers(false, meta.NamespacedObjectKindReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: name})
	}
	for name, tc := range map[string]struct {
		reason string
		row    Row
		// failed are the findings that are expected; without any, the row is awaited.
		failed []string
	}{
		"refused": {"the API server refuses the Pods", deployment("full", "app"), []string{
			"apps: waits for Deployment/full/app (failed)", "app: its Pods are refused: exceeded quota"}},
		"wait": {"the same for the objects of the inventory", checkingOthers(true), []string{
			"apps: waits for Deployment/full/app (failed)", "app: its Pods are refused: exceeded quota"}},
		"no node": {"the same for the objects of a release", release(), []string{
			"db: waits for StatefulSet/big/db (failed)", "db: Pod db-0 gets no node: Insufficient cpu"}},
		"starts":  {"the Pod may start", deployment("fine", "app"), nil},
		"missing": {"nothing is left that could create it", deployment("fine", "other"), []string{"apps: waits for Deployment/fine/other (does not exist)"}},
		"no controller": {"nothing writes its status", expressed, []string{
			"apps: waits for Store/fine/vault (failed)", "vault: has no status, since its controller does not run here, and spec.healthCheckExprs of Kustomization/flux-system/apps waits for one; take that as ready with --assume Kustomization/flux-system/apps, which then applies nothing"}},
		"other provider": {"a kind of Flux's name in another group is none of Flux's", checkingOthers(false, meta.NamespacedObjectKindReference{APIVersion: "pkg.crossplane.io/v1", Kind: "Provider", Name: "aws"}), []string{
			"apps: waits for Provider//aws (does not exist)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := []Row{git("fleet", revisionA, Ready), tc.row}
			if !ChecksHealth(rows) {
				t.Error("no row checks the health of others")
			}
			unhealthy := Unhealthy(t.Context(), c, rows)
			var failed []string
			for _, f := range Assess(append(rows, unhealthy...)).Failed {
				failed = append(failed, f.Row.Name+": "+f.Reason)
			}
			if diff := cmp.Diff(tc.failed, failed); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			done := tc.row
			done.State, done.checked, done.waits, done.checks = Ready, nil, false, false
			if now := Assess(append([]Row{git("fleet", revisionA, Ready), done}, unhealthy...)); len(now.Failed) != 0 {
				t.Errorf("what was seen before the row was ready counts: %+v", now.Failed)
			}
		})
	}
}
