package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// inventedHost serves the repositories of tenants for which Flux delivers nothing, or only sources to which verify cannot push.
// RFC 2606 reserves the name.
const inventedHost = "sources.tenure.invalid"

// undelivered reports whether Flux delivers nothing for the tenant: then there is nothing to commit to. A tenant
// whose rights are not complete here may get a delivery with them.
func (e *Scenario) undelivered() bool { return !e.Tenant.Synced && e.lacks == "" }

// maySync returns the first kind of Flux that delivers a source and that the tenant may write as one of its
// identities, or "".
func (e *Scenario) maySync(ctx context.Context) (flux.Kind, error) {
	rules, err := e.rulesOfAll(ctx)
	if err != nil {
		return "", err
	}
	for _, kind := range []flux.Kind{flux.Kustomization, flux.HelmRelease} {
		if writes(rules, schema.GroupResource{Group: kind.GroupVersionKind().Group, Resource: strings.ToLower(string(kind)) + "s"}) {
			return kind, nil
		}
	}
	return "", nil
}

// inventRepository gives a tenant for which Flux delivers nothing a repository for the attacks through the API, if
// the tenant may write a Kustomization or a HelmRelease: an admin creates a source in the tenant's namespace, as
// the tenant could for a repository of its own. It returns the source, or nil if the tenant needs none or cannot have one:
// e.unplanted is the reason then.
func (e *Scenario) inventRepository(ctx context.Context, opts Options) *unstructured.Unstructured {
	if e.Repository != nil || !e.undelivered() || !e.hasAccount() || opts.Git == nil || opts.Network == nil {
		return nil
	}
	if kind, err := e.maySync(ctx); err != nil || kind == "" {
		e.unplanted = err
		return nil
	}
	return e.serveInvented(ctx, opts, discovery.Repository{Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: e.Namespace}})
}

// inventDelivery gives a tenant that delivers from Buckets and ExternalArtifacts alone a Git repository beside its Kustomization,
// with the account and the settings of this Kustomization: to push there is to push to the Bucket. It returns the source, or
// nil if the tenant needs none or cannot have one: e.unplanted is the reason then.
func (e *Scenario) inventDelivery(ctx context.Context, opts Options) *unstructured.Unstructured {
	if e.Repository != nil || len(e.Tenant.Repositories) > 0 || !e.hasAccount() || opts.Git == nil || opts.Network == nil {
		return nil
	}
	for _, sync := range e.Tenant.Unpushed {
		if in := sync.Kustomization.Namespace; in == e.Account.Namespace || !slices.Contains(e.Tenant.Namespaces, in) {
			return e.serveInvented(ctx, opts, sync)
		}
	}
	return nil
}

// serveInvented serves a Git repository and creates its source in the namespace of the Kustomization of a delivery.
func (e *Scenario) serveInvented(ctx context.Context, opts Options, delivery discovery.Repository) *unstructured.Unstructured {
	const branch = "main"
	path := "/" + e.Tenant.Name
	url := "https://" + inventedHost + path
	if _, served := opts.Git.Head(url, branch); !served {
		if err := opts.Git.AddFiles(ctx, url, branch, map[string]string{attackFolder + "/kustomization.yaml": nothingHere}); err != nil {
			e.unplanted = fmt.Errorf("cannot serve a repository for tenant %s: %w", e.Tenant.Name, err)
			return nil
		}
		opts.Network.Handle(inventedHost, path, opts.Git)
	}
	id, namespace := "repository", delivery.Kustomization.Namespace
	if namespace != e.Namespace {
		id = e.ofTenant(id) // the namespace may also contain sources of other tenants
	}
	source := object(sourceAPI, string(flux.GitRepository), namespace, name(id), map[string]any{"spec": map[string]any{
		"interval": "1h", "url": url, "ref": map[string]any{"branch": branch},
	}})
	if err := e.Admin.Create(ctx, source); err != nil {
		e.unplanted = fmt.Errorf("cannot create a source for tenant %s: %w", e.Tenant.Name, err)
		return nil
	}
	delivery.Source = flux.Ref{Kind: flux.GitRepository, Namespace: namespace, Name: source.GetName()}
	delivery.URL, delivery.Branch, delivery.Path = url, branch, "/"
	e.Repository = &delivery
	return source
}
