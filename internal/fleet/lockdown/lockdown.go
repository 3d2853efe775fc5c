// Package lockdown locks Flux down for many tenants, and removes the lockdown again, by
// editing the folder of a platform's repository.
//
// The lockdown is a kustomize Component in its own folder beside Flux's manifests, so that it
// can be removed completely from any fleet:
//
//	clusters/staging/flux-system/kustomization.yaml   components: [tenure]
//	clusters/staging/flux-system/tenure/              flags, rights, root account
//	infrastructure/tenure/                            CRDs, rules, roles, TenancyProfile
//	infrastructure/tenure/capsule.yaml                Capsule's CRDs and rights, with --capsule
//	infrastructure/tenure/warn/                       what warn mode changes, with --mode warn
//	infrastructure/tenure/manager/                    the manager, the proxy and the check
//
// The package changes no other file of the fleet, with one exception: a patch of the fleet
// that sets the root's account applies after the component, so the package replaces the
// account in it; the component records the previous one.
//
// Before it writes the plan, the package builds it as Flux would. It rejects the plan if a
// flag would not be in force or an object of the platform would lose its rights.
package lockdown

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
)

const (
	// RootAccount is the service account, in Flux's namespace, that the
	// platform's own objects are applied as. It is bound to cluster-admin.
	RootAccount = "tenure-root"
	// Own is the name of the component's folder and of the Kustomization that applies Tenure's
	// objects.
	Own = "tenure"
	// Infrastructure is the folder of Tenure's objects in the fleet.
	Infrastructure = "infrastructure/tenure"
	// managerDir is the folder of the manager. Flux applies it separately, so that a failure to
	// pull the manager's image does not block tenants.
	managerDir = Infrastructure + "/manager"
	// warnDir is the folder of a kustomize component that lets the rules warn. Only the clusters
	// in warn mode use it; all clusters of a fleet share [Infrastructure].
	warnDir = Infrastructure + "/warn"
	// marker is in the first line of the files that the lockdown writes, and distinguishes them
	// from other files.
	marker = "tenure profile"
)

// Options configures the lockdown of a fleet.
type Options struct {
	// Tenants selects multi-tenant; false means single-tenant.
	Tenants bool
	// Warn sets whether the rules warn instead of deny. Nil keeps the mode of the fleet; a new fleet denies.
	Warn *bool
	// Allow are additional addresses that tenants may fetch from, as KIND=PATTERN with
	// the kinds git, helm and oci. They are added to the profile if it lacks them.
	Allow []string
	// ManagerImage is the image of `tenure-server`. If it is empty, the fleet keeps its image,
	// or gets the image of this build (package release) if a person chose none.
	ManagerImage string
	// Proxy sets whether the proxy is installed beside the manager, with its image. Nil keeps the
	// fleet's choice; a new fleet has no proxy.
	Proxy *bool
	// ProxyHosts are names in the proxy's certificate, besides those of its Service. Nil keeps the
	// names of the fleet; an empty slice removes them.
	ProxyHosts []string
	// Capsule sets whether the manager supports Capsule's kinds. Nil keeps the state of the fleet;
	// a new fleet does not support them.
	Capsule *bool
	// Defaults sets whether the policy tenure-defaults is installed, which needs Kubernetes 1.36.
	// Nil keeps the state of the fleet; a new fleet does not have it.
	Defaults *bool
	// Check sets whether the CronJob that checks the lockdown is installed beside the manager, with
	// its image. Nil keeps the fleet's choice; a new fleet has none.
	Check *bool
	// Pins are the images that may run in Flux's namespace. Nil keeps the earlier pins; an
	// empty slice removes them.
	Pins []Pin
	// Shards are the names of shards. Each shard has its own controllers for the tenants whose
	// namespaces have its label. Nil keeps the earlier shards; an empty slice removes them.
	Shards []string
	// ClusterRanges are the CIDRs of Pods, Services, nodes and all other addresses that
	// notifications must not reach. Nil keeps the ranges of the fleet; a new fleet has
	// [PrivateRanges], and an empty slice sets them again.
	ClusterRanges []string
	// EgressHosts are hosts, each with an optional port, to which kustomize-controller may connect, besides
	// Flux's Services and the API server: those of services that decrypt, and of other clusters. Nil
	// keeps the hosts of the fleet; an empty slice removes them.
	EgressHosts []string
}

