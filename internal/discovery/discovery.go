// Package discovery finds the tenants of a cluster with Flux, however they were onboarded:
// by the labels of `flux create tenant`, Tenure and Capsule, by Flux objects outside of the
// platform's namespaces and the accounts that these objects name, and by Tenant objects,
// which list the owners.
package discovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Label is the label that `flux create tenant` sets on all objects that it writes. It is
// one of the labels that [tenancy.TenantOf] reads.
const Label = v1alpha1.LabelFluxTenant

// Tenant is a team on the cluster.
type Tenant struct {
	// Name is the value of the tenant's label, or the name of the namespace for a tenant
	// without a label.
	Name string
	// Namespaces are the namespaces of the tenant, sorted.
	Namespaces []string
	// Accounts are the service accounts as which Flux applies the tenant's manifests, and
	// the service accounts with the tenant's label. Accounts with rights are first, among them
	// those of the platform's syncs, and accounts that do not exist are last; among equals, the
	// accounts outside of the tenant's namespaces are last. A Tenant without a namespace has no
	// accounts.
	Accounts []Account
	// Owners are the owners of the tenant's Tenant object, in the same order.
	Owners []Owner
	// Holders are the accounts, users and groups with rights that the tenant can act as, in any order, among
	// them those of Accounts; owners are not among them.
	Holders []Holder
	// Repositories are the Git repositories and OCI artifacts from which the tenant delivers.
	Repositories []Repository
	// Unpushed are the Kustomizations of the tenant with a source of another kind, which no push to a local host replaces:
	// a Bucket or an ExternalArtifact. URL and Branch are empty.
	Unpushed []Repository
	// Synced is set if Flux delivers anything for the tenant by a Kustomization, from a source of any kind.
	Synced bool
	// UnlimitedReleases are the HelmReleases in the tenant's namespaces that the platform wrote and whose charts Flux
	// installs without the limits of an account, as NAMESPACE/NAME, sorted. The charts are not in the platform's repository.
	UnlimitedReleases []string
	// Delivers are the resources of the objects that Flux applied for the tenant, by
	// Kustomizations and HelmReleases; sorted.
	Delivers []schema.GroupResource
	// Roles are the roles of Rights as KIND/NAME, with a note for a role outside of the
	// tenant's namespaces; sorted.
	Roles []string
	// Rights are the bindings that give the tenant its roles: the bindings of its accounts,
	// of the groups of these accounts, of the user that older releases of Flux impersonate,
	// and of its owners; sorted by binding.
	Rights []Right
	// Shape is equal for tenants that, apart from names, have the same rights in
	// namespaces with the same labels, quotas, limits and network policies, and to which
	// the same admission policies and webhooks with the same parameters apply. A policy
	// that names a tenant gives it a shape of its own, and so does one whose texts may be a
	// part of the tenant's name and not of another tenant's.
	Shape string
	// Unlike are namespaces of the tenant whose labels, quotas, limits, network policies, admission or
	// rights differ from those of the namespace of the first account: the first of each kind, sorted.
	Unlike []string
	// Why is the evidence that it is a tenant, as text.
	Why []string
}

// Found is the result of [Discover].
type Found struct {
	// Tenants are the tenants, sorted by name.
	Tenants []Tenant
	// Platform are the namespaces without a tenant in which Flux delivers, and the
	// namespaces that the [Choice] selects as the platform's; sorted by name. The
	// namespaces of Flux itself and of Kubernetes are not among them.
	Platform []Platform
}

// Account is a service account.
type Account struct{ Namespace, Name string }

func (a Account) String() string { return a.Namespace + "/" + a.Name }

// User returns the account's user name.
func (a Account) User() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Groups returns the groups of the account, which every service account of the namespace
// has.
func (a Account) Groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// Repository is a Git repository or an OCI artifact of a tenant.
type Repository struct {
	// Source is the GitRepository or OCIRepository object.
	Source flux.Ref
	// URL is the address of the source. Branch is the branch of a GitRepository or the tag of an
	// OCIRepository; it is empty if a GitRepository selects no branch, or an OCIRepository its
	// artifact by a digest, or by a version of which Flux has found none.
	URL, Branch string
	// Path is the folder that a Kustomization of the tenant applies, with a slash at its
	// end, and Kustomization is this Kustomization.
	Path          string
	Kustomization flux.Ref
	// Account is the account as which Flux applies the folder; without a name, it is the controller. Remote is set if
	// Flux applies it to another cluster.
	Account Account
	Remote  bool
	// OfPlatform is set if it is the platform's own repository, on any branch.
	OfPlatform bool
}

