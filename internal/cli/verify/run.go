package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/autofix"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"k8s.io/client-go/kubernetes"
)

// verification is a run of the command.
type verification struct {
	streams   ui.IO
	fleet     local.Flags
	outputs   outputs
	all       bool
	display   *local.Display
	judgement judgement
	// choice overrides the discovery of tenants.
	choice discovery.Choice
	// before is the report to compare with; nil without one.
	before *report
}

// run writes the report to the output and to files, and shows the progress on the error
// stream. Once it has started, it always writes a report.
func (v *verification) run(ctx context.Context) error {
	began := time.Now()
	var clusters []clusterReport
	for i, path := range v.fleet.Paths {
		if ctx.Err() != nil {
			clusters = append(clusters, clusterReport{Path: path, Verdict: verdictUnjudged, Error: "it was not run: interrupted"})
			continue
		}
		if len(v.fleet.Paths) > 1 {
			v.display.Println(fmt.Sprintf("%s %s", path, v.display.Screen.Paint(ui.Faint, fmt.Sprintf("(cluster %d of %d)", i+1, len(v.fleet.Paths)))))
		}
		clusters = append(clusters, v.cluster(ctx, path))
	}
	if v.display.Screen.Interactive {
		v.display.Println("") // separates the progress from the report
	}
	r := v.judgement.report(clusters, time.Since(began))
	r.before = v.before
	if err := v.outputs.write(r, v.streams, v.all); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return r.err()
}

// cluster runs one cluster and attacks it.
func (v *verification) cluster(ctx context.Context, path string) clusterReport {
	began := time.Now()
	interrupted := ctx
	opts := v.fleet.Cluster
	opts.Path, opts.Maps = path, slices.Clone(opts.Maps)
	opts.Name = fmt.Sprintf("%s%d", localcluster.VerifyPrefix, os.Getpid())
	f := findings{path: path}
	err := v.runCluster(ctx, opts, &f)
	switch {
	case err != nil && interrupted.Err() != nil:
		f.err = errInterrupted
	case err != nil:
		f.err = err
		if !errors.Is(err, ui.ErrReported) && !v.outputs.onOutput("text") {
			ui.PrintError(v.display.Screen, err)
		}
	}
	f.took = time.Since(began)
	return v.judgement.cluster(f)
}

// runCluster starts the cluster, attacks it and stops it.
func (v *verification) runCluster(ctx context.Context, opts localcluster.Options, f *findings) error {
	cluster, err := v.display.Start(ctx, opts)
	if err != nil {
		return err
	}
	f.fleet = cluster.Fleet
	err = v.attack(ctx, cluster, f)
	if stopErr := v.display.Stop(cluster); err == nil {
		err = stopErr
	}
	return err
}

// errInterrupted is the error of a cluster whose run a signal ended.
var errInterrupted = errors.New("interrupted")

// findings are the results of the run of one cluster.
type findings struct {
	path string
	// fleet is nil if the cluster did not start.
	fleet *layout.Fleet
	// failures are the objects that did not become ready, unmapped the requested addresses without
	// a mapping.
	failures []flux.Finding
	unmapped []string
	// ahead lists addresses and Secrets for the parts that wait for failed objects; it may be empty.
	ahead string
	// faked says what the cluster has invented, and doubtful that some of it gets into objects of
	// the fleet.
	faked    []string
	doubtful bool
	// assumed says what the cluster assumes about objects that the user has not named.
	assumed []string
	// simulated says which controllers of the platform do not run.
	simulated []string
	// read reports which manifests in the cluster's folder were applied.
	read    *local.FolderRead
	attacks catalog.Report
	// patch is a patch for the fleet's manifests; see [autofix.Annotate].
	patch string
	// err is the reason why the run was aborted.
	err  error
	took time.Duration
}

// addFakes stores what the cluster has invented, and returns the inventions whose content gets
// into objects of the fleet.
func (f *findings) addFakes(fakes []localcluster.Fake) []string {
	var doubts []string
	for _, fake := range fakes {
		f.doubtful = f.doubtful || fake.Content
		if fake.Assumed {
			f.assumed = append(f.assumed, fake.Text) // the attacks see the object's status
			continue
		}
		f.faked = append(f.faked, fake.Text)
		if fake.Content {
			doubts = append(doubts, fake.Text)
		}
	}
	return doubts
}

