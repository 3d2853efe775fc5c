package localcluster

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// assumptions returns the function that chooses the assumed objects: those that the user names,
// and those that fail for an unmapped address if the user wants that. It records the objects that
// the user does not name one by one, since nobody has looked at them.
func (c *Cluster) assumptions(kube client.Client) func(rows []flux.Row) []flux.Ref {
	var unmapped []flux.Ref
	recorded := map[flux.Ref]bool{}
	record := func(ref flux.Ref, reason string) {
		if !recorded[ref] {
			recorded[ref] = true
			c.addFake(Fake{Assumed: true, Content: true, Text: ref.String() + " is assumed ready " + reason})
		}
	}
	return func(rows []flux.Row) []flux.Ref {
		if c.opts.AssumeUnmapped {
			found := flux.Unmapped(rows, unmapped)
			for _, ref := range found[len(unmapped):] {
				record(ref, "(its address is not mapped)")
			}
			if len(found) > len(unmapped) {
				unmapped = found
				if err := flux.SuspendAssumed(c.life, kube, slices.Concat(c.assumed, unmapped)); err != nil && c.life.Err() == nil {
					c.report(err)
				}
			}
		}
		for _, row := range rows {
			if slices.ContainsFunc(c.assumed, func(ref flux.Ref) bool { return ref.IsPattern() && ref.Matches(row.Ref()) }) {
				record(row.Ref(), "(--assume names all of its kind or namespace)")
			}
		}
		return slices.Concat(c.assumed, unmapped)
	}
}

// skipSignatures lets sources through whose signature Flux cannot verify, until the cluster ends:
// their content is a mapped folder, which has no signature of its authors. It waits for the failure
// of a source, since a mapped Git repository may have signed commits. A source outside of the
// platform's namespace stays failed if a policy of the cluster refers to spec.verify, which
// would refuse the source without it.
func (c *Cluster) skipSignatures(kube client.WithWatch) error {
	done := map[flux.Ref]bool{}
	var skipped []flux.Ref
	return flux.Watch(c.life, kube, flux.Selection{Kinds: flux.SourceKinds()}, func(rows []flux.Row) error {
		for _, row := range rows {
			address, public, unverified := flux.Unverified(c.life, kube, row)
			if !unverified || done[row.Ref()] || !c.assumesSignature(address, public) {
				continue
			}
			var demanded bool
			err := retry.OnError(shortRetries, func(error) bool { return c.life.Err() == nil }, func() (err error) {
				demanded, err = c.skipSignature(kube, row, skipped)
				return err
			})
			if err != nil {
				// The next change of a source tries it again.
				if c.life.Err() == nil {
					c.report(fmt.Errorf("cannot leave out the signature of %s: %w", row.Ref(), err))
				}
				continue
			}
			if done[row.Ref()] = true; demanded {
				continue
			}
			skipped = append(skipped, row.Ref())
			c.addFake(Fake{Assumed: true, Text: "the signature of " + row.Ref().String() + " is not verified here"})
		}
		return nil
	})
}

// shortRetries are the attempts to change a source, within a second and a half.
var shortRetries = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Steps: 5}

// skipSignature lets one source through, beside the skipped ones, unless a policy demands the
// signature of a source outside of the platform's namespace.
func (c *Cluster) skipSignature(kube client.Client, row flux.Row, skipped []flux.Ref) (demanded bool, err error) {
	demanded, err = flux.DemandsVerification(c.life, kube)
	if err != nil {
		return false, err
	}
	if demanded && row.Namespace != c.Fleet.Sync.Namespace {
		return true, nil
	}
	if err := flux.SkipVerification(c.life, kube, c.unsigned(), append(slices.Clone(skipped), row.Ref())); err != nil {
		return false, err
	}
	return false, flux.WithoutVerification(c.life, kube, row.Ref())
}

// assumesSignature reports whether the cluster lets Flux skip the signature of a source at an
// address, because Flux could not verify it. This is so for a mapped folder and, without a network,
// for any address. The artifact in a mapped OCI layout can have signatures, which Flux verifies,
// unless they need Sigstore's public root and Flux cannot fetch it.
func (c *Cluster) assumesSignature(address string, public bool) bool {
	from, mapped := c.mapOf(address)
	if mapped && ocihost.IsLayout(from.Dir) {
		return public && !c.opts.Online
	}
	return mapped || !c.opts.Online
}

// mapOf returns the map whose folder is served at the address of a source.
func (c *Cluster) mapOf(address string) (network.Map, bool) {
	i := slices.IndexFunc(c.opts.Maps, func(m network.Map) bool {
		if m.Kind == network.KindGit {
			mapped, err := githost.Address(m.URL)
			asked, askedErr := githost.Address(address)
			return err == nil && askedErr == nil && mapped == asked
		}
		mapped, err := ocihost.ParseAddress(m.Source())
		asked, askedErr := ocihost.ParseAddress(address)
		return err == nil && askedErr == nil && mapped == asked
	})
	if i < 0 {
		return network.Map{}, false
	}
	return c.opts.Maps[i], true
}
