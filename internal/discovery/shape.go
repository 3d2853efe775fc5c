package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bounds are the objects that decide, besides rights and labels, how attacks of a tenant
// end.
type bounds struct {
	roles     []rbacv1.Role
	quotas    []corev1.ResourceQuota
	limits    []corev1.LimitRange
	networks  []networkingv1.NetworkPolicy
	admission []admission
	// unread is true if the user may not read some of the objects: then all tenants have
	// different shapes.
	unread bool
}

// readBounds reads the bounds. A user without the right to read them all still gets the
// tenants.
func readBounds(ctx context.Context, c client.Reader) (*bounds, error) {
	b := &bounds{}
	var roles rbacv1.RoleList
	var quotas corev1.ResourceQuotaList
	var limits corev1.LimitRangeList
	var networks networkingv1.NetworkPolicyList
	for _, list := range []client.ObjectList{&roles, &quotas, &limits, &networks} {
		if err := b.list(ctx, c, list); err != nil {
			return nil, err
		}
	}
	b.roles, b.quotas, b.limits, b.networks = roles.Items, quotas.Items, limits.Items, networks.Items
	return b, b.readAdmission(ctx, c)
}

// list reads a list. A kind that is not served has no objects.
func (b *bounds) list(ctx context.Context, c client.Reader, list client.ObjectList) error {
	switch err := c.List(ctx, list); {
	case apierrors.IsForbidden(err):
		b.unread = true
	case err == nil, meta.IsNoMatchError(err), apierrors.IsNotFound(err):
	default:
		return err
	}
	return nil
}

