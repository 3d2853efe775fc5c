package catalog

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestErrorsAbout(t *testing.T) {
	t.Parallel()
	const log = `{"level":"info","name":"a","namespace":"team","msg":"fine"}
{"level":"error","name":"a","namespace":"team","error":"cross-namespace references are not allowed"}
{"level":"error","name":"a-own","namespace":"team","error":"another Receiver's"}
{"level":"error","name":"a","namespace":"other","error":"another tenant's"}
not JSON, with "name":"a","namespace":"team","error":"x"
{"level":"error","name":"a","namespace":"team","error":"the end is cut off`
	want := []string{"cross-namespace references are not allowed"}
	if diff := cmp.Diff(want, errorsAbout(log, "team", "a")); diff != "" {
		t.Errorf("just the errors about the object, of lines that are whole (-want +got):\n%s", diff)
	}
}

func TestPoll(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		reason  string
		answers []error // of each try; nil is no answer yet
		last    bool
		want    error
		took    time.Duration
	}{
		"at once":   {"an answer ends it", nil, true, nil, 0},
		"later":     {"no answer yet is not the end", []error{nil, nil}, true, nil, 2 * look},
		"broken":    {"an error ends it", []error{nil, broken}, true, broken, look},
		"no answer": {"and so does the time", nil, false, errNoAnswer, 5 * look / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries, began := 0, time.Now()
				err := pollUntil(t.Context(), 5*look/2, func(context.Context) (bool, error) {
					defer func() { tries++ }()
					if tries < len(tc.answers) {
						return false, tc.answers[tries]
					}
					return tc.last, nil
				})
				if !errors.Is(err, tc.want) {
					t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("%s: it took %s, want %s", tc.reason, took, tc.took)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if err := pollUntil(ctx, time.Hour, func(context.Context) (bool, error) { return false, nil }); !errors.Is(err, errNoAnswer) || time.Since(began) > time.Minute {
		t.Errorf("who is told to stop does not wait on: %v after %s", err, time.Since(began))
	}
}
