package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Platform is a namespace of the platform: Flux delivers in it, or a [Choice] selects it.
type Platform struct {
	Namespace string
	// Why is the evidence, as text.
	Why string
}

// defaultAccountFlag is the flag of the controllers for the account as which they apply
// objects that name no account.
const defaultAccountFlag = "--default-service-account="

// readDefaultAccounts reads the flag from the Deployments of kustomize-controller and
// helm-controller.
func (d *discovery) readDefaultAccounts(ctx context.Context, c client.Reader) error {
	d.defaultAccount = map[flux.Kind]string{}
	for namespace := range d.platform {
		var list appsv1.DeploymentList
		if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, deployment := range list.Items {
			kind, ok := map[string]flux.Kind{"kustomize-controller": flux.Kustomization, "helm-controller": flux.HelmRelease}[deployment.Name]
			if !ok {
				continue
			}
			for _, container := range deployment.Spec.Template.Spec.Containers {
				for _, argument := range slices.Concat(container.Command, container.Args) {
					if account, is := strings.CutPrefix(argument, defaultAccountFlag); is {
						d.defaultAccount[kind] = account
					}
				}
			}
		}
	}
	return nil
}

// accountOf returns the account as which Flux applies an object's content. It has no name
// if Flux applies it as the controller.
func (d *discovery) accountOf(u unstructured.Unstructured) Account {
	name := cmp.Or(nested(u, "spec", "serviceAccountName"), d.defaultAccount[flux.Kind(u.GetKind())])
	return Account{u.GetNamespace(), name}
}

// adminBinding returns the ClusterRoleBinding by which the platform gives an account the
// role cluster-admin, or "". A binding that was applied from the account's own namespace is
// not the platform's.
func (d *discovery) adminBinding(a Account) string {
	for _, g := range d.grants {
		if g.namespace != "" || g.role.Kind+"/"+g.role.Name != clusterAdmin || g.applied.Namespace == a.Namespace && !d.platform[a.Namespace] {
			continue
		}
		if slices.ContainsFunc(g.subjects, a.isSubject) {
			return g.name
		}
	}
	return ""
}

// isSubject reports whether a subject of a binding is the account, its user or one of its groups.
func (a Account) isSubject(s rbacv1.Subject) bool {
	return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == a.Namespace && s.Name == a.Name ||
		s.Kind == rbacv1.UserKind && s.Name == a.User() || s.Kind == rbacv1.GroupKind && slices.Contains(a.Groups(), s.Name)
}

// subjects returns the subjects that are the account, as [Account.isSubject] compares them.
func (a Account) subjects() []rbacv1.Subject {
	all := []rbacv1.Subject{
		{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.Name},
		{Kind: rbacv1.UserKind, Name: a.User()},
	}
	for _, group := range a.Groups() {
		all = append(all, rbacv1.Subject{Kind: rbacv1.GroupKind, Name: group})
	}
	return all
}

// sourceOf returns the source of a Kustomization, or of the chart in a HelmRelease.
func sourceOf(u unstructured.Unstructured) flux.Ref {
	at := []string{"spec", "sourceRef"}
	if u.GetKind() == string(flux.HelmRelease) {
		if at = []string{"spec", "chart", "spec", "sourceRef"}; nested(u, "spec", "chartRef", "kind") != "" {
			at = []string{"spec", "chartRef"}
		}
	}
	field := func(name string) string { return nested(u, append(slices.Clone(at), name)...) }
	return flux.Ref{Kind: flux.Kind(field("kind")), Namespace: cmp.Or(field("namespace"), u.GetNamespace()), Name: field("name")}
}

// address returns the address of a source that was read, or "".
func (d *discovery) address(source flux.Ref) string {
	for _, r := range d.repositories {
		if source.Kind == flux.GitRepository && r.GetNamespace() == source.Namespace && r.GetName() == source.Name {
			return strings.TrimSuffix(nested(r, "spec", "url"), ".git")
		}
	}
	return ""
}

// addresses returns the addresses from which Flux delivers in a namespace.
func (d *discovery) addresses(namespace string) []string {
	var all []string
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		if u.GetNamespace() == namespace || nested(u, "spec", "targetNamespace") == namespace {
			all = append(all, d.address(sourceOf(u)))
		}
	}
	for _, r := range d.repositories {
		if r.GetNamespace() == namespace {
			all = append(all, strings.TrimSuffix(nested(r, "spec", "url"), ".git"))
		}
	}
	return slices.DeleteFunc(all, func(a string) bool { return a == "" })
}

