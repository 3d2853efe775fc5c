package lockdown

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/tenantrepo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

//go:embed files/*.yaml
var files embed.FS

// component holds the values for the files of the component.
type component struct {
	Namespace, Source, SourceKind string
	// Root is the name of the root Kustomization; empty for an installation
	// without a fleet.
	Root string
	// RootAccount is the root's account that a patch of the fleet itself set.
	RootAccount string
	// HasPatches reports whether the root has patches of its own.
	HasPatches bool
	// Platform are the objects that the root patches.
	Platform []patched
	// Pins are the images that may run in the namespace; none if every image may.
	Pins []Pin
	// Manager is the manager's image in the list of pins, if there are pins.
	Manager string
	// Shards are the names of the shards, sorted.
	Shards []string
	// DefaultAccount is the account that Flux uses for objects that name none.
	DefaultAccount string
	// Set are the flags that the fleet sets itself, which the component leaves out.
	Set []FlagState
	// Blocked are the ranges that notifications may not reach.
	Blocked ranges
	// FleetProxy is the proxy that the fleet itself gives to kustomize-controller, or empty.
	FleetProxy string
	// Egress are the hosts to which kustomize-controller may connect.
	Egress egress
	// Warn, Tokens, Flagger, Proxy, Capsule, Defaults and Check enable the optional parts. Capsule enables
	// Capsule's kinds: see [tree.writeCapsule].
	Warn, Tokens, Flagger, Proxy, Capsule, Defaults, Check bool
}

// patched is an object of the platform that the root patches; its file stays unchanged.
type patched struct {
	Group, Kind, Name, Namespace string
	// Account reports whether the patch sets the platform's account.
	Account bool
	// Waits are the Kustomizations to add to the object's dependencies, so that it is applied after the
	// rules; AddDependsOn reports whether it has no dependencies yet.
	Waits        []string
	AddDependsOn bool
	// Hands reports whether the Kustomizations of single tenants that it applies get the
	// platform's account as well; AddPatches, whether it has no patches yet.
	Hands, AddPatches bool
}

// controllers are the accounts that objects of the platform may not be applied as
// any more.
var controllers = []string{"", "kustomize-controller", "helm-controller"}

// component returns the component for the fleet. The error lists the objects of the platform
// that would lose their rights and whose account a person has to choose.
func (s *survey) component(sync layout.Sync, o Options) (*component, error) {
	c := &component{
		Namespace: sync.Namespace, Source: sync.Source, Root: sync.Kustomization,
		SourceKind: s.root.text("spec", "sourceRef", "kind"), HasPatches: s.root.has("spec", "patches"),
	}
	if prune, _, _ := unstructured.NestedBool(s.root.Object, "spec", "prune"); !prune {
		return nil, fmt.Errorf("cannot cut Flux's rights: %s does not prune, so the rights would stay: set spec.prune: true", s.root)
	}
	var lost []string
	elsewhere := ""
	for i, obj := range s.objects {
		switch {
		case obj.system && obj.GetKind() == "Deployment":
			c.Flagger = c.Flagger || obj.GetName() == "flagger"
			c.Tokens = c.Tokens || slices.Contains(valuesOf(arguments(obj.Unstructured), gates+"ObjectLevelWorkloadIdentity"), "true")
			continue
		case !obj.isFlux("Kustomization") && !obj.isFlux("HelmRelease"), &s.objects[i] == s.root, s.tenants[obj.GetNamespace()] != "":
			continue
		}
		p := patched{Group: obj.GroupVersionKind().Group, Kind: obj.GetKind(), Name: obj.GetName(), Namespace: obj.GetNamespace()}
		if s.handed(obj, sync) {
			continue
		}
		account := obj.text("spec", "serviceAccountName")
		p.Account = slices.Contains(controllers, account) && !obj.has("spec", "kubeConfig")
		if why := s.unclear(obj, sync); p.Account && why != "" {
			lost = append(lost, fmt.Sprintf("  %s: %s", obj, why))
			if obj.GetNamespace() != sync.Namespace {
				elsewhere = cmp.Or(elsewhere, obj.GetNamespace())
			}
			continue
		}
		if obj.by == nil && obj.GetKind() == "Kustomization" && (forTenants(obj) || s.delivers(obj)) {
			p.Waits, p.AddDependsOn = slices.DeleteFunc([]string{Own, managerName}, func(name string) bool { return dependsOn(obj.Unstructured, name) }), !obj.has("spec", "dependsOn")
			p.Hands, p.AddPatches = p.Account, p.Account && !obj.has("spec", "patches")
		}
		if p.Account || len(p.Waits) > 0 {
			c.Platform = append(c.Platform, p)
		}
	}
	if len(lost) > 0 {
		err := fmt.Errorf("cannot cut Flux's rights: these objects are applied as Flux's controllers, which will have none:\n%s", strings.Join(lost, "\n"))
		if elsewhere == "" {
			return nil, err
		}
		return nil, fmt.Errorf("%w\n%s", err, exampleAccount(elsewhere))
	}
	return c, nil
}

