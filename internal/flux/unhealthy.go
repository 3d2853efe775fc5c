package flux

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// checkedObject is an object whose health a Kustomization checks.
type checkedObject struct {
	GVK             schema.GroupVersionKind
	Namespace, Name string
	// Expressed reports that expressions of the Kustomization decide about the health.
	Expressed bool
}

// ofFlux reports whether the object is of one of Flux's kinds.
func (c checkedObject) ofFlux() bool {
	_, known := infoOf(Kind(c.GVK.Kind))
	return known && strings.Contains(c.GVK.Group, "fluxcd")
}

// otherChecks returns the objects of other kinds than Flux's among the checked ones whose health needs
// more than their existence: those that spec.healthChecks names, workloads, and those with expressions.
func otherChecks(o *kustomizev1.Kustomization) []checkedObject {
	return slices.DeleteFunc(checks(o), func(c checkedObject) bool {
		return c.ofFlux() || o.Spec.Wait && !c.Expressed && !slices.Contains(workloads, c.GVK)
	})
}

// checks returns the objects whose health a Kustomization checks.
func checks(o *kustomizev1.Kustomization) []checkedObject {
	var all []checkedObject
	add := func(gvk schema.GroupVersionKind, namespace, name string) {
		expressed := false
		for _, expr := range o.Spec.HealthCheckExprs {
			expressed = expressed || expr.Kind == gvk.Kind && expr.APIVersion == gvk.GroupVersion().String()
		}
		all = append(all, checkedObject{gvk, namespace, name, expressed})
	}
	if !o.Spec.Wait {
		for _, check := range o.Spec.HealthChecks {
			add(schema.FromAPIVersionAndKind(check.APIVersion, check.Kind), check.Namespace, check.Name)
		}
		return all
	}
	if o.Status.Inventory == nil {
		return nil
	}
	for _, entry := range o.Status.Inventory.Entries {
		// The ID is NAMESPACE_NAME_GROUP_KIND, whose parts have no underscores.
		if parts := strings.Split(entry.ID, "_"); len(parts) == 4 {
			add(schema.GroupVersionKind{Group: parts[2], Version: entry.Version, Kind: parts[3]}, parts[0], parts[1])
		}
	}
	return all
}

// workloads are the kinds that create Pods.
var workloads = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}, {Group: "batch", Version: "v1", Kind: "Job"},
}

// ChecksHealth reports whether one of the rows waits for the health of objects that [Unhealthy] reads.
func ChecksHealth(rows []Row) bool {
	return slices.ContainsFunc(rows, func(r Row) bool { return len(r.checked) > 0 || r.Kind == HelmRelease && r.waits })
}

// Unhealthy returns a row for each object whose health one of the rows waits for in vain: it does not
// exist, its Pods are refused or get no node, or its controller does not run here. The rows are for
// [Assess]. c finds kinds by discovery. Unhealthy leaves out what it cannot read.
func Unhealthy(ctx context.Context, c client.Reader, rows []Row) []Row {
	var all []Row
	add := func(owner Row, gvk schema.GroupVersionKind, namespace, name, problem string) {
		if problem == "" {
			return
		}
		all = append(all, Row{
			Kind: Kind(gvk.Kind), Namespace: namespace, Name: name, Ready: string(metav1.ConditionFalse), State: Failed,
			Message: problem, owner: owner.Ref(), unhealthy: true, missing: problem == absent,
		})
	}
	for _, row := range rows {
		switch {
		case row.Kind == Kustomization:
			for _, check := range row.checked {
				add(row, check.GVK, check.Namespace, check.Name, checkProblem(ctx, c, row, check))
			}
		case row.Kind == HelmRelease && row.waits:
			for _, gvk := range workloads {
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(gvk)
				labels := client.MatchingLabels{releaseLabels + "name": row.Name, releaseLabels + "namespace": row.Namespace}
				if c.List(ctx, list, labels) != nil {
					continue
				}
				for _, u := range list.Items {
					add(row, gvk, u.GetNamespace(), u.GetName(), workloadProblem(ctx, c, &u))
				}
			}
		}
	}
	return all
}

