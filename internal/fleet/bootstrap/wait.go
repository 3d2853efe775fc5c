package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
)

// errReady ends the watch.
var errReady = errors.New("ready")

// wait waits until the cluster has fetched and applied the pushed commit, including the rules for
// tenants.
func (b *bootstrapper) wait(ctx context.Context) error {
	kube, err := flux.NewClient(b.config)
	if err != nil {
		return err
	}
	before := text(b.live.source, "status", "artifact", "revision")
	if before != "" && before != b.wanted() {
		if err := flux.RequestReconcile(ctx, kube, flux.Ref{Kind: flux.GitRepository, Namespace: Namespace, Name: Namespace}); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, b.Timeout, ErrTimeout)
	defer cancel()
	missing, told := "nothing of it is there yet", map[string]bool{}
	selection := flux.Selection{Kinds: []flux.Kind{flux.GitRepository, flux.Kustomization}, Namespace: Namespace}
	err = flux.Watch(ctx, kube, selection, func(rows []flux.Row) error {
		var failed string
		if missing, failed = b.missing(rows, before); missing == "" {
			return errReady
		}
		b.progress(missing)
		if failed != "" && !told[failed] {
			told[failed] = true
			b.Note(failed)
		}
		return nil
	})
	if errors.Is(err, errReady) {
		return nil
	}
	if !errors.Is(err, ErrTimeout) {
		return err
	}
	if names := b.notAvailable(context.WithoutCancel(ctx)); names != "" {
		missing += "; not running: " + names
	}
	return fmt.Errorf("%w after %s: %s", ErrTimeout, b.Timeout, missing)
}

// wanted returns the pushed revision in Flux's format.
func (b *bootstrapper) wanted() string { return b.Remote.Branch + "@sha1:" + b.revision }

// missing returns the first object that is not ready, or "", and its failure.
func (b *bootstrapper) missing(rows []flux.Row, before string) (missing, failed string) {
	byRef := map[flux.Ref]flux.Row{}
	for _, row := range rows {
		byRef[row.Ref()] = row
	}
	names := []string{Namespace}
	if b.Profile.Tenants {
		names = append(names, lockdown.Own)
	}
	refs := []flux.Ref{{Kind: flux.GitRepository, Namespace: Namespace, Name: Namespace}}
	for _, name := range names {
		refs = append(refs, flux.Ref{Kind: flux.Kustomization, Namespace: Namespace, Name: name})
	}
	source := byRef[refs[0]]
	for _, ref := range refs {
		row, there := byRef[ref]
		message := strings.Join(strings.Fields(row.Message), " ")
		switch {
		case !there:
			return ref.String() + " is not there", ""
		case row.State == flux.Suspended:
			return ref.String() + " is suspended", ref.String() + " is suspended: resume it with `flux resume`"
		case row.State == flux.Failed:
			return ref.String() + ": " + message, ref.String() + ": " + message
		case row.State != flux.Ready:
			return fmt.Sprintf("%s is %s", ref, row.State), ""
		case row.Revision != source.Revision || row.Revision == before && before != b.wanted():
			// Another revision than the previous and the pushed one means that another
			// client has pushed since.
			return fmt.Sprintf("%s is at %s", ref, flux.ShortRevision(row.Revision)), ""
		}
	}
	return "", ""
}
