// Package fleetgen writes fleets of any number of tenants as folders: the
// platform's repository and one for each tenant. What it writes is a function of
// its input alone.
package fleetgen

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Host is where the fleet's repositories are, for everybody but those who map
// them.
const Host = "https://git.example.com/fleet"

// Path is the cluster's folder in the platform's repository.
const Path = "clusters/test"

// Tenant is a team to be written. Its namespace has its name.
type Tenant struct {
	// Name is the tenant's, a DNS label.
	Name string
	// Label says whether the namespace and the account carry the label that
	// names the tenant; without it, it is found by its Flux objects.
	Label bool
	// Labels are more labels of the namespace.
	Labels map[string]string
	// Role is the ClusterRole that is bound in the namespace; "" for none.
	Role string
	// Rules are those of a Role of the namespace that is bound too, as a YAML
	// list in one line; "" for none.
	Rules string
	// Repository is the name of the repository that it delivers from, its own
	// by default.
	Repository string
	// Sync is the spec of its Kustomization without the source and the
	// account, as YAML of one line without braces; "" for the usual one, "none"
	// for no Kustomization at all.
	Sync string
	// NoAccount leaves out the account, and its name in the Kustomization.
	NoAccount bool
	// Unmapped leaves the repository out of [Fleet.Maps].
	Unmapped bool
	// Files are the content of its repository, by path. Nil is a ConfigMap.
	Files map[string]string
	// Platform are more manifests that the platform applies for it.
	Platform string
}

// Fleet is a fleet that has been written.
type Fleet struct {
	// Dir is the folder of the platform's repository.
	Dir string
	// Maps say where the repositories are, as --map takes them.
	Maps []string
}

// Platform is the part of a fleet that is no tenant's.
type Platform struct {
	// Flags are given to every controller that has a service account flag
	// (kustomize- and helm-controller), and to no other.
	Flags []string
	// Manifests are applied before the tenants are.
	Manifests string
}

// Lockdown are the flags of Flux's multi-tenancy lockdown.
func Lockdown() []string {
	return []string{"--no-cross-namespace-refs=true", "--default-service-account=default"}
}

// Write writes a fleet into a folder, which is made. The error is the file
// system's.
func Write(dir string, platform Platform, tenants []Tenant) (Fleet, error) {
	fleet := Fleet{Dir: filepath.Join(dir, "platform")}
	files := map[string]string{
		Path + "/flux-system/gotk-components.yaml": "# put in place\n",
		Path + "/flux-system/gotk-sync.yaml":       root,
		Path + "/flux-system/kustomization.yaml":   system(platform.Flags),
		Path + "/parts.yaml":                       parts,
		"platform/all.yaml":                        "apiVersion: v1\nkind: Namespace\nmetadata: {name: platform}\n---\n" + platform.Manifests,
		"tenants/none.yaml":                        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tenants, namespace: platform}\n",
	}
	for _, t := range tenants {
		files["tenants/"+t.Name+".yaml"] = t.manifests()
	}
	errs := []error{writeAll(fleet.Dir, files)}
	mapped := map[string]bool{}
	for _, t := range tenants {
		if t.Unmapped || mapped[t.repository()] {
			continue
		}
		mapped[t.repository()] = true
		own := filepath.Join(dir, "repositories", t.repository())
		fleet.Maps = append(fleet.Maps, Host+"/"+t.repository()+"#main="+own)
		content := t.Files
		if content == nil {
			content = map[string]string{"deploy/app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {by: " + t.Name + "}\n"}
		}
		errs = append(errs, writeAll(own, content))
	}
	return fleet, errors.Join(errs...)
}

func writeAll(dir string, files map[string]string) error {
	errs := []error{os.MkdirAll(dir, 0o750)}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		errs = append(errs, os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte(files[name]), 0o600))
	}
	return errors.Join(errs...)
}

func (t Tenant) repository() string {
	if t.Repository != "" {
		return t.Repository
	}
	return t.Name
}

const root = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 10m, url: ` + Host + `/platform, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 10m, retryInterval: 5s, path: ./` + Path + `, prune: true, serviceAccountName: kustomize-controller, sourceRef: {kind: GitRepository, name: flux-system}}
`

const parts = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: platform, namespace: flux-system}
spec: {interval: 10m, retryInterval: 5s, path: ./platform, prune: true, serviceAccountName: kustomize-controller, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenants, namespace: flux-system}
spec: {interval: 10m, retryInterval: 5s, dependsOn: [{name: platform}], path: ./tenants, prune: true, serviceAccountName: kustomize-controller, sourceRef: {kind: GitRepository, name: flux-system}}
`

// system is the kustomization of Flux's own part, with flags for the two
// controllers that apply what tenants deliver.
func system(flags []string) string {
	var b strings.Builder
	b.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [gotk-components.yaml, gotk-sync.yaml]\n")
	if len(flags) == 0 {
		return b.String()
	}
	b.WriteString("patches:\n  - target: {kind: Deployment, name: (kustomize-controller|helm-controller)}\n    patch: |\n")
	for _, flag := range append([]string{"--requeue-dependency=5s"}, flags...) {
		fmt.Fprintf(&b, "      - {op: add, path: /spec/template/spec/containers/0/args/-, value: %s}\n", flag)
	}
	return b.String()
}

// manifests are what the platform applies for a tenant.
func (t Tenant) manifests() string {
	label := ""
	if t.Label {
		label = "toolkit.fluxcd.io/tenant: " + t.Name
	}
	labels := []string{}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		labels = append(labels, key+": "+t.Labels[key])
	}
	if t.Label {
		labels = append(labels, label)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {%s}}\n", t.Name, strings.Join(labels, ", "))
	if !t.NoAccount {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s, labels: {%s}}\n", t.Name, t.Name, label)
	}
	if t.Role != "" {
		b.WriteString(t.binding("given", "ClusterRole", t.Role))
	}
	if t.Rules != "" {
		fmt.Fprintf(&b, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: own, namespace: %s}\nrules: %s\n", t.Name, t.Rules)
		b.WriteString(t.binding("own", "Role", "own"))
	}
	if t.Sync != "none" {
		b.WriteString(t.sync())
	}
	if t.Platform != "" {
		b.WriteString("---\n" + t.Platform)
	}
	return b.String()
}

func (t Tenant) binding(name, kind, role string) string {
	return fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %s, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %s, name: %s}
subjects: [{kind: ServiceAccount, name: %s, namespace: %s}]
`, name, t.Name, kind, role, t.Name, t.Name)
}

func (t Tenant) sync() string {
	spec := t.Sync
	if spec == "" {
		spec = "path: ./deploy, prune: true, targetNamespace: " + t.Name
	}
	if !t.NoAccount {
		spec += ", serviceAccountName: " + t.Name
	}
	return fmt.Sprintf(`---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: %s, namespace: %s}
spec: {interval: 10m, url: %s/%s, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %s, namespace: %s}
spec: {interval: 10m, retryInterval: 1m, timeout: 1m, sourceRef: {kind: GitRepository, name: %s}, %s}
`, t.Name, t.Name, Host, t.repository(), t.Name, t.Name, t.Name, spec)
}