// Address returns the address with the branch or the tag, as --map takes it.
func (r Repository) Address() string {
	switch {
	case r.Branch == "":
		return r.URL
	case r.Source.Kind == flux.OCIRepository:
		return r.URL + ":" + r.Branch
	}
	return r.URL + "#" + r.Branch
}

// Deliveries returns the Repositories and the Unpushed.
func (t Tenant) Deliveries() []Repository { return slices.Concat(t.Repositories, t.Unpushed) }

// HasClusterAdmin reports whether the tenant is bound to the role cluster-admin: then
// admission and RBAC cannot keep it from acting as any other account of its namespaces.
func (t Tenant) HasClusterAdmin() bool {
	return slices.ContainsFunc(t.Roles, func(role string) bool {
		name, _, _ := strings.Cut(role, " ")
		return name == clusterAdmin
	})
}

// Discover finds the tenants. A namespace is a tenant's if the choice selects it as a
// tenant's, if the namespace or an account in it has a tenant's label, or if Flux delivers
// manifests in it that are not the platform's: from another repository, under an account
// without cluster-admin, or by an object that the platform did not apply. The platform's
// namespaces are the namespaces of Flux and of the root, the namespaces that Kubernetes creates,
// and the namespaces that the choice selects as the platform's. Discover returns an error if it cannot read the objects of the cluster, or if the choice contradicts itself or selects the root's namespace for a tenant.
func Discover(ctx context.Context, c client.Reader, choice Choice) (*Found, error) {
	d := discovery{choice: choice, tenants: map[string]*Tenant{}, byNamespace: map[string]*Tenant{}}
	if err := d.read(ctx, c); err != nil {
		return nil, fmt.Errorf("cannot find the tenants: %w", err)
	}
	d.findRoots()
	d.findTrusted()
	if err := d.assignNamespaces(); err != nil {
		return nil, fmt.Errorf("cannot find the tenants: %w", err)
	}
	d.assignOwners()
	d.assignAccounts()
	d.assignRepositories()
	d.assignReleases()
	d.assignDelivers(mapperOf(c))
	d.assignRights()
	d.assignHolders()
	d.assignShapes()
	found := slices.Collect(maps.Values(d.tenants))
	slices.SortFunc(found, func(a, b *Tenant) int { return cmp.Compare(a.Name, b.Name) })
	d.addPeople()
	slices.SortFunc(d.found, func(a, b Platform) int { return cmp.Compare(a.Namespace, b.Namespace) })
	result := &Found{Platform: d.found}
	for _, t := range found {
		result.Tenants = append(result.Tenants, *t)
	}
	return result, nil
}

type discovery struct {
	namespaces []corev1.Namespace
	accounts   []corev1.ServiceAccount
	grants     []grant
	// bySubject are the indexes of the grants of a subject, which has no API group, and a namespace only if it is an account. A
	// tenant can bind any number of subjects, so nothing compares all of them with each other.
	bySubject      map[rbacv1.Subject][]int
	bounds         *bounds
	kustomizations []unstructured.Unstructured
	releases       []unstructured.Unstructured
	repositories   []unstructured.Unstructured
	artifacts      []unstructured.Unstructured
	sets           []unstructured.Unstructured
	platform       map[string]bool
	choice         Choice
	// defaultAccount is the account as which a controller applies objects that name no
	// account, by kind; "" if there is none.
	defaultAccount map[flux.Kind]string
	// roots are the sources of the platform's own repository, and rootAddresses the
	// addresses of this repository.
	roots         map[flux.Ref]bool
	rootAddresses map[string]bool
	// trusted are the Kustomizations that apply the platform's own manifests.
	trusted map[string]bool
	found   []Platform
	// owners are the owners in the Tenant objects, by the tenant's name.
	owners map[string][]Owner

	tenants     map[string]*Tenant
	byNamespace map[string]*Tenant
}

// kubernetesNamespaces are the namespaces that Kubernetes creates.
var kubernetesNamespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease"}

