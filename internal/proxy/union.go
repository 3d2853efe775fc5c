package proxy

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// conjunction is a label selector: the requirements that all have to be met.
type conjunction []labels.Requirement

// union is one selector that selects what any of the selectors does; false if there
// is none. The API server has no "or" between requirements, only between the values
// of one: pool=a and pool=b are pool in (a,b), pool=a and disk=ssd are nothing that
// could be asked for. A selector that can select nothing at all adds nothing.
func union(selectors []labels.Selector) (labels.Selector, bool) {
	var all []conjunction
	for _, s := range selectors {
		if requirements, selectable := s.Requirements(); selectable && !conjunction(requirements).impossible() {
			all = append(all, conjunction(slices.Clone(requirements)))
		}
	}
	if len(all) == 0 {
		return emptySelector, true
	}
	for merged := true; merged; {
		all, merged = joinTwo(all)
	}
	if len(all) > 1 {
		return emptySelector, false
	}
	return labels.NewSelector().Add(all[0]...), true
}

// joinTwo puts two of the selectors in the place of one, if any two can be.
func joinTwo(all []conjunction) ([]conjunction, bool) {
	for i, a := range all {
		for j, b := range all {
			if i == j {
				continue
			}
			if a.within(b) {
				return slices.Delete(slices.Clone(all), i, i+1), true
			}
			if one, ok := a.merge(b); ok && i < j {
				rest := slices.Delete(slices.Clone(all), j, j+1)
				rest[i] = one
				return rest, true
			}
		}
	}
	return all, false
}

// impossible says whether a label is to be there and not to be there, as in [emptySelector].
func (a conjunction) impossible() bool {
	return slices.ContainsFunc(a, func(r labels.Requirement) bool {
		return r.Operator() == selection.DoesNotExist && slices.ContainsFunc(a, func(other labels.Requirement) bool {
			return other.Key() == r.Key() && (other.Operator() == selection.Exists || oneValue(other))
		})
	})
}

// within says whether a selects nothing that b does not. It may say no where that is
// so, too.
func (a conjunction) within(b conjunction) bool {
	return !slices.ContainsFunc(b, func(wanted labels.Requirement) bool {
		return !slices.ContainsFunc(a, func(r labels.Requirement) bool { return implies(r, wanted) })
	})
}

// implies says whether whatever meets the one requirement meets the other.
func implies(r, wanted labels.Requirement) bool {
	switch {
	case r.Key() != wanted.Key():
		return false
	case r.Equal(wanted):
		return true
	case oneValue(r) && oneValue(wanted):
		return wanted.Values().IsSuperset(r.Values())
	}
	return oneValue(r) && wanted.Operator() == selection.Exists
}

// oneValue says whether a requirement is that a label has one of some values.
func oneValue(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return true
	}
	return false
}

// merge is the union of two selectors that differ in the values of one label.
func (a conjunction) merge(b conjunction) (conjunction, bool) {
	if len(a) != len(b) {
		return nil, false
	}
	differs := -1
	rest := slices.Clone(b)
	for i, r := range a {
		if same := slices.IndexFunc(rest, r.Equal); same >= 0 {
			rest = slices.Delete(rest, same, same+1)
			continue
		}
		if differs >= 0 {
			return nil, false
		}
		differs = i
	}
	if differs < 0 || len(rest) != 1 || a[differs].Key() != rest[0].Key() || !oneValue(a[differs]) || !oneValue(rest[0]) {
		return nil, false
	}
	merged := slices.Clone(a)
	merged[differs] = requirement(rest[0].Key(), selection.In, a[differs].Values().Union(rest[0].Values()).List()...)
	return merged, true
}

// intersection selects what two selectors both do.
func intersection(a, b labels.Selector) labels.Selector {
	requirements, selectable := a.Requirements()
	more, too := b.Requirements()
	if !selectable || !too {
		return emptySelector
	}
	return labels.NewSelector().Add(requirements...).Add(more...)
}
