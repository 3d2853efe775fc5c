package catalog

import (
	"context"
	"fmt"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addNamespaceTakeover(register func(...Attack)) {
	register(Attack{
		ID: "I7", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"Namespace", "Namespace/finalize", "Namespace/status"},
		Title:      "takes over a system namespace or a namespace without a tenant",
		Controls:   []string{"RBAC", "policy on who owns a Namespace"},
		References: []string{"CVE-2024-39690", "CVE-2025-55205"},
		Fix:        Fix{Advice: "give tenants no verb on namespaces beyond their own: no ClusterRoleBinding, and no controller that lets them adopt an existing namespace", Rights: true},
		Run: requestsOf(readsByPatch,
			request{what: "label a namespace that belongs to no tenant as its own", aimed: claims(func(e *Scenario) string { return e.Victim.Namespace }, "")},
			request{what: "label the namespace default as its own", aimed: claims(func(*Scenario) string { return "default" }, "")},
			request{what: "label the namespace kube-system as its own", aimed: claims(func(*Scenario) string { return "kube-system" }, "")},
			request{what: "label the namespace of Flux as its own", aimed: claims(func(e *Scenario) string { return e.Platform }, "")},
			request{what: "make itself the owner of kube-system by a reference", aimed: refers(func(*Scenario) string { return "kube-system" })},
			request{what: "make itself the owner of a namespace that belongs to no tenant by a reference", aimed: refers(func(e *Scenario) string { return e.Victim.Namespace })},
			request{what: "make a namespace for another tenant", aimed: func(ctx context.Context, e *Scenario) error {
				return e.makesNamespace(name("i7"), VictimNamespace)(ctx, e)
			}},
			request{what: "claim a namespace by its status", aimed: claims(func(e *Scenario) string { return e.Victim.Namespace }, "status")},
			request{what: "finalize a namespace that belongs to no tenant", aimed: func(ctx context.Context, e *Scenario) error { return finalize(ctx, e, e.Victim.Namespace) }},
			request{what: "delete a namespace that belongs to no tenant", aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Victim.Namespace}}, client.DryRunAll)
			}},
		),
	})
}

// readsByPatch returns the request of a person to patch a namespace with a patch that the API server cannot
// decode. The API server answers before a policy can, with an error that can contain the namespace; only
// RBAC stops this. An account has the right where Flux applies namespaces as the account, and only Flux
// sends its requests.
func readsByPatch(e *Scenario) []request {
	if e.Owner == nil || e.Owner.Kind == rbacv1.ServiceAccountKind {
		return nil
	}
	const what = "read a namespace that belongs to no tenant, by a patch that fails"
	return []request{{what: what, aimed: func(ctx context.Context, e *Scenario) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.Victim.Namespace}}
		patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"copy","from":"/metadata/uid","path":"/metadata/creationTimestamp"}]`))
		err := e.As.Patch(ctx, namespace, patch, client.DryRunAll)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return &heldError{what: what}
		}
		return err
	}}}
}

// claims returns a dry run that labels a namespace as the tenant's, through a subresource if one is named.
func claims(namespace func(*Scenario) string, subresource string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%[1]q:%[4]q,%[2]q:%[4]q,%[3]q:%[4]q}}}`, v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant, e.Tenant.Name)
		return patchAny(ctx, e, namespace(e), subresource, patch)
	}
}

// refers returns a dry run that adds an owner reference to the tenant to a namespace, as Capsule does. The
// reference names a missing object, which a dry run does not look up.
func refers(namespace func(*Scenario) string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		patch := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"capsule.clastix.io/v1beta2","kind":"Tenant","name":%q,"uid":"00000000-0000-0000-0000-000000000000"}]}}`, e.Tenant.Name)
		return patchAny(ctx, e, namespace(e), "", patch)
	}
}
