package capsule

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/capsule"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of classes that Capsule's status lists. Not every cluster serves all of them.
var (
	storageClass  = schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}
	priorityClass = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}
	runtimeClass  = schema.GroupVersionKind{Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass"}
	gatewayClass  = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"}
	deviceClass   = schema.GroupVersionKind{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceClass"}

	classKinds = []schema.GroupVersionKind{storageClass, priorityClass, runtimeClass, gatewayClass, deviceClass}
)

// classes returns the classes that exist and that a Tenant allows.
func (r *TenantReconciler) classes(ctx context.Context, tenant *v1beta2.Tenant) (v1beta2.TenantClasses, error) {
	spec := &tenant.Spec
	var out v1beta2.TenantClasses
	var gateways *v1beta2.DefaultAllowedList
	if spec.GatewayOptions != nil {
		gateways = spec.GatewayOptions.AllowedClasses
	}
	for _, kind := range []struct {
		kind  schema.GroupVersionKind
		list  *v1beta2.SelectorAllowedList
		allow func(*v1beta2.SelectorAllowedList, []metav1.PartialObjectMetadata) []string
		out   *[]string
	}{
		{storageClass, selectorList(spec.StorageClasses), capsule.AllowedClasses, &out.Storage},
		{priorityClass, selectorList(spec.PriorityClasses), capsule.AllowedPriorityClasses, &out.Priority},
		{runtimeClass, selectorList(spec.RuntimeClasses), capsule.AllowedClasses, &out.Runtime},
		{gatewayClass, selectorList(gateways), capsule.AllowedClasses, &out.Gateway},
		{deviceClass, spec.DeviceClasses, capsule.AllowedClasses, &out.Device},
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.kind)
		// They are only read.
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !apimeta.IsNoMatchError(err) {
			return out, fmt.Errorf("cannot list %ses: %w", kind.kind.Kind, err)
		}
		*kind.out = kind.allow(kind.list, list.Items)
	}
	return out, nil
}

func selectorList(list *v1beta2.DefaultAllowedList) *v1beta2.SelectorAllowedList {
	if list == nil {
		return nil
	}
	out := list.SelectorAllowedList
	if list.Default != "" {
		// A default is allowed, too. Without other entries, it is the only class that is allowed.
		out.Allowed = append(slices.Clone(out.Allowed), list.Default)
	}
	return &out
}
