package lockdown

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// instanceImages is the message about the field that sets the images of Flux.
const instanceImages = "the images are those of spec.distribution of the FluxInstance"

// errInstance reports an option that a fleet with a FluxInstance has in another place.
var errInstance = errors.New("is not for a fleet that flux-operator runs")

// makeInstance computes the changes to the FluxInstance of a fleet: flux-operator writes the flags of
// Flux, and Tenure's objects come from its chart.
func (t *tree) makeInstance(o Options) (*Plan, error) {
	if o.Tenants {
		if err := o.checkInstance(); err != nil {
			return nil, err
		}
	}
	if err := t.editInstance(o); err != nil {
		return nil, err
	}
	plan := &Plan{Changes: t.changes()}
	if !o.Tenants {
		return plan, nil
	}
	plan.Notes = t.instanceNotes()
	if note := Unreleased(o.ManagerImage); note != "" && strings.Contains(t.now[t.fleet.InstanceFile], release.Current().Image()) {
		plan.Notes = append(plan.Notes, note)
	}
	return plan, nil
}

// checkInstance returns an error for an option that a FluxInstance cannot have.
func (o Options) checkInstance() error {
	switch {
	case len(o.Shards) > 0:
		return fmt.Errorf("--shard %w: name the shards in spec.sharding of the FluxInstance", errInstance)
	case len(o.Pins) > 0:
		return fmt.Errorf("--verify-images %w: %s", errInstance, instanceImages)
	case o.warns(), len(o.Allow) > 0, o.Proxy != nil, len(o.ProxyHosts) > 0, o.Capsule != nil, o.Defaults != nil, o.Check != nil:
		return fmt.Errorf("a flag about the rules or the manager %w: give it as a value of Tenure's chart, which installs them, see docs/how-to/install.md", errInstance)
	}
	return nil
}

// editInstance sets the fields of the FluxInstance and its patches, or takes the lockdown back.
func (t *tree) editInstance(o Options) error {
	file := t.fleet.InstanceFile
	stream, err := yamledit.Parse(t.now[file])
	if err != nil {
		return cannotEdit(file, err)
	}
	doc, spec := instanceIn(stream)
	if doc < 0 {
		return cannotEdit(file, yamledit.ErrUneditable)
	}
	if err := editCluster(stream, doc, spec, o.Tenants); err != nil {
		return cannotEdit(file, err)
	}
	now, err := patchesAt(stream, doc, append(slices.Clone(spec), "kustomize", "patches"))
	if err != nil {
		return cannotEdit(file, err)
	}
	var wanted []instancePatch
	if o.Tenants {
		blocked, err := blockedRanges(o.ClusterRanges, rangesIn(now))
		if err != nil {
			return err
		}
		hosts, err := egressHosts(o.EgressHosts, hostsOf(now))
		if err != nil {
			return err
		}
		egress := t.instanceEgress(hosts)
		if egress.Image, err = serverImage(imageOf(now), o.ManagerImage); err != nil {
			return err
		}
		if wanted, err = instancePatches(blocked, egress, now); err != nil {
			return err
		}
	}
	if err := editPatches(stream, doc, spec, now, wanted); err != nil {
		return cannotEdit(file, err)
	}
	t.now[file] = stream.Text
	return nil
}

// editCluster sets the fields in spec.cluster of a FluxInstance.
func editCluster(stream *yamledit.Stream, doc int, spec []any, locked bool) error {
	cluster := append(slices.Clone(spec), "cluster")
	var err error
	switch multitenant := yamledit.At(stream.Docs[doc], append(slices.Clone(cluster), "multitenant")...); {
	case multitenant != nil:
		err = stream.SetBool(doc, locked, append(slices.Clone(cluster), "multitenant")...)
	case !locked:
	case yamledit.At(stream.Docs[doc], cluster...) != nil:
		err = stream.Add(doc, "multitenant", "multitenant: true", cluster...)
	default:
		err = stream.Add(doc, "cluster", "cluster:\n  multitenant: true", spec...)
	}
	network := append(slices.Clone(cluster), "networkPolicy")
	if err != nil || !locked || yamledit.Str(stream.Docs[doc], network...) != "false" {
		return err
	}
	return stream.SetBool(doc, true, network...)
}

