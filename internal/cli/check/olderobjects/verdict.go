package olderobjects

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// prefix begins the names of all our rules and policies.
const prefix = "tenure-"

var (
	// policyName finds the name of one of our policies in a refusal or a warning of the API server.
	policyName = regexp.MustCompile(`ValidatingAdmissionPolicy '(` + prefix + `[a-z-]+)'`)
	// ruleName finds the names of the rules in the message of a policy of several rules.
	ruleName = regexp.MustCompile(`\(rule (` + prefix + `[a-z-]+)\)`)
)

// These rules do not check the content of an object: tenure-managed checks the writer, and
// tenure-cordon stops all writers.
const (
	ruleManaged = prefix + "managed"
	ruleCordon  = prefix + "cordon"
)

// openedPort is a part of the message of the rule tenure-services about a node port. The API server
// chose this port for the dry run: the ports of the Service are in use.
const openedPort = " on every node (allowed: "

// verdict returns the rules that refuse an object or warn of it, or why the rules said nothing. Err is
// the answer of the API server.
func verdict(o *unstructured.Unstructured, err error, warnings []string) (rules []string, reason string) {
	texts := warnings
	if err != nil {
		texts = append(texts, err.Error())
	}
	asked := err == nil || apierrors.IsAlreadyExists(err) || isQuota(err)
	for _, text := range texts {
		if openedAnyPort(o, text) {
			return nil, "the API server does not say whether its node ports are allowed"
		}
		named := rulesIn(text)
		if slices.Contains(named, ruleManaged) {
			return nil, "" // the platform's
		}
		asked = asked || len(named) > 0
		rules = append(rules, named...)
	}
	rules = slices.DeleteFunc(rules, func(rule string) bool { return rule == ruleCordon })
	slices.Sort(rules)
	if rules = slices.Compact(rules); len(rules) > 0 || asked {
		return rules, ""
	}
	return nil, err.Error()
}

// isQuota reports whether a ResourceQuota is used up. The API server asks quotas after the policies.
func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ")
}

func openedAnyPort(o *unstructured.Unstructured, text string) bool {
	return o.GetKind() == "Service" && policyName.MatchString(text) && strings.Contains(text, openedPort)
}

// rulesIn returns the names of our rules in a refusal or a warning. A policy of one rule has its name.
func rulesIn(text string) []string {
	policy := policyName.FindStringSubmatch(text)
	if policy == nil {
		return nil
	}
	var rules []string
	for _, found := range ruleName.FindAllStringSubmatch(text, -1) {
		rules = append(rules, found[1])
	}
	if len(rules) == 0 {
		rules = []string{strings.TrimSuffix(policy[1], "-own")}
	}
	return rules
}

const (
	// maxNamed is the maximum number of objects that a message names.
	maxNamed = 5
	// maxReason is the maximum length of a reason in a message.
	maxReason = 160
)

// String returns the report as one line.
func (r *Report) String() string {
	text := "no objects of tenants"
	switch n := len(r.Refused); {
	case n > 0:
		text = fmt.Sprintf("%d of %s break today's rules, and keep running (%s): %s", n, ui.Number(r.Objects, "object"), r.byRule(), r.named())
	case r.Objects > r.Untried:
		text = fmt.Sprintf("the rules allow %s as they are", ui.Number(r.Objects-r.Untried, "object"))
	case r.Objects > 0:
		text = "not counted"
	}
	if r.Untried > 0 {
		text += fmt.Sprintf("; %s could not be tried, such as: %s", ui.Number(r.Untried, "object"), ui.Cut(r.Reason, maxReason))
	}
	if r.More {
		text += fmt.Sprintf("; tenants have more objects, and only %d were looked at", r.Objects)
	}
	return text
}

// byRule returns the number of objects for each rule, most first.
func (r *Report) byRule() string {
	objects := map[string]int{}
	for _, refusal := range r.Refused {
		for _, rule := range refusal.Rules {
			objects[rule]++
		}
	}
	var texts []string
	for _, rule := range slices.SortedFunc(maps.Keys(objects), func(a, b string) int {
		return cmp.Or(objects[b]-objects[a], cmp.Compare(a, b))
	}) {
		texts = append(texts, fmt.Sprintf("%s: %d", rule, objects[rule]))
	}
	return strings.Join(texts, ", ")
}

// named returns the names of the first objects, with the rules.
func (r *Report) named() string {
	var names []string
	for _, refusal := range r.Refused[:min(len(r.Refused), maxNamed)] {
		names = append(names, refusal.Object+" ("+strings.Join(refusal.Rules, ", ")+")")
	}
	if more := len(r.Refused) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