// Plan holds the changes to a fleet.
type Plan struct {
	// Changes are by path.
	Changes []Change
	// Notes are further facts or tasks for the user.
	Notes []string
	// RemoteBases are the remote bases of the fleet, each with the file that names it, which
	// kustomize-controller refuses after the changes.
	RemoteBases []string
}

// Change is one file.
type Change struct {
	// Path is slash separated, in the fleet.
	Path string
	// Before and After are the contents; nil for a missing file.
	Before, After *string
}

// checkManifests returns an error for a fleet whose root is in another file than gotk-sync.yaml, and
// that has no manifests of Flux to edit beside it.
func checkManifests(f *layout.Fleet) error {
	_, missing := f.Overlay[path.Join(f.System, componentsFile)]
	if f.RootFile == "" || !missing {
		return nil
	}
	return fmt.Errorf("cannot lock down this fleet: its root is in %s, and it does not hold Flux's manifests (gotk-components.yaml): set the flags of the lockdown where the fleet installs Flux, in the patches of that Kustomization or in the values of that chart: --no-cross-namespace-refs=true, --no-remote-bases=true, --default-service-account=default", f.RootFile)
}

// Make computes the changes to a fleet. It writes nothing. It returns an error if the fleet has
// no root or no manifests of Flux, if it cannot be read or built, if an option is not valid, or
// if a file has a style that cannot be edited.
func Make(f *layout.Fleet, o Options) (*Plan, error) {
	if _, missing := f.Overlay[path.Join(f.System, "gotk-sync.yaml")]; missing {
		return nil, fmt.Errorf("cannot lock down a fleet without a root: %s: bootstrap it with Flux first, or, if Flux follows the repository already by a root outside of it, as on Azure or after an installation with Helm, set the lockdown where Flux is installed", f.NoRoot())
	}
	if err := checkManifests(f); err != nil {
		return nil, err
	}
	t, err := open(f)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if f.Instance != nil {
		return t.makeInstance(o)
	}
	if err := t.checkOwn(); err != nil {
		return nil, err
	}
	if !o.Tenants {
		return t.single()
	}
	return t.multi(o)
}

// single removes the files that multi adds. While the manager runs in the cluster, single
// first lets it release its objects, and the next call removes it.
func (t *tree) single() (*Plan, error) {
	if plan, err := t.release(); plan != nil || err != nil {
		return plan, err
	}
	if err := t.disconnect(); err != nil {
		return nil, err
	}
	_, was := t.before[t.component("kustomization.yaml")]
	others := t.others()
	for _, name := range slices.Collect(maps.Keys(t.now)) {
		dir := path.Dir(name)
		if t.inComponent(name) || slices.Contains([]string{Infrastructure, managerDir, warnDir}, dir) && len(others) == 0 {
			delete(t.now, name)
		}
	}
	plan := &Plan{}
	if was {
		notes, err := t.farewell()
		if err != nil {
			return nil, err
		}
		plan.Notes = notes
	}
	if len(others) > 0 {
		plan.Notes = append(plan.Notes, Infrastructure+" stays: "+strings.Join(others, ", ")+" uses it too")
	}
	plan.Changes = t.changes()
	return plan, nil
}

