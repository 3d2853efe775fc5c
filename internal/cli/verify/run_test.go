package verify

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// TestAnswerPatience checks that answerPatience exceeds the restarts of a component, so that
// verify reports why the control plane failed and not only that it does not answer.
func TestAnswerPatience(t *testing.T) {
	t.Parallel()
	var pauses time.Duration
	for i := range process.DefaultRestart.Max {
		pauses += process.DefaultRestart.First << i
	}
	if answerPatience < 2*pauses {
		t.Errorf("an answer is awaited for %s, want at least twice the %s between restarts", answerPatience, pauses)
	}
}

// TestProgress checks that the progress counts all attacks, and that a line in a pipe is due at intervals.
func TestProgress(t *testing.T) {
	t.Parallel()
	type line struct {
		Text string
		Due  bool
	}
	now := time.Unix(0, 0)
	p := progress{now: func() time.Time { return now }, printed: now}
	var got []line
	for _, outcome := range []catalog.Outcome{catalog.Stopped, catalog.GotThrough, catalog.Stopped} {
		now = now.Add(progressPeriod / 2)
		text, due := p.add(catalog.Result{Attack: catalog.Attack{ID: "I4", Via: catalog.Git}, Tenant: "shop", Finding: catalog.Finding{Outcome: outcome}}, 100)
		got = append(got, line{text, due})
	}
	want := []line{
		{"1 of 100 tried, 0 got through, last I4-git as shop", false},
		{"2 of 100 tried, 1 got through, last I4-git as shop", true},
		{"3 of 100 tried, 1 got through, last I4-git as shop", false},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