// instanceIn returns the document of a file with the FluxInstance, or with the values of the chart
// flux-instance, and the path of its spec. It returns -1 if there is none.
func instanceIn(stream *yamledit.Stream) (doc int, spec []any) {
	for i, content := range stream.Docs {
		if yamledit.Str(content, "kind") == "FluxInstance" {
			return i, []any{"spec"}
		}
		for _, values := range [][]any{{"spec", "values", "instance"}, {"instance"}} {
			if yamledit.Str(content, append(slices.Clone(values), "sync", "url")...) != "" {
				return i, values
			}
		}
	}
	return -1, nil
}

// instanceStates returns the states of the fields of a FluxInstance that lock Flux down. The
// defaults are those of its kind.
func instanceStates(f *layout.Fleet) []FlagState {
	field := func(name, want, byDefault string) FlagState {
		value, found, _ := unstructured.NestedFieldNoCopy(f.Instance.Object, "spec", "cluster", name)
		if !found {
			value = byDefault
		}
		return FlagState{Flag: Flag{Name: "spec.cluster." + name, Value: want}, Deployment: "FluxInstance", Got: fmt.Sprint(value)}
	}
	patches, _, _ := unstructured.NestedSlice(f.Instance.Object, "spec", "kustomize", "patches")
	patch := func(of string, matches func(instancePatch) bool) FlagState {
		state := FlagState{Flag: Flag{Name: "spec.kustomize.patches of " + of}, Deployment: "FluxInstance"}
		for _, entry := range patches {
			var p instancePatch
			p.Patch, _ = asMap(entry)["patch"].(string)
			p.Target.Name, _ = asMap(asMap(entry)["target"])["name"].(string)
			if matches(p) {
				state.Got = "set"
			}
		}
		return state
	}
	return []FlagState{
		field("multitenant", "true", "false"),
		field("tenantDefaultServiceAccount", "", "default"),
		field("networkPolicy", "true", "true"),
		patch(storageFlag, instancePatch.setsStorage),
		patch(metricsFlag, instancePatch.setsMetrics),
		patch(noProxyVariable, instancePatch.limitsKustomize),
		patch(gitVariable, instancePatch.limitsGit),
		patch(egressPolicy, instancePatch.limitsEgress),
	}
}

// instanceEgress returns the hosts to which kustomize-controller may connect in a fleet with a FluxInstance.
func (t *tree) instanceEgress(hosts []string) egress {
	at := func(path ...string) string {
		value, _, _ := unstructured.NestedString(t.fleet.Instance.Object, path...)
		return value
	}
	shards, _, _ := unstructured.NestedStringSlice(t.fleet.Instance.Object, "spec", "sharding", "shards")
	return egress{
		Namespace: cmp.Or(at("metadata", "namespace"), t.fleet.Sync.Namespace),
		Domain:    cmp.Or(at("spec", "cluster", "domain"), defaultDomain), Shards: shards, Hosts: hosts,
	}
}

// instanceNotes returns the steps of the lockdown of a FluxInstance that are left to the user.
func (t *tree) instanceNotes() []string {
	var notes []string
	if !t.locksOperator() {
		notes = append(notes, "the FluxInstance has no field for flux-operator's own flag: start flux-operator with --default-service-account (multitenancy.enabled in its chart); otherwise it applies a tenant's ResourceSet that names no account as cluster-admin")
	}
	notes = append(notes,
		"the rules for tenants and the manager come from Tenure's chart: see docs/how-to/install.md. They apply in namespaces with a tenant's label, such as "+v1alpha1.LabelFluxTenant+": NAME")
	if lost := t.accountless(); len(lost) > 0 {
		account, _, _ := unstructured.NestedString(t.fleet.Instance.Object, "spec", "cluster", "tenantDefaultServiceAccount")
		notes = append(notes, fmt.Sprintf("these objects name no account, so Flux applies them as account %q of their namespace: set spec.serviceAccountName in the platform's objects, such as kustomize-controller in %s: %s",
			cmp.Or(account, "default"), t.fleet.Sync.Namespace, listed(lost)))
	}
	if remote := t.remoteBases(); len(remote) > 0 {
		notes = append(notes, "kustomize-controller refuses remote bases with multitenant: true: before you push, copy each into the repository, or deliver it with a source and a Kustomization of its own: "+listed(remote))
	}
	return notes
}

