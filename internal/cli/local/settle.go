package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// readyPause is how long the fleet has to stay ready until it counts as settled: a new object
	// may not be visible yet.
	readyPause = 500 * time.Millisecond
	// failedPause is how long a fleet has to stay unchanged with failures until it counts as
	// settled: a dependency of a failed object may still be starting.
	failedPause = 5 * time.Second
	// lackingPause is the same for a failed object that waits for one that does not exist.
	// Tenure's manager creates the source of a tenant's Kustomization when the tenant's rules
	// are in force.
	lackingPause = 20 * time.Second
	// waitingPeriod is the interval at which the output in a pipe, which has no status line, names
	// the objects that the command waits for.
	waitingPeriod = 30 * time.Second
	// healthPeriod is the interval at which the command reads the objects whose health other objects
	// wait for.
	healthPeriod = 3 * time.Second
)

// Display shows a cluster's Flux objects and the progress of the cluster.
type Display struct {
	// Screen is the screen to write to.
	Screen *ui.Screen

	mu   sync.Mutex
	live *ui.Live
}

// Report prints a message above the table, if there is one.
func (d *Display) Report(err error) {
	d.Println(d.Screen.Paint(ui.Yellow, "!") + " " + err.Error())
}

// Println prints a line, above the table if there is one.
func (d *Display) Println(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.live != nil {
		_ = d.live.Println(line)
		return
	}
	fmt.Fprintln(d.Screen, line)
}

func (d *Display) setLive(live *ui.Live) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live = live
}

// FailedGenerators returns the ArtifactGenerators of a cluster that failed: [Display.Settle] does not see them.
func FailedGenerators(ctx context.Context, cluster *localcluster.Cluster) []flux.Finding {
	kube, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		return nil // what needs their artifacts fails as well
	}
	return flux.FailedGenerators(ctx, kube)
}

// Settle shows the live table until the fleet has settled, and returns the failures; after patience it also returns the objects that it still waits for. It returns the cause of the context if the context ends, and an error if it cannot write the table.
func (d *Display) Settle(ctx context.Context, cluster *localcluster.Cluster, rows <-chan []flux.Row, patience time.Duration) ([]flux.Finding, error) {
	live := ui.NewLive(d.Screen)
	d.setLive(live)
	defer func() {
		cluster.Settled()
		d.setLive(nil)
		_ = live.Close()
	}()
	root := flux.Ref{Kind: flux.Kustomization, Namespace: cluster.Fleet.Sync.Namespace, Name: cluster.Fleet.Sync.Kustomization}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	quiet := time.NewTimer(time.Hour)
	defer quiet.Stop()
	waiting := time.NewTicker(waitingPeriod)
	defer waiting.Stop()
	health := time.NewTicker(healthPeriod)
	defer health.Stop()
	var (
		now             flux.Assessment
		seen, unhealthy []flux.Row
		kube            client.Client
	)
	failures, pauses, tenants, results := retries{}, pauses{}, pendingTenants{}, results{}
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-deadline.C:
			return append(now.Failed, now.Awaited...), nil
		case <-quiet.C:
			if !pauses.over() {
				continue
			}
			if len(now.Failed) == 0 && tenants.pending(ctx, cluster) {
				quiet.Reset(readyPause)
				continue
			}
			return now.Failed, nil
		case <-waiting.C:
			if text := footer(now); text != "" && !d.Screen.Interactive {
				d.Println(text)
			}
			continue
		case <-health.C:
			if !flux.ChecksHealth(seen) {
				continue
			}
			if kube == nil {
				var err error
				if kube, err = client.New(cluster.REST, client.Options{}); err != nil {
					return nil, fmt.Errorf("cannot make a client: %w", err)
				}
			}
			unhealthy = flux.Unhealthy(ctx, kube, seen)
		case seen = <-rows:
		}
		steady := failures.steady(seen)
		now = flux.Assess(append(slices.Clip(steady), unhealthy...))
		shown := steady
		if !d.Screen.Interactive {
			shown = results.of(steady)
		}
		header, cells := flux.LiveTable(shown)
		if err := live.Set(ui.Table{Header: header, Rows: cells}, footer(now)); err != nil {
			return nil, err
		}
		switch wait, next := pauses.next(seen, now, has(seen, root)); next {
		case settled:
			if len(now.Failed) == 0 && tenants.pending(ctx, cluster) {
				quiet.Reset(readyPause)
				continue
			}
			return now.Failed, nil
		case begins:
			quiet.Reset(wait)
		case ends:
			quiet.Stop()
		case goesOn:
		}
	}
}

