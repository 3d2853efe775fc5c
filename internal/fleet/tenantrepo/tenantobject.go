package tenantrepo

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
)

// tenantKind is the kind of the object that a fleet with the manager has for a tenant.
const tenantKind = "Tenant"

// tenantObject returns the Tenant of tenure.dev. An environment adds the sync, see [Tenant.patch].
func (t Tenant) tenantObject() object {
	namespaces := map[string]any{"create": anyList(t.Namespaces), "podSecurity": t.PodSecurity}
	if len(t.Labels) > 0 {
		labels := map[string]any{}
		for key, value := range t.Labels {
			labels[key] = value
		}
		namespaces["labels"] = labels
	}
	return object{"The manager creates the namespaces, the service account and its rights. The patch of each\nenvironment sets the repository. For owners, quotas and limits: kubectl explain tenants.tenure.dev.spec", map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": tenantKind, "metadata": t.metadata("", t.Name),
		"spec": map[string]any{"namespaces": namespaces},
	}}
}

// namespaceObjects returns the namespaces of a Tenant object. The fleet has them only if it puts
// something into them: Flux applies it before the manager could create the namespace.
func (t Tenant) namespaceObjects() []object {
	var objects []object
	for _, name := range t.Namespaces {
		metadata := t.metadata("", name)
		metadata["labels"].(map[string]any)[v1alpha1.LabelTenant] = t.Name
		objects = append(objects, object{"", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}})
	}
	return objects
}

// syncPatch returns the patch that adds the sync of an environment to the Tenant.
func (t Tenant) syncPatch(folder string) object {
	git := map[string]any{"url": t.URL, "branch": t.Branch}
	if t.SecretName != "" {
		git["secret"] = t.SecretName
	}
	entry := map[string]any{"name": t.Name, "git": git, "path": folder}
	if t.Chosen["interval"] {
		entry["interval"] = duration(t.Interval)
	}
	return object{"", map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": tenantKind, "metadata": map[string]any{"name": t.Name},
		"spec": map[string]any{"sync": []any{entry}},
	}}
}

// validateObject checks that a Tenant object has a field for each given option.
func (t Tenant) validateObject() error {
	refused := ""
	switch {
	case t.Account != "" && t.Account != t.Name:
		refused = "--with-service-account: its account has the tenant's name"
	case t.ClusterRole != tenancy.Role:
		refused = "--cluster-role: its account has the role " + tenancy.Role + ", and spec.roleBindings gives others more"
	case t.SkipNamespace:
		refused = "--skip-namespace: label the namespaces with " + v1alpha1.LabelTenant + "=" + t.Name + " instead"
	case t.PodSecurity == PodSecurityNone:
		refused = "--pod-security none: each of its namespaces has a level"
	}
	if refused == "" {
		return nil
	}
	return fmt.Errorf("a Tenant object has no %s; or write plain manifests with --plain", refused)
}

// chooseForm keeps the form of a tenant that the fleet has already.
func (c *creation) chooseForm() error {
	existing, err := c.existing()
	if err != nil {
		return err
	}
	have, isObject := existing[id(c.Tenant.tenantObject().content)]
	plain := slices.ContainsFunc(c.Tenant.rbac(), func(o object) bool {
		_, ok := existing[id(o.content)]
		return ok && o.content["kind"] == "ServiceAccount"
	})
	switch {
	case isObject && !c.Tenant.Object:
		return fmt.Errorf("it %w: %s has a Tenant object; edit it, or delete the tenant first", ErrExists, have.file)
	case plain && c.Tenant.Object:
		c.Tenant.Object = false
		c.plan.note("%s has plain manifests of this tenant, and gets no Tenant object", c.dir)
	case c.Tenant.Object:
		return c.Tenant.validateObject()
	}
	return nil
}

// managerSync is the name of the Kustomization that applies the manager in a cluster's folder.
const managerSync = "tenure-manager"

// checkManager adds a note for an environment whose cluster does not install the manager: a Tenant
// object has no effect there.
func (c *creation) checkManager() error {
	if !c.Tenant.Object {
		return nil
	}
	syncs, err := findSyncs(c.FS())
	if err != nil {
		return err
	}
	for _, o := range c.layout.overlays {
		if o.sync == nil {
			continue
		}
		managed := slices.ContainsFunc(syncs, func(k sync) bool {
			// The file is in the folder flux-system/tenure of the cluster.
			cluster := path.Dir(path.Dir(path.Dir(k.file)))
			return k.name == managerSync && (cluster == "." || strings.HasPrefix(o.sync.file, cluster+"/"))
		})
		if !managed {
			c.plan.note("nothing installs the manager beside %s: a Tenant object has no effect there before `tenure profile multi-tenant`; or write plain manifests with --plain", o.sync.file)
		}
	}
	return nil
}

// baseFiles returns the files of the tenant's own folder and their objects, in order.
func (c *creation) baseFiles() []baseFile {
	if !c.Tenant.Object {
		return []baseFile{{"rbac.yaml", c.Tenant.rbac()}, {"sync.yaml", c.Tenant.sync()}}
	}
	files := []baseFile{{"tenant.yaml", []object{c.Tenant.tenantObject()}}}
	if c.needsNamespaces() {
		files = slices.Insert(files, 0, baseFile{"namespaces.yaml", c.Tenant.namespaceObjects()})
	}
	return files
}

type baseFile struct {
	name    string
	objects []object
}

// needsNamespaces reports whether the fleet puts objects into the namespaces of a Tenant object.
func (c *creation) needsNamespaces() bool {
	return c.Tenant.SecretName != "" || !c.Exists(path.Join(c.dir, kustomizationFile)) && len(c.commonComponents()) > 0
}

func anyList(values []string) []any {
	var all []any
	for _, v := range values {
		all = append(all, v)
	}
	return all
}
