package manager

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/manager/reconcileretry"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// early is what Flux found before the manager saw the namespace.
const early = `
{apiVersion: v1, kind: Namespace, metadata: {name: early}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: refused, namespace: early},
 spec: {interval: 1h, prune: true, serviceAccountName: early, sourceRef: {kind: GitRepository, name: app}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: ready, namespace: early},
 spec: {interval: 1h, prune: true, serviceAccountName: early, sourceRef: {kind: GitRepository, name: app}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: suspended, namespace: early},
 spec: {interval: 1h, suspend: true, prune: true, serviceAccountName: early, sourceRef: {kind: GitRepository, name: app}}}
---
{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: refused, namespace: early},
 spec: {interval: 1h, serviceAccountName: early, chart: {spec: {chart: app, sourceRef: {kind: GitRepository, name: app}}}}}
`

// TestRightsComeLate has Flux apply as an account that has no rights yet: what failed is
// asked to try again when it has, and nothing else.
func TestRightsComeLate(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, early)
	object := func(kind, name string) client.Object {
		if kind == "HelmRelease" {
			return ofKind("helm.toolkit.fluxcd.io", "v2", kind, "early", name)
		}
		return ofKind("kustomize.toolkit.fluxcd.io", "v1", kind, "early", name)
	}
	says := func(kind, name, status, message string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"X","message":%q,"lastTransitionTime":%q}]}}`,
			status, message, time.Now().UTC().Format(time.RFC3339))
		if err := admin.Status().Patch(t.Context(), object(kind, name), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	request := func(kind, name string) string {
		t.Helper()
		o := object(kind, name)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		return o.GetAnnotations()[reconcileretry.Annotation]
	}
	asked := func(kind, name string) {
		t.Helper()
		testwait.For(t, kind+" "+name+" to be asked to try again", patience, func() (bool, string) {
			return request(kind, name) != "", fmt.Sprint(ended.Load())
		})
	}
	const refused = `configmaps "app" is forbidden: User "system:serviceaccount:early:early" cannot patch resource "configmaps"`
	for _, name := range []string{"refused", "suspended"} {
		says("Kustomization", name, "False", refused)
	}
	says("Kustomization", "ready", "True", "applied")
	says("HelmRelease", "refused", "False", refused)

	merge(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "early"}}, `{"metadata":{"labels":{"`+v1alpha1.LabelFluxTenant+`":"early"}}}`)
	asked("Kustomization", "refused")
	asked("HelmRelease", "refused")
	for _, name := range []string{"ready", "suspended"} {
		if got := request("Kustomization", name); got != "" {
			t.Errorf("the %s Kustomization was asked too, at %s", name, got)
		}
	}
}
