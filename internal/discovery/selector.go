package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Choice assigns namespaces to tenants or to the platform, in place of the decision of
// [Discover]. Discover decides about all namespaces that the Choice does not select.
type Choice struct {
	// Tenants and Platform select namespaces. A namespace that both select is an error.
	Tenants, Platform []Selector
	// Root is the namespace of the root source and Kustomization, which is the platform's. It is empty
	// if it is one of Flux's namespaces, or not known.
	Root string
}

// Selector selects namespaces by one property.
type Selector struct {
	by, pattern string
	matches     *regexp.Regexp
}

// The properties by which a selector selects.
const (
	byNamespace = "namespace"
	byLabel     = "label"
	bySource    = "source"
)

// selectorForms are the forms that ParseSelector accepts.
const selectorForms = "namespace=NAME, label=KEY, label=KEY=VALUE or source=ADDRESS, where * stands for any characters"

// ErrSelector reports a text that is not a selector.
var ErrSelector = errors.New("is no selector of namespaces")

// ParseSelector parses a selector: namespace=NAME selects by the name of a namespace, label=KEY and
// label=KEY=VALUE by a label, source=ADDRESS by the address of a source from which Flux delivers in
// the namespace. In NAME, VALUE and ADDRESS, * stands for any characters. It returns [ErrSelector]
// for any other text.
func ParseSelector(text string) (Selector, error) {
	by, pattern, _ := strings.Cut(text, "=")
	glob := pattern
	if by == byLabel {
		_, value, withValue := strings.Cut(pattern, "=")
		if glob = "*"; withValue {
			glob = value
		}
	}
	matches, err := regexp.Compile("^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*") + ")$")
	if err != nil || (by != byNamespace && by != byLabel && by != bySource) || pattern == "" || strings.HasPrefix(pattern, "=") {
		return Selector{}, fmt.Errorf("%q %w: write %s", text, ErrSelector, selectorForms)
	}
	return Selector{by: by, pattern: pattern, matches: matches}, nil
}

// String returns the text of the selector.
func (s Selector) String() string { return s.by + "=" + s.pattern }

// key returns the key of the label.
func (s Selector) key() string {
	key, _, _ := strings.Cut(s.pattern, "=")
	return key
}

// selects reports whether the selector matches a namespace with deliveries from the addresses.
func (s Selector) selects(ns corev1.Namespace, addresses []string) bool {
	switch s.by {
	case byNamespace:
		return s.matches.MatchString(ns.Name)
	case byLabel:
		value, ok := ns.Labels[s.key()]
		return ok && s.matches.MatchString(value)
	}
	for _, address := range addresses {
		if s.matches.MatchString(address) {
			return true
		}
	}
	return false
}

// NewChoice returns the choice with the parsed selectors, or [ErrSelector] if a text is not a selector.
func NewChoice(tenants, platform []string) (Choice, error) {
	var c Choice
	for _, list := range []struct {
		texts []string
		to    *[]Selector
	}{{tenants, &c.Tenants}, {platform, &c.Platform}} {
		for _, text := range list.texts {
			s, err := ParseSelector(text)
			if err != nil {
				return Choice{}, err
			}
			*list.to = append(*list.to, s)
		}
	}
	return c, nil
}

// With returns the choice with another one added.
func (c Choice) With(other Choice) Choice {
	return Choice{Root: cmp.Or(c.Root, other.Root), Tenants: append(c.Tenants[:len(c.Tenants):len(c.Tenants)], other.Tenants...), Platform: append(c.Platform[:len(c.Platform):len(c.Platform)], other.Platform...)}
}

// first returns the first selector that selects a namespace.
func first(selectors []Selector, ns corev1.Namespace, addresses []string) (Selector, bool) {
	for _, s := range selectors {
		if s.selects(ns, addresses) {
			return s, true
		}
	}
	return Selector{}, false
}
