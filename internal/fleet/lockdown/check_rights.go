package lockdown

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Identity is an account, user or group that acts for a tenant: an owner, or an account as which Flux applies
// the tenant's manifests. The accounts in a tenant's namespaces act for it, too, and need no Identity.
type Identity struct {
	Tenant  string
	Subject rbacv1.Subject
}

// reach finds the rights that tenants have by RBAC.
type reach struct {
	// tenants are the tenants of the namespaces.
	tenants map[string]string
	// identities are the tenants of subjects: see [subjectKey].
	identities map[string][]string
	// roles are the rules of the roles: see [roleKey].
	roles map[string][]rbacv1.PolicyRule
	// namespaced are the resources that the API server serves in namespaces.
	namespaced map[schema.GroupResource]bool
}

// grant is a RoleBinding, or a ClusterRoleBinding, which has no namespace.
type grant struct {
	text, namespace string
	role            rbacv1.RoleRef
	subjects        []rbacv1.Subject
}

// everybody are the users and groups that each tenant has or can be.
var everybody = []string{"system:authenticated", "system:serviceaccounts", "system:unauthenticated", "system:anonymous"}

// rightsOfTenants returns a message for each binding that gives a tenant rights on objects of others: in
// namespaces of other tenants, in namespaces of the platform if it can read Secrets or write there, or in the whole
// cluster. It leaves out the bindings that the manager writes. It also reports the bindings by which an account
// acts as other accounts of the tenant's namespaces. Each message begins with the binding.
func (c Cluster) rightsOfTenants(ctx context.Context) ([]string, error) {
	r := &reach{tenants: map[string]string{}, identities: map[string][]string{}, roles: map[string][]rbacv1.PolicyRule{}}
	namespaces, err := c.list(ctx, schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if err != nil {
		return nil, err
	}
	for _, ns := range namespaces {
		if tenant, ok := tenancy.TenantOf(ns.GetLabels()); ok {
			r.tenants[ns.GetName()] = tenant
		} else if tenant := c.TenantNamespaces[ns.GetName()]; tenant != "" {
			r.tenants[ns.GetName()] = tenant
		}
	}
	identities, err := c.identities(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range identities {
		key := subjectKey(i.Subject)
		r.identities[key] = append(r.identities[key], i.Tenant)
	}
	var grants []grant
	for _, kind := range []string{"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"} {
		list, err := c.list(ctx, rbacv1.SchemeGroupVersion.WithKind(kind))
		if err != nil {
			return nil, err
		}
		for _, u := range list {
			// The kinds without a scope have the fields of both: a Role's, and a RoleBinding's.
			var role rbacv1.Role
			var binding rbacv1.RoleBinding
			var into any = &role
			if strings.HasSuffix(kind, "Binding") {
				into = &binding
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
				return nil, fmt.Errorf("cannot read %s: %w", ObjectName(u), err)
			}
			switch {
			case into == &role:
				r.roles[roleKey(kind, u.GetNamespace(), u.GetName())] = role.Rules
			case u.GetLabels()[tenancy.LabelManaged] != tenancy.ManagedValue:
				grants = append(grants, grant{ObjectName(u), u.GetNamespace(), binding.RoleRef, binding.Subjects})
			}
		}
	}
	if err := r.readNamespaced(c); err != nil {
		return nil, err
	}
	var wrong []string
	for _, g := range grants {
		wrong = append(wrong, r.wrong(g)...)
	}
	slices.Sort(wrong)
	return slices.Compact(wrong), nil
}

// identities returns the Identities of the tenants: those that the caller found, or else the owners in the Tenants.
func (c Cluster) identities(ctx context.Context) ([]Identity, error) {
	if c.TenantNamespaces != nil {
		return c.Identities, nil
	}
	tenants, err := c.list(ctx, v1alpha1.GroupVersion.WithKind("Tenant"))
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Identity
	for _, u := range tenants {
		var t v1alpha1.Tenant
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &t); err != nil {
			return nil, fmt.Errorf("cannot read Tenant %s: %w", u.GetName(), err)
		}
		for _, o := range t.Spec.Owners {
			all = append(all, Identity{t.Name, rbacv1.Subject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}})
		}
	}
	return all, nil
}

