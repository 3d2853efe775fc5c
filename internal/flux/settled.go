package flux

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Assessment is the state of a fleet.
type Assessment struct {
	// Awaited are the objects that will change by themselves, each with the awaited change.
	Awaited []Finding
	// Failed are the objects that will not become ready before somebody makes a change or Flux
	// tries again: those whose status reports a failure, and those that wait for such an object.
	Failed []Finding
}

// Finding is an object with a reason, in one sentence without a full stop. The reason can quote
// text of a tenant.
type Finding struct {
	Row    Row
	Reason string
	// Lacks reports that the object waits for another object that does not exist, which a
	// controller other than Flux's may be about to create, or that it checks the health of an
	// object that Flux may try again.
	Lacks bool
}

// Settled reports whether nothing is awaited any more.
func (a Assessment) Settled() bool { return len(a.Awaited) == 0 }

// Assess assesses the objects of a fleet by their rows. The rows should include all objects of
// [DeployKinds], since Assess treats other objects as missing, and those of [Unhealthy].
//
// An object has settled when it is suspended, ready at its current generation
// and at its source's current revision, or failed. An object that waits for another
// one is awaited only as long as the other can still become ready: it has failed
// when a dependency has failed, is suspended without being ready, or does not
// exist and no object is left that could create it.
//
// Failures may pass: Flux retries at intervals, and a caller that expects
// transient ones (a webhook that is not up yet) should look again a little
// later. No rows at all count as settled.
func Assess(rows []Row) Assessment {
	a := assessor{rows: map[Ref]Row{}, state: map[Ref]State{}, reason: map[Ref]string{}}
	for _, row := range rows {
		if !row.unhealthy {
			a.rows[row.Ref()] = row
		}
	}
	a.awaitApplied(rows)
	awaited := map[Ref]bool{}
	for ref, row := range a.rows {
		a.state[ref], a.reason[ref] = a.judge(row)
		awaited[ref] = a.state[ref] == Working
	}
	for changed := true; changed; {
		changed = false
		working := slices.Contains(slices.Collect(maps.Values(awaited)), true)
		for ref, row := range a.rows {
			if a.state[ref] == Blocked && !awaited[ref] && a.canStillMove(row, awaited, working) {
				awaited[ref], changed = true, true
			}
		}
	}
	var result Assessment
	seen := map[Ref]bool{}
	for _, row := range rows {
		ref := row.Ref()
		if _, ok := a.rows[ref]; !ok || seen[ref] {
			continue // several objects may wait for this one
		}
		seen[ref] = true
		switch {
		case awaited[ref]:
			result.Awaited = append(result.Awaited, Finding{Row: row, Reason: ShortRevision(a.reason[ref])})
		case a.state[ref] == Failed || a.state[ref] == Blocked:
			result.Failed = append(result.Failed, Finding{Row: row, Reason: ShortRevision(WithoutApplied(a.reason[ref])), Lacks: a.lacks(a.rows[ref])})
		}
	}
	return result
}

// WithoutApplied returns a message without the lines about applied objects that kustomize-controller adds to
// an error.
func WithoutApplied(message string) string { return applied.ReplaceAllString(message, "") }

// applied matches the lines about applied objects that kustomize-controller adds to an error.
var applied = regexp.MustCompile(`(?m)\n^[A-Z]\w*/\S+ (?:created|configured|unchanged|skipped)$`)

type assessor struct {
	rows   map[Ref]Row
	state  map[Ref]State
	reason map[Ref]string
}

// awaitApplied makes the objects that wait for the health of what they apply wait for those of its rows
// that they applied: objects of Flux, and those of [Unhealthy]. Until their timeout they say no more than that
// they are in progress, also when one of these objects has failed.
func (a assessor) awaitApplied(rows []Row) {
	for _, row := range rows {
		owner, ok := a.rows[row.owner]
		if !ok || !owner.waits || owner.State != Working && !owner.checks {
			continue
		}
		if row.unhealthy && !row.missing {
			a.rows[row.Ref()] = row
		}
		owner.State, owner.checks = Blocked, true
		owner.Needs = append(slices.Clip(owner.Needs), row.Ref())
		a.rows[row.owner] = owner
	}
}