// findRoots finds the sources of the platform's own repository: the sources of the Kustomizations
// in the platform's namespaces that apply themselves, or that no other Kustomization applies.
func (d *discovery) findRoots() {
	roots, addresses := map[flux.Ref]bool{}, map[string]bool{}
	for _, k := range d.kustomizations {
		applied := appliedBy(&k)
		if !d.ofPlatform(k) || applied != "" && applied != k.GetNamespace()+"/"+k.GetName() {
			continue
		}
		source := sourceOf(k)
		roots[source] = true
		if address := d.address(source); address != "" {
			addresses[address] = true
		}
	}
	d.roots, d.rootAddresses = roots, addresses
}

// fromRoot reports whether a Kustomization delivers from the platform's own repository, or
// a HelmRelease a chart that comes from there or from a registry.
func (d *discovery) fromRoot(u unstructured.Unstructured) bool {
	source := sourceOf(u)
	if u.GetKind() == string(flux.HelmRelease) && source.Kind != flux.GitRepository && source.Kind != "Bucket" {
		return true
	}
	return d.roots[source] || d.rootAddresses[d.address(source)]
}

// findTrusted finds the Kustomizations that apply the platform's own manifests: the Kustomizations
// in the platform's namespaces that do not deliver for tenants, and the Kustomizations that one of
// these applied from the platform's repository without the limits of an account.
func (d *discovery) findTrusted() {
	d.trusted = map[string]bool{}
	for added := true; added; {
		added = false
		for _, k := range d.kustomizations {
			name := k.GetNamespace() + "/" + k.GetName()
			if d.trusted[name] {
				continue
			}
			if d.ofPlatform(k) || d.appliedByPlatform(&k) && d.limitless(k) && d.fromRoot(k) {
				d.trusted[name], added = true, true
			}
		}
	}
}

// appliedByPlatform reports whether a trusted Kustomization applied an object, or flux-operator
// for a ResourceSet of the platform.
func (d *discovery) appliedByPlatform(o metav1.Object) bool {
	return d.trusted[appliedBy(o)] || d.setOfPlatform(flux.AppliedBy(o.GetLabels()), maxSets)
}

// maxSets limits how deep ResourceSets may be that apply each other.
const maxSets = 10

// setOfPlatform reports whether an object is a ResourceSet that the platform wrote, in its own namespaces or in
// those of tenants: a trusted Kustomization applied it, or another such ResourceSet did. Its account does
// not matter, because a ResourceSet contains the objects that it applies.
func (d *discovery) setOfPlatform(ref flux.Ref, depth int) bool {
	if ref.Kind != flux.ResourceSet || depth == 0 {
		return false
	}
	if d.platform[ref.Namespace] {
		return true
	}
	i := slices.IndexFunc(d.sets, func(u unstructured.Unstructured) bool {
		return u.GetNamespace() == ref.Namespace && u.GetName() == ref.Name
	})
	return i >= 0 && (d.trusted[appliedBy(&d.sets[i])] || d.setOfPlatform(flux.AppliedBy(d.sets[i].GetLabels()), depth-1))
}

// ofPlatform reports whether a Kustomization in the platform's namespaces does not act for
// a tenant.
func (d *discovery) ofPlatform(k unstructured.Unstructured) bool {
	return d.platform[k.GetNamespace()] && (!d.delegates(k) || d.limitless(k) && !d.ofOthers(k))
}

// limitless reports whether no account limits what an object applies.
func (d *discovery) limitless(u unstructured.Unstructured) bool {
	account := d.accountOf(u)
	return account.Name == "" || d.adminBinding(account) != ""
}

// deliverer returns why the content that an object delivers is the platform's, or else why
// it is a tenant's.
func (d *discovery) deliverer(u unstructured.Unstructured) (platform, tenant string) {
	what := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
	account, source := d.accountOf(u), sourceOf(u)
	remote, _, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig")
	admin := d.adminBinding(account)
	switch {
	case remote != nil && d.appliedByPlatform(&u) && d.fromRoot(u):
		return what + " delivers from the platform's own repository into another cluster", ""
	case remote != nil:
		return "", what + " delivers into another cluster"
	case !d.appliedByPlatform(&u):
		return "", what + " was not applied by the platform"
	case account.Name != "" && admin != "":
		return fmt.Sprintf("%s applies as account %s, which has cluster-admin by %s", what, account, admin), ""
	case account.Name != "":
		return "", fmt.Sprintf("%s applies as account %s", what, account)
	case !d.fromRoot(u):
		return "", fmt.Sprintf("%s delivers from %s, which is not the platform's own repository", what, source)
	}
	return fmt.Sprintf("%s comes from the platform's own repository and names no account", what), ""
}