// readNamespaced reads which resources have namespaces.
func (r *reach) readNamespaced(c Cluster) error {
	r.namespaced = map[schema.GroupResource]bool{}
	_, lists, err := c.Discovery.ServerGroupsAndResources()
	if err != nil && len(lists) == 0 { // the kinds of an API server behind the API server may be missing
		return fmt.Errorf("cannot read the kinds that the cluster serves: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("cannot read the kinds that the cluster serves: %w", err)
		}
		for _, resource := range list.APIResources {
			if resource.Namespaced {
				r.namespaced[schema.GroupResource{Group: gv.Group, Resource: resource.Name}] = true
			}
		}
	}
	return nil
}

func roleKey(kind, namespace, name string) string {
	if kind == "ClusterRole" {
		namespace = ""
	}
	return kind + " " + namespace + "/" + name
}

// subjectKey returns the same key for an account and its user.
func subjectKey(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return rbacv1.UserKind + " system:serviceaccount:" + s.Namespace + ":" + s.Name
	}
	return s.Kind + " " + s.Name
}

// tenantsOf returns the tenants for which a subject acts, and whether everybody has its rights.
func (r *reach) tenantsOf(s rbacv1.Subject) (tenants []string, all bool) {
	if s.Kind != rbacv1.ServiceAccountKind && slices.Contains(everybody, s.Name) {
		return nil, true
	}
	tenants = slices.Clone(r.identities[subjectKey(s)])
	namespace := s.Namespace
	if s.Kind != rbacv1.ServiceAccountKind {
		namespace = ""
		for _, prefix := range []string{"system:serviceaccount:", "system:serviceaccounts:", "gotk:"} {
			if rest, ok := strings.CutPrefix(s.Name, prefix); ok {
				namespace, _, _ = strings.Cut(rest, ":")
			}
		}
	}
	if tenant := r.tenants[namespace]; tenant != "" {
		tenants = append(tenants, tenant)
	}
	return tenants, false
}

// wrong returns the messages about a binding.
func (r *reach) wrong(g grant) []string {
	rules := r.roles[roleKey(g.role.Kind, g.namespace, g.role.Name)]
	var wrong []string
	for _, s := range g.subjects {
		tenants, all := r.tenantsOf(s)
		if len(tenants) == 0 && !all {
			continue
		}
		who := s.Name
		if s.Kind == rbacv1.ServiceAccountKind {
			who = s.Namespace + "/" + s.Name
		}
		if all {
			who += ", which every tenant is,"
		} else if s.Kind != rbacv1.ServiceAccountKind || r.tenants[s.Namespace] == "" {
			who += " of tenant " + strings.Join(slices.Compact(slices.Sorted(slices.Values(tenants))), " and ")
		}
		gives := fmt.Sprintf("%s gives %s the role %s", g.text, who, g.role.Name)
		owner := r.tenants[g.namespace]
		switch {
		case g.namespace == "":
			if held := held(rules, r.harmsCluster); held != "" {
				wrong = append(wrong, gives+" in the whole cluster: "+held)
			}
		case owner == "":
			if held := held(rules, r.harmsPlatform); held != "" {
				wrong = append(wrong, gives+" in a namespace of the platform: "+held)
			}
		case all || !slices.Contains(tenants, owner):
			if held := held(rules, r.harmsTenant); held != "" {
				wrong = append(wrong, gives+" in a namespace of tenant "+owner+": "+held)
			}
		case strings.Contains(subjectKey(s), " system:serviceaccount"):
			if held := held(rules, actsAsOthers); held != "" {
				wrong = append(wrong, gives+", which allows to act as other accounts of the namespace: give it "+tenancy.Role)
			}
		}
	}
	return wrong
}

// maxRights is the maximum number of rights in a message.
const maxRights = 3

