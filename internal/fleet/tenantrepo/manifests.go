package tenantrepo

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object, with a comment that is written above it.
type object struct {
	comment string
	content map[string]any
}

// id returns the identity of an object, which messages also use.
func id(content map[string]any) string {
	metadata, _ := content["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if ns, _ := metadata["namespace"].(string); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%v %s", content["kind"], name)
}

func (t Tenant) labels() map[string]any {
	labels := map[string]any{TenantLabel: t.Name}
	for key, value := range t.Labels {
		labels[key] = value
	}
	return labels
}

func (t Tenant) metadata(namespace, name string) map[string]any {
	metadata := map[string]any{"name": name, "labels": t.labels()}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	return metadata
}

func (t Tenant) namespace(name string) map[string]any {
	metadata := t.metadata("", name)
	if t.PodSecurity != PodSecurityNone {
		metadata["labels"].(map[string]any)[podSecurityLabel] = t.PodSecurity
	}
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
}

func (t Tenant) serviceAccount(namespace string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": t.metadata(namespace, t.account())}
}

// roleBinding returns a RoleBinding of the role for a namespace's own account, and for
// accounts of the tenant's other namespaces.
func (t Tenant) roleBinding(namespace string, others ...string) map[string]any {
	const group = "rbac.authorization.k8s.io"
	subjects := []any{
		map[string]any{"apiGroup": group, "kind": "User", "name": "gotk:" + namespace + ":reconciler"},
		map[string]any{"kind": "ServiceAccount", "name": t.account(), "namespace": namespace},
	}
	for _, other := range others {
		subjects = append(subjects, map[string]any{"kind": "ServiceAccount", "name": t.account(), "namespace": other})
	}
	return map[string]any{
		"apiVersion": group + "/v1", "kind": "RoleBinding", "metadata": t.metadata(namespace, t.Name+"-reconciler"),
		"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": t.ClusterRole},
		"subjects": subjects,
	}
}

// rbac returns the objects of rbac.yaml.
func (t Tenant) rbac() []object {
	var objects []object
	for i, ns := range t.Namespaces {
		if !t.SkipNamespace {
			objects = append(objects, object{"", t.namespace(ns)})
		}
		if i == 0 {
			objects = append(objects,
				object{"Flux applies the tenant's repository with this service account.", t.serviceAccount(ns)},
				object{"Binds the role of the account in this namespace.", t.roleBinding(ns)})
			continue
		}
		objects = append(objects,
			object{"", t.serviceAccount(ns)},
			object{"Binds the role of the account of " + t.Namespaces[0] + ", which applies the repository, here too.", t.roleBinding(ns, t.Namespaces[0])})
	}
	return objects
}

// sync returns the objects of sync.yaml.
func (t Tenant) sync() []object {
	spec := map[string]any{"interval": duration(t.Interval), "url": t.URL, "ref": map[string]any{"branch": t.Branch}}
	if t.SecretName != "" {
		spec["secretRef"] = map[string]any{"name": t.SecretName}
	}
	if t.VerifyMode != "" {
		spec["verify"] = map[string]any{"mode": t.VerifyMode, "secretRef": map[string]any{"name": tenancy.KeySecretPrefix + tenancy.VerifierGit}}
	}
	ns := t.Namespaces[0]
	return []object{
		{"The team's repository.", map[string]any{
			"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": t.metadata(ns, t.Name), "spec": spec,
		}},
		{"Applies a folder of the repository, which each environment's overlay chooses. When this\nobject goes, it waits until everything that it applied is gone too.", map[string]any{
			"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": t.metadata(ns, t.Name),
			"spec": map[string]any{
				"interval": "5m", "retryInterval": "1m", "timeout": "2m", "path": "./", "prune": true,
				"deletionPolicy": "WaitForTermination", "serviceAccountName": t.account(),
				"sourceRef": map[string]any{"kind": "GitRepository", "name": t.Name},
			},
		}},
	}
}

// patch returns the patch that sets the folder that an environment applies.
func (t Tenant) patch(folder string) []object {
	if t.Object {
		return []object{t.syncPatch(folder)}
	}
	return []object{{"", map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
		"metadata": map[string]any{"name": t.Name, "namespace": t.Namespaces[0]},
		"spec":     map[string]any{"path": folder},
	}}}
}

// Export returns the namespaces, accounts and role bindings in the format of `flux create
// tenant --export`: each account has rights in its own namespace. It returns the errors of
// [Tenant.Validate].
func (t Tenant) Export() ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, ns := range t.Namespaces {
		objects := []map[string]any{t.namespace(ns), t.serviceAccount(ns), t.roleBinding(ns)}
		if t.SkipNamespace {
			objects = objects[1:]
		}
		for _, o := range objects {
			if err := WriteObject(&out, o); err != nil {
				return nil, err
			}
		}
	}
	return out.Bytes(), nil
}

// WriteObject writes an object as `flux create --export` does: a document marker, then the
// fields in alphabetical order. It returns an error if the content cannot be encoded as YAML.
func WriteObject(out *bytes.Buffer, content map[string]any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", id(content), err)
	}
	fmt.Fprintf(out, "---\n%s", text)
	return nil
}

// fields is the usual order of the fields of an object.
var fields = []string{"apiVersion", "apiGroup", "kind", "metadata", "name", "namespace", "labels", "type", "spec", "roleRef", "subjects",
	"interval", "retryInterval", "timeout", "url", "ref", "path", "prune", "deletionPolicy", "serviceAccountName", "sourceRef", "secretRef"}

// text returns objects as YAML with their comments, with the fields in the usual order.
func text(objects []object) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		for line := range strings.Lines(o.comment) {
			out.WriteString("# " + strings.TrimSuffix(line, "\n") + "\n")
		}
		if err := writeFields(&out, o.content, ""); err != nil {
			return nil, fmt.Errorf("cannot write %s: %w", id(o.content), err)
		}
	}
	return out.Bytes(), nil
}

// writeFields writes a mapping; lists are written by the YAML library.
func writeFields(out *bytes.Buffer, content map[string]any, indent string) error {
	rest := maps.Clone(content)
	write := func(key string) error {
		value, ok := rest[key]
		if !ok {
			return nil
		}
		delete(rest, key)
		if mapping, ok := value.(map[string]any); ok && len(mapping) > 0 {
			fmt.Fprintf(out, "%s%s:\n", indent, key)
			return writeFields(out, mapping, indent+"  ")
		}
		raw, err := yaml.Marshal(map[string]any{key: value})
		if err != nil {
			return err
		}
		first := true
		for line := range strings.Lines(string(raw)) {
			if !first {
				line = "  " + line // lists are indented
			}
			first = false
			out.WriteString(indent + line)
		}
		return nil
	}
	for _, key := range append(fields[:len(fields):len(fields)], sortedKeys(rest)...) {
		if err := write(key); err != nil {
			return err
		}
	}
	return nil
}