// results are the last result of each object: a row of an object that is ready, suspended or failed.
type results map[flux.Ref]flux.Row

// of returns the last result of each of the objects. Another row of the object replaces it if it has another state,
// so that a log has one line for each change from failed to ready, and none for the steps between them.
func (r results) of(rows []flux.Row) []flux.Row {
	var last []flux.Row
	for _, row := range rows {
		before, known := r[row.Ref()]
		if isResult(row) && (!known || row.State != before.State) {
			r[row.Ref()], before, known = row, row, true
		}
		if known {
			last = append(last, before)
		}
	}
	maps.DeleteFunc(r, func(ref flux.Ref, _ flux.Row) bool { return !has(rows, ref) })
	return last
}

// revisioned are kinds that have a revision whenever they are ready.
var revisioned = []flux.Kind{flux.GitRepository, flux.OCIRepository, flux.Bucket, flux.HelmChart, flux.Kustomization}

// isResult reports whether the state of an object is the end of its reconciliation. Flux writes the condition
// Ready before the revision.
func isResult(row flux.Row) bool {
	switch row.State {
	case flux.Working, flux.Blocked:
		return false
	case flux.Ready:
		return row.Revision != "" || !slices.Contains(revisioned, row.Kind)
	}
	return true
}

// describeAssessment returns a text that differs between the states in which a fleet can
// settle, and not between tries that fail alike. It is never empty.
func describeAssessment(a flux.Assessment) string {
	text := "settled"
	for _, f := range a.Failed {
		text += fmt.Sprintf("\n%s: %s", f.Row.Ref(), sameReason(f.Reason))
	}
	return text
}

// pauses decides when the pause begins after which a fleet with these rows counts as settled.
type pauses struct {
	// planned describes the state that the pause is for; it is empty without a pause.
	planned string
	// revisions are the revisions of the objects in that state.
	revisions string
	// failed reports that the state has failures, working that an object is reconciled again, and
	// due that the pause ended meanwhile.
	failed, working, due bool
}

// pauseStep is the effect of a change on the pause.
type pauseStep int

const (
	goesOn pauseStep = iota
	begins
	ends
	settled
)

// next returns the effect of a change on the pause, and the length of a pause that begins. Failures
// that are tried again do not begin a new pause, and neither do objects that are reconciled again at
// the same revision beside failures: an interval can be shorter than the pause.
func (p *pauses) next(rows []flux.Row, now flux.Assessment, rooted bool) (time.Duration, pauseStep) {
	revisions := describeRevisions(rows)
	if !rooted || !now.Settled() {
		if p.working = true; p.planned != "" && p.failed && revisions == p.revisions {
			return 0, goesOn
		}
		*p = pauses{working: true}
		return 0, ends
	}
	if plan := describeAssessment(now); plan != p.planned || revisions != p.revisions || len(now.Failed) == 0 {
		*p = pauses{planned: plan, revisions: revisions, failed: len(now.Failed) > 0}
		return pause(now), begins
	}
	if p.working = false; p.due {
		return 0, settled
	}
	return 0, goesOn
}

// over reports whether the fleet has settled at the end of the pause. If an object is just reconciled
// again, the fleet settles with that.
func (p *pauses) over() bool {
	p.due = true
	return !p.working
}

// describeRevisions returns a text that differs if an object appears, disappears or has another
// revision. Objects that scan have a time in the place of a revision, which says nothing.
func describeRevisions(rows []flux.Row) string {
	var text strings.Builder
	for _, row := range rows {
		if row.Kind == flux.ImageRepository || row.Kind == flux.ImageUpdateAutomation {
			row.Revision = ""
		}
		fmt.Fprintln(&text, row.Ref(), row.Revision, row.Suspended)
	}
	return text.String()
}

