package tenants

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rights is what decides, beside the RoleBindings in its namespaces, about what
// a tenant may do.
type rights struct {
	clusterBindings []rbacv1.ClusterRoleBinding
	roles           map[string][]rbacv1.PolicyRule // by NAMESPACE/NAME
	policies        []admissionv1.ValidatingAdmissionPolicyBinding
}

func (r *rights) read(ctx context.Context, c client.Reader) error {
	var bindings rbacv1.ClusterRoleBindingList
	var roles rbacv1.RoleList
	var policies admissionv1.ValidatingAdmissionPolicyBindingList
	for _, list := range []client.ObjectList{&bindings, &roles, &policies} {
		if err := c.List(ctx, list); err != nil {
			return err
		}
	}
	r.clusterBindings, r.policies, r.roles = bindings.Items, policies.Items, map[string][]rbacv1.PolicyRule{}
	for _, role := range roles.Items {
		r.roles[role.Namespace+"/"+role.Name] = role.Rules
	}
	return nil
}

// assignRights collects the roles of the tenants' accounts. The shape leaves out
// what differs between tenants by its nature: names.
func (d *discovery) assignRights() {
	for _, t := range d.tenants {
		shape := []string{fmt.Sprintf("repositories %t", len(t.Repositories) > 0)}
		for _, b := range d.bindings {
			if !slices.Contains(t.Namespaces, b.Namespace) || !t.among(b.Subjects) {
				continue
			}
			role := b.RoleRef.Kind + "/" + b.RoleRef.Name
			if !slices.Contains(t.Roles, role) {
				t.Roles = append(t.Roles, role)
			}
			shape = append(shape, d.rights.roleShape(b))
		}
		slices.Sort(t.Roles)
		for _, b := range d.rights.clusterBindings {
			// What every account has makes no difference.
			if t.among(b.Subjects) {
				shape = append(shape, "everywhere "+b.RoleRef.Name)
			}
		}
		for _, ns := range d.namespaces {
			if slices.Contains(t.Namespaces, ns.Name) {
				shape = append(shape, "namespace "+labelShape(ns.Labels)+d.rights.policyShape(ns))
			}
		}
		for _, u := range slices.Concat(d.kustomizations, d.releases) {
			if as := applyShape(u); as != "" && slices.Contains(t.Namespaces, u.GetNamespace()) {
				shape = append(shape, as)
			}
		}
		slices.Sort(shape)
		sum := sha256.Sum256([]byte(strings.Join(slices.Compact(shape), "\n")))
		t.Shape = hex.EncodeToString(sum[:4])
	}
}

// among says whether the tenant is one of the subjects of a binding, by an
// account or by the groups of accounts that it alone is in.
func (t *Tenant) among(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		for _, a := range t.Accounts {
			switch {
			case s.Kind == rbacv1.ServiceAccountKind && a == Account{s.Namespace, s.Name},
				s.Kind == rbacv1.UserKind && s.Name == a.User(),
				s.Kind == rbacv1.GroupKind && s.Name == "system:serviceaccounts:"+a.Namespace:
				return true
			}
		}
		return false
	})
}

// roleShape writes what a binding grants. A Role is its rules: those of the same
// name in two namespaces may differ.
func (r rights) roleShape(b rbacv1.RoleBinding) string {
	if b.RoleRef.Kind != "Role" {
		return "role " + b.RoleRef.Name
	}
	rules, _ := json.Marshal(r.roles[b.Namespace+"/"+b.RoleRef.Name]) // strings always marshal
	return "rules " + string(rules)
}

// policyShape names the admission policies whose bindings pick the namespace. A
// selector that cannot be read picks it, as the API server would refuse more
// then, not less.
func (r rights) policyShape(ns corev1.Namespace) string {
	var names []string
	for _, b := range r.policies {
		if b.Spec.MatchResources != nil && b.Spec.MatchResources.NamespaceSelector != nil {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.MatchResources.NamespaceSelector)
			if err == nil && !selector.Matches(labels.Set(ns.Labels)) {
				continue
			}
		}
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return " policies " + strings.Join(names, ",")
}

// applyShape writes with whose rights a Kustomization or HelmRelease applies, if
// that is not an account that it names on this cluster.
func applyShape(u unstructured.Unstructured) string {
	_, remote, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig")
	named := nested(u, "spec", "serviceAccountName") != ""
	if named && !remote {
		return ""
	}
	return fmt.Sprintf("%s named %t, remote %t", u.GetKind(), named, remote)
}

// labelShape writes the labels of a namespace that decide about rights: not
// those that name the namespace, its tenant, or who applied it.
func labelShape(set map[string]string) string {
	var kept []string
	for key, value := range set {
		switch {
		case key == Label, key == corev1.LabelMetadataName, strings.HasPrefix(key, "kustomize.toolkit.fluxcd.io/"):
		default:
			kept = append(kept, key+"="+value)
		}
	}
	slices.Sort(kept)
	return strings.Join(kept, ",")
}
