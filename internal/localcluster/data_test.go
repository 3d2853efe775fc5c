package localcluster

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestExplainFull checks that the advice about a full disk is given once, and before the log of a program.
func TestExplainFull(t *testing.T) {
	t.Parallel()
	c := &Cluster{}
	c.opts.Root = "/state"
	for _, tc := range []struct {
		reason string
		err    error
		want   string
	}{
		{"the log of etcd is long", errors.New("etcd ended; its last words:\n  no space left on device"), "there is no room for the cluster's files in /state, "},
		{"the error has the advice", fmt.Errorf("cannot lock the state folder: %w; set TENURE_HOME to a folder that you can write to", syscall.EROFS), "cannot lock the state folder: "},
		{"another error needs other advice", errors.New("port in use"), "port in use"},
	} {
		got := c.explainFull(tc.err)
		if !errors.Is(got, tc.err) || !strings.HasPrefix(got.Error(), tc.want) || strings.Count(got.Error(), "TENURE_HOME") > 1 {
			t.Errorf("%s: got %v", tc.reason, got)
		}
	}
}
