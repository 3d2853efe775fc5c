package local

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
)

// TestDescribeAssessment checks which failures are the same failure, tried again.
func TestDescribeAssessment(t *testing.T) {
	t.Parallel()
	failed := func(reason string) string {
		return describeAssessment(flux.Assessment{Failed: []flux.Finding{{Reason: reason}}})
	}
	for reason, tc := range map[string]struct {
		one, two string
		same     bool
	}{
		"each build has a temporary folder of its own": {"read /tmp/a/kustomization-2379108689/clusters: is a directory", "read /tmp/a/kustomization-534068399/clusters: is a directory", true},
		"another failure":     {"kustomize build failed: no such file", "kustomize build failed: not mapped", false},
		"a count is progress": {"1/3 replicas are ready", "2/3 replicas are ready", false},
	} {
		if same := failed(tc.one) == failed(tc.two); same != tc.same {
			t.Errorf("%s: the same: %t, want %t", reason, same, tc.same)
		}
	}
}

// TestPauses checks which changes of a fleet begin the pause again after which it counts as settled.
func TestPauses(t *testing.T) {
	t.Parallel()
	app := flux.Row{Namespace: "flux-system", Name: "app", Kind: flux.Kustomization, Revision: "main@sha1:1", Ready: "True", State: flux.Ready}
	busy, newer := app, app
	busy.Ready, busy.State = "Unknown", flux.Working
	newer.Revision = "main@sha1:2"
	broken := flux.Row{Namespace: "flux-system", Name: "broken", Kind: flux.Kustomization, Ready: "False", State: flux.Failed, Message: "build failed"}
	scan := func(at string) flux.Row {
		return flux.Row{Namespace: "flux-system", Name: "scan", Kind: flux.ImageRepository, Revision: at, Ready: "True", State: flux.Ready}
	}
	type step = pauseStep
	for name, tc := range map[string]struct {
		reason string
		seen   [][]flux.Row
		want   []step
	}{
		"Ready":      {"Each change of a fleet without failures begins the pause.", [][]flux.Row{{app}, {app}}, []step{begins, begins}},
		"Working":    {"A fleet without failures waits for each object.", [][]flux.Row{{app}, {busy}}, []step{begins, ends}},
		"First":      {"An object that was never ready holds the pause up.", [][]flux.Row{{busy, broken}, {app, broken}}, []step{ends, begins}},
		"Again":      {"An interval may be shorter than the pause.", [][]flux.Row{{app, broken}, {busy, broken}, {app, broken}}, []step{begins, goesOn, goesOn}},
		"Revision":   {"A new revision is progress.", [][]flux.Row{{app, broken}, {busy, broken}, {newer, broken}}, []step{begins, goesOn, begins}},
		"Appears":    {"A new object is progress.", [][]flux.Row{{app, broken}, {busy, broken, scan("1")}}, []step{begins, ends}},
		"Scan":       {"The time of a scan is no progress.", [][]flux.Row{{app, broken, scan("1")}, {app, broken, scan("2")}}, []step{begins, goesOn}},
		"OtherFails": {"Another failure begins the pause again.", [][]flux.Row{{app, broken}, {busy, broken}, {broken, renamed(broken, "app")}}, []step{begins, goesOn, begins}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p pauses
			var got []step
			for _, rows := range tc.seen {
				_, next := p.next(rows, flux.Assess(rows), true)
				got = append(got, next)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	t.Run("Due", func(t *testing.T) {
		t.Parallel()
		var p pauses
		var steps []step
		ask := func(rows ...flux.Row) time.Duration {
			wait, next := p.next(rows, flux.Assess(rows), true)
			steps = append(steps, next)
			return wait
		}
		if wait := ask(app, broken); wait != failedPause {
			t.Errorf("the pause takes %s, want %s", wait, failedPause)
		}
		ask(busy, broken)
		if p.over() {
			t.Error("the fleet has settled while an object is reconciled")
		}
		ask(app, broken)
		if diff := cmp.Diff([]step{begins, goesOn, settled}, steps); diff != "" {
			t.Errorf("the fleet settles once the object is ready again (-want +got):\n%s", diff)
		}
	})
}

func renamed(row flux.Row, name string) flux.Row {
	row.Name = name
	return row
}

// TestSettleShowsTries checks that a pipe does not get a line for each try of an object that fails alike
// again and again.
func TestSettleShowsTries(t *testing.T) {
	t.Parallel()
	source := func(state flux.State, message string) []flux.Row {
		return []flux.Row{{Namespace: "a", Kind: flux.OCIRepository, Name: "charts", State: state, Ready: "False", Message: message}}
	}
	var out bytes.Buffer
	rows := make(chan []flux.Row)
	go func() {
		for range 5 {
			rows <- source(flux.Working, "building artifact")
			rows <- source(flux.Failed, "is not mapped")
		}
	}()
	display := &Display{Screen: ui.NewScreen(&out)}
	if _, err := display.Settle(t.Context(), &localcluster.Cluster{Fleet: &layout.Fleet{}}, rows, time.Second); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "is not mapped"); got != 1 {
		t.Errorf("%d lines about the failure, want 1:\n%s", got, out.String())
	}
}

// TestSettleShowsResults checks that a pipe gets a line when an object becomes ready or fails, and none for the
// states before that.
func TestSettleShowsResults(t *testing.T) {
	t.Parallel()
	row := func(state flux.State, ready, revision, message string) flux.Row {
		return flux.Row{Namespace: "a", Kind: flux.Kustomization, Name: "apps", State: state, Ready: ready, Revision: revision, Message: message}
	}
	var out bytes.Buffer
	rows := make(chan []flux.Row)
	go func() {
		for _, r := range []flux.Row{
			row(flux.Working, "Unknown", "", "waiting to be reconciled"), row(flux.Working, "Unknown", "", "building manifests"),
			row(flux.Blocked, "False", "", "dependency is not ready"), row(flux.Failed, "False", "", "dry-run failed"),
			row(flux.Working, "Unknown", "", "reconciling"), row(flux.Ready, "True", "", "applied"), row(flux.Ready, "True", "main@1", "applied"),
			row(flux.Working, "Unknown", "main@1", "reconciling again"), row(flux.Ready, "True", "main@2", "applied"),
		} {
			rows <- []flux.Row{r}
		}
	}()
	display := &Display{Screen: ui.NewScreen(&out)}
	if _, err := display.Settle(t.Context(), &localcluster.Cluster{Fleet: &layout.Fleet{}}, rows, time.Second); err != nil {
		t.Fatal(err)
	}
	const want = `NAMESPACE   KIND            NAME   READY   REVISION   MESSAGE
a           Kustomization   apps   False              dry-run failed
a           Kustomization   apps   True    main@1     applied
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("one line for each result (-want +got):\n%s", diff)
	}
}

// TestDescribeAhead checks the sentence about what waits for a failed part of the fleet.
func TestDescribeAhead(t *testing.T) {
	t.Parallel()
	for want, ahead := range map[string]localcluster.Ahead{
		"": {},
		"what Flux has not applied yet will need folders for https://x.example.com, with --map or --assume-unmapped":                                                  {Addresses: []string{"https://x.example.com"}},
		"what Flux has not applied yet will need folders for oci://a, oci://b, with --map or --assume-unmapped; the Secrets team/key, with --apply or --fake-secrets": {Addresses: []string{"oci://a", "oci://b"}, Secrets: []string{"team/key"}},
	} {
		if got := describeAhead(ahead); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