// judge returns the state of an object and the reason. It starts from the state that the object's
// own status gives, and considers the states of the objects that it needs.
func (a assessor) judge(row Row) (State, string) {
	switch row.State {
	case Working:
		return Working, cmp.Or(row.Message, "has not been reconciled yet")
	case Ready, Failed:
		source, ok := a.source(row)
		if ok && row.attempted != "" && source.Revision != "" && row.attempted != source.Revision {
			return Working, "has not tried revision " + source.Revision + " of its source yet"
		}
		if row.State == Failed && row.Kind == Kustomization && strings.Contains(row.Message, uncountedQuota) {
			return Working, "tries again once its quota is counted: " + row.Message
		}
		return row.State, cmp.Or(row.Message, "its status gives no reason")
	case Blocked:
		var unmet []string
		for _, need := range row.Needs {
			if why := a.unmet(need); why != "" {
				unmet = append(unmet, fmt.Sprintf("%s (%s)", need, why))
			}
		}
		if other := otherDependency(row); len(unmet) == 0 && other != "" {
			return Blocked, "waits for " + other
		}
		if byExpression(row) && len(unmet) == 0 {
			return Blocked, row.Message
		}
		if len(unmet) == 0 {
			return Working, "the objects that it waits for are ready; its next reconciliation continues: " + row.Message
		}
		return Blocked, "waits for " + strings.Join(unmet, ", ")
	}
	return row.State, ""
}

// uncountedQuota is in the message of the API server about an object whose quota has no status yet. The quota
// of a kind has one as soon as the controller of quotas has found the kind's new CRD, which takes it half a
// minute.
const uncountedQuota = "status unknown for quota"

// byExpression reports whether the readyExpr of a dependency is false or fails: its object can be ready for
// Flux all the same.
func byExpression(row Row) bool {
	return strings.Contains(row.Message, "readyExpr") || strings.Contains(row.Message, "CEL expression")
}

// unmetDependency matches the dependency that flux-operator names in the message of a ResourceSet that waits.
var unmetDependency = regexp.MustCompile(`dependency (?:[\w.-]+/)?v\d\w*/(\w+)/([\w./:-]+) (not found|not ready)`)

// otherDependency returns the object that a ResourceSet waits for, with the reason, if it is of no kind of
// Flux, or "": such objects are not among the rows.
func otherDependency(row Row) string {
	match := unmetDependency.FindStringSubmatch(row.Message)
	if row.Kind != ResourceSet || match == nil {
		return ""
	}
	if _, known := infoOf(Kind(match[1])); known {
		return ""
	}
	return fmt.Sprintf("%s/%s (%s)", match[1], match[2], match[3])
}

// source is the row of a Kustomization's source.
func (a assessor) source(row Row) (Row, bool) {
	if row.Kind != Kustomization || len(row.Needs) == 0 {
		return Row{}, false
	}
	source, ok := a.rows[row.Needs[0]]
	return source, ok
}

// unmet returns the reason why a needed object is not ready for its dependents, or "".
func (a assessor) unmet(need Ref) string {
	row, ok := a.rows[need]
	switch {
	case !ok:
		return absent
	case row.State == Suspended && row.Ready != "True":
		return "is suspended"
	case row.State == Suspended && isArtifact(need.Kind) && row.Revision == "":
		return "is suspended and has no artifact"
	case row.State == Suspended || row.State == Ready:
		return ""
	}
	return row.State.String()
}

// lacks reports whether an object that waits needs one that does not exist, or checks another's
// health.
func (a assessor) lacks(row Row) bool {
	return a.state[row.Ref()] == Blocked && (row.checks || otherDependency(row) != "" || byExpression(row) || slices.ContainsFunc(row.Needs, func(need Ref) bool { return a.unmet(need) == absent }))
}

// absent is the reason of [assessor.unmet] for an object that does not exist.
const absent = "does not exist"

// canStillMove reports whether a blocked object may become unblocked by itself:
// each need that is not met must be on its way.
func (a assessor) canStillMove(row Row, awaited map[Ref]bool, working bool) bool {
	if (otherDependency(row) != "" || byExpression(row)) && !working {
		return false
	}
	for _, need := range row.Needs {
		if a.unmet(need) == "" {
			continue
		}
		_, exists := a.rows[need]
		if exists && !awaited[need] || !exists && !working {
			return false
		}
	}
	return true
}

// isArtifact reports whether consumers of the kind need its artifact. Consumers of a
// HelmRepository of type oci do not.
func isArtifact(kind Kind) bool {
	switch kind {
	case GitRepository, OCIRepository, Bucket, HelmChart, ExternalArtifact:
		return true
	}
	return false
}
