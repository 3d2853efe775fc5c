package catalog

import (
	"context"
	"errors"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// hosts are the local hosts of the tenants' repositories. A host may be nil.
type hosts struct {
	git *githost.Host
	oci *ocihost.Host
}

func (o Options) hosts() hosts { return hosts{o.Git, o.OCI} }

// inGit reports whether a repository is a Git repository, and not an OCI artifact.
func inGit(r discovery.Repository) bool { return r.Source.Kind == flux.GitRepository }

// artifact returns the address of a repository that is an OCI artifact.
func artifact(url, tag string) (ocihost.Address, error) {
	address, err := ocihost.ParseAddress(url)
	if err == nil && tag == "" {
		err = errors.New("no tag selects the artifact " + url)
	}
	address.Tag = tag
	return address, err
}

// serve reports whether a local host serves a repository.
func (h hosts) serve(r discovery.Repository) bool {
	if inGit(r) {
		if h.git == nil || r.Branch == "" {
			return false // Flux does not deliver pushes to a branch
		}
		_, mapped := h.git.Head(r.URL, r.Branch)
		return mapped
	}
	address, err := artifact(r.URL, r.Branch)
	return err == nil && h.oci != nil && h.oci.Serves(address)
}

// publish adds files to a repository, as a push of the tenant's team would, or removes files without
// content. It returns the end of the revision that Flux gives the push. The error is the error of the host.
func (h hosts) publish(ctx context.Context, r discovery.Repository, message string, files map[string][]byte) (string, error) {
	if !inGit(r) {
		address, err := artifact(r.URL, r.Branch)
		if err != nil {
			return "", err
		}
		return h.oci.Overlay(address, files)
	}
	return h.git.Commit(ctx, r.URL, r.Branch, message, func(t *githost.Tree) error {
		var errs []error
		for name, content := range files {
			if content == nil {
				errs = append(errs, t.Remove(name))
			} else {
				errs = append(errs, t.WriteFile(name, content))
			}
		}
		return errors.Join(errs...)
	})
}

// export writes the content of a source into a new folder. The error is the error of the host.
func (h hosts) export(ctx context.Context, source *unstructured.Unstructured, dir string) error {
	url, _, _ := unstructured.NestedString(source.Object, "spec", "url")
	if source.GetKind() == string(flux.GitRepository) {
		return h.git.Export(ctx, url, flux.Branch(source), dir)
	}
	address, err := artifact(url, flux.Tag(source))
	if err != nil {
		return err
	}
	if h.oci == nil {
		return errors.New("no registry serves " + url)
	}
	return h.oci.Export(address, dir)
}