// remoteBases returns the remote bases of all kustomizations in the repository, with their files.
func (t *tree) remoteBases() []string {
	var all []string
	for name := range t.now {
		if !strings.HasPrefix(strings.ToLower(path.Base(name)), "kustomization") {
			continue
		}
		for _, base := range flux.RemoteBases(t.fleet.Dir, filepath.Join(t.fleet.Dir, filepath.FromSlash(path.Dir(name)))) {
			if base.File == filepath.Join(t.fleet.Dir, filepath.FromSlash(name)) {
				all = append(all, base.Address+" in "+name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// operated reports whether flux-operator wrote the Deployments of Flux.
func operated(deployments []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(deployments, func(d *unstructured.Unstructured) bool {
		return controllerOf(d) == "kustomize-controller" && d.GetLabels()["app.kubernetes.io/managed-by"] == "flux-operator"
	})
}

// forNarrowRights reports whether a flag is a part of narrower rights or of shared sources, which a
// FluxInstance does not have.
func forNarrowRights(f Flag) bool { return strings.HasPrefix(f.Name, gates) }

// instanceAdvice returns the advice for setting a flag in a FluxInstance.
func instanceAdvice(f Flag) string {
	if f.Name == storageFlag || f.Name == metricsFlag || f.isVariable() {
		return "add its patch to the FluxInstance, as `tenure profile multi-tenant` does in the fleet"
	}
	return "set spec.cluster.multitenant: true in the FluxInstance, as `tenure profile multi-tenant` does in the fleet"
}

// maxListed is the maximum number of objects that a note names.
const maxListed = 8

func listed(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// accountless returns the Kustomizations and HelmReleases of Flux in the fleet's files that name
// neither an account nor another cluster.
func (t *tree) accountless() []string {
	var found []string
	t.eachObject(func(file string, u *unstructured.Unstructured) {
		o := object{Unstructured: u}
		if !o.isFlux("Kustomization") && !o.isFlux("HelmRelease") || !o.has("spec") || o.has("spec", "serviceAccountName") || o.has("spec", "kubeConfig") {
			return
		}
		found = append(found, fmt.Sprintf("%s %s in %s", u.GetKind(), u.GetName(), file))
	})
	slices.Sort(found)
	return found
}

// locksOperator reports whether a HelmRelease of the fleet installs flux-operator with a default
// account for ResourceSets.
func (t *tree) locksOperator() bool {
	locks := false
	t.eachObject(func(_ string, u *unstructured.Unstructured) {
		enabled, _, _ := unstructured.NestedBool(u.Object, "spec", "values", "multitenancy", "enabled")
		locks = locks || enabled && u.GetKind() == "HelmRelease" && strings.Contains(u.GetName(), operatorName)
	})
	return locks
}

// eachObject calls look with the objects of the fleet's files, also those in the templates of
// ResourceSets. Files that cannot be read have none.
func (t *tree) eachObject(look func(file string, u *unstructured.Unstructured)) {
	for file, content := range t.before {
		if ext := path.Ext(file); ext != ".yaml" && ext != ".yml" {
			continue
		}
		objects, err := flux.ReadObjects([]byte(content))
		if err != nil {
			continue
		}
		for _, u := range objects {
			look(file, u)
			for _, template := range flux.Templates(u) {
				look(file, &unstructured.Unstructured{Object: template})
			}
		}
	}
}