// farewell returns the remaining steps in the cluster after single-tenant is applied.
func (t *tree) farewell() ([]string, error) {
	plain, err := t.survey()
	if err != nil {
		return nil, err
	}
	// Flux does not prune the objects that a bootstrap applied.
	var leftover []string
	if !plain.root.has("spec", "patches") {
		leftover = append(leftover, `"patches":null`)
	}
	if plain.rootAccount == "" {
		leftover = append(leftover, `"serviceAccountName":null`)
	}
	crds, err := flux.ReadObjects(config.CRDs())
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, crd := range crds {
		kinds = append(kinds, crd.GetName())
	}
	in := t.fleet.Sync.Namespace
	notes := plain.tenantsNote()
	if len(leftover) > 0 {
		notes = append(notes, fmt.Sprintf("a cluster that was bootstrapped while it was multi-tenant keeps fields of the root, so that its Kustomizations do not become ready; once this is applied: kubectl -n %s patch kustomizations.kustomize.toolkit.fluxcd.io/%s --type=merge -p '{\"spec\":{%s}}'",
			in, t.fleet.Sync.Kustomization, strings.Join(leftover, ",")))
	}
	var named []string
	for _, o := range plain.objects {
		if o.text("spec", "serviceAccountName") == RootAccount {
			named = append(named, o.String())
		}
	}
	if len(named) > 0 {
		notes = append(notes, fmt.Sprintf("these objects of the fleet name the account %s: remove their spec.serviceAccountName, or set the account that they had before, before you delete %s: %s", RootAccount, RootAccount, strings.Join(named, ", ")))
	}
	notes = append(notes, fmt.Sprintf("the account %s stays in the cluster, since Flux deletes the other objects with its rights; when all Kustomizations are ready, delete it: kubectl delete clusterrolebinding/%s-%s; kubectl -n %s delete serviceaccount/%s",
		RootAccount, RootAccount, in, in, RootAccount),
		"the objects that the manager created stay, but its role bindings give no rights, since Flux deletes Tenure's roles: syncs of tenants fail until their accounts have another role, in each of their namespaces: kubectl -n NAMESPACE create rolebinding deliver --clusterrole=edit --serviceaccount=NAMESPACE:ACCOUNT. To delete the quotas, network policies and parameters of the manager: kubectl delete resourcequotas,networkpolicies -A -l "+tenancy.LabelManaged+"="+tenancy.ManagedValue+"; kubectl delete tenantparameters.tenure.dev -A --all",
		"Tenure's kinds and the TenancyProfile stay too: without them, the rules would refuse requests until they are deleted. At the very end: kubectl delete customresourcedefinitions "+strings.Join(kinds, " "))
	return notes, nil
}

