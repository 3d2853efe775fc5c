// Package ablation shows that the controls of a fleet are what stops the attacks
// of the catalogue: each control is taken away from a running local cluster, by
// itself, and just the attacks that it is there for get through. A control whose
// removal changes nothing is not proven.
//
// The table of controls is [Rows]. Every attack of the catalogue is in at least
// one row or in [Excluded], by name and reason. Where two controls stop the same
// attack each by itself, a row takes both away, and with only one of them away
// the attack is stopped and the missing one is reported.
package ablation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// Control is something that stops attacks, and how to do without it.
type Control struct {
	// Name is the control's, such as "flag --no-remote-bases of
	// kustomize-controller".
	Name string
	// Away says how it is taken away.
	Away string
	// Layer is the name of the control in [catalog.Finding.Missing], if another control stops
	// the same attacks. It is empty if the attack does not check for it.
	Layer string

	// remove takes it away and waits until that shows. What it returns puts it
	// back, and waits as well; it is not nil even if there is an error.
	remove func(context.Context, *target) (restore func(context.Context) error, err error)
}

// Row is a set of controls that are taken away together, and what then gets
// through.
type Row struct {
	// Controls are one, or several of which each stops the attacks alone.
	Controls []Control
	// Attacks are the keys of the attacks that get through, and that each of the
	// controls stops by itself.
	Attacks []string
	// Also are those that one of several controls stops alone: they get
	// through as well, and have a row of their own.
	Also []string
	// Via is the only way that attacks take which pass what is taken away; empty
	// for controls that others pass as well. Attacks through the proxy are tried
	// with their own rows only.
	Via catalog.Via
}

// tries says whether an attack is tried without the controls of the row.
func (r Row) tries(a catalog.Attack, whole bool) bool {
	switch {
	case len(r.Controls) == 0 || slices.Contains(r.Through(), a.Key()):
		return true
	case r.Via != "":
		return a.Via == r.Via
	}
	return whole || !a.Deep && !a.Slow && a.Via != catalog.Proxy
}

// Through returns the keys of all attacks that get through, sorted.
func (r Row) Through() []string {
	return slices.Sorted(slices.Values(slices.Concat(r.Attacks, r.Also)))
}

// Exclusion says why an attack is in no row.
type Exclusion struct {
	// Reason says it.
	Reason string
	// Through is set for an attack that gets through whatever is there.
	Through bool
}

// Measured is what came of a row.
type Measured struct {
	Row Row
	// Tried are the keys of the attacks that were tried, Through those that
	// got through although nothing excludes them; both sorted.
	Tried, Through []string
	// Faults say where an attack was not proven, or a missing layer not named.
	Faults []string
	// Took is how long it was, taking away and putting back included.
	Took time.Duration
}

// Options say what is tried, and where.
type Options struct {
	// Attack says which cluster is attacked, as which tenant: Tenant must be
	// set; Only and Progress are not used.
	Attack catalog.Options
	// Rows are the controls; nil takes all of them.
	Rows []Row
	// Excluded are the attacks that no row is for; nil takes those of [Excluded].
	Excluded map[string]Exclusion
	// Whole tries every attack with every row; otherwise the attacks that wait for
	// Flux or send many requests are tried with their own rows only.
	Whole bool
	// Progress is told of each row that is done; nil means nobody is.
	Progress func(Measured)
}

