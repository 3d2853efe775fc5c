package tenancy

import (
	"cmp"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The defaults with which Flux applies a Kustomization of a Tenant's sync, within the tenant's
// bounds.
const (
	syncRetry   = time.Minute
	syncTimeout = 5 * time.Minute
)

// The kinds of a sync. The manager writes few of their fields, so it needs no types of Flux.
var (
	GitRepositoryKind = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	OCIRepositoryKind = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"}
	KustomizationKind = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
)

// syncFields are the fields of spec that the manager writes. It removes a field that is not
// desired.
var syncFields = map[string][]string{
	GitRepositoryKind.Kind: {"interval", "url", "ref", "secretRef", "verify"},
	OCIRepositoryKind.Kind: {"interval", "url", "ref", "secretRef", "verify"},
	KustomizationKind.Kind: {
		"interval", "retryInterval", "timeout", "path", "prune", "deletionPolicy", "sourceRef",
		"serviceAccountName", "targetNamespace", "decryption", "postBuild",
	},
}

// WrittenFields returns the fields of spec that the manager writes in an object of a kind of a sync. It reports false
// for other kinds, whose spec the manager writes as a whole.
func WrittenFields(kind string) ([]string, bool) {
	fields, ok := syncFields[kind]
	return fields, ok
}

// SyncNamespace returns the namespace of a sync of the Tenant, or "" if it has none.
func SyncNamespace(t *v1alpha1.Tenant, s *v1alpha1.Sync) string {
	if s.Namespace == "" && len(t.Spec.Namespaces.Create) > 0 {
		return t.Spec.Namespaces.Create[0]
	}
	return s.Namespace
}

// syncAccounts returns the accounts in the tenant's own namespaces as which Flux applies the
// tenant's syncs.
func syncAccounts(ns Namespace) []rbacv1.Subject {
	var accounts []rbacv1.Subject
	for i := range ns.Tenant.Spec.Sync {
		namespace := SyncNamespace(ns.Tenant, &ns.Tenant.Spec.Sync[i])
		if slices.Contains(ns.Siblings, namespace) {
			accounts = append(accounts, subject(rbacv1.ServiceAccountKind, namespace, ns.Tenant.Name))
		}
	}
	return unique(accounts)
}

// syncs returns the sources and Kustomizations of the Tenant's syncs in the namespace.
func syncs(ns Namespace, limits v1alpha1.Posture) []client.Object {
	bounds := limits.Bounds
	var objects []client.Object
	for i := range ns.Tenant.Spec.Sync {
		s := &ns.Tenant.Spec.Sync[i]
		if SyncNamespace(ns.Tenant, s) != ns.Name || (s.Git == nil) == (s.OCI == nil) {
			continue
		}
		interval := max(cmp.Or(s.Interval.Duration, 5*time.Minute), bounds.MinInterval.Duration).String()
		source, spec := GitRepositoryKind, map[string]any{"interval": interval}
		if s.Git != nil {
			spec["url"] = s.Git.URL
			spec["ref"] = map[string]any{"branch": cmp.Or(s.Git.Branch, "main")}
			if s.Git.Tag != "" {
				spec["ref"] = map[string]any{"tag": s.Git.Tag}
			}
			addSecret(spec, s.Git.Secret)
		} else {
			source = OCIRepositoryKind
			spec["url"] = s.OCI.URL
			spec["ref"] = map[string]any{"tag": cmp.Or(s.OCI.Tag, "latest")}
			addSecret(spec, s.OCI.Secret)
		}
		addVerification(spec, source.Kind, limits.Signatures)
		objects = append(objects,
			object(ns, source, s.Name, spec),
			object(ns, KustomizationKind, s.Name, kustomization(ns, s, source.Kind, interval, bounds)),
		)
	}
	return objects
}

func kustomization(ns Namespace, s *v1alpha1.Sync, source, interval string, bounds v1alpha1.Bounds) map[string]any {
	timeout := syncTimeout
	if bounds.MaxTimeout.Duration > 0 {
		timeout = min(timeout, bounds.MaxTimeout.Duration)
	}
	spec := map[string]any{
		"interval":           interval,
		"retryInterval":      max(syncRetry, bounds.MinInterval.Duration).String(),
		"timeout":            timeout.String(),
		"path":               cmp.Or(s.Path, "./"),
		"prune":              true,
		"deletionPolicy":     "WaitForTermination",
		"serviceAccountName": ns.Tenant.Name,
		"sourceRef":          map[string]any{"kind": source, "name": s.Name},
	}
	if !s.AnyNamespace {
		spec["targetNamespace"] = ns.Name
	}
	if s.DecryptionSecret != "" {
		spec["decryption"] = map[string]any{"provider": "sops", "secretRef": map[string]any{"name": s.DecryptionSecret}}
	}
	if len(s.Substitute) > 0 {
		values := map[string]any{}
		for k, v := range s.Substitute {
			values[k] = v
		}
		spec["postBuild"] = map[string]any{"substitute": values}
	}
	return spec
}

func addSecret(spec map[string]any, name string) {
	if name != "" {
		spec["secretRef"] = map[string]any{"name": name}
	}
}

func object(ns Namespace, kind schema.GroupVersionKind, name string, spec map[string]any) client.Object {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(kind)
	m := meta(ns.Name, name, ns.Tenant.Name)
	u.SetNamespace(m.Namespace)
	u.SetName(m.Name)
	u.SetLabels(m.Labels)
	return u
}
