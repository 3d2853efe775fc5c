// Package durationflag has flags for durations that refuse what makes no sense: a wait or interval
// below zero.
package durationflag

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// Positive adds a flag for a duration of at least 1ms, the smallest unit that Flux's kinds accept. A default
// of 0 means that the flag is not set, and the help does not print it.
func Positive(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	add(flags, p, name, value, usage, Check)
}

// Check returns an error for a duration below 1ms.
func Check(d time.Duration) error {
	if d < time.Millisecond {
		return errors.New("must be at least 1ms")
	}
	return nil
}

// Limit adds a flag for a time limit. 0 means that there is no limit.
func Limit(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	add(flags, p, name, value, usage, func(d time.Duration) error {
		if d < 0 {
			return errors.New("must not be below 0s, and 0 is no limit")
		}
		return nil
	})
}

func add(flags *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string, check func(time.Duration) error) {
	flags.DurationVar(p, name, value, usage)
	flag := flags.Lookup(name)
	flag.Value = checked{Value: flag.Value, check: check, duration: p}
	if value == 0 {
		flag.DefValue = "" // the help leaves out only the defaults that pflag's own types call zero
	}
}

// checked is a pflag.Value that refuses durations.
type checked struct {
	pflag.Value
	check    func(time.Duration) error
	duration *time.Duration
}

// Set implements [pflag.Value].
func (c checked) Set(text string) error {
	before := *c.duration
	if err := c.Value.Set(text); err != nil {
		return err
	}
	if err := c.check(*c.duration); err != nil {
		*c.duration = before
		return err
	}
	return nil
}
