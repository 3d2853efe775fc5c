package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload is a kind of objects from which a controller of Kubernetes makes Pods.
type workload struct {
	apiVersion, kind string
	// spec returns the object's spec for a template, and for labels of its Pods.
	spec func(template map[string]any, labels map[string]any) map[string]any
}

// workloads are all such kinds.
var workloads = []workload{
	{"apps/v1", "Deployment", selecting},
	{"apps/v1", "ReplicaSet", selecting},
	{"apps/v1", "StatefulSet", selecting},
	{"apps/v1", "DaemonSet", selecting},
	{"v1", "ReplicationController", func(template, labels map[string]any) map[string]any {
		return map[string]any{"selector": labels, "template": template}
	}},
	{"batch/v1", "Job", func(template, _ map[string]any) map[string]any { return once(template) }},
	{"batch/v1", "CronJob", func(template, _ map[string]any) map[string]any {
		return map[string]any{"schedule": "0 0 1 1 *", "jobTemplate": map[string]any{"spec": once(template)}}
	}},
}

func selecting(template, labels map[string]any) map[string]any {
	return map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": template}
}

func once(template map[string]any) map[string]any {
	pod, _, _ := unstructured.NestedMap(template, "spec")
	pod["restartPolicy"] = "Never"
	return map[string]any{"template": map[string]any{"metadata": template["metadata"], "spec": pod}}
}

// of returns an object of the kind whose Pods are like a Pod.
func (w workload) of(pod *unstructured.Unstructured) *unstructured.Unstructured {
	labels := map[string]any{"tenure-attack": pod.GetName()}
	spec, _, _ := unstructured.NestedMap(pod.Object, "spec")
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec}
	return object(w.apiVersion, w.kind, pod.GetNamespace(), pod.GetName(), map[string]any{"spec": w.spec(template, labels)})
}

// runsPods is an attack that runs Pods. It makes the requests and, if RBAC refuses the Pods,
// tries every kind of workload: a tenant that may create a Deployment needs no right to
// Pods. What refuses the Pods of a workload refuses them to its controller, for which the
// admin stands.
func runsPods(pods []func(*Scenario) *unstructured.Unstructured, direct ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		f := requests(direct...)(ctx, e)
		if f.Outcome != Stopped || !strings.HasPrefix(f.Control, rbac) {
			return f
		}
		for i, make := range pods {
			pod := make(e)
			at := slices.IndexFunc(workloads, func(w workload) bool { return e.tryCreate(ctx, w.of(pod)) == nil })
			if at < 0 {
				continue
			}
			byController := judge(e.Admin.Create(ctx, pod.DeepCopy(), client.DryRunAll), fmt.Sprintf("it could %s, by a %s whose controller makes the Pod", direct[i].what, workloads[at].kind))
			if byController.Outcome != Stopped {
				return byController
			}
			f = stopped(f.Control+", "+byController.Control, byController.Message)
		}
		return f
	}
}
