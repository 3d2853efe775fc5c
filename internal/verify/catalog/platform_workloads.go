package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addPlatformWorkloads(register func(...Attack)) {
	register(Attack{
		ID: "A5", Via: API, Kind: "workloads", Owners: OwnersWithin,
		Kinds:      []string{"Canary", "Deployment/scale", "HorizontalPodAutoscaler", "Pod/eviction", "StatefulSet/scale"},
		Title:      "scales the platform's workloads in its namespace, evicts their Pods, or takes them over by an autoscaler or a Canary",
		Controls:   []string{"RBAC", "policy on platform-managed objects, which knows the platform's workloads"},
		References: []string{"MTB CPI-2"},
		Fix:        Fix{Advice: "give the tenant's role no right to scale and to evict, or refuse these requests for the platform's workloads with a ValidatingAdmissionPolicy, as the rule tenure-managed does", Rights: true},
		Slow:       true,
		Run:        takesWorkloads,
	})
}

// takesWorkloads sends requests that act on a workload of the platform, and whose objects have
// none of its labels.
func takesWorkloads(ctx context.Context, e *Scenario) Finding {
	workloads, err := e.platformWorkloads(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if len(workloads) == 0 {
		return e.nothingThere(ctx, noGuardrails, "the platform has no workload in namespace "+e.Namespace)
	}
	var all []request
	for _, u := range workloads {
		which := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		if u.GetKind() != "DaemonSet" {
			all = append(all, request{what: "scale " + which, aimed: func(ctx context.Context, e *Scenario) error { return e.tryScale(ctx, &u) }})
		}
		target := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "name": u.GetName()}
		if u.GetKind() == "Deployment" {
			all = append(all,
				request{what: "let an autoscaler scale " + which, aimed: creating(autoscalerOf(target))},
				request{what: "let a Canary take over " + which, aimed: creating(canaryOf(target))})
		}
		pods, err := e.podsOf(ctx, &u)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		for i := range pods {
			if owner := metav1.GetControllerOf(&pods[i]); i == 0 && owner.Kind == "ReplicaSet" {
				all = append(all, request{
					what:  "let an autoscaler scale the ReplicaSet of " + which,
					aimed: creating(autoscalerOf(map[string]any{"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name})),
				})
			}
			all = append(all, request{
				what:  fmt.Sprintf("evict Pod %s/%s of %s", pods[i].Namespace, pods[i].Name, which),
				aimed: func(ctx context.Context, e *Scenario) error { return e.tryEvict(ctx, &pods[i]) },
			})
		}
	}
	return requests(all...)(ctx, e)
}

// platformWorkloads returns the workloads in the tenant's namespace that belong to the platform
// by its TenancyProfile. Without a profile, nothing says which ones do.
func (e *Scenario) platformWorkloads(ctx context.Context) ([]unstructured.Unstructured, error) {
	content := object(v1alpha1.GroupVersion.String(), "TenancyProfile", "", v1alpha1.ProfileName, nil)
	err := e.Admin.Get(ctx, keyOf(content), content)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	var profile v1alpha1.TenancyProfile
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &profile)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the TenancyProfile: %w", err)
	}
	var found []unstructured.Unstructured
	for _, kind := range tenancy.WorkloadKinds() {
		if kind.Group != "apps" {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := e.Admin.List(ctx, list, client.InNamespace(e.Namespace)); err != nil {
			return nil, fmt.Errorf("cannot list the objects of kind %s: %w", kind.Kind, err)
		}
		for _, u := range list.Items {
			of := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: u.GetKind()}, ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Labels: u.GetLabels()}}
			if len(tenancy.PlatformWorkloads([]metav1.PartialObjectMetadata{of}, &profile.Spec)) > 0 {
				found = append(found, u)
			}
		}
	}
	return found, nil
}

// podsOf returns the Pods that Kubernetes made for a workload.
func (e *Scenario) podsOf(ctx context.Context, workload *unstructured.Unstructured) ([]corev1.Pod, error) {
	labels, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	var pods corev1.PodList
	if err := e.Admin.List(ctx, &pods, client.InNamespace(workload.GetNamespace()), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of %s: %w", workload.GetName(), err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return metav1.GetControllerOf(&p) == nil || !strings.HasPrefix(p.Name, workload.GetName()+"-")
	}), nil
}

// tryScale asks the API server whether the tenant could change the number of a workload's Pods.
func (e *Scenario) tryScale(ctx context.Context, u *unstructured.Unstructured) error {
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}
	return e.As.SubResource("scale").Update(ctx, u.DeepCopy(), client.WithSubResourceBody(scale),
		&client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
}

// tryEvict asks the API server whether the tenant could evict a Pod.
func (e *Scenario) tryEvict(ctx context.Context, pod *corev1.Pod) error {
	eviction := object("policy/v1", "Eviction", pod.Namespace, pod.Name, nil)
	return e.As.SubResource("eviction").Create(ctx, pod, eviction,
		&client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: []string{metav1.DryRunAll}}})
}

func autoscalerOf(target map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		return object("autoscaling/v2", "HorizontalPodAutoscaler", e.Namespace, name("a5"), map[string]any{"spec": map[string]any{
			"scaleTargetRef": target, "maxReplicas": int64(1),
		}})
	}
}

func canaryOf(target map[string]any) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		return object("flagger.app/v1beta1", "Canary", e.Namespace, name("a5"), map[string]any{"spec": map[string]any{
			"targetRef": target,
			"service":   map[string]any{"port": int64(80)},
			"analysis":  map[string]any{"interval": "1m", "threshold": int64(1), "iterations": int64(1)},
		}})
	}
}