func (d *discovery) read(ctx context.Context, c client.Reader) error {
	var namespaces corev1.NamespaceList
	var accounts corev1.ServiceAccountList
	var bindings rbacv1.RoleBindingList
	var clusterBindings rbacv1.ClusterRoleBindingList
	for _, list := range []client.ObjectList{&namespaces, &accounts, &bindings, &clusterBindings} {
		if err := c.List(ctx, list); err != nil {
			return err
		}
	}
	d.namespaces, d.accounts = namespaces.Items, accounts.Items
	d.grants = grants(bindings.Items, clusterBindings.Items)
	d.bySubject = bySubject(d.grants)
	var err error
	if d.bounds, err = readBounds(ctx, c); err != nil {
		return err
	}
	if err := d.readOwners(ctx, c); err != nil {
		return err
	}
	for kind, to := range map[flux.Kind]*[]unstructured.Unstructured{
		flux.Kustomization: &d.kustomizations, flux.HelmRelease: &d.releases, flux.GitRepository: &d.repositories,
		flux.OCIRepository: &d.artifacts,
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersionKind())
		// Before version 2.6, Flux served other versions of OCIRepository.
		if err := c.List(ctx, list); err != nil && (kind != flux.OCIRepository || !meta.IsNoMatchError(err)) {
			return err
		}
		*to = list.Items
	}
	sets := &unstructured.UnstructuredList{}
	sets.SetGroupVersionKind(flux.ResourceSet.GroupVersionKind())
	if err := d.bounds.list(ctx, c, sets); err != nil {
		return err
	}
	d.sets = sets.Items
	d.platform = map[string]bool{}
	for _, name := range kubernetesNamespaces {
		d.platform[name] = true
	}
	if d.choice.Root != "" {
		d.platform[d.choice.Root] = true
	}
	for _, a := range d.accounts {
		if a.Name == "kustomize-controller" || a.Name == "source-controller" {
			d.platform[a.Namespace] = true
		}
	}
	return d.readDefaultAccounts(ctx, c)
}

// assign assigns a namespace to a tenant, and stores the reason.
func (d *discovery) assign(namespace, name, why string) {
	t := d.tenants[name]
	if t == nil {
		t = &Tenant{Name: name}
		d.tenants[name] = t
	}
	if of := d.byNamespace[namespace]; of != nil && of != t {
		t.Why = append(t.Why, fmt.Sprintf("%s, but the namespace is tenant %s's: tenants that share a namespace are not isolated from each other", why, of.Name))
	}
	if d.byNamespace[namespace] == nil {
		d.byNamespace[namespace] = t
		t.Why = append(t.Why, why)
		t.Namespaces = append(t.Namespaces, namespace)
		slices.Sort(t.Namespaces)
	}
}

// assignNamespaces finds the tenants: first by the choice, then by the labels, which an admin
// set, and then by the Flux objects in the remaining namespaces.
func (d *discovery) assignNamespaces() error {
	for _, ns := range d.namespaces {
		if d.platform[ns.Name] {
			continue
		}
		if err := d.choose(ns); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, ns := range d.namespaces {
		if name, label := tenancy.LabelledTenant(ns.Labels); name != "" && !d.platform[ns.Name] {
			if why := d.labelOfPlatform(ns.Name, name, label); why != "" {
				seen[ns.Name] = true
				d.found = append(d.found, Platform{ns.Name, why})
				continue
			}
			d.assign(ns.Name, name, fmt.Sprintf("namespace %s has the label %s=%s", ns.Name, label, name))
		}
	}
	for _, a := range d.accounts {
		if name, label := tenancy.LabelledTenant(a.Labels); name != "" && !d.platform[a.Namespace] {
			d.assign(a.Namespace, name, fmt.Sprintf("account %s/%s has the label %s=%s", a.Namespace, a.Name, label, name))
		}
	}
	for _, u := range slices.Concat(d.kustomizations, d.releases, d.repositories) {
		namespace := u.GetNamespace()
		if d.platform[namespace] || d.byNamespace[namespace] != nil || seen[namespace] {
			continue
		}
		seen[namespace] = true
		platform, tenant := d.evidence(namespace)
		if tenant != "" {
			d.assign(namespace, namespace, tenant)
			continue
		}
		d.found = append(d.found, Platform{namespace, platform})
	}
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		target := nested(u, "spec", "targetNamespace")
		if d.byNamespace[target] != nil || target == "" || d.platform[target] || seen[target] || !d.delegates(u) {
			continue
		}
		what := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		switch account := d.accountOf(u); {
		case d.ofOthers(u):
			d.assign(target, target, fmt.Sprintf("%s delivers from %s, which is not the platform's own repository, into namespace %s", what, sourceOf(u), target))
		case d.limitless(u):
			seen[target] = true
			d.found = append(d.found, Platform{target, fmt.Sprintf("%s delivers into it as account %s, which has cluster-admin by %s", what, account, d.adminBinding(account))})
		default:
			d.assign(target, target, fmt.Sprintf("%s delivers into namespace %s as account %s", what, target, account))
		}
	}
	d.assignUnlimited(seen)
	return nil
}

