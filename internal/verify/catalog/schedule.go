package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// deepAtATime is the maximum number of concurrent attacks that wait for Flux. It is the default number
	// of workers of both controllers together.
	deepAtATime = 8
	// shallowAtATime is the maximum number of concurrent attacks that only send requests to the API server.
	shallowAtATime = 4
	// plantedAtATime is the maximum number of repositories that are changed concurrently.
	plantedAtATime = 4
)

// tenantRun holds the attacks of one tenant and their results. The result of an attack that did not run is
// nil.
type tenantRun struct {
	scenario *Scenario
	attacks  []Attack
	results  []*Result
	restore  func(context.Context) error
}

// needsFiles reports whether an attack of the tenantRun needs files in the tenant's repository, or a source
// that exists only with them, because the tenant has none in its namespace.
func (a *tenantRun) needsFiles() bool {
	return a.scenario.Repository != nil && slices.ContainsFunc(a.attacks, func(attack Attack) bool {
		return attack.Files != nil || attack.Source && a.scenario.platformDelivers()
	})
}

// scheduler runs the attacks of all tenants concurrently. The same attack never runs for two tenants at a
// time, because both would use the same canary.
type scheduler struct {
	progress func(Result)

	mu    sync.Mutex
	locks map[string]*sync.Mutex
}

