package capsule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

const (
	// anything is the wildcard in a pattern: it matches any characters.
	anything = "*"
	// maxAlternatives is the maximum number of texts into which an expression is expanded.
	maxAlternatives = 64
	// maxExpression is the maximum length of an expression, in bytes.
	maxExpression = 4096
)

var (
	// ErrNotPattern is wrapped by errors about regular expressions for which no list of patterns is
	// equivalent.
	ErrNotPattern = errors.New("patterns in which * stands for any characters cannot express it, so it is not enforced")
	// ErrNotRegex is wrapped by errors about invalid regular expressions.
	ErrNotRegex = errors.New("it is not a regular expression")
)

// patternSyntax is the syntax of [v1alpha1.ValuePattern].
var patternSyntax = regexp.MustCompile(`^[A-Za-z0-9*]([A-Za-z0-9*._/-]*[A-Za-z0-9*])?$`)

func validPattern(text string) bool { return len(text) <= maxName && patternSyntax.MatchString(text) }

// Patterns returns patterns that match exactly the names in which the Go regular expression finds a match;
// Capsule uses expressions in this way. The error wraps [ErrNotRegex] or, if no list of patterns is
// equivalent, [ErrNotPattern].
func Patterns(expression string) ([]v1alpha1.ValuePattern, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("%w: it is longer than %d bytes", ErrNotRegex, maxExpression)
	}
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRegex, err)
	}
	// An expression that can be parsed may still be too large to compile.
	if _, err := regexp.Compile(expression); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRegex, err)
	}
	texts, ok := expand(tree)
	if !ok {
		return nil, ErrNotPattern
	}
	var patterns []v1alpha1.ValuePattern
	for _, text := range texts {
		p, ok := anchored(text)
		if !ok {
			return nil, ErrNotPattern
		}
		if !slices.Contains(patterns, p) {
			patterns = append(patterns, p)
		}
	}
	if len(patterns) == 0 {
		return nil, ErrNotPattern
	}
	return patterns, nil
}

// Anchors in the texts that [expand] returns; no name contains these characters.
const (
	begin = "^"
	end   = "$"
)

// anchored returns a pattern that matches the whole name. It reports false if the pattern is
// invalid.
func anchored(text string) (v1alpha1.ValuePattern, bool) {
	if trimmed := strings.TrimLeft(text, begin); trimmed != text {
		text = trimmed
	} else {
		text = anything + text
	}
	if trimmed := strings.TrimRight(text, end); trimmed != text {
		text = trimmed
	} else {
		text += anything
	}
	for strings.Contains(text, anything+anything) {
		text = strings.ReplaceAll(text, anything+anything, anything)
	}
	// The syntax of patterns excludes an anchor in the middle.
	return v1alpha1.ValuePattern(text), validPattern(text)
}

// expand returns the alternative texts that an expression matches. It reports false if it cannot list them.
func expand(re *syntax.Regexp) ([]string, bool) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return []string{""}, true
	case syntax.OpLiteral:
		text := string(re.Rune)
		return []string{text}, re.Flags&syntax.FoldCase == 0 && !strings.ContainsAny(text, anything+begin+end)
	case syntax.OpCharClass:
		return class(re.Rune)
	case syntax.OpBeginText:
		return []string{begin}, true
	case syntax.OpEndText:
		return []string{end}, true
	case syntax.OpStar:
		// A name is a single line, so both operators match the same texts.
		ok := re.Sub[0].Op == syntax.OpAnyChar || re.Sub[0].Op == syntax.OpAnyCharNotNL
		return []string{anything}, ok
	case syntax.OpCapture:
		return expand(re.Sub[0])
	case syntax.OpQuest:
		texts, ok := expand(re.Sub[0])
		return append(texts, ""), ok
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			texts, ok := expand(sub)
			all = append(all, texts...)
			if !ok || len(all) > maxAlternatives {
				return nil, false
			}
		}
		return all, true
	case syntax.OpConcat:
		return concat(re.Sub)
	default:
		return nil, false
	}
}

// class returns the characters of a character class. It reports false if there are too many.
func class(ranges []rune) ([]string, bool) {
	var all []string
	for i := 0; i+1 < len(ranges); i += 2 {
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if all = append(all, string(r)); len(all) > maxAlternatives || strings.ContainsRune(anything+begin+end, r) {
				return nil, false
			}
		}
	}
	return all, true
}

func concat(parts []*syntax.Regexp) ([]string, bool) {
	all := []string{""}
	for _, part := range parts {
		texts, ok := expand(part)
		if !ok || len(all)*len(texts) > maxAlternatives {
			return nil, false
		}
		var next []string
		for _, before := range all {
			for _, text := range texts {
				next = append(next, before+text)
			}
		}
		all = next
	}
	return all, true
}

// Matches reports whether a pattern matches a text. Case matters.
func Matches(pattern v1alpha1.ValuePattern, text string) bool {
	parts := strings.Split(string(pattern), anything)
	if len(parts) == 1 {
		return text == parts[0]
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