func pause(a flux.Assessment) time.Duration {
	// Wait longer: the local cluster soon lets a source through whose signature Flux cannot verify,
	// or for which Flux gets no credentials of a cloud.
	if slices.ContainsFunc(a.Failed, func(f flux.Finding) bool {
		return f.Lacks || flux.FailsVerification(f.Row) || flux.FailsIdentity(f.Row)
	}) {
		return lackingPause
	}
	if len(a.Failed) > 0 {
		return failedPause
	}
	return readyPause
}

func has(rows []flux.Row, ref flux.Ref) bool {
	for _, row := range rows {
		if row.Ref() == ref {
			return true
		}
	}
	return false
}

// footer returns the line that names the objects that the fleet waits for.
func footer(a flux.Assessment) string {
	switch len(a.Awaited) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("waiting for %s: %s", a.Awaited[0].Row.Ref(), a.Awaited[0].Reason)
	}
	return fmt.Sprintf("waiting for %d objects, such as %s: %s", len(a.Awaited), a.Awaited[0].Row.Ref(), a.Awaited[0].Reason)
}

// Follow prints a line for every change of an object's state until the context ends, such as
// the effect of a saved file.
func (d *Display) Follow(ctx context.Context, rows <-chan []flux.Row) {
	var shown map[flux.Ref]string
	for {
		select {
		case <-ctx.Done():
			return
		case seen := <-rows:
			current := map[flux.Ref]string{}
			for _, row := range seen {
				state := fmt.Sprintf("%s  %s", row.Ready, row.Message)
				current[row.Ref()] = state
				// Do not print transitional states.
				if before, known := shown[row.Ref()]; shown != nil && row.State != flux.Working && (!known || before != state) {
					d.Println(fmt.Sprintf("%s  %s  %s", time.Now().Format(time.TimeOnly), row.Ref(), state))
				}
			}
			for ref := range shown {
				if _, ok := current[ref]; !ok {
					d.Println(fmt.Sprintf("%s  %s  deleted", time.Now().Format(time.TimeOnly), ref))
				}
			}
			shown = current
		}
	}
}

// Watch watches the fleet's Flux objects until the context ends. It cancels the context with
// fail if the watch fails. The channel holds only the latest state.
func Watch(ctx context.Context, cluster *localcluster.Cluster, fail context.CancelCauseFunc) (<-chan []flux.Row, error) {
	kube, err := flux.NewClient(cluster.REST)
	if err != nil {
		return nil, err
	}
	kinds := flux.AllKinds()
	if cluster.Fleet.UsesOperator() {
		kinds = append(kinds, flux.OperatorKinds()...)
	}
	rows := make(chan []flux.Row, 1)
	go func() {
		err := flux.Watch(ctx, kube, flux.Selection{Kinds: kinds}, func(seen []flux.Row) error {
			select {
			case <-rows:
			default:
			}
			rows <- seen
			return nil
		})
		if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			fail(err)
		}
	}()
	return rows, nil
}

// Explain prints the full reasons of the failures, the API groups and Secrets that they lack, and
// the unmapped addresses that the fleet requested.
func (d *Display) Explain(ctx context.Context, cluster *localcluster.Cluster, failures []flux.Finding) {
	for _, f := range failures {
		d.Println(fmt.Sprintf("%s %s: %s", d.Screen.Paint(ui.Red, "✗"), f.Row.Ref(), ui.Clean(f.Reason)))
	}
	for _, missing := range flux.Lacking(failures) {
		d.Println(d.Screen.Paint(ui.Yellow, "!") + " " + ui.Clean(missing))
	}
	if later := Ahead(ctx, cluster, failures); later != "" {
		d.Println(d.Screen.Paint(ui.Yellow, "!") + " " + ui.Clean(later))
	}
	if advice := Unmapped(ctx, cluster, failures); advice != "" {
		d.Println(d.Screen.Paint(ui.Yellow, "!") + " " + ui.Clean(advice))
	}
	for _, fake := range cluster.Fakes() {
		if fake.Assumed {
			d.Println(d.Screen.Paint(ui.Yellow, "?") + " assumed: " + ui.Clean(fake.Text))
		}
	}
	for _, refusal := range cluster.Network.Refused() {
		d.Println(fmt.Sprintf("%s requested %s: %v", d.Screen.Paint(ui.Yellow, "!"), refusal.Address, refusal.Err))
	}
}