// evidence returns why a namespace with Flux objects and without a tenant's label is the
// platform's, or else why it is a tenant's. Both are empty if it has no Flux objects.
func (d *discovery) evidence(namespace string) (platform, tenant string) {
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		if u.GetNamespace() != namespace {
			continue
		}
		why, other := d.deliverer(u)
		if other != "" {
			return "", other
		}
		platform = cmp.Or(platform, why)
	}
	for _, r := range d.repositories {
		if r.GetNamespace() != namespace {
			continue
		}
		what := "GitRepository " + namespace + "/" + r.GetName()
		switch {
		case d.rootAddresses[strings.TrimSuffix(nested(r, "spec", "url"), ".git")]:
			platform = cmp.Or(platform, what+" is the platform's own repository")
		case d.shared(r):
			platform = cmp.Or(platform, what+" serves other namespaces only")
		case platform == "" || !d.appliedByPlatform(&r):
			return "", what + " is not the platform's own repository"
		}
	}
	return platform, ""
}

// labelOfPlatform returns why a namespace with a tenant's label is the platform's, or "". Fleets
// without tenants use Flux's label to name the team that looks after a namespace: the platform's own
// team, whose label another namespace of the platform has too, or a team that has neither an account
// nor a binding there. In both cases all that Flux delivers in the namespace is the platform's, and
// names no account: a labelled team with an account that may do everything is a tenant that escapes.
func (d *discovery) labelOfPlatform(namespace, tenant, label string) string {
	platform, other := d.evidence(namespace)
	if label != v1alpha1.LabelFluxTenant || other != "" || platform == "" {
		return ""
	}
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		if u.GetNamespace() == namespace && d.accountOf(u).Name != "" {
			return ""
		}
	}
	for _, ns := range d.namespaces {
		if d.platform[ns.Name] && ns.Labels[label] == tenant {
			return fmt.Sprintf("%s, and namespace %s, which is the platform's, has the same label %s=%s", platform, ns.Name, label, tenant)
		}
	}
	for _, a := range d.accounts {
		if name, _ := tenancy.LabelledTenant(a.Labels); a.Namespace == namespace && name != "" {
			return ""
		}
	}
	for _, g := range d.grants {
		if g.namespace == namespace {
			return ""
		}
	}
	return fmt.Sprintf("%s, and it has the label %s=%s, but no account with this label and no RoleBinding", platform, label, tenant)
}

// shared reports whether a repository of the platform's serves objects in other namespaces,
// and none in its own.
func (d *discovery) shared(r unstructured.Unstructured) bool {
	elsewhere := false
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		if sourceOf(u) != (flux.Ref{Kind: flux.GitRepository, Namespace: r.GetNamespace(), Name: r.GetName()}) {
			continue
		}
		if u.GetNamespace() == r.GetNamespace() {
			return false
		}
		elsewhere = true
	}
	return elsewhere && d.appliedByPlatform(&r)
}

// choose assigns a namespace by the choice of the user.
func (d *discovery) choose(ns corev1.Namespace) error {
	addresses := d.addresses(ns.Name)
	tenant, isTenant := first(d.choice.Tenants, ns, addresses)
	platform, isPlatform := first(d.choice.Platform, ns, addresses)
	switch {
	case isTenant && isPlatform:
		return fmt.Errorf("namespace %s is chosen as a tenant's by %s and as the platform's by %s", ns.Name, tenant, platform)
	case isTenant:
		name, labelled := tenancy.TenantOf(ns.Labels)
		if !labelled && tenant.by == byLabel {
			name = ns.Labels[tenant.key()]
		}
		d.assign(ns.Name, cmp.Or(name, ns.Name), "namespace "+ns.Name+" is chosen by "+tenant.String())
	case isPlatform:
		d.platform[ns.Name] = true
		d.found = append(d.found, Platform{ns.Name, "it is chosen by " + platform.String()})
	}
	return nil
}
