package localcluster

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bases are the remote bases in mapped folders.
func (c *Cluster) bases() network.Bases { return network.Bases{Maps: c.opts.Maps, Git: c.Git} }

// UnmappedBases returns the remote bases without a folder in what a Kustomization applies. It reads the
// folder that the source of the Kustomization is served from, and finds none if that has no folder.
func (c *Cluster) UnmappedBases(ctx context.Context, kube client.Reader, kustomization flux.Ref) []flux.RemoteBase {
	address, dir, err := flux.AppliedFolder(ctx, kube, kustomization)
	if err != nil {
		return nil // it is gone
	}
	from, ok := c.mapOf(address)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(flux.RemoteBases(from.Dir, filepath.Join(from.Dir, filepath.FromSlash(dir))), c.bases().Has)
}
