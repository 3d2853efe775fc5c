package local

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/flux"
)

func TestRetries(t *testing.T) {
	t.Parallel()
	working := flux.Row{State: flux.Working, Message: "in progress"}
	failed := flux.Row{State: flux.Failed, Message: "broken"}
	other := flux.Row{State: flux.Failed, Message: "otherwise broken"}
	inFolder := func(number string) flux.Row {
		return flux.Row{State: flux.Failed, Message: "build failed: read /tmp/kustomization-" + number + "/a: is a directory"}
	}
	ready := flux.Row{State: flux.Ready, Message: "applied"}
	for name, tc := range map[string]struct {
		reason string
		seen   []flux.Row
		want   flux.State
	}{
		"First":    {"What has never failed may succeed.", []flux.Row{working}, flux.Working},
		"Once":     {"A first failure may pass.", []flux.Row{failed, working}, flux.Working},
		"Twice":    {"Another try of what fails for the same reason changes nothing.", []flux.Row{failed, working, failed, working}, flux.Failed},
		"OneLook":  {"A failure that is seen twice has happened once.", []flux.Row{failed, failed, working}, flux.Working},
		"Folder":   {"Each build has a temporary folder of its own.", []flux.Row{inFolder("2379108689"), working, inFolder("534068399"), working}, flux.Failed},
		"Progress": {"A new reason is progress.", []flux.Row{failed, working, failed, working, other, working}, flux.Working},
		"Healed":   {"Success makes up for failures.", []flux.Row{failed, working, failed, working, ready, working}, flux.Working},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := retries{}
			var got []flux.Row
			for _, row := range tc.seen {
				got = r.steady([]flux.Row{row})
			}
			if diff := cmp.Diff(tc.want, got[0].State); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