// exampleAccount returns the manifests of an account with the rights that Flux's controllers had.
func exampleAccount(namespace string) string {
	return fmt.Sprintf(`  an account that may do all that the controllers could, for a chart of the platform's alone:
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: platform, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: platform-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: platform, namespace: %[1]s}]`, namespace)
}

// unclear returns why a person has to choose the account that applies an object; empty if the
// account is clear.
func (s *survey) unclear(o object, sync layout.Sync) string {
	source := o.text("spec", "sourceRef", "name")
	switch target := o.text("spec", "targetNamespace"); {
	case o.GetNamespace() != sync.Namespace:
		return "set spec.serviceAccountName to an account of " + o.GetNamespace() + " that may do what it applies"
	case o.isFlux("Kustomization") && source != sync.Source && target != "":
		return "set spec.serviceAccountName to an account with rights in namespace " + target + " only if " + source + " is a team's (`tenure create tenant` onboards it), and " + RootAccount + " if it is the platform's alone"
	case o.isFlux("Kustomization") && source != sync.Source:
		return "set spec.serviceAccountName: " + RootAccount + " if " + source + " is the platform's alone, and otherwise one without more rights than its owner"
	case o.by != nil:
		return "set spec.serviceAccountName: " + RootAccount + ", it is out of the root's reach"
	}
	return ""
}

// handed reports whether an object is the Kustomization of a single tenant that gets its
// account from the Kustomization that applies it: see patched.Hands.
func (s *survey) handed(o object, sync layout.Sync) bool {
	return o.isFlux("Kustomization") && strings.HasPrefix(o.GetName(), tenantrepo.SyncPrefix) && o.GetNamespace() == sync.Namespace &&
		o.text("spec", "sourceRef", "name") == sync.Source && !o.has("spec", "kubeConfig") &&
		o.by != nil && o.by.by == nil && o.by.GetNamespace() == sync.Namespace && (forTenants(*o.by) || s.delivers(*o.by)) &&
		slices.Contains(controllers, o.by.text("spec", "serviceAccountName")) && !o.by.has("spec", "kubeConfig")
}

// forTenants reports whether the name or the path of a Kustomization marks it as meant for
// tenants, even before there are any.
func forTenants(o object) bool {
	const word = "tenants"
	return o.GetName() == word || slices.Contains(strings.Split(o.text("spec", "path"), "/"), word)
}

// delivers reports whether a Kustomization delivers an object of a tenant, directly or through
// others.
func (s *survey) delivers(o object) bool {
	return slices.ContainsFunc(s.objects, func(other object) bool {
		tenant := s.tenants[other.GetNamespace()] != "" || other.GetKind() == "Namespace" && s.tenants[other.GetName()] != ""
		for by := other.by; tenant && by != nil; by = by.by {
			if by.Unstructured == o.Unstructured {
				return true
			}
		}
		return false
	})
}