// assignUnlimited lists the namespaces of the Kustomizations that deliver another repository than
// the platform's own anywhere, as the controller or as an account with cluster-admin: an infrastructure
// team's, or a team's that may do everything. Only people know which.
func (d *discovery) assignUnlimited(seen map[string]bool) {
	reasons := map[string][]string{}
	for _, u := range d.kustomizations {
		if !d.ofPlatform(u) || !d.limitless(u) || !d.otherRepository(u) || nested(u, "spec", "targetNamespace") != "" {
			continue
		}
		who := "names no account"
		if account := d.accountOf(u); account.Name != "" {
			who = fmt.Sprintf("applies as account %s, which has cluster-admin by %s", account, d.adminBinding(account))
		}
		for _, namespace := range inventoryNamespaces(u) {
			if d.platform[namespace] || d.byNamespace[namespace] != nil || seen[namespace] {
				continue
			}
			reasons[namespace] = append(reasons[namespace], fmt.Sprintf("Kustomization %s/%s delivers into it and %s, from %s, which is not the platform's own repository: whoever may push there may do everything",
				u.GetNamespace(), u.GetName(), who, sourceOf(u)))
		}
	}
	for namespace, why := range reasons {
		seen[namespace] = true
		d.found = append(d.found, Platform{namespace, strings.Join(why, "; ")})
	}
}

// delegates reports whether an object in the platform's namespace applies a tenant's manifests:
// it names an account that is not a controller's, or the manifests are of others.
func (d *discovery) delegates(u unstructured.Unstructured) bool {
	account := nested(u, "spec", "serviceAccountName")
	return d.platform[u.GetNamespace()] && (account != "" && !strings.HasSuffix(account, "-controller") || d.ofOthers(u))
}

// ofOthers reports whether a Kustomization delivers a repository of others into one namespace:
// the platform gave them the rights of the controller by mistake.
func (d *discovery) ofOthers(u unstructured.Unstructured) bool {
	return d.fromOthers(u) && nested(u, "spec", "targetNamespace") != ""
}

// fromOthers reports whether a Kustomization in the platform's namespace delivers another Git
// repository or Bucket than the platform's own, and names no account or a controller's.
func (d *discovery) fromOthers(u unstructured.Unstructured) bool {
	return d.asController(u) && d.otherRepository(u)
}

// asController reports whether a Kustomization in the platform's namespace names no account, or the account of a controller.
func (d *discovery) asController(u unstructured.Unstructured) bool {
	account := nested(u, "spec", "serviceAccountName")
	return u.GetKind() == string(flux.Kustomization) && d.platform[u.GetNamespace()] && (account == "" || strings.HasSuffix(account, "-controller"))
}

// otherRepository reports whether a Kustomization delivers another Git repository than the platform's own, or a Bucket while
// the platform's own repository is none: a platform that pushes to Buckets may push to several.
func (d *discovery) otherRepository(u unstructured.Unstructured) bool {
	kind := sourceOf(u).Kind
	return d.roots != nil && (kind == flux.GitRepository || kind == flux.Bucket && !d.rootIs(kind)) && !d.fromRoot(u)
}

// owner returns the tenant for which a Flux object delivers, or nil. This is the tenant of its
// namespace or, for an object in the platform's namespace, the tenant of its target namespace or
// of a namespace in which its account has rights.
func (d *discovery) owner(u unstructured.Unstructured) *Tenant {
	if t := d.byNamespace[u.GetNamespace()]; t != nil {
		return t
	}
	if d.fromOthers(u) && !d.ofOthers(u) {
		for _, namespace := range inventoryNamespaces(u) {
			if t := d.byNamespace[namespace]; t != nil {
				return t // as a person said
			}
		}
	}
	// The platform's own artifacts come from other repositories than its sync, so only the target says that this one is a tenant's.
	if source := sourceOf(u); d.asController(u) && source.Kind == flux.OCIRepository && !d.fromRoot(u) && !d.rootIs(flux.OCIRepository) {
		return d.byNamespace[nested(u, "spec", "targetNamespace")]
	}
	if !d.delegates(u) {
		return nil
	}
	if target := nested(u, "spec", "targetNamespace"); target != "" {
		return d.byNamespace[target]
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: u.GetNamespace(), Name: nested(u, "spec", "serviceAccountName")}
	for _, g := range d.grants {
		if t := d.byNamespace[g.namespace]; t != nil && slices.Contains(g.subjects, account) {
			return t
		}
	}
	return nil
}

