package catalog

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestTakesWorkloads lets one request on a workload of the platform through, or none.
func TestTakesWorkloads(t *testing.T) {
	t.Parallel()
	profile := object("tenure.dev/v1alpha1", "TenancyProfile", "", "default", map[string]any{"spec": map[string]any{"platformNamespaces": []any{"flux-system"}}})
	workload := func(kind, syncedFrom string) client.Object {
		u := object("apps/v1", kind, "team", "agent", map[string]any{"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": "agent"}},
		}})
		u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": syncedFrom})
		return u
	}
	agent := func(syncedFrom string) client.Object { return workload("Deployment", syncedFrom) }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "agent-5d9c7bbf4-x2v7k", Labels: map[string]string{"app": "agent"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "agent-5d9c7bbf4", UID: "x", Controller: new(true)}},
	}}
	batch := func(kind string) client.Object {
		u := workload(kind, "flux-system")
		u.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: kind})
		return u
	}
	ofJob := pod.DeepCopy()
	ofJob.Name, ofJob.Labels, ofJob.OwnerReferences[0].Kind = "agent-29384756-x2v7k", nil, "Job"
	tenantsJob := ofJob.DeepCopy()
	tenantsJob.Name = "agent-own-x2v7k"
	claim := func(name string, labels map[string]string) client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: labels}}
	}
	applied := map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "alone", Labels: applied}}
	all := []client.Object{profile, agent("flux-system"), pod}
	own := name("a5")
	const policy = `ValidatingAdmissionPolicy 'tenure-objects-own-rest' with binding 'b' denied request: no`
	for name, tc := range map[string]struct {
		reason   string
		objects  []client.Object
		accepted string
		outcome  Outcome
		words    string
	}{
		"refused":    {"the policy knows the workload", all, "", Stopped, "tenure-objects-own-rest"},
		"scale":      {"it can be scaled", all, "scale", GotThrough, "scale Deployment team/agent"},
		"eviction":   {"its Pod can be evicted", all, "eviction", GotThrough, "evict Pod team/agent-5d9c7bbf4-x2v7k"},
		"autoscaler": {"an autoscaler can take it over", all, "HorizontalPodAutoscaler", GotThrough, "autoscaler"},
		"canary":     {"a Canary can take it over", all, "Canary", GotThrough, "Canary"},
		"place":      {"a Pod of the tenant's with its labels replaces its Pod", all, "Pod", GotThrough, "take the place of one of Deployment team/agent"},
		"replica":    {"a Pod of the tenant's is one of the StatefulSet's", []client.Object{profile, workload("StatefulSet", "flux-system")}, "Pod", GotThrough, "take the place of one of StatefulSet team/agent"},
		"daemon":     {"a Pod of the tenant's with the labels of the DaemonSet's Pod is one of it", []client.Object{profile, workload("DaemonSet", "flux-system"), pod}, "Pod", GotThrough, "take the place of one of DaemonSet team/agent"},
		"set":        {"a ReplicaSet of the tenant's with its labels is one of the Deployment's", all, "ReplicaSet", GotThrough, "let a ReplicaSet of its own be one of Deployment team/agent"},
		"no Pods":    {"a Pod of the tenant's with the labels of the DaemonSet's selector is one of it", []client.Object{profile, workload("DaemonSet", "flux-system")}, "Pod", GotThrough, "take the place of one of DaemonSet team/agent"},
		"job":        {"a Pod of the tenant's with the labels of the Job's Pods is one of it", []client.Object{profile, batch("Job")}, "Pod", GotThrough, "take the place of one of Job team/agent"},
		"cron":       {"a Job of the tenant's has the name of the CronJob's next", []client.Object{profile, batch("CronJob")}, "Job", GotThrough, "take the place of the next one of CronJob team/agent"},
		"cron's":     {"a Pod of the CronJob's can be evicted", []client.Object{profile, batch("CronJob"), ofJob}, "eviction", GotThrough, "evict Pod team/agent-29384756-x2v7k"},
		"other job":  {"a Pod of the tenant's Job is none of the CronJob's", []client.Object{profile, batch("CronJob"), tenantsJob}, "eviction", Stopped, "tenure-objects-own-rest"},
		"rights":     {"Kubernetes' controller lacks a right, which says nothing about the tenant", []client.Object{profile, alone}, "rbac", NotProven, "replicaset-controller of Kubernetes lacks a right"},
		"claim":      {"a claim of the StatefulSet can be deleted", []client.Object{profile, workload("StatefulSet", "flux-system"), claim("data-agent-0", nil)}, "delete", GotThrough, "delete the claim data-agent-0"},
		"adopted":    {"a ReplicaSet of the tenant's takes a Pod", []client.Object{profile, alone}, "patch", GotThrough, "take over Pod team/alone of the platform with a ReplicaSet"},
		"owned":      {"a StatefulSet of the tenant's takes a claim", []client.Object{profile, claim("data-x-0", applied)}, "update", GotThrough, "take over PersistentVolumeClaim team/data-x-0 of the platform with a StatefulSet"},
		"kept":       {"no controller takes them", []client.Object{profile, alone, claim("data-x-0", applied)}, "", Stopped, "tenure-objects-own-rest"},
		"tenant's":   {"the tenant's own Pods and claims are none of the platform's", []client.Object{profile, claim("data-x-0", nil)}, "update", Stopped, "no workload"},
		"own":        {"the tenant's own workload is none of the platform's", []client.Object{profile, agent("team"), pod}, "scale", Stopped, "no workload"},
		"no profile": {"nothing says what the platform's is", []client.Object{agent("flux-system"), pod}, "scale", Stopped, "no workload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := func(what string) error {
				if what == tc.accepted || what == "ConfigMap" {
					return nil
				}
				if tc.accepted == "rbac" {
					return forbidden(`User "system:serviceaccount:kube-system:replicaset-controller" cannot patch resource "pods"`)
				}
				return forbidden(policy)
			}
			e := newFakeEnv(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					kind := o.GetObjectKind().GroupVersionKind().Kind
					if len(o.GetLabels()) == 0 && strings.HasPrefix(o.GetName(), own) && (kind == "Pod" || kind == "Job") {
						return nil // a Pod of the tenant's that takes the place of none
					}
					if (kind == "ReplicaSet" || kind == "StatefulSet") && len(o.GetLabels()) == 0 {
						return nil // its controller is asked
					}
					return answer(o.GetObjectKind().GroupVersionKind().Kind)
				},
				Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
					return answer("delete")
				},
				SubResourceCreate: func(_ context.Context, _ client.Client, subresource string, _, _ client.Object, _ ...client.SubResourceCreateOption) error {
					return answer(subresource)
				},
				SubResourceUpdate: func(_ context.Context, _ client.Client, subresource string, _ client.Object, _ ...client.SubResourceUpdateOption) error {
					return answer(subresource)
				},
			}, tc.objects...)
			for account := range e.controllers {
				e.controllers[account] = interceptor.NewClient(e.Admin, interceptor.Funcs{
					Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
						return answer("update")
					},
					Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
						return answer("patch")
					},
				})
			}
			got := takesWorkloads(t.Context(), e)
			if said := got.Control + got.Message + got.Evidence + got.Reason; got.Outcome != tc.outcome || !strings.Contains(said, tc.words) {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
}
