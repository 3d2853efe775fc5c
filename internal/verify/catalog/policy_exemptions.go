package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxMarks is the maximum number of marks that an attack tries against one refusal. An attempt is a dry run of a few
// milliseconds.
const maxMarks = 256

// markedError is the result of a request that a policy refuses or changes, and that the API server accepts with marks.
// [judge] counts it as an accepted request.
type markedError struct {
	marks []mark
	// object is the object with the marks.
	object *unstructured.Unstructured
}

func (m *markedError) Error() string {
	var all []string
	for _, mark := range m.marks {
		all = append(all, mark.String())
	}
	if len(all) == 1 {
		return all[0] + ", which exempts it from the policy"
	}
	return strings.Join(all, " and ") + ", which exempt it from the policies"
}

// policyRefusal is the refusal of a request, after the attempts to exempt the object from the policy that refuses or
// changes it.
type policyRefusal struct {
	error
	// accepted are the ways in which the API server accepts the object with other values: [aboutAttack] decides
	// whether the attack needs these values.
	accepted []acceptedAltered
	// untried says which marks were not tried; "" if all were.
	untried string
}

// acceptedAltered is a way around a refusal. by is the result if the changed values do not matter.
type acceptedAltered struct {
	altered *alteredError
	by      error
}

func (p *policyRefusal) Unwrap() error { return p.error }

// exempt tries an object that a policy refused or changed with the marks of this policy. If another policy refuses or
// changes the object then, it adds a mark of that one. It returns a [markedError] if the API server accepts the object as
// sent, and otherwise a [policyRefusal]. try sends an object, in a dry run.
func (e *Scenario) exempt(ctx context.Context, u *unstructured.Unstructured, refusal error, try func(context.Context, *unstructured.Unstructured) error) error {
	result := &policyRefusal{error: refusal}
	seen := map[string]bool{controlThatRefused(refusal): true}
	queue := []step{{u, refusal, nil}}
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		marks, untried := e.marksAgainst(from.refusal)
		if untried != "" {
			result.untried = untried
		}
		if len(marks) > maxMarks {
			result.untried = fmt.Sprintf("%s refuses it, whose exemptions may depend on %d labels, annotations and names, of which verify tries %d", controlThatRefused(from.refusal), len(marks), maxMarks)
			marks = marks[:maxMarks]
		}
		for _, m := range marks {
			if m.clashesWith(from.object) {
				continue
			}
			next := step{m.on(from.object), nil, append(slices.Clone(from.marks), m)}
			if next.refusal = try(ctx, next.object); next.refusal == nil {
				return &markedError{next.marks, next.object}
			}
			control := controlThatRefused(next.refusal)
			if !refusedByPolicy(next.refusal) || seen[control] {
				continue
			}
			seen[control] = true
			var altered *alteredError
			if errors.As(next.refusal, &altered) {
				result.accepted = append(result.accepted, acceptedAltered{altered, &markedError{next.marks, next.object}})
			}
			queue = append(queue, next)
		}
	}
	return result
}

// tryExempt sends an object with try, in a dry run. If a policy refuses or changes the object, it tries the marks of the
// policy: see [Scenario.exempt].
func (e *Scenario) tryExempt(ctx context.Context, u *unstructured.Unstructured, try func(context.Context, *unstructured.Unstructured) error) error {
	err := try(ctx, u)
	if !e.inFull || !refusedByPolicy(err) {
		return err
	}
	return e.exempt(ctx, u, err, try)
}

// step is an object with marks, and its refusal.
type step struct {
	object  *unstructured.Unstructured
	refusal error
	marks   []mark
}

// controlThatRefused returns the name of the policy that refused a request or, if policies changed the object, of the
// changed fields.
func controlThatRefused(refusal error) string {
	var altered *alteredError
	if errors.As(refusal, &altered) {
		return altered.control()
	}
	control, _ := controlOf(fmt.Sprint(refusal))
	return control
}

// marksAgainst returns the marks that may end a refusal, each once, and what may end it beside marks. The answer of the API server does not name a policy that
// changes an object, and the name of a webhook is no name of a policy: then the marks of all these count.
func (e *Scenario) marksAgainst(refusal error) (marks []mark, untried string) {
	var altered *alteredError
	changed := errors.As(refusal, &altered)
	control := controlThatRefused(refusal)
	for _, x := range e.exemptions {
		switch {
		case x.policy != "" && x.policy != control && (!changed || !x.changes) && !strings.HasPrefix(control, "webhook "):
		case x.untried != "":
			untried = x.untried
		case !slices.Contains(marks, x.mark):
			marks = append(marks, x.mark)
		}
	}
	return marks, untried
}
