package tenantnamespace

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LogConstructor returns the LogConstructor of a controller. Its log lines, also those of failed
// reconciliations, name the controller, the reconciled object and, under the key tenant, the tenant, unless
// tenantOf returns "".
func LogConstructor(log logr.Logger, controller string, tenantOf func(types.NamespacedName) string) func(*reconcile.Request) logr.Logger {
	log = log.WithValues("controller", controller)
	return func(request *reconcile.Request) logr.Logger {
		if request == nil {
			return log
		}
		log := log.WithValues("namespace", request.Namespace, "name", request.Name)
		if tenant := tenantOf(request.NamespacedName); tenant != "" {
			log = log.WithValues("tenant", tenant)
		}
		return log
	}
}

// TenantByName returns the name of an object, for [LogConstructor]: the object is a Tenant, or is reconciled under
// the name of one.
func TenantByName(object types.NamespacedName) string { return object.Name }

// TenantByNamespace returns a function for [LogConstructor] that returns the tenant of the namespace of an object,
// or of an object that is a namespace. The reader is the cache.
func TenantByNamespace(cache client.Reader) func(types.NamespacedName) string {
	return func(object types.NamespacedName) string {
		name := object.Namespace
		if name == "" {
			name = object.Name
		}
		ns := &corev1.Namespace{}
		if err := cache.Get(context.Background(), client.ObjectKey{Name: name}, ns); err != nil {
			return ""
		}
		tenant, _ := tenancy.TenantOf(ns.Labels)
		return tenant
	}
}