// dependsOn reports whether a Kustomization depends on another one of its namespace.
func dependsOn(o *unstructured.Unstructured, name string) bool {
	needs, _, _ := unstructured.NestedSlice(o.Object, "spec", "dependsOn")
	return slices.ContainsFunc(needs, func(need any) bool {
		m, _ := need.(map[string]any)
		return m["name"] == name
	})
}

// render fills a file in.
func (c *component) render(name string) (string, error) { return renderFile(name, c) }

// renderFile renders a template.
func renderFile(name string, from any) (string, error) {
	t, err := template.ParseFS(files, "files/"+name)
	if err != nil {
		return "", fmt.Errorf("cannot write %s: %w", name, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, from); err != nil {
		return "", fmt.Errorf("cannot write %s: %w", name, err)
	}
	return b.String(), nil
}

// writeOwn adds our files to the tree.
func (t *tree) writeOwn(c *component, s *survey, o Options) error {
	for _, name := range []string{"account.yaml", "kustomization.yaml", "network.yaml", "rights.yaml", "sync.yaml"} {
		content, err := c.render(name)
		if err != nil {
			return err
		}
		t.now[t.component(name)] = content
	}
	shards, err := c.shardFiles("../../gotk-components.yaml")
	if err != nil {
		return err
	}
	for name, content := range shards {
		t.now[t.component(name)] = content
	}
	layer := t.writeCapsule(c, s, o.Capsule)
	t.writeDefaults(c, o.Defaults)
	own, err := c.render("tenure.yaml")
	if err != nil {
		return err
	}
	t.now[Infrastructure+"/kustomization.yaml"] = own
	t.now[Infrastructure+"/crds.yaml"] = string(config.CRDs())
	t.now[Infrastructure+"/policies.yaml"] = moved(string(config.Policies()), c.Namespace)
	t.now[warnDir+"/policies.yaml"] = moved(string(config.WarnPolicies()), c.Namespace)
	t.now[warnDir+"/kustomization.yaml"] = warnComponent
	t.now[Infrastructure+"/roles.yaml"] = string(config.Roles())
	if err := t.writeManager(c, o, layer); err != nil {
		return err
	}
	if text, there := t.now[Infrastructure+"/profile.yaml"]; there {
		t.now[Infrastructure+"/profile.yaml"], err = Allow(text, o.Allow)
		return err
	}
	t.now[Infrastructure+"/profile.yaml"], err = s.posture(c.Namespace, o.Allow)
	return err
}

// checkVersions returns an error for a version of Flux that lacks a flag: its controllers
// would not start.
func (s *survey) checkVersions() error {
	if old := TooOld(s.system()); len(old) > 0 {
		return fmt.Errorf("cannot lock down this version of Flux: %s; update Flux first, to 2.7.5 or newer", strings.Join(old, "; "))
	}
	return nil
}

// system returns Flux's own manifests, as built.
func (s *survey) system() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, o := range s.objects {
		if o.system {
			all = append(all, o.Unstructured)
		}
	}
	return all
}