// held returns the rights of rules that harm, as text. harms receives a verb and a resource, both may be "*".
func held(rules []rbacv1.PolicyRule, harms func(verb string, resource schema.GroupResource) bool) string {
	var held []string
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				gr := schema.GroupResource{Group: group, Resource: resource}
				verbs := slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return !harms(verb, gr) })
				if len(verbs) == 0 {
					continue
				}
				text := strings.Join(verbs, ", ") + " " + gr.String()
				if slices.Contains(verbs, rbacv1.VerbAll) {
					text = "every verb on " + gr.String()
				}
				text = strings.ReplaceAll(text, "*.*", "everything")
				if len(rule.ResourceNames) > 0 {
					text += " " + strings.Join(rule.ResourceNames, ", ")
				}
				held = append(held, text)
			}
		}
	}
	slices.Sort(held)
	held = slices.Compact(held)
	if more := len(held) - maxRights; more > 0 {
		held = append(held[:maxRights], fmt.Sprintf("and %d more rights", more))
	}
	return strings.Join(held, "; ")
}

// among reports whether a resource is one of those, as RESOURCE.GROUP/SUBRESOURCE, or a wildcard for one.
func among(gr schema.GroupResource, resources ...string) bool {
	return slices.ContainsFunc(resources, func(text string) bool {
		plain, subresource, _ := strings.Cut(text, "/")
		want := schema.ParseGroupResource(plain)
		names := []string{rbacv1.ResourceAll, want.Resource}
		if subresource != "" {
			names = []string{rbacv1.ResourceAll, want.Resource + "/" + subresource, "*/" + subresource}
		}
		return slices.Contains([]string{rbacv1.APIGroupAll, want.Group}, gr.Group) && slices.Contains(names, gr.Resource)
	})
}

func reads(verb string) bool { return slices.Contains([]string{"get", "list", "watch"}, verb) }

// actsAsOthers reports whether a right in a namespace makes the holder another account of it, or gives it roles that it
// does not have.
func actsAsOthers(verb string, gr schema.GroupResource) bool {
	is := func(verbs ...string) bool { return verb == rbacv1.VerbAll || slices.Contains(verbs, verb) }
	return is("impersonate") && among(gr, "serviceaccounts") ||
		is("create") && among(gr, "serviceaccounts/token") ||
		is("bind", "escalate") && among(gr, "roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io")
}

// inNamespaces reports whether a resource, or one that a wildcard covers, is in namespaces. A resource that the API
// server does not serve is not.
func (r *reach) inNamespaces(gr schema.GroupResource) bool {
	return gr.Resource != "localsubjectaccessreviews" &&
		(gr.Group == rbacv1.APIGroupAll || strings.Contains(gr.Resource, rbacv1.ResourceAll) || r.namespaced[gr])
}

// harmsTenant reports whether a right in a namespace concerns objects there.
func (r *reach) harmsTenant(_ string, gr schema.GroupResource) bool { return r.inNamespaces(gr) }

// harmsPlatform reports whether a right in a namespace of the platform reads Secrets or changes more than leases and
// events.
func (r *reach) harmsPlatform(verb string, gr schema.GroupResource) bool {
	if !r.inNamespaces(gr) {
		return false
	}
	if reads(verb) {
		return among(gr, "secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy")
	}
	return !slices.Contains([]string{"leases", "events"}, gr.Resource)
}

// clusterKinds are the cluster-scoped resources by which somebody who may write them gets at objects of others. An
// admin may give a tenant the others.
var clusterKinds = []string{
	"namespaces", "namespaces/status", "namespaces/finalize", "nodes", "nodes/status", "nodes/proxy", "persistentvolumes",
	"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	"mutatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
	"validatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicybindings.admissionregistration.k8s.io",
	"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
	"certificatesigningrequests.certificates.k8s.io/approval", "certificatesigningrequests.certificates.k8s.io/status",
	"signers.certificates.k8s.io", "clustertrustbundles.certificates.k8s.io",
	"flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
	"users", "groups", "uids.authentication.k8s.io", "tenants.tenure.dev", "tenancyprofiles.tenure.dev",
	"tenants.capsule.clastix.io", "capsuleconfigurations.capsule.clastix.io", "globaltenantresources.capsule.clastix.io",
}

// harmsCluster reports whether a right in the whole cluster reads or writes objects in namespaces, or writes objects
// without a namespace that count for others.
func (r *reach) harmsCluster(verb string, gr schema.GroupResource) bool {
	if r.inNamespaces(gr) {
		return true
	}
	if reads(verb) {
		return among(gr, "nodes/proxy")
	}
	return among(gr, clusterKinds...)
}
