package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// contents are manifests that Flux did not apply.
type contents struct {
	// from describes the place of the manifests, such as "applies ./tenants".
	from string
	// objects are the built manifests, without objects that give no rights.
	objects []*unstructured.Unstructured
	// text is the text of manifests that cannot be built, and of the values of templates.
	text string
	// binds is set for a template of bindings with unknown subjects.
	binds bool
	// unread is set if the manifests cannot be read here.
	unread bool
	// controls are the objects in the manifests that may stop an attack and that the cluster lacks.
	controls []*unstructured.Unstructured
}

// evidence returns how the manifests of an object may give a tenant rights, or "" if none of them is about
// the tenant.
func (u unreadyObject) evidence(t discovery.Tenant) string {
	for _, c := range u.contents {
		for _, o := range c.objects {
			if givesRights(o, t) {
				return fmt.Sprintf("%s with %s %s", c.from, o.GetKind(), strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
			}
		}
		named := mentioned(c.text, append([]string{t.Name}, t.Namespaces...))
		switch {
		case named != "":
			return c.from + ", where " + named + " is named"
		case c.binds:
			return c.from + ", a template of bindings"
		case c.unread:
			return c.from + ", which cannot be read here (add --map)"
		}
	}
	return ""
}

// mentioned returns the first of the names that is a word of a text, or "".
func mentioned(text string, names []string) string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		// The slash belongs to a word, so that the group in apps/v1 is no word of its own.
		return r != '-' && r != '/' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
	for _, name := range names {
		if slices.Contains(words, name) {
			return name
		}
	}
	return ""
}

// rightsKinds are the kinds by which a platform gives tenants rights.
var rightsKinds = []string{"Namespace", "RoleBinding", "ClusterRoleBinding", "Role", "ClusterRole", "Tenant", "TenancyProfile"}

// variable is the beginning of a variable in manifests. The value of a variable is unknown.
const variable = "${"

// givesRights reports whether an object may give a tenant rights.
func givesRights(o *unstructured.Unstructured, t discovery.Tenant) bool {
	labels := o.GetLabels()
	switch o.GetKind() {
	case "Namespace":
		name, _ := tenancy.TenantOf(labels)
		return name == t.Name || slices.Contains(t.Namespaces, o.GetName())
	case "RoleBinding", "ClusterRoleBinding":
		var binding rbacv1.ClusterRoleBinding // a RoleBinding has the same fields
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding)
		return t.Named(binding.Subjects) || slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
			return strings.Contains(s.Namespace+s.Name, variable)
		})
	case "Role", "ClusterRole":
		for label := range labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				return true
			}
		}
		return slices.ContainsFunc(t.Rights, func(r discovery.Right) bool {
			return r.Role == o.GetKind()+"/"+o.GetName() && (o.GetNamespace() == "" || o.GetNamespace() == r.Namespace)
		})
	case "Tenant":
		return o.GetName() == t.Name
	case "TenancyProfile":
		return o.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
	}
	return false
}

// controlKinds are the built-in kinds that may stop a request or a connection.
var controlKinds = []string{
	"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
	"ResourceQuota", "LimitRange", "NetworkPolicy",
}

// isControl reports whether an object may stop an attack: its kind is one of the built-in controlKinds, or
// a policy of an engine.
func isControl(o *unstructured.Unstructured) bool {
	engine := policyEngines[o.GroupVersionKind().Group] != ""
	return engine && refuses(*o) || !engine && slices.Contains(controlKinds, o.GetKind())
}

