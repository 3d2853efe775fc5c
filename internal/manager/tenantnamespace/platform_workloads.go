package tenantnamespace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// platformWorkloads returns the workloads of a namespace that syncs of the platform applied, and their
// selectors.
func (r *Reconciler) platformWorkloads(ctx context.Context, ns *corev1.Namespace, profile *v1alpha1.TenancyProfileSpec) ([]string, []metav1.LabelSelector, error) {
	var objects []metav1.PartialObjectMetadata
	for _, kind := range tenancy.WorkloadKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := r.Client.List(ctx, list, client.InNamespace(ns.Name)); err != nil {
			return nil, nil, fmt.Errorf("cannot read the workloads of kind %s in namespace %s: %w", kind.Kind, ns.Name, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind)
		}
		objects = append(objects, list.Items...)
	}
	workloads := tenancy.PlatformWorkloads(objects, profile)
	if len(workloads) > tenancy.MaxPlatformWorkloads {
		r.Events.Eventf(ns, nil, corev1.EventTypeWarning, "TooManyWorkloads", "Reconcile",
			"the platform has %d workloads in the tenant's namespace, and the first %d of them are protected from requests to scale, evict or enter: move some to a namespace of the platform's",
			len(workloads), tenancy.MaxPlatformWorkloads)
		workloads = workloads[:tenancy.MaxPlatformWorkloads]
	}
	listed := slices.DeleteFunc(objects, func(o metav1.PartialObjectMetadata) bool { return !slices.Contains(workloads, o.Kind+"/"+o.Name) })
	selectors, err := r.podSelectors(ctx, ns.Name, listed)
	return workloads, selectors, err
}

// podSelectors returns the different selectors of workloads, sorted. It reads each workload once: Kubernetes
// allows no change of a selector.
func (r *Reconciler) podSelectors(ctx context.Context, namespace string, workloads []metav1.PartialObjectMetadata) ([]metav1.LabelSelector, error) {
	known, read := r.selectors.get(namespace), map[types.UID]*metav1.LabelSelector{}
	for i := range workloads {
		o := &workloads[i]
		if selector, ok := known[o.UID]; ok {
			read[o.UID] = selector
			continue
		}
		if o.Kind == "HorizontalPodAutoscaler" || o.Kind == "CronJob" {
			continue
		}
		workload := ofKind(o.GroupVersionKind())
		err := r.Workloads.Get(ctx, client.ObjectKeyFromObject(o), workload)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the selector of %s %s/%s: %w", o.Kind, namespace, o.Name, err)
		}
		read[o.UID] = tenancy.PodSelector(workload)
	}
	r.selectors.set(namespace, read)
	different := map[string]metav1.LabelSelector{}
	for _, selector := range read {
		if selector != nil {
			different[metav1.FormatLabelSelector(selector)] = *selector
		}
	}
	var all []metav1.LabelSelector
	for _, text := range slices.Sorted(maps.Keys(different)) {
		all = append(all, different[text])
	}
	return all, nil
}

// selectors are the selectors of the platform's workloads, by namespace and UID; nil is none. The zero value
// is ready to use.
type selectors struct {
	mu sync.Mutex
	of map[string]map[types.UID]*metav1.LabelSelector
}

func (s *selectors) get(namespace string) map[types.UID]*metav1.LabelSelector {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[namespace]
}

// set replaces the selectors of a namespace.
func (s *selectors) set(namespace string, read map[types.UID]*metav1.LabelSelector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(read) == 0 {
		delete(s.of, namespace)
		return
	}
	if s.of == nil {
		s.of = map[string]map[types.UID]*metav1.LabelSelector{}
	}
	s.of[namespace] = read
}
