package capsule

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/tenancy"
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

// classes returns the classes that exist and that the rules allow in the namespaces of a Tenant: the Tenant decides,
// or the TenancyProfile. It returns none as long as there is no Tenant of tenure.dev or no profile.
func (r *TenantReconciler) classes(ctx context.Context, s *state) (v1beta2.TenantClasses, error) {
	var out v1beta2.TenantClasses
	if s.profile == nil || s.ours == nil {
		return out, nil
	}
	parameters := tenancy.Parameters(s.ours.Name, s.ours, s.profile)
	for _, kind := range []struct {
		kind schema.GroupVersionKind
		out  *[]string
	}{{storageClass, &out.Storage}, {priorityClass, &out.Priority}, {runtimeClass, &out.Runtime}, {gatewayClass, &out.Gateway}, {deviceClass, &out.Device}} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.kind)
		// They are only read.
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil && !apimeta.IsNoMatchError(err) {
			return out, fmt.Errorf("cannot list %ses: %w", kind.kind.Kind, err)
		}
		*kind.out = tenancy.AllowedClasses(&parameters.Tenants, kind.kind, list.Items)
	}
	return out, nil
}
