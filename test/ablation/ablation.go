// Package ablation proves that the controls of a fleet stop the attacks of the catalogue: it
// removes each control from a running local cluster by itself, and exactly the attacks that
// the control should stop get through. A control whose removal changes nothing is not proven.
//
// The table of controls is [Rows]. Every attack of the catalogue is in at least one row or in
// [Excluded], with a reason. Where each of two controls alone stops an attack, a row removes
// both; with only one of them removed, the attack is stopped and the finding reports the
// missing control.
package ablation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// Control is a control that stops attacks, and how to remove it.
type Control struct {
	// Name is the name of the control, such as "flag --no-remote-bases of kustomize-controller".
	Name string
	// Away describes the removal of the control.
	Away string
	// Layer is the name of the control in [catalog.Finding.Missing], if another control stops
	// the same attacks. It is empty if the attack does not check for it.
	Layer string

	// remove removes the control and waits until that has taken effect. The returned function
	// restores the control, and waits as well; it is not nil even if there is an error.
	remove func(context.Context, *target) (restore func(context.Context) error, err error)
}

// Row is a set of controls that are removed together, and the attacks that then get through.
type Row struct {
	// Controls is one control, or several controls that each stop the attacks alone.
	Controls []Control
	// Attacks are the keys of the attacks that get through without the controls. Each of the controls alone
	// stops them.
	Attacks []string
	// Also are the keys of further attacks that get through: only one of several controls stops them, and
	// they have their own row.
	Also []string
	// Via restricts the row to attacks by one path; empty for controls that affect attacks by any path.
	// Only their own rows try attacks through the proxy.
	Via catalog.Via
	// Whole makes the row try every attack. Without it, only their own rows try the attacks that wait for
	// Flux or send many requests.
	Whole bool
}

// tries reports whether the row tries an attack.
func (r Row) tries(a catalog.Attack) bool {
	switch {
	case len(r.Controls) == 0 || slices.Contains(r.Through(), a.Key()):
		return true
	case r.Via != "":
		return a.Via == r.Via
	}
	return r.Whole || !a.Deep && !a.Slow && a.Via != catalog.Proxy
}

// tried returns the function that reports whether the ith row tries an attack.
func (o Options) tried(row Row, i int) func(catalog.Attack) bool {
	if o.Every < 2 || row.Whole || len(row.Controls) == 0 {
		return row.tries
	}
	all, own := catalog.Catalogue(), row.Through()
	return func(a catalog.Attack) bool {
		at := slices.IndexFunc(all, func(b catalog.Attack) bool { return b.Key() == a.Key() })
		return row.tries(a) && (slices.Contains(own, a.Key()) || at%o.Every == i%o.Every)
	}
}

// Through returns the sorted keys of all attacks that get through.
func (r Row) Through() []string {
	return slices.Sorted(slices.Values(slices.Concat(r.Attacks, r.Also)))
}

// Exclusion is the reason why an attack is in no row.
type Exclusion struct {
	// Reason is the reason as text.
	Reason string
	// Through is set for an attack that always gets through.
	Through bool
}

// Measured is the result of a row.
type Measured struct {
	Row Row
	// Tried are the keys of the attacks that were tried; Through are the keys of the attacks that
	// got through and are not excluded. Both are sorted.
	Tried, Through []string
	// Faults describe attacks that were not proven, missing layers that the findings do not name, and the
	// controls that stopped attacks that should get through.
	Faults []string
	// Took is the duration of the row, including removal and restoration.
	Took time.Duration
}

// Options select the rows and the cluster.
type Options struct {
	// Attack selects the cluster and the tenant to attack as. Tenant must be set; Only and
	// Progress are not used.
	Attack catalog.Options
	// Rows are the rows to run; nil means all.
	Rows []Row
	// Excluded are the attacks without a row; nil means [Excluded].
	Excluded map[string]Exclusion
	// Every is n if a row tries only every nth of the attacks that its controls should not stop. Each row
	// begins with another attack, so that all rows together try all of them; 0 tries all.
	Every int
	// Progress is called after each row, if it is not nil.
	Progress func(Measured)
}

// Run removes the controls of a fleet, one row after the other, and runs the attacks. The fleet must be
// ready. Run suspends the Kustomizations of the fleet's platform, since they would restore the controls. At
// the end, with every control restored, Run tries the whole catalogue again; the last result is for this
// run, with a row without controls. Run returns an error if the tenant is missing, or if it cannot remove a
// control, restore it, or run the attacks.
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
	for i, row := range append(slices.Clone(rows), Row{}) {
		began := time.Now()
		m, err := t.measure(ctx, row, i)
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

// measure measures the ith row: first without each of its controls if there are several, then
// without all of them.
func (t *target) measure(ctx context.Context, row Row, i int) (_ Measured, err error) {
	m := Measured{Row: row}
	if len(row.Controls) > 1 {
		for _, c := range row.Controls {
			if err := t.without(ctx, []Control{c}, func() error { return t.holds(ctx, &m, c) }); err != nil {
				return m, err
			}
		}
	}
	err = t.without(ctx, row.Controls, func() error {
		report, err := t.attack(ctx, t.opts.tried(row, i))
		for _, r := range report.Results {
			m.count(r, t.opts.Excluded)
		}
		return err
	})
	slices.Sort(m.Tried)
	slices.Sort(m.Through)
	return m, err
}

// count records the outcome of an attack.
func (m *Measured) count(r catalog.Result, excluded map[string]Exclusion) {
	key := r.Attack.Key()
	m.Tried = append(m.Tried, key)
	switch {
	case r.Finding.Outcome == catalog.NotProven && strings.HasPrefix(r.Finding.Reason, catalog.ControllerSimulated):
		// No control refused the object, and its controller would have processed it.
		m.Through = append(m.Through, key)
	case r.Finding.Outcome == catalog.NotProven:
		m.Faults = append(m.Faults, fmt.Sprintf("%s is not proven: %s", key, r.Finding.Reason))
	case r.Finding.Outcome == catalog.GotThrough && !excluded[key].Through:
		m.Through = append(m.Through, key)
	case r.Finding.Outcome == catalog.Stopped && excluded[key].Through:
		m.Faults = append(m.Faults, fmt.Sprintf("%s is stopped by %s: it needs a row", key, r.Finding.Control))
	case slices.Contains(m.Row.Through(), key):
		m.Faults = append(m.Faults, fmt.Sprintf("%s is %s by %s: %s%s", key, r.Finding.Outcome, r.Finding.Control, r.Finding.Evidence, r.Finding.Reason))
	}
}

// holds tries the attacks of a row without one of its controls. Another control must stop them, and the
// finding must name the missing control.
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

// without calls a function while controls are removed.
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
