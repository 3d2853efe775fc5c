package attack

import (
	"context"
	"errors"
	"testing"
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
	}{
		"at once":   {"an answer ends it", nil, true, nil},
		"later":     {"no answer yet is not the end", []error{nil, nil}, true, nil},
		"broken":    {"an error ends it", []error{nil, broken}, true, broken},
		"no answer": {"and so does the time", nil, false, errNoAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			err := poll(t.Context(), 3*look, func(context.Context) (bool, error) {
				defer func() { tries++ }()
				if tries < len(tc.answers) {
					return false, tc.answers[tries]
				}
				return tc.last, nil
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if err := poll(ctx, time.Hour, func(context.Context) (bool, error) { return false, nil }); !errors.Is(err, errNoAnswer) || time.Since(began) > time.Minute {
		t.Errorf("who is told to stop does not wait on: %v after %s", err, time.Since(began))
	}
}