// missingControls returns the objects that are not ready and whose manifests contain controls that the
// cluster lacks and that may limit a tenant: cluster-wide controls, and controls in the tenant's
// namespaces.
func missingControls(missing []unreadyObject, t discovery.Tenant) []string {
	var doubts []string
	for _, u := range missing {
		for _, c := range u.contents {
			var names []string
			for _, o := range c.controls {
				if o.GetNamespace() == "" || slices.Contains(t.Namespaces, o.GetNamespace()) {
					names = append(names, o.GetKind()+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
				}
			}
			if len(names) > 0 {
				doubts = append(doubts, fmt.Sprintf("%s, which %s with %s and %s", u.Ref, c.from, someOf(names), u.reason))
			}
		}
	}
	return doubts
}

// contentsReader reads the manifests of the fleet's sources.
type contentsReader struct {
	Options
	admin client.Reader
	// dir is the folder with copies of sources, and clones maps a source to its copy.
	dir    string
	clones map[flux.Ref]string
	seen   map[flux.Ref]bool
	// declared are the sources in the manifests that were read.
	declared map[flux.Ref]*unstructured.Unstructured
	// owners are the owners of the platform's repositories on public hosts; see [ownerOf].
	owners []string
}

// readContents reads the manifests of objects that are not ready.
func readContents(ctx context.Context, opts Options, admin client.Reader, missing []unreadyObject) (err error) {
	if len(missing) == 0 {
		return nil
	}
	r := &contentsReader{Options: opts, admin: admin, clones: map[flux.Ref]string{}, seen: map[flux.Ref]bool{}, declared: map[flux.Ref]*unstructured.Unstructured{}}
	if r.owners, err = r.fleetOwners(ctx); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "tenure-contents-"); err != nil {
		return fmt.Errorf("cannot read the objects that are not applied: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	for i := range missing {
		clear(r.seen)
		missing[i].contents = r.read(ctx, missing[i].object)
	}
	return nil
}

// read returns the manifests of an object, and those of the objects in them that apply manifests and that
// the cluster lacks.
func (r *contentsReader) read(ctx context.Context, u *unstructured.Unstructured) []contents {
	if r.seen[refOf(u)] {
		return nil
	}
	r.seen[refOf(u)] = true
	switch refOf(u).Kind {
	case flux.Kustomization:
		return r.kustomization(ctx, u)
	case flux.HelmRelease:
		return []contents{r.release(ctx, u)}
	case flux.ResourceSet:
		spec := specText(u)
		return []contents{{from: "has a template", text: spec, binds: strings.Contains(spec, "RoleBinding")}}
	}
	return nil
}

func specText(u *unstructured.Unstructured) string {
	content, _ := json.Marshal(u.Object["spec"]) // an object that was decoded from JSON can be encoded
	return string(content)
}

// kustomization returns the manifests of a Kustomization: the objects that its folder builds or, if the
// build fails, the text of its files.
func (r *contentsReader) kustomization(ctx context.Context, u *unstructured.Unstructured) []contents {
	field := func(at ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, at...)...)
		return value
	}
	folder, target := path.Join("/", field("path")), field("targetNamespace")
	c := contents{from: "applies ." + folder}
	dir, err := r.source(ctx, u, "spec", "sourceRef")
	if err != nil {
		c.unread = !r.published(ctx, sourceOf(u, "spec", "sourceRef"))
		return []contents{c}
	}
	at := filepath.Join(dir, filepath.FromSlash(folder))
	objects, err := flux.BuildFolder(dir, at, target)
	if err != nil {
		c.text = textIn(at)
		return []contents{c}
	}
	var nested []contents
	for _, o := range objects {
		if slices.Contains(flux.SourceKinds(), refOf(o).Kind) {
			r.declared[refOf(o)] = o
		}
	}
	for _, o := range objects {
		// The API server may not know the kind of a policy; then it has no such objects.
		if isControl(o) && r.admin.Get(ctx, keyOf(o), o.DeepCopy()) != nil {
			c.controls = append(c.controls, o)
		}
		switch {
		case slices.Contains(rightsKinds, o.GetKind()):
			c.objects = append(c.objects, o)
		case slices.Contains(deliverers, refOf(o).Kind) && !delegated(o, u) && r.admin.Get(ctx, keyOf(o), o.DeepCopy()) != nil:
			nested = append(nested, r.read(ctx, o)...)
		}
	}
	return append([]contents{c}, nested...)
}

// delegated reports whether an object in the manifests of another object applies a tenant's manifests: it
// is in another namespace and names an account.
func delegated(o, by *unstructured.Unstructured) bool {
	account, _, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName")
	return account != "" && o.GetNamespace() != by.GetNamespace()
}

// release returns the known contents of a HelmRelease: its spec, its values in ConfigMaps, and the files of
// a chart in Git. A chart from another source does not know the tenants of this fleet, unless its values
// name them.
func (r *contentsReader) release(ctx context.Context, u *unstructured.Unstructured) contents {
	c := contents{from: "installs a chart", text: specText(u)}
	from, _, _ := unstructured.NestedSlice(u.Object, "spec", "valuesFrom")
	for _, entry := range from {
		values := &corev1.ConfigMap{}
		if fields, _ := entry.(map[string]any); fields["kind"] == "ConfigMap" {
			name, _ := fields["name"].(string)
			if r.admin.Get(ctx, client.ObjectKey{Namespace: u.GetNamespace(), Name: name}, values) == nil {
				for _, value := range values.Data {
					c.text += "\n" + value
				}
			}
		}
	}
	if dir, err := r.source(ctx, u, "spec", "chart", "spec", "sourceRef"); err == nil {
		chart, _, _ := unstructured.NestedString(u.Object, "spec", "chart", "spec", "chart")
		c.text += textIn(filepath.Join(dir, filepath.FromSlash(path.Join("/", chart))))
	}
	return c
}

