package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/ablation"
)

// Survivor is a mutant for which the attacks and the model differ, with the reason.
type Survivor struct {
	Fleet, Tenant, Mutant string
	Reason                string
}

// Survivors reads the explained survivors from a folder, and returns none if the folder has no such file.
// It returns an error if the file cannot be parsed, or if a survivor has no reason.
func Survivors(dir string) ([]Survivor, error) {
	var all []Survivor
	if err := read(filepath.Join(dir, "survivors.yaml"), &all); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, s := range all {
		if s.Reason == "" {
			return nil, fmt.Errorf("survivors.yaml: %s of %s has no reason", s.Mutant, s.Fleet)
		}
	}
	return all, nil
}

// wholeEvery selects the mutants that all attacks are tried on: one of wholeEvery. On the others, an attack
// that waits for Flux is tried only if it must turn.
const wholeEvery = 25

// Score counts mutants.
type Score struct {
	// Mutants is the number of all mutants. Killed is the number of mutants that turned exactly the
	// predicted attacks, and Redundant the number of these that had to turn no attack, because another
	// control stops the same attacks. Explained is the number of survivors with a reason.
	Mutants, Killed, Redundant, Explained int
	// Survived are the other mutants, each with the difference to the model.
	Survived []string
}

// Add returns the sum of two scores.
func (s Score) Add(t Score) Score {
	return Score{
		Mutants: s.Mutants + t.Mutants, Killed: s.Killed + t.Killed, Redundant: s.Redundant + t.Redundant,
		Explained: s.Explained + t.Explained, Survived: slices.Concat(s.Survived, t.Survived),
	}
}

func (s Score) String() string {
	percent := 0
	if s.Mutants > 0 {
		percent = 100 * (s.Killed + s.Explained) / s.Mutants
	}
	return fmt.Sprintf("%d mutants: %d turn what they must (%d of them nothing, since another control stops the same), %d survivors are explained, %d are not: %d%%",
		s.Mutants, s.Killed, s.Redundant, s.Explained, len(s.Survived), percent)
}

// Mutate creates the mutants of a running fleet for a tenant, one at a time, and compares the attacks that
// turn with the attacks that must turn. pick selects mutants by name; nil selects all. It writes a line for
// each mutant to out. It returns an error if the verdicts of the fleet and the model disagree, or if it
// cannot create or attack a mutant.
func (f Fleet) Mutate(ctx context.Context, opts catalog.Options, survivors []Survivor, pick func(name string) bool, out io.Writer) (Score, error) {
	var score Score
	excluded := ablation.Excluded()
	clear(excluded)
	for key, verdict := range f.Tenants[opts.Tenant].Verdicts() {
		if verdict.Outcome == catalog.GotThrough {
			excluded[key] = ablation.Exclusion{Reason: verdict.Reason, Through: true}
		}
	}
	controls, mutants, err := ablation.Mutants(ctx, ablation.Options{Attack: opts})
	if err != nil {
		return score, err
	}
	var disagreements []error
	for row, open := range stateOf(controls).open() {
		if open != excluded[row].Through {
			disagreements = append(disagreements, fmt.Errorf("expected.yaml of fleet %s and the model disagree about %s as %s: it gets through by the model: %t", f.Name, row, opts.Tenant, open))
		}
	}
	if err := errors.Join(disagreements...); err != nil {
		return score, err
	}
	var rows []ablation.Row
	for _, m := range mutants {
		if (pick == nil || pick(m.Control.Name)) && !hasRights(controls, m.Effect) {
			rows = append(rows, ablation.Row{Controls: []ablation.Control{m.Control}, Attacks: Turned(controls, m.Effect), Whole: len(rows)%wholeEvery == wholeEvery-1})
		}
	}
	_, err = ablation.Run(ctx, ablation.Options{Attack: opts, Rows: rows, Excluded: excluded, Progress: func(m ablation.Measured) {
		if len(m.Row.Controls) > 0 {
			score.Mutants++
		}
		score.count(f.Name, opts.Tenant, m, survivors, out)
	}})
	return score, err
}

// count adds a mutant. The row without controls is the unchanged fleet, which must have all its controls.
func (s *Score) count(fleet, tenant string, m ablation.Measured, survivors []Survivor, out io.Writer) {
	name := "(nothing is missing)"
	if len(m.Row.Controls) > 0 {
		name = m.Row.Name()
	}
	want := m.Row.Through()
	ok := slices.Equal(want, m.Through) && len(m.Faults) == 0
	explained := slices.ContainsFunc(survivors, func(x Survivor) bool { return x.Fleet == fleet && x.Tenant == tenant && x.Mutant == name })
	mark := "✓"
	switch {
	case ok && len(m.Row.Controls) > 0:
		s.Killed++
		if len(want) == 0 {
			s.Redundant++
		}
	case !ok && explained:
		mark = "~"
		s.Explained++
	case !ok:
		mark = "✗"
		s.Survived = append(s.Survived, fmt.Sprintf("%s as %s without %s: must turn %v, turned %v %v", fleet, tenant, name, want, m.Through, m.Faults))
	}
	fmt.Fprintf(out, "%s %s/%s without %s: %v (%s)\n", mark, fleet, tenant, name, m.Through, m.Took.Round(100*time.Millisecond))
}