// checkProblem returns why an object whose health the Kustomization of row checks does not become healthy, or "".
func checkProblem(ctx context.Context, c client.Reader, row Row, check checkedObject) string {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(check.GVK)
	err := c.Get(ctx, types.NamespacedName{Namespace: check.Namespace, Name: check.Name}, u)
	switch {
	case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		return absent
	case err != nil:
		return ""
	case slices.Contains(workloads, check.GVK):
		return workloadProblem(ctx, c, u)
	case check.Expressed && len(u.Object) > 0 && u.Object["status"] == nil:
		return fmt.Sprintf("has no status, since its controller does not run here, and spec.healthCheckExprs of %[1]s waits for one; take that as ready with --assume %[1]s, which then applies nothing", row.Ref())
	}
	return ""
}

// workloadProblem returns why Pods of a workload do not start, or "".
func workloadProblem(ctx context.Context, c client.Reader, u *unstructured.Unstructured) string {
	var workload struct {
		Spec struct {
			Replicas *int                  `json:"replicas"`
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"spec"`
		Status struct {
			DesiredNumberScheduled int `json:"desiredNumberScheduled"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &workload) != nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(workload.Spec.Selector)
	if err != nil {
		return ""
	}
	pods := &corev1.PodList{}
	if c.List(ctx, pods, client.InNamespace(u.GetNamespace()), client.MatchingLabelsSelector{Selector: selector}) != nil {
		return ""
	}
	for i := range pods.Items {
		if problem := podProblem(&pods.Items[i]); problem != "" {
			return fmt.Sprintf("Pod %s %s", pods.Items[i].Name, problem)
		}
	}
	wanted := 1
	switch {
	case u.GetKind() == "DaemonSet":
		wanted = workload.Status.DesiredNumberScheduled
	case workload.Spec.Replicas != nil:
		wanted = *workload.Spec.Replicas
	}
	if len(pods.Items) >= wanted {
		return ""
	}
	return refusedPods(ctx, c, u)
}

// podProblem returns why a Pod does not start, or "".
func podProblem(pod *corev1.Pod) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return "gets no node: " + condition.Message
		}
	}
	for _, container := range append(slices.Clone(pod.Status.InitContainerStatuses), pod.Status.ContainerStatuses...) {
		if waiting := container.State.Waiting; waiting != nil && waiting.Message != "" {
			return fmt.Sprintf("waits: %s: %s", waiting.Reason, waiting.Message)
		}
	}
	return ""
}

// refusal matches the beginning of an event about a refused Pod. It has the Pod's name, which each try chooses anew.
var refusal = regexp.MustCompile(`^(?:\(combined from similar events\): )?(?:Error creating: )?(?:pods "[^"]*" is forbidden: )?`)

// refusedPods returns the latest refusal to create a Pod of a workload, or "". Pods of a Deployment are
// created for one of its ReplicaSets, whose name begins with that of the Deployment.
func refusedPods(ctx context.Context, c client.Reader, u *unstructured.Unstructured) string {
	events := &corev1.EventList{}
	if c.List(ctx, events, client.InNamespace(u.GetNamespace())) != nil {
		return ""
	}
	var latest *corev1.Event
	for i := range events.Items {
		event := &events.Items[i]
		about := event.InvolvedObject
		own := about.UID == u.GetUID() || u.GetKind() == "Deployment" && about.Kind == "ReplicaSet" && strings.HasPrefix(about.Name, u.GetName()+"-")
		if event.Reason == "FailedCreate" && own && (latest == nil || latest.LastTimestamp.Before(&event.LastTimestamp)) {
			latest = event
		}
	}
	if latest == nil {
		return ""
	}
	return "its Pods are refused: " + refusal.ReplaceAllString(latest.Message, "")
}
