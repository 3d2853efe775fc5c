package localcluster

import (
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// skipCloudIdentities has Flux fetch without the credentials of a cloud or of a GitHub app, which no
// controller can get here, until the fleet has settled: the attacks that come later need no source. It
// waits for the failure of a source.
func (c *Cluster) skipCloudIdentities(kube client.WithWatch) error {
	var skipped []flux.Ref
	kinds := append(flux.SourceKinds(), flux.ImageRepository)
	return flux.Watch(c.life, kube, flux.Selection{Kinds: kinds}, func(rows []flux.Row) error {
		skipped = c.skipCloudIdentitiesOf(kube, rows, skipped)
		return nil
	})
}

// skipCloudIdentitiesOf makes Flux fetch the sources of rows without the credentials of their cloud, in
// addition to the skipped sources. It returns all skipped sources.
func (c *Cluster) skipCloudIdentitiesOf(kube client.Client, rows []flux.Row, skipped []flux.Ref) []flux.Ref {
	for _, row := range rows {
		if c.settled.Load() {
			break
		}
		source, provider, address, ok := flux.CloudIdentity(c.life, kube, row)
		if !ok || slices.Contains(skipped, source) || !c.servesWithoutIdentity(address) {
			continue
		}
		err := retry.OnError(shortRetries, func(error) bool { return c.life.Err() == nil }, func() error {
			if err := flux.SkipCloudIdentity(c.life, kube, append(slices.Clone(skipped), source)); err != nil {
				return err
			}
			return flux.RequestReconcile(c.life, kube, source)
		})
		if err != nil {
			// The next change of a source tries it again.
			if c.life.Err() == nil {
				c.report(fmt.Errorf("cannot fetch %s without spec.provider %s: %w", source, provider, err))
			}
			continue
		}
		skipped = append(skipped, source)
		c.addFake(Fake{Assumed: true, Text: fmt.Sprintf("%s is fetched without its credentials: no identity of provider %s is here", source, provider)})
	}
	return skipped
}

// servesWithoutIdentity reports whether the credentials for an address have no effect in this
// cluster: the cluster serves a mapped folder to every client, and without a network no other
// address answers.
func (c *Cluster) servesWithoutIdentity(address string) bool {
	_, mapped := c.mapOf(address)
	return mapped || !c.opts.Online
}
