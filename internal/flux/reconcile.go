package flux

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RequestReconcile asks Flux to reconcile an object now instead of at its next interval, as
// `flux reconcile` does: by the annotation reconcile.fluxcd.io/requestedAt. It does not wait.
// It returns an error if the object does not exist or the API server refuses the annotation.
func RequestReconcile(ctx context.Context, c client.Writer, ref Ref) error {
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		meta.ReconcileRequestAnnotation: time.Now().Format(time.RFC3339Nano),
	}}}
	if err := mergePatch(ctx, c.Patch, ref, patch); err != nil {
		return fmt.Errorf("cannot request the reconciliation of %s: %w", ref, err)
	}
	return nil
}

// SourcesOf returns the sources, in all namespaces, that fetch from an address:
// GitRepositories, OCIRepositories and HelmRepositories whose URL is the same after
// [NormalizeURL] of both, and HelmCharts that are an OCI artifact there. A HelmChart of an
// ordinary HelmRepository follows by itself. It returns an error if a kind cannot be listed.
func SourcesOf(ctx context.Context, c client.Reader, address string) ([]Ref, error) {
	var git sourcev1.GitRepositoryList
	var oci sourcev1.OCIRepositoryList
	var helm sourcev1.HelmRepositoryList
	var charts sourcev1.HelmChartList
	for _, list := range []client.ObjectList{&git, &oci, &helm, &charts} {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot look for the sources of %s: %w", address, err)
		}
	}
	want := NormalizeURL(address)
	var refs []Ref
	add := func(url string, kind Kind, o client.Object) {
		if NormalizeURL(url) == want {
			refs = append(refs, Ref{kind, o.GetNamespace(), o.GetName()})
		}
	}
	for _, item := range git.Items {
		add(item.Spec.URL, GitRepository, &item)
	}
	for _, item := range oci.Items {
		add(item.Spec.URL, OCIRepository, &item)
	}
	registries := map[types.NamespacedName]string{}
	for _, item := range helm.Items {
		if item.Spec.Type == sourcev1.HelmRepositoryTypeOCI {
			registries[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = item.Spec.URL
			continue
		}
		add(item.Spec.URL, HelmRepository, &item)
	}
	for _, item := range charts.Items {
		name := types.NamespacedName{Namespace: item.Namespace, Name: item.Spec.SourceRef.Name}
		if url := registries[name]; url != "" && item.Spec.SourceRef.Kind == sourcev1.HelmRepositoryKind {
			add(strings.TrimRight(url, "/")+"/"+item.Spec.Chart, HelmChart, &item)
		}
	}
	return refs, nil
}

// defaultPorts are left out of normalized addresses.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ssh": "22", "git": "9418"}

// NormalizeURL reduces a Git repository's address to host/path, so that
// different spellings compare equal: it drops scheme, user, default port, query,
// trailing slashes and the suffix .git, and lowers the case of the host. It parses the
// short form of SSH, user@host:path. It returns other text without surrounding space.
func NormalizeURL(address string) string {
	address = strings.TrimSpace(address)
	if !strings.Contains(address, "://") {
		host, path, ok := strings.Cut(address, ":")
		if !ok || strings.Contains(host, "/") {
			return trimPath(address)
		}
		address = "ssh://" + host + "/" + strings.TrimPrefix(path, "/")
	}
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	host := strings.ToLower(u.Hostname())
	if port := u.Port(); port != "" && port != defaultPorts[strings.ToLower(u.Scheme)] {
		host = net.JoinHostPort(host, port)
	}
	return host + trimPath(u.Path)
}

func trimPath(path string) string {
	return strings.TrimSuffix(strings.TrimRight(path, "/"), ".git")
}

// patchFunc is Patch of a client or of its status writer, without options.
type patchFunc func(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error

// mergePatch patches an object of which only the name is known.
func mergePatch(ctx context.Context, patch patchFunc, ref Ref, content any, opts ...client.PatchOption) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(ref.Kind.GroupVersionKind())
	obj.SetNamespace(ref.Namespace)
	obj.SetName(ref.Name)
	return patch(ctx, obj, client.RawPatch(types.MergePatchType, data), opts...)
}
