package durationflag_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/tenure-dev/tenure/internal/cli/durationflag"
)

func TestSet(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ positive, limit string }{
		"90s":  {},
		"1ms":  {},
		"1ns":  {positive: `must be at least 1ms`},
		"0":    {positive: `invalid argument "0" for "--wait" flag: must be at least 1ms`},
		"0s":   {positive: `must be at least 1ms`},
		"-1s":  {positive: `invalid argument "-1s" for "--wait" flag: must be at least 1ms`, limit: `invalid argument "-1s" for "--limit" flag: must not be below 0s, and 0 is no limit`},
		"5":    {positive: "missing unit", limit: "missing unit"},
		"soon": {positive: "invalid duration", limit: "invalid duration"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var wait, limit time.Duration
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			durationflag.Positive(flags, &wait, "wait", time.Minute, "")
			durationflag.Limit(flags, &limit, "limit", time.Hour, "")
			for _, c := range []struct {
				flag, want string
				got        *time.Duration
				before     time.Duration
			}{{"--wait", want.positive, &wait, time.Minute}, {"--limit", want.limit, &limit, time.Hour}} {
				err := flags.Parse([]string{c.flag, text})
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s %s: %v instead of %q", c.flag, text, err, c.want)
				}
				if parsed, _ := time.ParseDuration(text); err == nil && *c.got != parsed || c.want != "" && strings.HasPrefix(c.want, "must") && *c.got != c.before {
					t.Errorf("%s %s sets %s", c.flag, text, *c.got)
				}
			}
		})
	}
}

// TestUsage checks that the help shows a default, and none that means that the flag is not set.
func TestUsage(t *testing.T) {
	t.Parallel()
	var d time.Duration
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	durationflag.Positive(flags, &d, "wait", time.Minute, "how long to wait")
	durationflag.Positive(flags, &d, "retry", 0, "when to retry")
	got := strings.Join(strings.Fields(flags.FlagUsages()), " ")
	if want := "--retry duration when to retry --wait duration how long to wait (default 1m0s)"; got != want {
		t.Errorf("the help is %q instead of %q", got, want)
	}
}