// sourceKinds returns the kinds of repositories, sorted, each once.
func sourceKinds(repositories []Repository) []flux.Kind {
	var kinds []flux.Kind
	for _, r := range repositories {
		kinds = append(kinds, r.Source.Kind)
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// assignShapes computes the shapes. A shape does not contain names, or the number of
// namespaces that are like the namespace from which the tenant is attacked.
func (d *discovery) assignShapes() {
	for _, t := range d.tenants {
		shape := []string{fmt.Sprintf("repositories %s, synced %t", sourceKinds(t.Repositories), t.Synced)}
		for _, r := range t.Unpushed {
			shape = append(shape, fmt.Sprintf("Kustomization of a %s, account named %t, remote %t", r.Source.Kind, r.Account.Name != "", r.Remote))
		}
		if d.bounds.unread {
			shape = append(shape, "tenant "+t.Name)
		}
		shape = append(shape, d.rightsShape(t, "")...)
		shape = append(shape, t.holdersShape()...)
		var first, others []string
		kinds := map[string]string{}
		for _, ns := range d.namespaces {
			if !slices.Contains(t.Namespaces, ns.Name) {
				continue
			}
			lines := append(d.bounds.shape(t, ns), d.rightsShape(t, ns.Name)...)
			slices.Sort(lines)
			like := digest(slices.Compact(lines))
			if len(t.Accounts) > 0 && t.Accounts[0].Namespace == ns.Name {
				first = []string{like}
				continue
			}
			others = append(others, like)
			if kinds[like] == "" {
				kinds[like] = ns.Name
			}
		}
		for _, like := range first {
			shape = append(shape, "its namespace "+like)
		}
		for _, like := range others {
			if !slices.Contains(first, like) {
				shape = append(shape, "another of its namespaces "+like)
			}
		}
		for like, namespace := range kinds {
			if len(first) > 0 && !slices.Contains(first, like) {
				t.Unlike = append(t.Unlike, namespace)
			}
		}
		slices.Sort(t.Unlike)
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

// rightsShape returns the roles in a namespace of a tenant: of the attacking account, of other
// reconciler accounts, and of accounts without deliveries, such as default, to which Flux falls
// back. For no namespace it returns the roles in foreign namespaces and in the whole cluster.
func (d *discovery) rightsShape(t *Tenant, namespace string) []string {
	var lines []string
	for _, g := range d.grants {
		within := ""
		if slices.Contains(t.Namespaces, g.namespace) {
			within = g.namespace
		}
		if within != namespace {
			continue
		}
		for _, s := range g.subjects {
			if who := t.who(s); who != "" && namespace != "" {
				lines = append(lines, who+" has "+d.roleShape(g))
			} else if who != "" {
				lines = append(lines, who+" has "+d.roleShape(g)+" in "+cmp.Or(g.namespace, "the cluster"))
			}
		}
	}
	return lines
}

// who returns a description of a tenant's subject without its name, and "" for a foreign
// subject.
func (t *Tenant) who(s rbacv1.Subject) string {
	account := Account{s.Namespace, s.Name}
	_, named := t.subject([]rbacv1.Subject{s})
	switch {
	case s.Kind == rbacv1.ServiceAccountKind && slices.Contains(t.Namespaces, s.Namespace) && s.Name == fallbackAccount:
		return "default"
	case s.Kind == rbacv1.ServiceAccountKind && named && t.Accounts[0] == account:
		return "the first account"
	case s.Kind == rbacv1.ServiceAccountKind && named:
		return "another account"
	case s.Kind == rbacv1.ServiceAccountKind && slices.Contains(t.Namespaces, s.Namespace):
		return "a bystander"
	case named:
		return s.Kind
	}
	return ""
}

// roleShape returns the name of a ClusterRole, and a digest of the rules of a Role.
func (d *discovery) roleShape(g grant) string {
	for _, role := range d.bounds.roles {
		if g.role.Kind == "Role" && role.Namespace == g.namespace && role.Name == g.role.Name {
			return "rules " + digest(role.Rules)
		}
	}
	return g.role.Kind + "/" + g.role.Name
}

// shape returns lines for the labels, quotas, limits, network policies and admission of a
// namespace.
func (b *bounds) shape(t *Tenant, ns corev1.Namespace) []string {
	lines := []string{"labels " + labelShape(ns.Labels, ns.Name, t.Name)}
	add := func(what, namespace string, spec any) {
		if namespace == ns.Name {
			lines = append(lines, what+" "+digest(spec, t.ownNames(ns.Name)...))
		}
	}
	for _, q := range b.quotas {
		add("quota", q.Namespace, q.Spec)
	}
	for _, l := range b.limits {
		add("limits", l.Namespace, l.Spec)
	}
	for _, p := range b.networks {
		add("network", p.Namespace, p.Spec)
	}
	for _, a := range b.admission {
		lines = append(lines, a.shape(t, ns)...)
	}
	return lines
}

// applyShape returns the rights with which a Kustomization or HelmRelease applies its
// manifests. It returns "" if the object names an account on this cluster.
func applyShape(u unstructured.Unstructured) string {
	_, remote, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig")
	named := nested(u, "spec", "serviceAccountName") != ""
	if named && !remote {
		return ""
	}
	return fmt.Sprintf("%s named %t, remote %t", u.GetKind(), named, remote)
}

// ownNames returns what the JSON of an object may say about a tenant, each followed by a text that is equal for all
// tenants: the names of the tenant and of one of its namespaces, and the addresses of its repositories, of which the
// host remains. The platform's own repository is none of its repositories.
func (t *Tenant) ownNames(namespace string) []string {
	pairs := []string{`"` + namespace + `"`, `"its own"`, `"` + t.Name + `"`, `"its own"`}
	for _, r := range t.Repositories {
		if address, err := url.Parse(r.URL); err == nil && !r.OfPlatform {
			pairs = append(pairs, `"`+r.URL+`"`, fmt.Sprintf(`"its own repository at %s://%s"`, address.Scheme, address.Host))
		}
	}
	return pairs
}

// digest returns a short hash of a value, in which each text is replaced by the one after it.
func digest(value any, replaced ...string) string {
	// Marshalling an object of the API server cannot fail.
	content, _ := json.Marshal(value)
	sum := sha256.Sum256([]byte(strings.NewReplacer(replaced...).Replace(string(content))))
	return hex.EncodeToString(sum[:8])
}

// namingLabels are the labels that name a namespace or its tenant, and the label that a
// namespace has parameters. The shape contains the parameters with the policies that read
// them.
var namingLabels = []string{
	corev1.LabelMetadataName, v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant, v1alpha1.LabelParameters,
}

// labelShape returns the labels of a namespace that decide about rights, without the labels that
// name the namespace, its tenant, or the object of Flux that applied it, and without the tenant's own names.
func labelShape(labels map[string]string, names ...string) string {
	var kept []string
	for key, value := range labels {
		switch {
		case slices.Contains(namingLabels, key), flux.IsAppliedLabel(key):
		case slices.Contains(names, value):
			kept = append(kept, key+" is its own")
		default:
			kept = append(kept, key+"="+value)
		}
	}
	slices.Sort(kept)
	return strings.Join(kept, ",")
}