// check returns an error if a part of the lockdown has no effect in the planned fleet.
func (s *survey) check(sync layout.Sync) error {
	var wrong []string
	replaced := ""
	for _, f := range FlagStates(s.system()) {
		if f.isVariable() && proxyOfFleet(s.system()) != "" {
			continue
		}
		if !f.OK() {
			wrong = append(wrong, fmt.Sprintf("  %s %s: %s", f.Deployment, f.Name, f))
		}
		if f.Got == "" && !f.isVariable() {
			replaced = "  a patch of the fleet replaces all arguments, the component's too: let it add its own, with op: add and path: /spec/template/spec/containers/0/args/-"
		}
	}
	if replaced != "" {
		wrong = append(wrong, replaced)
	}
	wrong = append(wrong, s.checkShards()...)
	if s.rootAccount != RootAccount {
		wrong = append(wrong, fmt.Sprintf("  %s: a patch sets spec.serviceAccountName to %s: remove it", s.root, s.rootAccount))
	}
	for _, b := range wide(s.system(), sync.Namespace) {
		wrong = append(wrong, "  "+b)
	}
	if n := s.profiles(); n > 1 {
		wrong = append(wrong, fmt.Sprintf("  there are %d TenancyProfiles: keep one, %s/profile.yaml or your own", n, Infrastructure))
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("cannot lock the fleet down: with the component these are still wrong:\n%s", strings.Join(wrong, "\n"))
}

// wide returns messages about bindings of Flux's controllers to cluster-admin.
func wide(objects []*unstructured.Unstructured, namespace string) []string {
	var all []string
	for _, o := range objects {
		role, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		if o.GetKind() != "ClusterRoleBinding" || role != "cluster-admin" {
			continue
		}
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		for _, subject := range subjects {
			m, _ := subject.(map[string]any)
			if m["namespace"] == namespace && (m["name"] == "kustomize-controller" || m["name"] == "helm-controller") {
				all = append(all, fmt.Sprintf("ClusterRoleBinding %s makes %s a cluster-admin: remove it", o.GetName(), m["name"]))
			}
		}
	}
	return all
}

func (s *survey) profiles() int {
	n := 0
	for _, o := range s.objects {
		if o.GetKind() == "TenancyProfile" {
			n++
		}
	}
	return n
}

// notes returns further tasks for the user.
func (s *survey) notes() []string {
	var notes, early []string
	for _, o := range s.objects {
		if chart := o.text("spec", "chart", "spec", "chart"); o.isFlux("HelmRelease") && chart == "flagger" {
			notes = append(notes, o.String()+" installs Flagger: set noCrossNamespaceRefs: true in its values")
		}
		tenant := s.tenants[o.GetNamespace()]
		if from := o.text("spec", "chart", "spec", "sourceRef", "kind"); tenant != "" && o.isFlux("HelmRelease") && (from == "GitRepository" || from == "Bucket") {
			notes = append(notes, o.String()+" takes its chart out of a "+from+", which the rules refuse: publish the chart, or allow it for tenant "+tenant+" with policy.sources.anyChartDependencies and a shard")
		}
		if tenant != "" && strings.HasPrefix(o.GetAPIVersion(), "flagger.app/") {
			notes = append(notes, o.String()+" may name addresses outside of the cluster only, and hosts and gateways of its namespace: list others in spec.tenants.flagger of the profile")
		}
		if o.by == nil && !o.system && tenant != "" {
			early = append(early, o.String())
		}
	}
	if len(early) > 0 {
		notes = append(notes, "the root applies objects of tenants before the rules exist: let another Kustomization apply them: "+strings.Join(early, ", "))
	}
	if plain := s.unlabelled(); len(plain) > 0 {
		notes = append(notes, "the rules for tenants do not apply in "+listed(plain)+", where Flux applies as another account than the platform's: if these are tenants, add the label "+
			v1alpha1.LabelFluxTenant+": NAME of the tenant to each Namespace, and run this again, which names the addresses of their sources to approve")
	}
	return notes
}

// unlabelled returns the namespaces of the fleet without a tenant's label in which a Kustomization names an account that
// is no cluster-admin, sorted.
func (s *survey) unlabelled() []string {
	namespaces, admins := map[string]bool{}, map[string]bool{}
	for _, o := range s.objects {
		switch role := o.text("roleRef", "name"); {
		case o.GetKind() == "Namespace":
			namespaces[o.GetName()] = true
		case o.GetKind() == "ClusterRoleBinding" && role == "cluster-admin":
			subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
			for _, subject := range subjects {
				m, _ := subject.(map[string]any)
				admins[fmt.Sprintf("%v/%v", m["namespace"], m["name"])] = true
			}
		}
	}
	plain := map[string]bool{}
	for _, o := range s.objects {
		namespace, account := o.GetNamespace(), o.text("spec", "serviceAccountName")
		if o.isFlux("Kustomization") && account != "" && !o.system && namespaces[namespace] && s.tenants[namespace] == "" && namespace != s.root.GetNamespace() && !admins[namespace+"/"+account] {
			plain[namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(plain))
}