// Folder prints which manifests of the cluster's folder were applied, and lists the others. It returns the error of [ReadFolder].
func (d *Display) Folder(ctx context.Context, cluster *localcluster.Cluster) error {
	read, err := ReadFolder(ctx, cluster)
	if err != nil {
		return err
	}
	d.Println("read " + read.Summary(cluster.Fleet.Path))
	for _, left := range read.ByReason() {
		d.Println(fmt.Sprintf("%s not applied: %s: %s", d.Screen.Paint(ui.Yellow, "!"), ui.Clean(left.Reason), ui.Clean(strings.Join(left.Files, ", "))))
	}
	return nil
}

// namedAddresses is the number of addresses that [Unmapped] names, and of Secrets that [Ahead] names.
const namedAddresses = 10

// Unmapped returns a sentence with the addresses of the failed sources that no --map serves, as
// --map takes them, or "" without such sources.
func Unmapped(ctx context.Context, cluster *localcluster.Cluster, failures []flux.Finding) string {
	kube, err := flux.NewClient(cluster.REST)
	if err != nil {
		return "" // the failures say that the addresses are not mapped
	}
	bases := unmappedBases(ctx, cluster, kube, failures)
	addresses := flux.Addresses(ctx, kube, failures, "is not mapped")
	if len(addresses) == 0 {
		return bases
	}
	if bases != "" {
		bases = "; " + bases
	}
	return fmt.Sprintf("sources without a folder: %s; map each with --map ADDRESS=DIR or under map in %s, or treat its object as ready with --assume KIND/NAMESPACE/NAME, or all of them with --assume-unmapped%s",
		firstOf(addresses), FileName, bases)
}

// Ahead returns a sentence with the folders and Secrets that the parts of the fleet need which still wait for
// the failed ones, or "" if they need none.
func Ahead(ctx context.Context, cluster *localcluster.Cluster, failures []flux.Finding) string {
	kube, err := flux.NewClient(cluster.REST)
	if err != nil {
		return "" // the next run says what it lacks
	}
	return describeAhead(cluster.Ahead(ctx, kube, failures))
}

func describeAhead(ahead localcluster.Ahead) string {
	var parts []string
	if len(ahead.Addresses) > 0 {
		parts = append(parts, "folders for "+firstOf(ahead.Addresses)+", with --map or --assume-unmapped")
	}
	if len(ahead.Secrets) > 0 {
		parts = append(parts, "the Secrets "+firstOf(ahead.Secrets)+", with --apply or --fake-secrets")
	}
	if len(parts) == 0 {
		return ""
	}
	return "what Flux has not applied yet will need " + strings.Join(parts, "; ")
}

// firstOf joins the first of some names.
func firstOf(all []string) string {
	text := strings.Join(all[:min(len(all), namedAddresses)], ", ")
	if more := len(all) - namedAddresses; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// unmappedBases returns a sentence with the remote bases that fail builds, and the flags that serve
// them, or "" without such bases.
func unmappedBases(ctx context.Context, cluster *localcluster.Cluster, kube client.Reader, failures []flux.Finding) string {
	var bases []flux.RemoteBase
	var by []string
	for _, f := range failures {
		if f.Row.Kind != flux.Kustomization || !strings.Contains(f.Reason, "build failed") {
			continue
		}
		if found := cluster.UnmappedBases(ctx, kube, f.Row.Ref()); len(found) > 0 {
			bases, by = append(bases, found...), append(by, f.Row.Ref().String())
		}
	}
	if len(bases) == 0 {
		return ""
	}
	return fmt.Sprintf("remote bases without a folder, in what %s applies: add %s", strings.Join(by, ", "), flux.MapFlags(bases))
}