// Run takes the controls of a fleet away, one row after the other, and attacks.
// The fleet must be ready. Its platform's Kustomizations are suspended meanwhile,
// or they would put everything back. In the end, with every control back in its
// place, the whole catalogue is tried once more; that is the last of what is
// returned, with a row of no controls.
func Run(ctx context.Context, opts Options) (_ []Measured, err error) {
	if opts.Attack.Tenant == "" {
		return nil, errors.New("cannot take controls away: no tenant is named")
	}
	if opts.Excluded == nil {
		opts.Excluded = Excluded()
	}
	t, err := newTarget(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("cannot take controls away: %w", err)
	}
	resume, err := t.suspend(ctx)
	defer func() {
		done := context.WithoutCancel(ctx)
		err = errors.Join(err, resume(done), t.cleanUp(done))
	}()
	if err != nil {
		return nil, err
	}
	rows := opts.Rows
	if rows == nil {
		rows = Rows()
	}
	var all []Measured
	for _, row := range append(slices.Clone(rows), Row{}) {
		began := time.Now()
		m, err := t.measure(ctx, row)
		if err != nil {
			return all, fmt.Errorf("cannot try the fleet without %s: %w", row.Name(), err)
		}
		m.Took = time.Since(began)
		all = append(all, m)
		if opts.Progress != nil {
			opts.Progress(m)
		}
	}
	return all, nil
}

// measure takes the controls of a row away, first each by itself if there are
// several, then together.
func (t *target) measure(ctx context.Context, row Row) (_ Measured, err error) {
	m := Measured{Row: row}
	if len(row.Controls) > 1 {
		for _, c := range row.Controls {
			if err := t.without(ctx, []Control{c}, func() error { return t.holds(ctx, &m, c) }); err != nil {
				return m, err
			}
		}
	}
	err = t.without(ctx, row.Controls, func() error {
		report, err := t.attack(ctx, func(a catalog.Attack) bool { return row.tries(a, t.opts.Whole) })
		for _, r := range report.Results {
			m.count(r, t.opts.Excluded)
		}
		return err
	})
	slices.Sort(m.Tried)
	slices.Sort(m.Through)
	return m, err
}

// count notes how an attack ended.
func (m *Measured) count(r catalog.Result, excluded map[string]Exclusion) {
	key := r.Attack.Key()
	m.Tried = append(m.Tried, key)
	switch {
	case r.Finding.Outcome == catalog.NotProven:
		m.Faults = append(m.Faults, fmt.Sprintf("%s is not proven: %s", key, r.Finding.Reason))
	case r.Finding.Outcome == catalog.GotThrough && !excluded[key].Through:
		m.Through = append(m.Through, key)
	case r.Finding.Outcome == catalog.Stopped && excluded[key].Through:
		m.Faults = append(m.Faults, fmt.Sprintf("%s is stopped by %s: it needs a row", key, r.Finding.Control))
	}
}

// holds tries the attacks of a row with one of its controls away: they are
// stopped by another, and the one that is missing is named.
func (t *target) holds(ctx context.Context, m *Measured, away Control) error {
	report, err := t.attack(ctx, func(a catalog.Attack) bool { return slices.Contains(m.Row.Attacks, a.Key()) })
	for _, r := range report.Results {
		switch {
		case r.Finding.Outcome != catalog.Stopped:
			m.Faults = append(m.Faults, fmt.Sprintf("without %s alone, %s %s: %s%s", away.Name, r.Attack.Key(), r.Finding.Outcome, r.Finding.Evidence, r.Finding.Reason))
		case away.Layer != "" && !slices.Contains(r.Finding.Missing, away.Layer):
			m.Faults = append(m.Faults, fmt.Sprintf("without %s alone, %s misses %q, not %q", away.Name, r.Attack.Key(), r.Finding.Missing, away.Layer))
		}
	}
	return err
}

// without does something while controls are away.
func (t *target) without(ctx context.Context, controls []Control, do func() error) (err error) {
	for _, c := range controls {
		restore, removeErr := c.remove(ctx, t)
		defer func() {
			if restoreErr := restore(context.WithoutCancel(ctx)); restoreErr != nil {
				err = errors.Join(err, fmt.Errorf("cannot put %s back: %w", c.Name, restoreErr))
			}
		}()
		if removeErr != nil {
			return fmt.Errorf("cannot take %s away: %w", c.Name, removeErr)
		}
	}
	return do()
}
