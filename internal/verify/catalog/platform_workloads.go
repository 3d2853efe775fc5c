package catalog

import (
	"context"
	"fmt"
	"regexp"
	"slices"

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
		Kinds:      []string{"Canary", "Deployment/scale", "HorizontalPodAutoscaler", "Job", "PersistentVolumeClaim", "Pod", "Pod/eviction", "ReplicaSet", "StatefulSet", "StatefulSet/scale"},
		Title:      "scales the platform's workloads in its namespace, deletes their claims, evicts their Pods or takes their place, or takes them over by an autoscaler, a Canary or a workload of its own",
		Controls:   []string{"RBAC", "policy on platform-managed objects, which knows the platform's workloads"},
		References: []string{"MTB CPI-2"},
		Fix:        Fix{Advice: "give the tenant's role no right to scale and to evict, or refuse these requests for the platform's workloads with a ValidatingAdmissionPolicy, as the rule tenure-managed does", Rights: true},
		Slow:       true,
		Run:        takesWorkloads,
	})
}

// takesWorkloads sends requests that act on a workload of the platform and that contain none of the
// workload's labels.
func takesWorkloads(ctx context.Context, e *Scenario) Finding {
	workloads, err := e.platformWorkloads(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	alone, err := e.adoptions(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if len(workloads) == 0 && len(alone) == 0 {
		return e.nothingThere(ctx, noGuardrails, "the platform has no workload in namespace "+e.Namespace)
	}
	all := alone
	for _, u := range workloads {
		which := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		if u.GetKind() == "Deployment" || u.GetKind() == "StatefulSet" {
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
		all = append(all, replaces(&u, pods, which)...)
		claims, err := e.claimsOf(ctx, &u)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		for _, claim := range claims {
			all = append(all, request{
				what: fmt.Sprintf("delete the claim %s, with the data of %s", claim.Name, which),
				aimed: func(ctx context.Context, e *Scenario) error {
					return e.As.Delete(ctx, claim.DeepCopy(), client.DryRunAll)
				},
			})
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

// replaces returns the requests to create an object that a workload of the platform adopts instead of
// creating its own. A StatefulSet adopts a Pod by the name; a ReplicaSet of a Deployment, a DaemonSet and a
// Job adopt a Pod by the labels; a Deployment adopts a ReplicaSet. A CronJob does not run if a Job has the
// name of its next Job.
func replaces(u *unstructured.Unstructured, pods []corev1.Pod, which string) []request {
	own := gated("a5", map[string]any{})
	r := request{what: "let a Pod of its own take the place of one of " + which, own: creating(own)}
	switch {
	case u.GetKind() == "CronJob":
		named := func(name string) func(e *Scenario) *unstructured.Unstructured {
			return func(e *Scenario) *unstructured.Unstructured {
				job := ofKind("Job").of(own(e))
				job.SetName(name)
				return job
			}
		}
		job := named(name("a5"))
		r = request{what: "let a Job of its own take the place of the next one of " + which, own: creating(job), aimed: creating(named(u.GetName()+"-99999999"), job)}
	case u.GetKind() == "StatefulSet":
		r.aimed = func(ctx context.Context, e *Scenario) error {
			pod := own(e)
			pod.SetName(u.GetName() + "-999")
			return e.tryCreate(ctx, pod)
		}
	default:
		labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
		if len(labels) == 0 {
			return nil
		}
		if len(pods) > 0 {
			labels = pods[0].Labels
		}
		r.aimed = creating(func(e *Scenario) *unstructured.Unstructured {
			pod := own(e)
			pod.SetLabels(labels)
			return pod
		}, own)
	}
	if u.GetKind() != "Deployment" {
		return []request{r}
	}
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
	set := func(labels map[string]string) func(e *Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			set := ofKind("ReplicaSet").idle(own(e))
			set.SetLabels(labels)
			return set
		}
	}
	return []request{r, {what: "let a ReplicaSet of its own be one of " + which, own: creating(set(nil)), aimed: creating(set(labels), set(nil))}}
}

// adoptions returns the requests by which a workload of the tenant takes over an object that the platform
// applied and that has no controller: a ReplicaSet adopts a Pod by its labels, and a StatefulSet a claim by
// its name. The workload and the request of its controller are dry runs.
func (e *Scenario) adoptions(ctx context.Context) ([]request, error) {
	profile, err := e.profile(ctx)
	if err != nil || profile == nil {
		return nil, err
	}
	var pods corev1.PodList
	var claims corev1.PersistentVolumeClaimList
	for _, list := range []client.ObjectList{&pods, &claims} {
		if err := e.Admin.List(ctx, list, client.InNamespace(e.Namespace)); err != nil {
			return nil, fmt.Errorf("cannot list the objects of the platform: %w", err)
		}
	}
	var all []request
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !appliedByPlatform(pod, profile) {
			continue
		}
		labels := map[string]any{}
		for key, value := range pod.Labels {
			labels[key] = value
		}
		all = append(all, e.adoption(pod, "Pod", ofKind("ReplicaSet").withLabels(hardenedPod("a5-set", nil)(e), labels)))
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		name := claimName.FindStringSubmatch(claim.Name)
		if name == nil || !appliedByPlatform(claim, profile) {
			continue
		}
		set := ofKind("StatefulSet").of(hardenedPod("a5-set", nil)(e))
		set.SetName(name[2])
		template := map[string]any{"metadata": map[string]any{"name": name[1]}, "spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Mi"}},
		}}
		_ = unstructured.SetNestedSlice(set.Object, []any{template}, "spec", "volumeClaimTemplates")
		_ = unstructured.SetNestedField(set.Object, "Delete", "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted")
		all = append(all, e.adoption(claim, "PersistentVolumeClaim", set))
	}
	return all, nil
}

// claimName matches the name of a claim that a StatefulSet adopts: the name of a template, the name of the
// StatefulSet, and a number.
var claimName = regexp.MustCompile(`^([a-z0-9]+)-([a-z0-9.-]+)-[0-9]+$`)

// ofKind returns the workload with the name of a kind.
func ofKind(kind string) workload {
	return workloads[slices.IndexFunc(workloads, func(w workload) bool { return w.kind == kind })]
}

// adoption returns the request with which the controller of a workload of the tenant makes the workload the
// owner of an object of the platform.
func (e *Scenario) adoption(taken client.Object, kind string, by *unstructured.Unstructured) request {
	return request{
		what: fmt.Sprintf("take over %s %s/%s of the platform with a %s, which deletes it", kind, taken.GetNamespace(), taken.GetName(), by.GetKind()),
		aimed: func(ctx context.Context, e *Scenario) error {
			if err := e.tryCreate(ctx, by); err != nil {
				return err
			}
			owned, _ := taken.DeepCopyObject().(client.Object)
			owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: by.GetAPIVersion(), Kind: by.GetKind(), Name: by.GetName(), UID: "tenure-attack-a5", Controller: new(true), BlockOwnerDeletion: new(true)}})
			return e.asController(ofKind(by.GetKind()).controller, func(controller client.Client) error {
				if kind == "Pod" {
					// Kubernetes' role for the controller has no right to update Pods.
					return controller.Patch(ctx, owned, client.MergeFrom(taken), client.DryRunAll)
				}
				return controller.Update(ctx, owned, client.DryRunAll)
			})
		},
	}
}

