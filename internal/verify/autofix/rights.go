package autofix

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// wideRoles are the roles of Kubernetes that are too wide for a tenant: all of them allow
// impersonation of the service accounts of the namespace.
var wideRoles = []string{"cluster-admin", "admin", "edit"}

// rules are the rights that a tenant's account needs to deliver applications with Flux.
//
//go:embed rules.yaml
var rules string

// narrow removes rights from a tenant's accounts. It removes denied rights from the fleet's
// roles, and replaces roles that are too wide in the bindings.
func (t *tree) narrow(tenant discovery.Tenant, denied []rbacv1.PolicyRule) {
	var edited []string
	for _, b := range t.objects("RoleBinding", "ClusterRoleBinding") {
		if !t.binds(b, tenant) {
			continue
		}
		kind, name := yamledit.Str(b.node, "roleRef", "kind"), yamledit.Str(b.node, "roleRef", "name")
		role, ours := t.role(kind, name, b.namespace)
		switch {
		case b.kind() == "ClusterRoleBinding" && (slices.Contains(wideRoles, name) || ours && useful(role.node)):
			t.confine(b, tenant)
		case b.kind() == "ClusterRoleBinding":
		case kind == "ClusterRole" && slices.Contains(wideRoles, name) || ours && wildcards(role.node):
			t.rebind(b, tenant)
		case ours && t.isNew(role.file):
			t.allow(role, tenant.Delivers)
		case ours && !slices.Contains(edited, kind+"/"+name):
			edited = append(edited, kind+"/"+name)
			was := t.now[role.file]
			for _, rule := range denied {
				t.deny(role, rule)
			}
			if was != t.now[role.file] {
				t.noteDenied(tenant, denied)
			}
		}
	}
}

// binds reports whether a subject of a binding is one of the tenant's accounts, in one of its
// namespaces.
func (t *tree) binds(b object, tenant discovery.Tenant) bool {
	if b.kind() == "RoleBinding" && !slices.Contains(tenant.Namespaces, b.namespace) {
		return false
	}
	subjects := yamledit.At(b.node, "subjects")
	if subjects == nil {
		return false
	}
	return slices.ContainsFunc(subjects.Content, func(s *yaml.Node) bool {
		return slices.ContainsFunc(tenant.Accounts, func(a discovery.Account) bool {
			switch yamledit.Str(s, "kind") {
			case "ServiceAccount":
				in := yamledit.Str(s, "namespace")
				return yamledit.Str(s, "name") == a.Name && (in == a.Namespace || b.namespace == a.Namespace && (in == "" || b.moved))
			case "User":
				return yamledit.Str(s, "name") == a.User()
			}
			return false
		})
	})
}

// role finds a role in the fleet.
func (t *tree) role(kind, name, namespace string) (object, bool) {
	for _, o := range t.objects(kind) {
		if (kind == "ClusterRole" || kind == "Role" && o.namespace == namespace) && o.name() == name {
			return o, true
		}
	}
	return object{}, false
}

// rebind makes a binding refer to a narrower role, which still allows the tenant to deliver its
// current manifests: a role of the fleet, or a new role in the binding's folder.
func (t *tree) rebind(b object, tenant discovery.Tenant) {
	kind, name, file := "ClusterRole", "", ""
	for _, o := range t.objects("ClusterRole") {
		if useful(o.node) && safe(o.node) && len(lacking(o.node, tenant.Delivers)) == 0 {
			name = o.name()
			break
		}
	}
	if name == "" {
		kind, name = "Role", b.name()
		if file = t.addRole(b); file == "" {
			return
		}
		for _, o := range t.objects(kind) {
			if o.file == file {
				t.allow(o, tenant.Delivers)
			}
		}
	}
	done := t.edit(b.file, func(s *yamledit.Stream) error {
		if yamledit.Str(b.node, "roleRef", "kind") != kind {
			if err := s.Set(b.doc, kind, "roleRef", "kind"); err != nil {
				return err
			}
		}
		if err := s.Set(b.doc, name, "roleRef", "name"); err != nil {
			return err
		}
		// The role of a binding is immutable: Flux has to replace the binding.
		const force = "kustomize.toolkit.fluxcd.io/force: enabled\n"
		if yamledit.At(s.Docs[b.doc], "metadata", "annotations") == nil {
			return s.Add(b.doc, "annotations", "annotations:\n  "+force, "metadata")
		}
		if yamledit.Str(s.Docs[b.doc], "metadata", "annotations", "kustomize.toolkit.fluxcd.io/force") != "" {
			return nil
		}
		return s.Add(b.doc, "kustomize.toolkit.fluxcd.io/force", force, "metadata", "annotations")
	})
	if !done && file != "" {
		t.forget(file)
	}
	if done {
		t.noteDenied(tenant, alwaysDenied)
		t.expects = append(t.expects, bound(b.namespace, b.name(), kind, name))
	}
}

// bound returns the expectation that a RoleBinding refers to a role that the fleet delivers.
func bound(namespace, binding, kind, role string) expectation {
	return func(after built) bool {
		in := ""
		if kind == "Role" {
			in = namespace
		}
		all := after.named("RoleBinding", namespace, binding)
		return len(all) > 0 && len(after.named(kind, in, role)) > 0 && !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool {
			name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
			of, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
			return name != role || of != kind
		})
	}
}