// attack waits for the fleet and attacks it. It stops when the context or the cluster ends.
func (v *verification) attack(ctx context.Context, cluster *localcluster.Cluster, f *findings) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // the rest is a consequence
		}
	}()
	go func() {
		select {
		case <-cluster.Done():
			cancel(fmt.Errorf("the cluster ended by itself: %w", cluster.Err()))
		case <-ctx.Done():
		}
		// Requests that still wait for an answer end with the cluster.
		_ = cluster.Stop()
	}()
	rows, err := local.Watch(ctx, cluster, cancel)
	if err != nil {
		return err
	}
	if f.failures, err = v.display.Settle(ctx, cluster, rows, v.fleet.Timeout); err != nil {
		return err
	}
	f.failures = append(f.failures, local.FailedGenerators(ctx, cluster)...)
	for _, refusal := range cluster.Network.Refused() {
		f.unmapped = append(f.unmapped, fmt.Sprintf("%s: %v", refusal.Address, refusal.Err))
	}
	if advice := local.Unmapped(ctx, cluster, f.failures); advice != "" {
		f.unmapped = append(f.unmapped, advice)
	}
	f.ahead = local.Ahead(ctx, cluster, f.failures)
	doubts := f.addFakes(cluster.Fakes())
	if f.read, err = local.ReadFolder(ctx, cluster); err != nil {
		return err
	}
	steps := ui.NewSteps(v.display.Screen)
	defer steps.Close()
	step := steps.Start("attacks")
	seen := progress{now: time.Now, printed: time.Now()}
	before := readContents(cluster.Fleet.Dir, v.fleet.Cluster.Maps)
	f.attacks, err = catalog.Run(ctx, catalog.Options{
		Config: cluster.REST, Git: cluster.Git, OCI: cluster.OCI, Network: cluster.Network, Platform: cluster.Fleet.FluxNamespace(), Choice: v.choice, Doubts: doubts, Only: v.judgement.tries,
		Root:   flux.Ref{Kind: flux.Kind(cluster.Fleet.Sync.Kind), Namespace: cluster.Fleet.Sync.Namespace, Name: cluster.Fleet.Sync.Source},
		Folder: cluster.Fleet.Dir,
		Progress: func(r catalog.Result, of int) {
			text, due := seen.add(r, of)
			step.Update(text)
			if due && !v.display.Screen.Interactive {
				v.display.Println("attacks: " + text)
			}
		},
	})
	// The cluster follows the files: what Flux took away did not stop an attack.
	if err == nil {
		err = readContents(cluster.Fleet.Dir, v.fleet.Cluster.Maps).changed(before)
	}
	// Without a control plane, the outcomes of the attacks prove nothing.
	if lost := answers(ctx, cluster); lost != nil {
		err = lost
	}
	f.simulated = local.Simulated(ctx, cluster)
	var patchErr error
	if f.patch, patchErr = autofix.Annotate(&f.attacks, cluster.Fleet); patchErr != nil {
		v.display.Report(fmt.Errorf("no patches are made: %w", patchErr))
	}
	if err != nil {
		step.Fail(errors.New("not finished"))
		return err
	}
	step.Done()
	return nil
}

// progressPeriod is the interval at which the output in a pipe, which has no status line, says how many attacks were
// tried.
const progressPeriod = 30 * time.Second

// progress counts the results of the attacks.
type progress struct {
	now func() time.Time
	// printed is the time of the last line in a pipe.
	printed        time.Time
	tried, through int
}

// add counts a result of a run with a number of attacks. It returns the counts as text, and whether a line in a pipe is
// due.
func (p *progress) add(r catalog.Result, of int) (text string, due bool) {
	if p.tried++; r.Finding.Outcome == catalog.GotThrough {
		p.through++
	}
	if due = p.now().Sub(p.printed) >= progressPeriod; due {
		p.printed = p.now()
	}
	return fmt.Sprintf("%d of %d tried, %d got through, last %s as %s", p.tried, of, p.through, r.Attack.Key(), r.Tenant), due
}

// answerPatience is the timeout for a control plane that does not answer. It is much longer
// than all pauses between the restarts of a component, since each restart also takes time on a
// busy machine.
const answerPatience = 90 * time.Second

// answers waits until the API server answers, and returns an error if it does not.
func answers(ctx context.Context, cluster *localcluster.Cluster) error {
	kube, err := kubernetes.NewForConfig(cluster.REST)
	if err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err = kube.RESTClient().Get().AbsPath("/readyz").DoRaw(patience); err == nil {
			return nil
		}
		select {
		case <-patience.Done():
			return fmt.Errorf("the API server does not answer any more: %w", err)
		case <-tick.C:
		}
	}
}