// textIn returns the text of all YAML files in a folder.
func textIn(dir string) string {
	var text strings.Builder
	_ = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || !strings.HasPrefix(filepath.Ext(name), ".y") {
			return nil //nolint:nilerr // an unreadable file has no text
		}
		content, _ := os.ReadFile(name)
		text.Write(content)
		return nil
	})
	return text.String()
}

// source returns a local folder with the files of an object's source.
func (r *contentsReader) source(ctx context.Context, u *unstructured.Unstructured, at ...string) (string, error) {
	ref := sourceOf(u, at...)
	if dir, known := r.clones[ref]; known {
		return dir, nil
	}
	if ref.Kind != flux.GitRepository && ref.Kind != flux.OCIRepository || r.Git == nil {
		if ref == r.Root && r.Folder != "" {
			return r.Folder, nil
		}
		return "", fmt.Errorf("%s is on no local host", ref)
	}
	repository, err := r.sourceObject(ctx, ref)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(r.dir, fmt.Sprint(len(r.clones)))
	if err := r.hosts().export(ctx, repository, dir); err != nil {
		return "", err
	}
	r.clones[ref] = dir
	return dir, nil
}

// sourceOf returns the source that a field of an object names.
func sourceOf(u *unstructured.Unstructured, at ...string) flux.Ref {
	fields, _, _ := unstructured.NestedStringMap(u.Object, at...)
	ref := flux.Ref{Kind: flux.Kind(fields["kind"]), Namespace: fields["namespace"], Name: fields["name"]}
	if ref.Namespace == "" {
		ref.Namespace = u.GetNamespace()
	}
	return ref
}

// sourceObject returns a source of the cluster.
func (r *contentsReader) sourceObject(ctx context.Context, ref flux.Ref) (*unstructured.Unstructured, error) {
	source := object(ref.Kind.GroupVersionKind().GroupVersion().String(), string(ref.Kind), ref.Namespace, ref.Name, nil)
	if err := r.admin.Get(ctx, keyOf(source), source); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", ref, err)
	}
	return source, nil
}

// published reports whether a source is an artifact of a third party, which, like a third-party chart, does
// not know the tenants of this fleet. It returns false if the owners of the fleet's repositories are
// unknown.
func (r *contentsReader) published(ctx context.Context, ref flux.Ref) bool {
	if ref.Kind != flux.OCIRepository {
		return false
	}
	source, err := r.sourceObject(ctx, ref)
	if err != nil {
		source = r.declared[ref]
	}
	if source == nil || len(r.owners) == 0 {
		return false
	}
	url, _, _ := unstructured.NestedString(source.Object, "spec", "url")
	owner := ownerOf(url)
	return owner != "" && !slices.Contains(r.owners, owner)
}

// fleetOwners returns the owners of the repositories in a cluster's Git sources, including the owner of the
// root source's repository. It returns none if that owner is unknown.
func (r *contentsReader) fleetOwners(ctx context.Context) ([]string, error) {
	if r.Root.Name == "" {
		return nil, nil
	}
	root, err := r.sourceObject(ctx, r.Root)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err != nil {
		return nil, nil //nolint:nilerr // a fleet without its root has no known owner
	}
	url, _, _ := unstructured.NestedString(root.Object, "spec", "url")
	owner := ownerOf(url)
	if owner == "" {
		return nil, nil
	}
	owners := []string{owner}
	repositories, err := listOf(ctx, r.admin, flux.GitRepository)
	if err != nil {
		return nil, err
	}
	for i := range repositories {
		url, _, _ := unstructured.NestedString(repositories[i].Object, "spec", "url")
		if owner := ownerOf(url); owner != "" {
			owners = append(owners, owner)
		}
	}
	return owners, nil
}

// publicHosts are hosts on which the first part of a path is the owner. The owner has the same name on the
// Git host and in the registry that belongs to it.
var publicHosts = []string{"github.com", "ghcr.io", "gitlab.com", "registry.gitlab.com"}

// ownerOf returns the owner of a repository or an artifact on a public host, in lower case, or "".
func ownerOf(url string) string {
	parts := strings.Split(flux.NormalizeURL(url), "/")
	if len(parts) < 3 || !slices.Contains(publicHosts, parts[0]) {
		return ""
	}
	host := strings.TrimPrefix(strings.Replace(parts[0], "ghcr.io", "github.com", 1), "registry.")
	return host + "/" + strings.ToLower(parts[1])
}