// addRole adds a role to the folder of a binding, lists it in the kustomization file there, and
// returns its path.
func (t *tree) addRole(b object) string {
	dir := path.Dir(b.file)
	base := b.name() + "-role.yaml"
	file := path.Join(dir, base)
	if !yamledit.PlainScalar.MatchString(b.name()) || t.exists(file) {
		return ""
	}
	namespace := ""
	if in := yamledit.Str(b.node, "metadata", "namespace"); in != "" {
		namespace = "\n  namespace: " + yamledit.Scalar(in)
	}
	list := t.kustomization(dir)
	if _, ok := t.now[list]; ok && !t.edit(list, func(s *yamledit.Stream) error { return s.AppendItem(0, base+"\n", "resources") }) {
		return ""
	}
	t.now[file] = fmt.Sprintf(`# What the tenant's account needs to deliver applications with Flux, and no more.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: %s%s
%s`, b.name(), namespace, rules)
	t.manifests = append(t.manifests, file)
	t.namespace[file] = t.namespace[b.file]
	return file
}

// forget removes an added file from the tree.
func (t *tree) forget(file string) {
	delete(t.now, file)
	t.manifests = slices.DeleteFunc(t.manifests, func(name string) bool { return name == file })
	list := t.kustomization(path.Dir(file))
	if before, ok := t.before[list]; ok {
		t.now[list] = before
	}
}

// confine replaces a ClusterRoleBinding by a RoleBinding in the namespace of the tenant's
// account, with a role that is not too wide.
func (t *tree) confine(b object, tenant discovery.Tenant) {
	if len(tenant.Accounts) == 0 {
		return // without an account there is no namespace for the RoleBinding
	}
	namespace := tenant.Accounts[0].Namespace
	done := t.edit(b.file, func(s *yamledit.Stream) error {
		if err := s.Set(b.doc, "RoleBinding", "kind"); err != nil {
			return err
		}
		if yamledit.Str(s.Docs[b.doc], "metadata", "namespace") != "" {
			return nil
		}
		return s.Add(b.doc, "namespace", "namespace: "+yamledit.Scalar(namespace)+"\n", "metadata")
	})
	if done {
		name := b.name()
		t.expects = append(t.expects, func(after built) bool {
			return len(after.named("RoleBinding", namespace, name)) > 0 && len(after.named("ClusterRoleBinding", "", name)) == 0
		})
	}
	if !done || !slices.Contains(wideRoles, yamledit.Str(b.node, "roleRef", "name")) {
		return
	}
	for _, o := range t.objects("RoleBinding") {
		if o.file == b.file && o.doc == b.doc {
			t.rebind(o, tenant)
		}
	}
}

// deny removes the rights of the rule denied from a role.
func (t *tree) deny(role object, denied rbacv1.PolicyRule) {
	t.edit(role.file, func(s *yamledit.Stream) error {
		for i := len(rulesOf(s.Docs[role.doc])) - 1; i >= 0; i-- {
			rule := rulesOf(s.Docs[role.doc])[i]
			groups := yamledit.Strs(rule, "apiGroups")
			if !overlaps(groups, denied.APIGroups) {
				continue
			}
			if err := denyIn(s, role.doc, i, denied); err != nil {
				return err
			}
		}
		return nil
	})
}

// denyIn removes denied rights from rule i of a role. If all resources of the rule are denied, it removes
// the verbs; otherwise it removes the resources, and adds a rule with the verbs that these resources keep.
func denyIn(s *yamledit.Stream, doc, i int, denied rbacv1.PolicyRule) error {
	rule := rulesOf(s.Docs[doc])[i]
	groups, written, verbs := yamledit.Strs(rule, "apiGroups"), yamledit.Strs(rule, "resources"), yamledit.Strs(rule, "verbs")
	resources := expand(written, groupResources(groups))
	hit := slices.DeleteFunc(slices.Clone(resources), func(r string) bool { return !covers(denied.Resources, r) })
	kept := slices.DeleteFunc(expand(verbs, allVerbs), func(v string) bool { return covers(denied.Verbs, v) })
	// A "*" includes the denied verbs and resources.
	allResources, allowed := slices.Contains(written, "*"), slices.Equal(kept, verbs)
	if len(hit) == 0 && !allResources || allowed {
		return nil
	}
	others := slices.DeleteFunc(slices.Clone(resources), func(r string) bool { return slices.Contains(hit, r) })
	switch {
	case len(others) > 0:
		if err := s.SetStrings(doc, others, "rules", i, "resources"); err != nil || len(kept) == 0 {
			return err
		}
		// The right to read a subresource is useless without the right to read the resource.
		hit = slices.DeleteFunc(hit, func(r string) bool { return strings.Contains(r, "/") })
		if len(hit) == 0 {
			return nil
		}
		return s.AppendItem(doc, fmt.Sprintf("apiGroups: [%s]\nresources: [%s]\nverbs: [%s]\n", list(groups), list(hit), list(kept)), "rules")
	case len(kept) > 0:
		return s.SetStrings(doc, kept, "rules", i, "verbs")
	}
	return s.RemoveItem(doc, i, "rules")
}

func list(all []string) string {
	quoted := make([]string, 0, len(all))
	for _, s := range all {
		quoted = append(quoted, yamledit.Scalar(s))
	}
	return strings.Join(quoted, ", ")
}