// tenantsNote returns what to do with the objects of Tenure's kinds that the fleet still delivers.
func (s *survey) tenantsNote() []string {
	var names []string
	for _, o := range s.objects {
		if strings.HasPrefix(o.GetAPIVersion(), v1alpha1.GroupVersion.Group+"/") && o.GetKind() != "TenancyProfile" {
			names = append(names, o.GetKind()+" "+path.Join(o.GetNamespace(), o.GetName()))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"the fleet still delivers " + strings.Join(names, ", ") + ": without the manager these objects have no effect, and the status of a Tenant stays as it was. Remove them from the fleet before you delete their kinds; the namespaces of the Tenants stay, with everything in them"}
}

// disconnect removes the component from Flux's kustomization file, and restores the root's
// account.
func (t *tree) disconnect() error {
	file := t.system("kustomization.yaml")
	text, err := yamledit.RemoveEntry(t.now[file], "components", Own)
	if err != nil {
		return cannotEdit(file, err)
	}
	if account := t.rememberedAccount(); account != "" {
		if text, _, err = yamledit.ReplaceInPatches(text, "serviceAccountName", RootAccount, account); err != nil {
			return cannotEdit(file, err)
		}
	}
	t.now[file] = text
	return nil
}

// multi adds the lockdown.
func (t *tree) multi(o Options) (*Plan, error) {
	shards, err := shardsFrom(o.Shards, t.rememberedShards())
	if err != nil {
		return nil, err
	}
	// Start from the fleet without the component, so that another run has the same result.
	plain, err := t.surveyBefore()
	if err != nil {
		return nil, err
	}
	if err := plain.checkVersions(); err != nil {
		return nil, err
	}
	component, err := plain.component(t.fleet.Sync, o)
	if err != nil {
		return nil, err
	}
	component.Shards = shards
	if component.Warn = t.rememberedWarn(); o.Warn != nil {
		component.Warn = *o.Warn
	}
	if component.DefaultAccount, err = t.defaultAccount(plain, o); err != nil {
		return nil, err
	}
	component.Set = component.setBy(plain)
	if component.Blocked, err = blockedRanges(o.ClusterRanges, t.rememberedRanges()); err != nil {
		return nil, err
	}
	if err := component.limitEgress(o, rememberedHosts(t.before[t.component("kustomization.yaml")]), managerImage(t.before[managerFile]), plain.system()); err != nil {
		return nil, err
	}
	fresh := o.Pins != nil
	if component.Pins = o.Pins; !fresh {
		component.Pins = t.rememberedPins()
	}
	if len(component.Pins) > 0 {
		manager, err := managerManifests(component.Namespace, t.before[managerFile], o.ManagerImage)
		if err != nil {
			return nil, err
		}
		if component.Manager, err = pinnedManager(manager); err != nil {
			return nil, err
		}
	}
	file := t.system("kustomization.yaml")
	if text, found, err := yamledit.ReplaceInPatches(t.now[file], "serviceAccountName", plain.rootAccount, RootAccount); plain.rootAccount != "" && (found || err != nil) {
		if err != nil {
			return nil, cannotEdit(file, err)
		}
		t.now[file], component.RootAccount = text, plain.rootAccount
	}
	if t.now[file], err = yamledit.AddEntry(t.now[file], "components", Own); err != nil {
		return nil, cannotEdit(file, err)
	}
	t.dropComponent()
	if err := t.writeOwn(component, plain, o); err != nil {
		return nil, err
	}
	locked, err := t.survey()
	if err != nil {
		return nil, err
	}
	if err := locked.check(t.fleet.Sync); err != nil {
		return nil, err
	}
	if err := t.checkOverlap(locked); err != nil {
		return nil, err
	}
	notes, err := t.checkPins(component.Pins, plain, locked, fresh)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Changes: t.changes(), Notes: append(locked.notes(), notes...), RemoteBases: locked.remote}
	if component.Warn && o.Warn == nil {
		plan.Notes = append(plan.Notes, "the rules still only warn: --mode enforce ends warn mode")
	}
	for _, note := range []string{component.setNote(), component.egressNote(plain), locked.boundsNote(), locked.sourcesNote()} {
		if note != "" {
			plan.Notes = append(plan.Notes, note)
		}
	}
	if note := Unreleased(managerImage(t.now[managerFile])); note != "" {
		plan.Notes = append(plan.Notes, note)
	}
	if len(t.fleet.Overlay) > 0 {
		plan.Notes = append(plan.Notes, "the fleet does not contain Flux's manifests yet: the command tested its change with the manifests in this program")
	}
	return plan, nil
}

func cannotEdit(file string, err error) error {
	if errors.Is(err, yamledit.ErrUneditable) {
		return fmt.Errorf("cannot edit %s: it is written in a way that only a person can edit: write it in block style, without aliases", file)
	}
	return fmt.Errorf("cannot edit %s: %w", file, err)
}

// Drift returns the states of the lockdown's flags in the fleet, whether the profile or a
// person set them, or of the fields of its FluxInstance. It returns an error if the fleet cannot be read or built.
func Drift(f *layout.Fleet) ([]FlagState, error) {
	if f.Instance != nil {
		return instanceStates(f), nil
	}
	t, err := open(f)
	if err != nil {
		return nil, err
	}
	defer t.close()
	s, err := t.survey()
	if err != nil {
		return nil, err
	}
	return FlagStates(s.system()), nil
}