// run runs all attacks, in rounds.
func (s *scheduler) run(ctx context.Context, all []*tenantRun) error {
	s.locks = map[string]*sync.Mutex{}
	for _, a := range all {
		for _, attack := range a.attacks {
			s.locks[attack.Key()] = &sync.Mutex{}
		}
	}
	for _, round := range rounds(all) {
		if err := s.runRound(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

// rounds puts tenants that deliver from the same branch of a repository into different rounds,
// because the files for one tenant would replace the files for the other.
func rounds(all []*tenantRun) [][]*tenantRun {
	var parts [][]*tenantRun
	next := map[string]int{}
	for _, a := range all {
		round := 0
		if a.needsFiles() {
			branches := []string{a.scenario.Repository.Address()}
			for _, d := range a.scenario.deliveries {
				branches = append(branches, d.Repository.Address())
			}
			for _, branch := range branches {
				round = max(round, next[branch])
			}
			for _, branch := range branches {
				next[branch] = round + 1
			}
		}
		for len(parts) <= round {
			parts = append(parts, nil)
		}
		parts[round] = append(parts[round], a)
	}
	return parts
}

// runRound commits the attacks' files to the repositories of all tenants, runs the attacks, and removes the
// files.
func (s *scheduler) runRound(ctx context.Context, all []*tenantRun) error {
	defer func() {
		var group errgroup.Group
		group.SetLimit(plantedAtATime)
		// The cluster may have stopped.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupPatience)
		defer cancel()
		for _, a := range all {
			if a.restore != nil {
				group.Go(func() error { return a.restore(ctx) })
			}
		}
		// Remaining files do no harm: the cluster works with a copy.
		_ = group.Wait()
	}()
	var group errgroup.Group
	group.SetLimit(plantedAtATime)
	for _, a := range all {
		if !a.needsFiles() {
			continue
		}
		group.Go(func() error {
			var restore func(context.Context) error
			restore, a.scenario.unplanted = a.scenario.plant(ctx, a.attacks)
			further := a.scenario.plantDeliveries(ctx, a.attacks)
			a.restore = func(ctx context.Context) error { return errors.Join(further(ctx), restore(ctx)) }
			return nil
		})
	}
	_ = group.Wait()
	var deep, shallow errgroup.Group
	deep.SetLimit(deepAtATime)
	shallow.SetLimit(shallowAtATime)
	both := make(chan error, 1)
	go func() {
		s.start(ctx, &shallow, all, false)
		both <- shallow.Wait()
	}()
	s.start(ctx, &deep, all, true)
	if err := errors.Join(deep.Wait(), <-both); err != nil {
		return err
	}
	s.retryWithoutRoom(ctx, all)
	return ctx.Err()
}

// quotaPatience is the maximum time to wait until the quota suffices for one more attack.
const quotaPatience = 20 * time.Second

// retryWithoutRoom repeats, one at a time, the attacks that failed because the tenant's quota was used up:
// the objects of other attacks may have used it. Kubernetes subtracts deleted objects from a quota a moment
// after their deletion.
func (s *scheduler) retryWithoutRoom(ctx context.Context, all []*tenantRun) {
	left := func() (left int) {
		for _, a := range all {
			for at, r := range a.results {
				if r == nil || !failedForQuota(r.Finding) {
					continue
				}
				s.runAttack(ctx, a, at)
				if failedForQuota(a.results[at].Finding) {
					left++
				}
			}
		}
		return left
	}
	pause := time.NewTicker(time.Second)
	defer pause.Stop()
	// If the tenant's own objects use up the quota, waiting does not help.
	for before, since := 0, time.Now(); ctx.Err() == nil; {
		remaining := left()
		if remaining == 0 || remaining == before && time.Since(since) > quotaPatience {
			break
		}
		if remaining != before {
			before, since = remaining, time.Now()
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
	for _, a := range all {
		for _, r := range a.results {
			if r != nil && failedForQuota(r.Finding) {
				s.progress(*r)
			}
		}
	}
}

// failedForQuota reports whether an attack is not proven because a quota is exceeded.
func failedForQuota(f Finding) bool {
	return f.Outcome == NotProven && strings.Contains(f.Reason, "exceeded quota: ")
}

// start starts the deep attacks, or the attacks that are not deep. Tenants begin at different positions of
// the catalogue, so that they do not wait for each other.
func (s *scheduler) start(ctx context.Context, group *errgroup.Group, all []*tenantRun, deep bool) {
	longest := 0
	for _, a := range all {
		longest = max(longest, len(a.attacks))
	}
	for step := range longest {
		for k, a := range all {
			if step >= len(a.attacks) {
				continue
			}
			at := (step + k*len(a.attacks)/len(all)) % len(a.attacks)
			if a.attacks[at].Deep != deep {
				continue
			}
			group.Go(func() error {
				s.runAttack(ctx, a, at)
				return ctx.Err()
			})
		}
	}
}

// runAttack runs one attack of a tenant and keeps its result.
func (s *scheduler) runAttack(ctx context.Context, a *tenantRun, at int) {
	attack, e := a.attacks[at], a.scenario
	lock := s.locks[attack.Key()]
	lock.Lock()
	defer lock.Unlock()
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	r := Result{Attack: attack, Tenant: e.Tenant.Name, Finding: e.try(ctx, attack)}
	// After a cancellation only attacks that got through have a result.
	if ctx.Err() != nil && r.Finding.Outcome != GotThrough {
		return
	}
	r.Took = time.Since(began)
	r.Finding.Sent = nil // up to some megabytes
	s.mu.Lock()
	defer s.mu.Unlock()
	a.results[at] = &r
	if !failedForQuota(r.Finding) { // the repetition reports it
		s.progress(r)
	}
}

// try runs one attack if the tenant meets its requirements.
func (e *Scenario) try(ctx context.Context, a Attack) Finding {
	switch {
	case a.Via == Git && e.undelivered():
		return Finding{Outcome: NotInstalled, Message: "Flux delivers no repository of the tenant"}
	case (a.Files != nil || a.Source) && e.Repository == nil:
		return e.withoutRepository(ctx)
	case (a.Files != nil || a.Source && e.platformDelivers()) && e.unplanted != nil:
		return notProven("the tenant's repository cannot be used: " + firstLine(e.unplanted.Error()))
	}
	f := e.tryAll(ctx, a)
	switch {
	case f.Outcome == GotThrough:
		return e.withDoubts(a, f)
	case f.Outcome == Stopped && e.lacks != "" && incomplete(f.Control):
		if !strings.Contains(f.Control, rbac) {
			return notProven("there is " + f.Control + ", but " + e.lacks)
		}
		return notProven("RBAC refuses it, but " + e.lacks)
	case f.Outcome == Stopped && absent(f.Control):
		return Finding{Outcome: NotInstalled, Message: f.Message}
	case f.Outcome == Stopped && e.hasAccount():
		f.Missing = a.missingLayers(ctx, e)
	}
	return f
}

// withDoubts returns the finding. An attack that got through is not proven if an admission policy may stop
// the attack and a part of the fleet that may contain such a policy is simulated or missing. The same holds for an attack in
// a dry run if a policy looks at whether its request is one.
func (e *Scenario) withDoubts(a Attack, f Finding) Finding {
	for _, p := range e.dryRunPolicies {
		if !a.Deep && a.Via != Proxy && p.concerns(a) && p.inReachOf(a, e) && p.asked(a, e, f.Sent) {
			doubtful := notProven(fmt.Sprintf("%s, in a dry run, but %s looks at whether a request is a dry run", f.Evidence, p.name))
			doubtful.InFull, doubtful.Further = f.InFull, f.Further
			return doubtful
		}
	}
	doubts := slices.Clone(e.doubts)
	for _, w := range e.webhookDoubts {
		if w.concerns(a) && w.inReachOf(a, e) && w.asked(a, e, f.Sent) {
			doubts = append(doubts, w.name)
		}
	}
	if len(doubts) == 0 || !a.admission() {
		return f
	}
	doubtful := notProven(fmt.Sprintf("here %s, but a policy that stops it may come with %s", f.Evidence, strings.Join(doubts, ", ")))
	doubtful.InFull, doubtful.Further = f.InFull, f.Further
	return doubtful
}
