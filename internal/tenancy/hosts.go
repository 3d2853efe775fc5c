package tenancy

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// Comparison is the result of a comparison of the hosts of two tenants.
type Comparison int

// The values of Comparison, in the order of their importance.
const (
	// Separate hosts have no name in common.
	Separate Comparison = iota
	// NotComparable hosts have an expression, which is compared with names but not with
	// patterns or with another expression.
	NotComparable
	// Overlapping hosts have a name in common.
	Overlapping
)

// CompareHosts reports whether two tenants may have the same host, and names the entries of
// both lists for which this is so. Nil is a list without limits of its own, and separate.
func CompareHosts(one, other *v1alpha1.AllowedNames) (result Comparison, entries string) {
	if one == nil || other == nil {
		return Separate, ""
	}
	for _, a := range hostEntries(one) {
		for _, b := range hostEntries(other) {
			if is := a.compare(b); is > result {
				result, entries = is, fmt.Sprintf("%s and %s", a, b)
			}
		}
	}
	return result, entries
}

// hostEntry is a pattern in which * matches any characters, or an expression.
type hostEntry struct {
	pattern    string
	expression *regexp.Regexp
}

func hostEntries(names *v1alpha1.AllowedNames) []hostEntry {
	var entries []hostEntry
	for _, pattern := range names.Allowed {
		entries = append(entries, hostEntry{pattern: string(pattern)})
	}
	// The schema of the field refuses other expressions.
	if expression, err := regexp.Compile(names.Expression); names.Expression != "" && err == nil {
		entries = append(entries, hostEntry{expression: expression})
	}
	return entries
}

func (e hostEntry) String() string {
	if e.expression != nil {
		return "expression " + e.expression.String()
	}
	return e.pattern
}

func (e hostEntry) compare(other hostEntry) Comparison {
	if other.expression != nil {
		e, other = other, e
	}
	switch {
	case e.expression == nil:
		if patternsOverlap(e.pattern, other.pattern) {
			return Overlapping
		}
	case other.expression != nil:
		if e.expression.String() == other.expression.String() {
			return Overlapping
		}
		return NotComparable
	case strings.Contains(other.pattern, "*"):
		return NotComparable
	case e.expression.MatchString(other.pattern):
		return Overlapping
	}
	return Separate
}

// patternsOverlap reports whether a name matches two patterns, in which * matches any
// characters. It takes time in proportion to the product of their lengths.
func patternsOverlap(a, b string) bool {
	// row[j] is whether the rest of a, from the current character, and b[j:] have a name in
	// common.
	row := make([]bool, len(b)+1)
	for i := len(a); i >= 0; i-- {
		before := false // row[j+1] of the rest of a that is shorter by one character
		for j := len(b); j >= 0; j-- {
			shorter := row[j]
			switch {
			case i == len(a) && j == len(b):
				row[j] = true
			case i < len(a) && a[i] == '*':
				row[j] = shorter || j < len(b) && row[j+1]
			case j < len(b) && b[j] == '*':
				row[j] = row[j+1] || i < len(a) && shorter
			default:
				row[j] = i < len(a) && j < len(b) && a[i] == b[j] && before
			}
			before = shorter
		}
	}
	return row[0]
}
