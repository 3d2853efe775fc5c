// Package quota computes how much of a ResourceQuota a request uses, as the API server's
// own ResourceQuota plugin does. It decides no requests: it computes how much of a
// tenant's quota must be in a namespace before the plugin checks the request.
package quota

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Demand is what a request needs from quotas.
type Demand struct {
	// Delta is the increase of usage by the request, by the resource names in quotas.
	Delta corev1.ResourceList
	// pod is the created or updated Pod, for the scopes of quotas.
	pod *corev1.Pod
}

// Of returns the demand of a request. It is empty for a request that no quota counts. Of returns an error if it cannot decode the objects of the request.
func Of(request *admissionv1.AdmissionRequest) (Demand, error) {
	switch {
	case request.Resource.Group != "" || request.SubResource != "" && request.Resource.Resource != "pods":
	case request.Resource.Resource == "pods":
		return demand(request, podUsage, func(o *corev1.Pod) *corev1.Pod { return o })
	case request.Resource.Resource == "persistentvolumeclaims":
		return demand(request, claimUsage, nil)
	case request.Resource.Resource == "services":
		return demand(request, serviceUsage, nil)
	}
	if request.Operation != admissionv1.Create || request.SubResource != "" {
		return Demand{}, nil
	}
	return Demand{Delta: objectUsage(request)}, nil
}

// demand returns the demand for the objects of a request, which may have no old object.
func demand[T any](request *admissionv1.AdmissionRequest, usage func(*T) corev1.ResourceList, pod func(*T) *corev1.Pod) (Demand, error) {
	object, d := new(T), Demand{}
	if err := json.Unmarshal(request.Object.Raw, object); err != nil {
		return d, fmt.Errorf("cannot read the %s: %w", request.Kind.Kind, err)
	}
	if pod != nil {
		d.pod = pod(object)
	}
	d.Delta = usage(object)
	if request.Operation == admissionv1.Create {
		add(d.Delta, objectUsage(request))
		return d, nil
	}
	old := new(T)
	if err := json.Unmarshal(request.OldObject.Raw, old); err != nil {
		return d, fmt.Errorf("cannot read the %s as it was: %w", request.Kind.Kind, err)
	}
	before := usage(old)
	for name, quantity := range d.Delta {
		quantity.Sub(before[name])
		d.Delta[name] = quantity
	}
	return d, nil
}

// objectUsage returns the usage of one object of the request's resource.
func objectUsage(request *admissionv1.AdmissionRequest) corev1.ResourceList {
	resourceName := request.Resource.Resource
	count := corev1.ResourceList{corev1.ResourceName("count/" + strings.TrimSuffix(resourceName+"."+request.Resource.Group, ".")): resource.MustParse("1")}
	if request.Resource.Group == "" && slices.Contains(countedByName, corev1.ResourceName(resourceName)) {
		count[corev1.ResourceName(resourceName)] = resource.MustParse("1")
	}
	return count
}

// countedByName are the resources that quotas also count without the prefix count/.
// Quotas count Pods in this way too, but only until they end.
var countedByName = []corev1.ResourceName{
	corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceReplicationControllers,
	corev1.ResourceServices, corev1.ResourcePersistentVolumeClaims, corev1.ResourceQuotas, corev1.ResourcePods,
}

func podUsage(pod *corev1.Pod) corev1.ResourceList {
	usage := corev1.ResourceList{}
	options := resourcehelper.PodResourcesOptions{UseStatusResources: true}
	for name, quantity := range resourcehelper.PodRequests(pod, options) {
		usage["requests."+name] = quantity
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
			usage[name] = quantity
		}
	}
	for name, quantity := range resourcehelper.PodLimits(pod, options) {
		usage["limits."+name] = quantity
	}
	return usage
}

func claimUsage(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]; allocated.Cmp(size) > 0 {
		size = allocated
	}
	usage := corev1.ResourceList{corev1.ResourceRequestsStorage: size}
	class := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if class == "" && claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	if class != "" {
		prefix := class + ".storageclass." + storagev1.GroupName + "/"
		usage[corev1.ResourceName(prefix+"requests.storage")] = size
		usage[corev1.ResourceName(prefix+"persistentvolumeclaims")] = resource.MustParse("1")
	}
	return usage
}

func serviceUsage(service *corev1.Service) corev1.ResourceList {
	usage := corev1.ResourceList{}
	ports := *resource.NewQuantity(int64(len(service.Spec.Ports)), resource.DecimalSI)
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort:
		usage[corev1.ResourceServicesNodePorts] = ports
	case corev1.ServiceTypeLoadBalancer:
		if service.Spec.AllocateLoadBalancerNodePorts == nil || *service.Spec.AllocateLoadBalancerNodePorts {
			usage[corev1.ResourceServicesNodePorts] = ports
		}
		usage[corev1.ResourceServicesLoadBalancers] = resource.MustParse("1")
	}
	return usage
}

func add(to, what corev1.ResourceList) {
	for name, quantity := range what {
		sum := to[name]
		sum.Add(quantity)
		to[name] = sum
	}
}

// In returns the part of the demand that a quota counts. Sure is false if the quota has a
// scope that In does not know: the quota may or may not count the request.
func (d Demand) In(spec *corev1.ResourceQuotaSpec) (counted corev1.ResourceList, sure bool) {
	counted, sure = corev1.ResourceList{}, true
	for name, quantity := range d.Delta {
		if _, bounded := spec.Hard[name]; bounded && quantity.Sign() > 0 {
			counted[name] = quantity
		}
	}
	for _, scope := range spec.Scopes {
		in, known := d.inScope(corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
		if !in {
			return nil, true
		}
		sure = sure && known
	}
	if spec.ScopeSelector != nil {
		for _, requirement := range spec.ScopeSelector.MatchExpressions {
			in, known := d.inScope(requirement)
			if !in {
				return nil, true
			}
			sure = sure && known
		}
	}
	return counted, sure
}

// inScope reports whether the request is in a scope, and whether it knows the scope. It
// reports true for an unknown one.
func (d Demand) inScope(r corev1.ScopedResourceSelectorRequirement) (in, known bool) {
	if d.pod == nil {
		return true, false
	}
	deadline := d.pod.Spec.ActiveDeadlineSeconds
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return deadline != nil && *deadline >= 0, true
	case corev1.ResourceQuotaScopeNotTerminating:
		return deadline == nil || *deadline < 0, true
	case corev1.ResourceQuotaScopeBestEffort:
		return d.bestEffort(), true
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !d.bestEffort(), true
	case corev1.ResourceQuotaScopePriorityClass:
		class := d.pod.Spec.PriorityClassName
		switch r.Operator {
		case corev1.ScopeSelectorOpExists:
			return class != "", true
		case corev1.ScopeSelectorOpDoesNotExist:
			return class == "", true
		case corev1.ScopeSelectorOpIn:
			return slices.Contains(r.Values, class), true
		case corev1.ScopeSelectorOpNotIn:
			return !slices.Contains(r.Values, class), true
		}
	}
	return true, false
}

// bestEffort reports whether no container requests or limits CPU or memory.
func (d Demand) bestEffort() bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory} {
		if quantity := d.Delta[name]; quantity.Sign() > 0 {
			return false
		}
	}
	return true
}
