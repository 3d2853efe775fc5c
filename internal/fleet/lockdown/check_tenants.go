package lockdown

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// wideRoles are the ClusterRoles of Kubernetes that allow impersonation of the
// namespace's service accounts, and creation of tokens for them.
var wideRoles = []string{"cluster-admin", "admin", "edit"}

// tenantRights checks that no RoleBinding gives accounts of tenants a role that allows
// impersonation and tokens.
func (c Cluster) tenantRights(ctx context.Context) ([]Result, error) {
	namespaces, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err != nil {
		return nil, err
	}
	bindings, err := c.list(ctx, schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"})
	if err != nil {
		return nil, err
	}
	wrong := wideForTenants(namespaces, bindings)
	return []Result{result("rights of tenants", len(wrong) == 0, "no role that brings impersonation and tokens", strings.Join(wrong, "; "))}, nil
}

// wideForTenants returns a message for each subject of a RoleBinding that has such a role
// in a namespace of a tenant.
func wideForTenants(namespaces, bindings []*unstructured.Unstructured) []string {
	tenants := map[string]bool{}
	for _, ns := range namespaces {
		_, tenants[ns.GetName()] = tenancy.TenantOf(ns.GetLabels())
	}
	var wrong []string
	for _, b := range bindings {
		kind, _, _ := unstructured.NestedString(b.Object, "roleRef", "kind")
		role, _, _ := unstructured.NestedString(b.Object, "roleRef", "name")
		if kind != "ClusterRole" || !slices.Contains(wideRoles, role) || !tenants[b.GetNamespace()] {
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(b.Object, "subjects")
		for _, s := range subjects {
			if name, ok := accountOfTenant(s, tenants); ok {
				wrong = append(wrong, fmt.Sprintf("RoleBinding %s/%s gives %s the role %s: give it %s", b.GetNamespace(), b.GetName(), name, role, tenancy.Role))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// accountOfTenant returns the name of a subject, and whether it is a service account, or
// a group of service accounts, in a tenant's namespace.
func accountOfTenant(subject any, tenants map[string]bool) (name string, ok bool) {
	const user, group = "system:serviceaccount:", "system:serviceaccounts:"
	m, _ := subject.(map[string]any)
	name, _ = m["name"].(string)
	namespace, _ := m["namespace"].(string)
	switch m["kind"] {
	case "ServiceAccount":
		name = namespace + "/" + name
	case "User":
		account, isAccount := strings.CutPrefix(name, user)
		if !isAccount {
			return "", false
		}
		namespace, _, _ = strings.Cut(account, ":")
	case "Group":
		namespace, _ = strings.CutPrefix(name, group)
	}
	return name, tenants[namespace]
}
