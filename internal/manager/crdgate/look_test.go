package crdgate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLook(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		changed time.Duration // when a definition changes; 0 for never
		there   time.Duration // from when on the kinds are served; 0 for never
		ends    time.Duration // when the context does
		found   bool
		took    time.Duration
	}{
		"soon":           {"what comes right after the first look is found half a second later", 0, 1, time.Hour, true, requeueDelay},
		"told":           {"a change is not waited for by the clock, be it an hour later", time.Hour, time.Hour, 2 * time.Hour, true, time.Hour},
		"told too early": {"the API server serves a kind a moment after its definition came", time.Hour, time.Hour + 200*time.Millisecond, 2 * time.Hour, true, time.Hour + requeueDelay},
		"not told":       {"without the definitions it takes a minute at most", 0, time.Hour, 2 * time.Hour, true, time.Hour + 3500*time.Millisecond},
		"never":          {"the end of the manager ends it", 0, 0, time.Hour, false, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.ends)
				defer cancel()
				began, changed := time.Now(), make(chan struct{}, 1)
				if tc.changed != 0 {
					time.AfterFunc(tc.changed, func() { changed <- struct{}{} })
				}
				found := look(ctx, changed, func() bool { return tc.there != 0 && time.Since(began) >= tc.there })
				if diff := cmp.Diff([]any{tc.found, tc.took}, []any{found, time.Since(began)}); diff != "" {
					t.Errorf("%s: whether and when it was found: -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}