// rootIs reports whether the platform's own repository is a source of a kind: of OCI artifacts and Buckets, its pipeline may
// push further ones.
func (d *discovery) rootIs(kind flux.Kind) bool {
	for source := range d.roots {
		if source.Kind == kind {
			return true
		}
	}
	return false
}

func (d *discovery) assignAccounts() {
	add := func(t *Tenant, namespace, name string) {
		account := Account{namespace, name}
		if t != nil && name != "" && !slices.Contains(t.Accounts, account) {
			t.Accounts = append(t.Accounts, account)
		}
	}
	for _, a := range d.accounts {
		if name, _ := tenancy.TenantOf(a.Labels); name != "" {
			add(d.byNamespace[a.Namespace], a.Namespace, a.Name)
		}
	}
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		name := nested(u, "spec", "serviceAccountName")
		if d.asController(u) && name != "" {
			continue // The tenant acts as the controller by its commits alone.
		}
		if d.appliedByPlatform(&u) {
			name = d.accountOf(u).Name
		}
		add(d.owner(u), u.GetNamespace(), name)
	}
	for _, t := range d.tenants {
		if !slices.ContainsFunc(t.Accounts, d.bound) {
			d.guessAccounts(t)
		}
		foreign := func(a Account) int {
			if slices.Contains(t.Namespaces, a.Namespace) {
				return 0
			}
			return 1
		}
		ranks := map[Account]int{}
		for _, a := range t.Accounts {
			ranks[a] = d.rank(a)
		}
		slices.SortFunc(t.Accounts, func(a, b Account) int {
			return cmp.Or(cmp.Compare(ranks[a], ranks[b]), cmp.Compare(foreign(a), foreign(b)), cmp.Compare(a.String(), b.String()))
		})
	}
}

// rank orders the accounts of a tenant. A tenant's own objects may name accounts that do not exist or
// have no rights: what such an account cannot do says nothing about the tenant.
func (d *discovery) rank(a Account) int {
	exists := slices.ContainsFunc(d.accounts, func(o corev1.ServiceAccount) bool { return o.Namespace == a.Namespace && o.Name == a.Name })
	bound := d.bound(a)
	switch syncs := slices.Contains(d.syncAccounts(), a); {
	case exists && bound && syncs:
		return 0
	case exists && bound:
		return 1
	case exists && syncs:
		return 2
	case exists:
		return 3
	}
	return 4
}

// bound reports whether a binding gives an account rights.
func (d *discovery) bound(a Account) bool {
	return slices.ContainsFunc(a.subjects(), func(s rbacv1.Subject) bool { return len(d.bySubject[s]) > 0 })
}

// appliedByTenant reports whether a tenant's Flux object applied a binding.
func (d *discovery) appliedByTenant(g grant) bool {
	switch {
	case g.applied == flux.Ref{}:
		return false
	case g.applied.Kind == flux.Kustomization:
		return !d.trusted[g.applied.Namespace+"/"+g.applied.Name]
	}
	return !d.platform[g.applied.Namespace] && !d.chartOfPlatform(g.applied, maxCharts) && !d.setOfPlatform(g.applied, maxSets)
}

// maxCharts limits how deep charts may be that install each other.
const maxCharts = 10

// chartOfPlatform reports whether an object is a HelmRelease of the platform that no account limits, with a chart
// of the platform: the platform's Kustomizations applied it, or another such HelmRelease did.
func (d *discovery) chartOfPlatform(ref flux.Ref, depth int) bool {
	i := slices.IndexFunc(d.releases, func(u unstructured.Unstructured) bool {
		return ref == flux.Ref{Kind: flux.HelmRelease, Namespace: u.GetNamespace(), Name: u.GetName()}
	})
	if i < 0 || depth == 0 || !d.limitless(d.releases[i]) || !d.fromRoot(d.releases[i]) {
		return false
	}
	return d.appliedByPlatform(&d.releases[i]) || d.chartOfPlatform(flux.AppliedBy(d.releases[i].GetLabels()), depth-1)
}