// appliedByPlatform reports whether the platform applied an object that has no controller.
func appliedByPlatform(o client.Object, profile *v1alpha1.TenancyProfile) bool {
	of := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: o.GetLabels()}}
	return metav1.GetControllerOf(o) == nil && len(tenancy.PlatformWorkloads([]metav1.PartialObjectMetadata{of}, &profile.Spec)) > 0
}

// claimsOf returns the claims that Kubernetes created from the templates of a StatefulSet.
func (e *Scenario) claimsOf(ctx context.Context, set *unstructured.Unstructured) ([]corev1.PersistentVolumeClaim, error) {
	if set.GetKind() != "StatefulSet" {
		return nil, nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := e.Admin.List(ctx, &claims, client.InNamespace(set.GetNamespace())); err != nil {
		return nil, fmt.Errorf("cannot list the claims of %s: %w", set.GetName(), err)
	}
	of := regexp.MustCompile("^.+-" + regexp.QuoteMeta(set.GetName()) + "-[0-9]+$")
	return slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !of.MatchString(c.Name) }), nil
}

// profile returns the TenancyProfile, or nil if there is none.
func (e *Scenario) profile(ctx context.Context) (*v1alpha1.TenancyProfile, error) {
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
	return &profile, nil
}

// platformWorkloads returns the workloads in the tenant's namespace that belong to the platform by its
// TenancyProfile. Without a profile, it returns none.
func (e *Scenario) platformWorkloads(ctx context.Context) ([]unstructured.Unstructured, error) {
	profile, err := e.profile(ctx)
	if err != nil || profile == nil {
		return nil, err
	}
	var found []unstructured.Unstructured
	for _, kind := range tenancy.WorkloadKinds() {
		if kind.Kind == "HorizontalPodAutoscaler" {
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

// podsOf returns the Pods that Kubernetes created for a workload.
func (e *Scenario) podsOf(ctx context.Context, workload *unstructured.Unstructured) ([]corev1.Pod, error) {
	labels, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	var pods corev1.PodList
	if err := e.Admin.List(ctx, &pods, client.InNamespace(workload.GetNamespace()), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("cannot list the Pods of %s: %w", workload.GetName(), err)
	}
	prefix := "^" + regexp.QuoteMeta(workload.GetName()) + "-"
	if workload.GetKind() == "CronJob" {
		// A CronJob has no selector. The names of its Jobs are its name and a number.
		prefix += "[0-9]+-"
	}
	of := regexp.MustCompile(prefix)
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return metav1.GetControllerOf(&p) == nil || !of.MatchString(p.Name)
	}), nil
}

// tryScale asks the API server whether the tenant could change the number of a workload's Pods.
func (e *Scenario) tryScale(ctx context.Context, u *unstructured.Unstructured) error {
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 0}}
	return e.As.SubResource("scale").Update(ctx, u.DeepCopy(), client.WithSubResourceBody(scale),
		client.DryRunAll)
}

// tryEvict asks the API server whether the tenant could evict a Pod.
func (e *Scenario) tryEvict(ctx context.Context, pod *corev1.Pod) error {
	eviction := object("policy/v1", "Eviction", pod.Namespace, pod.Name, nil)
	return e.As.SubResource("eviction").Create(ctx, pod, eviction,
		client.DryRunAll)
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
