package verify

import (
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// judgement turns findings into reports: it applies the baseline and sets the verdict.
type judgement struct {
	baseline baseline.Baseline
	now      time.Time
	// attacks are the IDs or keys of the attacks that were tried; empty if all were.
	attacks []string
}

// tries reports whether an attack is tried.
func (j judgement) tries(a catalog.Attack) bool {
	return len(j.attacks) == 0 || slices.Contains(j.attacks, a.ID) || slices.Contains(j.attacks, a.Key())
}

// report combines the clusters' reports.
func (j judgement) report(clusters []clusterReport, took time.Duration) report {
	r := report{Verdict: verdictSafe, Seconds: took.Seconds(), Clusters: clusters, Stale: j.stale(clusters)}
	for _, verdict := range []string{verdictUnjudged, verdictUnsafe} {
		if slices.ContainsFunc(clusters, func(c clusterReport) bool { return c.Verdict == verdict }) {
			r.Verdict = verdict
		}
	}
	return r
}

// accept marks an attack that got through, or is not proven, if the baseline has an entry
// for that outcome.
func (j judgement) accept(a *attackMade) {
	kind, acceptable := acceptableAs(a.Outcome)
	if !acceptable {
		return
	}
	entry := j.baseline.Find(kind, a.ID, a.Key, a.Tenant)
	switch {
	case entry == nil:
	case entry.Expired(j.now):
		a.Expired = &acceptance{entry.Reason, entry.By, entry.Until()}
	default:
		a.Accepted = &acceptance{entry.Reason, entry.By, entry.Until()}
	}
}

// acceptableAs returns the kind of baseline entry that can accept an outcome, or false if
// none can.
func acceptableAs(outcome string) (baseline.Kind, bool) {
	switch outcome {
	case string(catalog.GotThrough):
		return baseline.Through, true
	case string(catalog.NotProven):
		return baseline.Unproven, true
	}
	return "", false
}

// stale returns the entries of the baseline that match no outcome. It returns none if a
// run broke off or tried a part of the attacks. It leaves out entries for attacks that are not proven: these may still
// get through.
func (j judgement) stale(clusters []clusterReport) []staleEntry {
	var stale []staleEntry
	if len(j.attacks) > 0 || slices.ContainsFunc(clusters, func(c clusterReport) bool { return c.Error != "" }) {
		return nil
	}
	for _, e := range j.baseline {
		used := slices.ContainsFunc(clusters, func(c clusterReport) bool {
			return slices.ContainsFunc(c.Attacks, func(a attackMade) bool {
				_, open := acceptableAs(a.Outcome)
				return (a.Outcome == string(catalog.NotProven) || open && e.Kind == baseline.Through) && e.Matches(a.ID, a.Key, a.Tenant)
			})
		})
		if !used {
			stale = append(stale, staleEntry{e.ID, e.Tenant, e.Reason, e.Until(), e.Kind == baseline.Unproven})
		}
	}
	return stale
}

func (c clusterReport) judge() string {
	switch {
	case c.Error != "":
		return verdictUnjudged
	case c.Coverage.GotThrough > 0:
		return verdictUnsafe
	case len(c.Chosen) > 0, c.Coverage.NotProven > 0, c.Coverage.Tried == c.Coverage.NotInstalled, len(c.NotReady) > 0, len(c.Tenants) == 0, c.doubtful:
		return verdictUnjudged
	}
	return verdictSafe
}

// unjudged returns the reason why a complete run on a fleet that is ready has no verdict, beside its attacks; "" if there is
// none.
func (c clusterReport) unjudged() string {
	switch {
	case c.Verdict != verdictUnjudged || c.Error != "":
	case len(c.Tenants) == 0:
		return noTenants
	case c.doubtful:
		return "parts of the fleet are invented or assumed here: " + strings.Join(slices.Concat(c.Faked, c.Assumed), "; ")
	case c.Coverage.Tried == c.Coverage.NotInstalled:
		return "the fleet lacks the target of every attack"
	}
	return ""
}