// syncAccounts returns the accounts as which Flux applies the objects of the syncs that the platform or the manager
// created.
func (d *discovery) syncAccounts() []Account {
	var accounts []Account
	for _, u := range slices.Concat(d.kustomizations, d.releases) {
		if d.appliedByPlatform(&u) || u.GetLabels()[tenancy.LabelManaged] == tenancy.ManagedValue {
			accounts = append(accounts, d.accountOf(u))
		}
	}
	return accounts
}

// guessAccounts finds further accounts of a tenant if none of the accounts with the tenant's label
// or in its Flux objects has rights. It uses the subjects of the bindings with the tenant's label, as in
// fleets whose Flux objects have a kubeConfig, or else those of the bindings that the tenant did not
// apply, as for the account to which Flux falls back. If there is no account at all, it uses the
// account default, which every namespace has.
func (d *discovery) guessAccounts(t *Tenant) {
	d.addSubjects(t, func(g grant) bool { return g.tenant == t.Name })
	if !slices.ContainsFunc(t.Accounts, d.bound) {
		d.addSubjects(t, func(g grant) bool { return !d.appliedByTenant(g) })
	}
	if len(t.Accounts) == 0 && len(t.Namespaces) > 0 {
		t.Accounts = []Account{{t.Namespaces[0], fallbackAccount}}
	}
}

// addSubjects adds the service accounts of a tenant's namespaces to which one of the bindings there
// gives rights.
func (d *discovery) addSubjects(t *Tenant, from func(grant) bool) {
	for _, g := range d.grants {
		if !from(g) || !slices.Contains(t.Namespaces, g.namespace) {
			continue
		}
		for _, s := range g.subjects {
			account := Account{s.Namespace, s.Name}
			if s.Kind == rbacv1.ServiceAccountKind && slices.Contains(t.Namespaces, s.Namespace) && !slices.Contains(t.Accounts, account) {
				t.Accounts = append(t.Accounts, account)
			}
		}
	}
}

// fallbackAccount exists in every namespace, and is the usual value of the lockdown's
// --default-service-account.
const fallbackAccount = "default"

func (d *discovery) assignRepositories() {
	for _, k := range d.kustomizations {
		t := d.owner(k)
		source := nested(k, "spec", "sourceRef", "name")
		if t == nil {
			continue
		}
		t.Synced = true
		kind := flux.Kind(nested(k, "spec", "sourceRef", "kind"))
		_, remote, _ := unstructured.NestedMap(k.Object, "spec", "kubeConfig")
		delivery := Repository{
			Source:        sourceOf(k),
			Path:          strings.TrimPrefix(strings.TrimSuffix(nested(k, "spec", "path"), "/")+"/", "./"),
			Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: k.GetNamespace(), Name: k.GetName()},
			Account:       d.accountOf(k),
			Remote:        remote,
			OfPlatform:    d.fromRoot(k),
		}
		if kind != flux.GitRepository && kind != flux.OCIRepository && !delivery.OfPlatform {
			t.Unpushed = append(t.Unpushed, delivery)
		}
		for _, r := range d.sources(kind) {
			if r.GetName() != source || r.GetNamespace() != cmp.Or(nested(k, "spec", "sourceRef", "namespace"), k.GetNamespace()) {
				continue
			}
			delivery.URL, delivery.Branch = nested(r, "spec", "url"), flux.Tag(&r)
			if kind == flux.GitRepository {
				delivery.Branch = flux.FollowedBranch(&r)
			}
			t.Repositories = append(t.Repositories, delivery)
		}
	}
}

// assignReleases finds the charts that Flux installs for the tenants without the limits of an account.
func (d *discovery) assignReleases() {
	for _, u := range d.releases {
		t, source := d.byNamespace[u.GetNamespace()], sourceOf(u)
		if d.platform[u.GetNamespace()] && (source.Kind == flux.GitRepository || source.Kind == "Bucket") {
			t = d.byNamespace[nested(u, "spec", "targetNamespace")]
		}
		_, remote, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig")
		if t == nil || remote || !d.appliedByPlatform(&u) || !d.limitless(u) || d.roots[source] || d.rootAddresses[d.address(source)] {
			continue
		}
		t.UnlimitedReleases = append(t.UnlimitedReleases, u.GetNamespace()+"/"+u.GetName())
		slices.Sort(t.UnlimitedReleases)
	}
}

// sources returns the sources of a kind from which a tenant may deliver its own manifests.
func (d *discovery) sources(kind flux.Kind) []unstructured.Unstructured {
	switch kind {
	case flux.GitRepository:
		return d.repositories
	case flux.OCIRepository:
		return d.artifacts
	}
	return nil
}

func nested(u unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...)
	return s
}
