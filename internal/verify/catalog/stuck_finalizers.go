package catalog

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addStuckFinalizers(register func(...Attack)) {
	finalized := func(e *Scenario) *unstructured.Unstructured {
		u := configMap(e.Namespace, name("a4"))
		u.SetFinalizers([]string{"tenure.example.com/attack"})
		return u
	}
	plain := func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name("a4")) }
	slow := hardenedPod("a4", map[string]any{"terminationGracePeriodSeconds": tenYears})
	register(Attack{
		ID: "A4", Via: API, Owners: OwnersWithin,
		Kinds:    []string{"*", "Pod", "Pod/eviction"},
		Title:    "blocks the deletion of its namespace with finalizers, or with Pods that take years to end",
		Controls: []string{"policy on finalizers and on the time that Pods have to end"},
		Fix:      Fix{Advice: "allow tenants only the finalizers that a controller removes, with a ValidatingAdmissionPolicy on metadata.finalizers, and limit terminationGracePeriodSeconds of Pods and gracePeriodSeconds of requests to delete and to evict them"},
		Run: requests(request{
			what:  "create an object with a finalizer that no controller removes, which blocks the deletion of its namespace",
			aimed: creating(finalized, plain),
			own:   creating(plain),
		}, request{
			what:  "run a Pod that takes ten years to end, and holds up the end of its namespace",
			aimed: creating(slow),
			own:   creating(hardenedPod("a4", nil)),
		}, request{
			what:  "take a Pod away from its Job, whose controller alone removes the finalizer of the Pod",
			aimed: changingTracked(`{"metadata":{"ownerReferences":null}}`, false),
			own:   changingTracked(`{"metadata":{"annotations":{"tenure.dev/attack":"a4"}}}`, true),
		}, request{
			what:  "delete a Pod that then takes ten years to end, and holds up the end of its namespace",
			aimed: ending(deleting, tenYears),
			own:   ending(deleting, 0),
		}, request{
			what:  "evict a Pod that then takes ten years to end, and holds up the end of its namespace",
			aimed: ending(evicting, tenYears),
			own:   ending(evicting, 0),
		}),
	})
}

// tenYears is the termination grace period of the attack's Pods, in seconds.
const tenYears = int64(10 * 365 * 24 * 60 * 60)

// deleting deletes a Pod as the tenant, and evicting evicts it, in a dry run and with a grace period in
// seconds.
func deleting(ctx context.Context, e *Scenario, pod *unstructured.Unstructured, seconds int64) error {
	return e.As.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(seconds), client.DryRunAll)
}

func evicting(ctx context.Context, e *Scenario, pod *unstructured.Unstructured, seconds int64) error {
	eviction := object("policy/v1", "Eviction", pod.GetNamespace(), pod.GetName(), map[string]any{"deleteOptions": map[string]any{"gracePeriodSeconds": seconds}})
	return e.As.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction, client.DryRunAll)
}

// ending ends a Pod that exists for a moment. The Namespace controller does not shorten the grace period of
// a deleted Pod. The attack creates the Pod only if the tenant may end it, however the tenant creates Pods.
// The Pod names a node that does not exist: the API server gives a Pod without a node no grace period,
// whatever the request says.
func ending(end func(context.Context, *Scenario, *unstructured.Unstructured, int64) error, seconds int64) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		pod := hardenedPod("a4-ending", map[string]any{"nodeName": name("a4")})(e)
		if err := end(ctx, e, pod, seconds); !apierrors.IsNotFound(err) {
			return err
		}
		defer func() { _ = e.Admin.Delete(context.WithoutCancel(ctx), pod, client.GracePeriodSeconds(0)) }()
		if err := e.Admin.Create(ctx, pod); err != nil {
			// The error is not wrapped, so that it is not taken for a refusal of the attack.
			return fmt.Errorf("cannot make a Pod for the tenant: %s", firstLine(err.Error()))
		}
		return end(ctx, e, pod, seconds)
	}
}

// changingTracked patches a Pod with the finalizer of Jobs as the tenant, in a dry run. The Job
// controller's account creates the Pod, but only if the tenant may patch Pods. The Pod's owner is a
// ConfigMap, so that the Job controller does not change the Pod. If a policy refuses the finalizer, no such
// Pods exist: then own, a change that tenants may make, succeeds.
func changingTracked(change string, own bool) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		owner, jobs := configMap(e.Namespace, name("a4-owner")), e.controllers["job-controller"]
		pod := gated("a4-tracked", map[string]any{})(e)
		patch := func() error {
			return e.As.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
		}
		if err := patch(); !apierrors.IsNotFound(err) {
			return err
		}
		defer e.remove(owner)
		defer e.removeTracked(pod)
		err := e.Admin.Create(ctx, owner)
		if err == nil {
			isController := true
			pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: &isController}})
			plain := pod.DeepCopy()
			pod.SetFinalizers([]string{batchv1.JobTrackingFinalizer})
			if err = jobs.Create(ctx, pod); refusedByPolicy(err) && jobs.Create(ctx, plain, client.DryRunAll) == nil {
				if own {
					return nil
				}
				return err
			}
		}
		if err != nil {
			// The error is not wrapped, so that it is not taken for a refusal of the attack.
			return fmt.Errorf("cannot make a Pod for the tenant: %s", firstLine(err.Error()))
		}
		return patch()
	}
}

// removeTracked deletes an object whose finalizers no controller removes.
func (e *Scenario) removeTracked(u *unstructured.Unstructured) {
	_ = e.Admin.Patch(context.Background(), u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	e.remove(u)
}
