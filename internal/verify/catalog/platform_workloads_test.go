package catalog

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestTakesWorkloads lets one request on a workload of the platform through, or none.
func TestTakesWorkloads(t *testing.T) {
	t.Parallel()
	profile := object("tenure.dev/v1alpha1", "TenancyProfile", "", "default", map[string]any{"spec": map[string]any{"platformNamespaces": []any{"flux-system"}}})
	agent := func(syncedFrom string) client.Object {
		u := object("apps/v1", "Deployment", "team", "agent", map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "agent"}},
		}})
		u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": syncedFrom})
		return u
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "agent-5d9c7bbf4-x2v7k", Labels: map[string]string{"app": "agent"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "agent-5d9c7bbf4", UID: "x", Controller: new(true)}},
	}}
	all := []client.Object{profile, agent("flux-system"), pod}
	const policy = `ValidatingAdmissionPolicy 'tenure-objects-own' with binding 'b' denied request: no`
	for name, tc := range map[string]struct {
		reason   string
		objects  []client.Object
		accepted string
		outcome  Outcome
		words    string
	}{
		"refused":    {"the policy knows the workload", all, "", Stopped, "tenure-objects-own"},
		"scale":      {"it can be scaled", all, "scale", GotThrough, "scale Deployment team/agent"},
		"eviction":   {"its Pod can be evicted", all, "eviction", GotThrough, "evict Pod team/agent-5d9c7bbf4-x2v7k"},
		"autoscaler": {"an autoscaler can take it over", all, "HorizontalPodAutoscaler", GotThrough, "autoscaler"},
		"canary":     {"a Canary can take it over", all, "Canary", GotThrough, "Canary"},
		"own":        {"the tenant's own workload is none of the platform's", []client.Object{profile, agent("team"), pod}, "scale", Stopped, "no workload"},
		"no profile": {"nothing says what the platform's is", []client.Object{agent("flux-system"), pod}, "scale", Stopped, "no workload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := func(what string) error {
				if what == tc.accepted || what == "ConfigMap" {
					return nil
				}
				return forbidden(policy)
			}
			e := newFakeEnv(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					return answer(o.GetObjectKind().GroupVersionKind().Kind)
				},
				SubResourceCreate: func(_ context.Context, _ client.Client, subresource string, _, _ client.Object, _ ...client.SubResourceCreateOption) error {
					return answer(subresource)
				},
				SubResourceUpdate: func(_ context.Context, _ client.Client, subresource string, _ client.Object, _ ...client.SubResourceUpdateOption) error {
					return answer(subresource)
				},
			}, tc.objects...)
			got := takesWorkloads(t.Context(), e)
			if said := got.Control + got.Message + got.Evidence + got.Reason; got.Outcome != tc.outcome || !strings.Contains(said, tc.words) {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
}
