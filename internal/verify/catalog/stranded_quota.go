package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// quotaWebhook is the control that moves free quota to the namespace that needs it.
const quotaWebhook = "webhook pods." + admission.QuotaWebhookSuffix

func addStrandedQuota(register func(...Attack)) {
	register(Attack{
		ID: "A9", Via: API,
		Kinds:    []string{"Pod"},
		Title:    "has free quota in one of its namespaces, and a Pod that needs this quota in another one is refused",
		Controls: []string{quotaWebhook + ", which moves free quota"},
		Fix:      Fix{Advice: "install the webhook that moves free quota between the namespaces of a tenant (ValidatingWebhookConfiguration " + admission.QuotaWebhookName + "), and keep the manager running"},
		Deep:     true,
		Run:      strandsQuota,
	})
}

// strandsQuota creates a Pod as a controller of Kubernetes, in a dry run. The Pod slightly exceeds the part
// of its namespace and fits into the tenant's quota.
func strandsQuota(ctx context.Context, e *Scenario) Finding {
	gaps, err := e.quotaGaps(ctx)
	switch {
	case meta.IsNoMatchError(err) || err == nil && len(gaps) == 0:
		return e.nothingThere(ctx, notInstalled, "no quota for Pods is divided among the namespaces of tenant "+e.Tenant.Name)
	case err != nil:
		return notProven("cannot read the tenant's quotas: " + firstLine(err.Error()))
	}
	f := notProven("the tenant has used all of its quota, so that nothing is free that could be moved")
	for _, gap := range gaps {
		if !gap.fits {
			continue
		}
		if f = e.triesGap(ctx, gap); f.Outcome != NotProven {
			return f
		}
	}
	return f
}

// quotaTries is how often a controller tries to create a Pod that the quota of its namespace refuses. The
// webhook may be too slow for the first request, and the API server then decides without it.
const quotaTries = 3

// triesGap creates the Pod of a gap in a dry run. A refusal with the tenant's total is not proven: the Pod
// may need more of another resource than the tenant has left.
func (e *Scenario) triesGap(ctx context.Context, gap quotaGap) Finding {
	pod := hardenedPod("a9", nil)(e)
	pod.SetNamespace(gap.namespace)
	gap.fill(pod)
	exceeds := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: "+gap.quota+",")
	}
	err := e.creates(ctx, "replicaset-controller", pod)
	for range quotaTries - 1 {
		if exceeds(err) {
			err = e.creates(ctx, "replicaset-controller", pod)
		}
	}
	switch {
	case err == nil:
		return stopped(quotaWebhook, "a Pod with "+gap.String()+" is admitted")
	case exceeds(err):
		return gotThrough("a Pod with " + gap.String() + " is refused: " + firstLine(err.Error()))
	}
	return notProven("another control than the namespace's part of the quota refuses the Pod: " + firstLine(err.Error()))
}

// quotaGap is an amount that exceeds a namespace's part of a quota.
type quotaGap struct {
	namespace, quota string
	resource         corev1.ResourceName
	// amount is the smallest amount that exceeds the free amount of the namespace. free is the free amount
	// of the tenant. fits is set if amount does not exceed free.
	amount, free resource.Quantity
	fits         bool
}

func (g quotaGap) String() string {
	return fmt.Sprintf("%s=%s in namespace %s, of which its tenant has %s free in quota %s", g.resource, &g.amount, g.namespace, &g.free, g.quota)
}

// quotaGaps returns a gap for each resource of a Pod that a divided quota counts, in each namespace of the
// tenant.
func (e *Scenario) quotaGaps(ctx context.Context) ([]quotaGap, error) {
	content := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	if err := e.Admin.Get(ctx, keyOf(content), content); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var tenant v1alpha1.Tenant
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, &tenant); err != nil {
		return nil, err
	}
	var gaps []quotaGap
	for _, q := range tenant.Spec.Quotas {
		if !tenancy.SharedByTenant(q) || len(q.Scopes) > 0 || q.ScopeSelector != nil {
			continue
		}
		parts, err := e.parts(ctx, tenancy.QuotaObjectName(&tenant, q.Name))
		if err != nil {
			return nil, err
		}
		if len(parts) > 1 {
			gaps = append(gaps, gapsOf(corev1.ResourceList(q.Hard), parts)...)
		}
	}
	return gaps, nil
}

// parts returns the parts of a quota in the tenant's namespaces.
func (e *Scenario) parts(ctx context.Context, quota string) ([]corev1.ResourceQuota, error) {
	var parts []corev1.ResourceQuota
	for _, namespace := range e.Tenant.Namespaces {
		var part corev1.ResourceQuota
		err := e.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: quota}, &part)
		if err == nil {
			parts = append(parts, part)
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("cannot read quota %s of namespace %s: %w", quota, namespace, err)
		}
	}
	return parts, nil
}

// gapsOf returns the gaps in the parts of a quota with a limit.
func gapsOf(limit corev1.ResourceList, parts []corev1.ResourceQuota) []quotaGap {
	var gaps []quotaGap
	for _, name := range []corev1.ResourceName{
		corev1.ResourceRequestsCPU, corev1.ResourceCPU, corev1.ResourceRequestsMemory, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
	} {
		free, counted := limit[name]
		if !counted {
			continue
		}
		free = free.DeepCopy()
		for _, part := range parts {
			free.Sub(part.Status.Used[name])
		}
		for _, part := range parts {
			amount := part.Spec.Hard[name].DeepCopy()
			amount.Sub(part.Status.Used[name])
			amount.Add(unitOf(name))
			gaps = append(gaps, quotaGap{part.Namespace, part.Name, name, amount, free, amount.Cmp(free) <= 0})
		}
	}
	return gaps
}

// unitOf returns a small amount of CPU or memory.
func unitOf(name corev1.ResourceName) resource.Quantity {
	if strings.HasSuffix(string(name), string(corev1.ResourceCPU)) {
		return resource.MustParse("1m")
	}
	return resource.MustParse("1Mi")
}

// fill makes the first container of a Pod request the amount.
func (g quotaGap) fill(pod *unstructured.Unstructured) {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	resources := fewResources()
	kind := strings.TrimPrefix(strings.TrimPrefix(string(g.resource), "requests."), "limits.")
	resources["limits"].(map[string]any)[kind] = g.amount.String()
	if !strings.HasPrefix(string(g.resource), "limits.") {
		resources["requests"].(map[string]any)[kind] = g.amount.String()
	}
	containers[0].(map[string]any)["resources"] = resources
	_ = unstructured.SetNestedSlice(pod.Object, containers, "spec", "containers")
}
