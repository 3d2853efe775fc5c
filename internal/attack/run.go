package attack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/tenants"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options say what is attacked.
type Options struct {
	// Config is an admin's, for a local cluster: attacks write.
	Config *rest.Config
	// Git serves the repositories of the tenants.
	Git *githost.Host
	// Platform is the namespace of Flux, Root the platform's own source.
	Platform string
	Root     flux.Ref
	// Only picks attacks; nil takes the whole catalogue.
	Only func(Attack) bool
	// Tenant names the only one that attacks; empty for all of them.
	Tenant string
	// Keep leaves the namespace that is attacked for another run, which is
	// quicker: one that is deleted takes five seconds to go. It is
	// [VictimNamespace].
	Keep bool
	// Progress is told of each attack that has ended; nil means nobody is.
	Progress func(Result)
}

// Result is an attack of one tenant, and what came of it.
type Result struct {
	Attack  Attack
	Tenant  string
	Finding Finding
	Took    time.Duration
	// Patch is a change to the fleet's manifests that stops it, as a unified
	// diff; empty if no place for one is known.
	Patch string
}

// Report is what came of all attacks.
type Report struct {
	Tenants []tenants.Tenant
	Results []Result
	// Like says, for a tenant that was not attacked in full, which tenant of
	// the same shape was: its findings hold for both.
	Like map[string]string
}

// Count returns how many attacks ended so.
func (r Report) Count(outcome Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Finding.Outcome == outcome {
			n++
		}
	}
	return n
}

// atATime is how many attacks run at a time: as many as kustomize-controller
// has workers by default.
const atATime = 4

// Run finds the tenants and attacks as each of them. Of several tenants with the
// same rights, the first is attacked in full and the others with the attacks
// that are not deep.
func Run(ctx context.Context, opts Options) (_ Report, err error) {
	if opts.Progress == nil {
		opts.Progress = func(Result) {}
	}
	admin, err := client.NewWithWatch(opts.Config, client.Options{})
	if err != nil {
		return Report{}, err
	}
	report := Report{Like: map[string]string{}}
	if report.Tenants, err = tenants.Discover(ctx, admin); err != nil {
		return Report{}, err
	}
	if len(report.Tenants) == 0 {
		return report, nil
	}
	victim, removeVictim, err := newVictim(ctx, admin)
	if err != nil {
		return report, err
	}
	if !opts.Keep {
		defer removeVictim()
	}
	first := map[string]string{}
	for _, t := range report.Tenants {
		if opts.Tenant != "" && t.Name != opts.Tenant {
			continue
		}
		attacks := slices.DeleteFunc(Catalogue(), func(a Attack) bool { return opts.Only != nil && !opts.Only(a) })
		if like, seen := first[t.Shape]; seen {
			report.Like[t.Name] = like
			attacks = slices.DeleteFunc(attacks, func(a Attack) bool { return a.Deep })
		} else {
			first[t.Shape] = t.Name
		}
		results := func(f func(Attack) Finding) []Result {
			var all []Result
			for _, a := range attacks {
				all = append(all, Result{Attack: a, Tenant: t.Name, Finding: f(a)})
			}
			return all
		}
		e, err := newEnv(opts.Config, admin, opts.Git, opts.Platform, victim, t)
		if err != nil {
			report.Results = append(report.Results, results(func(Attack) Finding { return unproven(err.Error()) })...)
			continue
		}
		e.Root = opts.Root
		tried, err := e.run(ctx, attacks, opts.Progress)
		report.Results = append(report.Results, tried...)
		if err != nil {
			return report, fmt.Errorf("cannot finish the attacks of tenant %s: %w", t.Name, err)
		}
	}
	return report, nil
}

// run tries the attacks of one tenant, several at a time. What they need in the
// tenant's repository is committed before, in one go, and taken out after.
func (e *Env) run(ctx context.Context, attacks []Attack, progress func(Result)) ([]Result, error) {
	planted := attacks
	if e.Repository == nil {
		planted = nil
	}
	restore, err := e.plant(ctx, planted)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var results []Result
	try := func(a Attack) {
		began := time.Now()
		r := Result{Attack: a, Tenant: e.Tenant.Name}
		if a.Files != nil && e.Repository == nil {
			r.Finding = unproven("no repository of the tenant is mapped")
		} else {
			r.Finding = a.Run(ctx, e)
		}
		if r.Finding.Outcome == Stopped {
			r.Finding.Missing = a.missingLayers(ctx, e)
		}
		r.Took = time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		results = append(results, r)
		progress(r)
	}
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, a := range attacks {
		group.Go(func() error {
			if ctx.Err() == nil {
				try(a)
			}
			return ctx.Err()
		})
	}
	err = group.Wait()
	slices.SortStableFunc(results, func(a, b Result) int {
		return cmp.Compare(slices.IndexFunc(attacks, a.Attack.is), slices.IndexFunc(attacks, b.Attack.is))
	})
	return results, errors.Join(err, restore(context.WithoutCancel(ctx)))
}
