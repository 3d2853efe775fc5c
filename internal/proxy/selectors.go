package proxy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// emptySelector selects no object: it requires that a label exists and does not exist.
var emptySelector = labels.NewSelector().Add(
	requirement(corev1.LabelMetadataName, selection.Exists), requirement(corev1.LabelMetadataName, selection.DoesNotExist))

func requirement(key string, op selection.Operator, values ...string) labels.Requirement {
	r, err := labels.NewRequirement(key, op, values)
	if err != nil {
		panic(err) // keys and operators are constants, values come from names
	}
	return *r
}

// oneOf selects objects by the value of a label. It drops values that Kubernetes does not
// allow as label values, since no object can have them.
func oneOf(label string, values []string) labels.Selector {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		_, err := labels.NewRequirement(label, selection.In, []string{v})
		return err != nil || v == ""
	})
	if len(values) == 0 {
		return emptySelector
	}
	return labels.NewSelector().Add(requirement(label, selection.In, values...))
}

// conjunction is a label selector: the requirements that an object has to meet, all of
// them.
type conjunction []labels.Requirement

// union returns one selector for the objects that any of the selectors selects, and false
// if there is none. The API server has no OR between requirements, only between the values
// of one requirement: pool=a and pool=b become pool in (a,b), but pool=a and disk=ssd
// cannot be joined. union ignores a selector that cannot select any object.
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

// joinTwo replaces two of the selectors by one, and reports whether it found two that it
// can join.
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

// impossible reports whether a label has to exist and not to exist, as in [emptySelector].
func (a conjunction) impossible() bool {
	return slices.ContainsFunc(a, func(r labels.Requirement) bool {
		return r.Operator() == selection.DoesNotExist && slices.ContainsFunc(a, func(other labels.Requirement) bool {
			return other.Key() == r.Key() && (other.Operator() == selection.Exists || oneValue(other))
		})
	})
}

// within reports whether b selects all objects that a selects. It may return false although
// b does.
func (a conjunction) within(b conjunction) bool {
	return !slices.ContainsFunc(b, func(wanted labels.Requirement) bool {
		return !slices.ContainsFunc(a, func(r labels.Requirement) bool { return implies(r, wanted) })
	})
}

// implies reports whether all objects that meet r also meet wanted.
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

// oneValue reports whether a requirement lists the values that a label may have.
func oneValue(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return true
	}
	return false
}

// merge returns the union of two selectors that differ in the values of one label only.
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

// intersection returns a selector for the objects that both selectors select.
func intersection(a, b labels.Selector) labels.Selector {
	requirements, selectable := a.Requirements()
	more, too := b.Requirements()
	if !selectable || !too {
		return emptySelector
	}
	return labels.NewSelector().Add(requirements...).Add(more...)
}
