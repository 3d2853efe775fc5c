// Mutate removes or weakens each control of the fleets of the corpus, one at a time, on one
// running cluster for each fleet. It compares the attacks whose outcome changes with the
// attacks that have to change by the model of test/corpus. It prints a line for each mutant
// and the score, and exits with 1 if test/corpus/survivors.yaml does not explain a survivor.
// With -fleet it mutates one fleet, with -only the mutants whose names match a regular
// expression.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/corpus"
	"golang.org/x/sync/errgroup"
)

// attackers are the attacking tenants, by fleet.
var attackers = map[string][]string{
	"company":        {"atlas", "borea"},
	"by-hand":        {"orders", "payments"},
	"all-teams":      {"red", "blue"},
	"in-flux-system": {"red", "blue"},
	"open":           {"tight"},
	"older":          {"blue"},
	"operator":       {"blue"},
}

// patience bounds the wait for a fleet.
const patience = 5 * time.Minute

// atOnce is the number of fleets that are mutated at the same time. Most of the time passes until
// the API server has taken note of a change.
const atOnce = 2

func main() {
	only := flag.String("only", "", "regular expression that the names of mutants must match")
	fleet := flag.String("fleet", "", "the only fleet that is mutated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *fleet, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, pattern string) error {
	names, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("cannot choose mutants: %w", err)
	}
	dir := filepath.Join("test", "corpus")
	fleets, err := corpus.Load(dir)
	if err != nil {
		return err
	}
	survivors, err := corpus.Survivors(dir)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var all corpus.Score
	began := time.Now()
	var errs []error
	// The fleet with policies has the most mutants, and each waits for the policies: it comes first,
	// so that it does not run alone at the end.
	slices.SortStableFunc(fleets, func(a, b corpus.Fleet) int {
		return len(attackers[b.Name])*weight(b) - len(attackers[a.Name])*weight(a)
	})
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, f := range fleets {
		if len(attackers[f.Name]) == 0 || only != "" && only != f.Name {
			continue
		}
		group.Go(func() error {
			score, err := mutate(ctx, f, survivors, names.MatchString)
			mu.Lock()
			defer mu.Unlock()
			all = all.Add(score)
			if err != nil {
				errs = append(errs, fmt.Errorf("cannot mutate fleet %s: %w", f.Name, err))
			}
			return nil // the other fleets go on
		})
	}
	_ = group.Wait()
	fmt.Printf("all fleets: %s, in %.0fs\n", all, time.Since(began).Seconds())
	for _, s := range all.Survived {
		errs = append(errs, errors.New(s))
	}
	return errors.Join(errs...)
}

// weight estimates how many mutants of a fleet there are for a tenant, in comparison with others.
func weight(f corpus.Fleet) int {
	policies, _ := filepath.Glob(filepath.Join(f.Dir, "platform", "policies", "*.yaml"))
	return 1 + len(policies)
}

// mutate starts the fleet, waits until it is ready, and mutates it as each of its attackers.
func mutate(ctx context.Context, f corpus.Fleet, survivors []corpus.Survivor, pick func(string) bool) (corpus.Score, error) {
	// Programs are started in other folders.
	bin, err := filepath.Abs("bin")
	if err != nil {
		return corpus.Score{}, err
	}
	opts := localcluster.Options{Name: fmt.Sprintf("mutate-%s-%d", f.Name, os.Getpid()), BinDir: bin, Fleet: filepath.Join(f.Dir, "platform"), Path: f.Path, Assume: f.Assumed()}
	for _, address := range slices.Sorted(maps.Keys(f.Maps)) {
		m, err := network.ParseMap(address + "=" + filepath.Join(f.Dir, f.Maps[address]))
		if err != nil {
			return corpus.Score{}, err
		}
		opts.Maps = append(opts.Maps, m)
	}
	d := &local.Display{Screen: ui.NewScreen(io.Discard)}
	cluster, err := d.Start(ctx, opts)
	if err != nil {
		return corpus.Score{}, err
	}
	defer func() { _ = d.Stop(cluster) }()
	root := cluster.Fleet.Sync
	var all corpus.Score
	for _, tenant := range attackers[f.Name] {
		began := time.Now()
		// After the mutants of another tenant, Flux resumes what was suspended for them.
		if err := settle(ctx, d, cluster, f); err != nil {
			return all, err
		}
		score, err := f.Mutate(ctx, catalog.Options{
			Config: cluster.REST, Git: cluster.Git, OCI: cluster.OCI, Network: cluster.Network, Platform: root.Namespace, Tenant: tenant,
			Root: flux.Ref{Kind: flux.GitRepository, Namespace: root.Namespace, Name: root.Source},
		}, survivors, pick, os.Stdout)
		fmt.Printf("%s as %s: %s, in %.0fs\n", f.Name, tenant, score, time.Since(began).Seconds())
		all = all.Add(score)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// settle waits until the fleet is as ready as it becomes.
func settle(ctx context.Context, d *local.Display, cluster *localcluster.Cluster, f corpus.Fleet) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rows, err := local.Watch(ctx, cluster, cancel)
	if err != nil {
		return err
	}
	failures, err := d.Settle(ctx, cluster, rows, patience)
	if err != nil || len(failures) != len(f.NotReady) {
		return errors.Join(fmt.Errorf("the fleet is not ready: %v", failures), err)
	}
	return nil
}
