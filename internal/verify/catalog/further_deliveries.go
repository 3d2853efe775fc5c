package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
)

// maxDeliveries is the maximum number of further repositories through which a tenant attacks. If a tenant has more, the
// attacks by a commit are not proven.
const maxDeliveries = 3

// prepareDeliveries adds the repositories of the tenant that Flux applies with rights that the account of the first one
// lacks: what RBAC refuses to one, it may allow to another. It adds one repository for each account.
func (e *Scenario) prepareDeliveries(ctx context.Context) error {
	if e.Repository == nil || !e.Tenant.Synced {
		return nil
	}
	first := e.Tenant.Holder(e.Repository.Account.User())
	seen := []discovery.Account{e.Repository.Account}
	for i := range e.Tenant.Repositories {
		r := &e.Tenant.Repositories[i]
		if r.OfPlatform || r.Remote || slices.Contains(seen, r.Account) {
			continue
		}
		holder := e.Tenant.Holder(r.Account.User())
		if r.Account.Name != "" && (len(holder.Rights) == 0 || holder.Within(first)) {
			continue
		}
		d := *e
		d.Repository, d.ordinaries, d.runsBy = r, &ordinaries{}, nil
		d.owners, d.holders, d.unlike, d.deliveries = nil, nil, nil, nil
		d.suffix = fmt.Sprintf("-%d", len(e.deliveries)+2)
		mapped := e.hosts.serve(*r)
		if !mapped && (r.Branch == "" || !besides(r.URL, e.Repository.URL)) {
			continue // of an author of programs, who is no part of the team
		}
		if len(e.deliveries) == maxDeliveries {
			d.unplanted = fmt.Errorf("at most %d further repositories are tried", maxDeliveries)
			e.deliveries = append(e.deliveries, &d)
			break
		}
		if !mapped {
			d.unplanted = fmt.Errorf("the repository is not mapped: add --map %s=DIR", r.Address())
		}
		if r.Account.Name != "" && d.unplanted == nil {
			as, err := asAccount(e.config, r.Account, e.customs)
			if err != nil {
				return err
			}
			applies := d
			applies.As = as
			d.runsBy = applies.findWorkload(ctx)
			applies.runsBy = d.runsBy
			d.takeover = applies.findTakeover(ctx)
		}
		seen = append(seen, r.Account)
		e.deliveries = append(e.deliveries, &d)
	}
	return nil
}

// besides reports whether two repositories have the same owner on the same host.
func besides(a, b string) bool {
	owner := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			return address
		}
		first, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
		return u.Host + "/" + first
	}
	return owner(a) == owner(b)
}

// plantDeliveries commits the files of the attacks to the further repositories. It returns a function that removes them.
// Syncs of the same branch share the files.
func (e *Scenario) plantDeliveries(ctx context.Context, attacks []Attack) func(context.Context) error {
	committed := slices.DeleteFunc(slices.Clone(attacks), func(a Attack) bool { return a.Via != Git })
	var restores []func(context.Context) error
	for i, d := range e.deliveries {
		if d.unplanted != nil || len(committed) == 0 {
			continue
		}
		same := slices.IndexFunc(e.deliveries[:i], func(o *Scenario) bool { return o.Repository.Source == d.Repository.Source })
		switch {
		case d.Repository.Source == e.Repository.Source:
			d.slim, d.near, d.charts, d.unplanted = e.slim, e.near, e.charts, e.unplanted
		case same >= 0:
			from := e.deliveries[same]
			d.slim, d.near, d.charts, d.unplanted = from.slim, from.near, from.charts, from.unplanted
		default:
			var restore func(context.Context) error
			restore, d.unplanted = d.plant(ctx, committed)
			restores = append(restores, restore)
		}
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, restore := range restores {
			errs = append(errs, restore(ctx))
		}
		return errors.Join(errs...)
	}
}

// byDeliveries tries an attack by a commit through the further repositories, until it gets through. It returns the finding
// if it got through, or if it was stopped so far and a repository cannot be used, and otherwise nil.
func (e *Scenario) byDeliveries(ctx context.Context, a Attack, stopped bool) *Finding {
	if a.Via != Git {
		return nil
	}
	var unknown *Finding
	for _, d := range e.deliveries {
		through := fmt.Sprintf("through %s, which Flux applies for %s ", firstLine(d.Repository.Address()), d.Repository.Kustomization)
		if d.Repository.Account.Name == "" {
			through += "without an account"
		} else {
			through += "as " + d.Repository.Account.String()
		}
		if d.unplanted != nil {
			f := notProven(through + ": " + firstLine(d.unplanted.Error()))
			unknown = cmp.Or(unknown, &f)
			continue
		}
		if f := a.run(ctx, d); f.Outcome == GotThrough {
			f.Evidence = through + ": " + f.Evidence
			return &f
		}
	}
	if stopped {
		return unknown
	}
	return nil
}
