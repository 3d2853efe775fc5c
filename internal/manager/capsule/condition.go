package capsule

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/capsule"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of Capsule's objects.
const (
	// conditionReady reports whether the tenant matches its spec.
	conditionReady = "Ready"
	// conditionCordoned reports whether the tenant must not make changes.
	conditionCordoned = "Cordoned"
	// conditionHonoured reports whether every field has an effect.
	conditionHonoured = "Honoured"
	// conditionMoved names the objects of Capsule's controller that remain.
	conditionMoved = "Moved"
)

// Reasons of conditions.
const (
	reasonRefused     = "Refused"
	reasonTaken       = "NameTaken"
	reasonNoProfile   = "NoProfile"
	reasonTerminating = "Terminating"
	reasonProgressing = "Progressing"
	reasonAll         = "AllFields"
	reasonSome        = "SomeFields"
	reasonLeft        = "Left"
	reasonIgnored     = "Ignored"
	// These are Capsule's reasons, for which its clients look.
	reasonSucceeded = "Succeeded"
	reasonFailed    = "Failed"
	reasonActive    = "Active"
	reasonCordoned  = "Cordoned"
)

type timeout = time.Duration

const (
	// maxNotes is the maximum number of notes in a message.
	maxNotes = 16
	// maxMessage is the maximum length of a condition's message, in bytes. The API allows twice as
	// much.
	maxMessage = 16 << 10
)

// conditions returns the conditions of a Tenant of Capsule.
func (s *state) conditions() []metav1.Condition {
	all := []metav1.Condition{s.ready(), s.cordoned()}
	if s.theirs.DeletionTimestamp.IsZero() && s.reason != reasonTaken && s.reason != reasonNoProfile {
		all = append(all, honoured(s.result.Notes))
	}
	if s.moved != nil {
		all = append(all, *s.moved)
	}
	for i := range all {
		all[i].ObservedGeneration = s.theirs.Generation
		all[i].Message = shorten(all[i].Message)
	}
	return all
}

func (s *state) ready() metav1.Condition {
	c := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse, Reason: s.reason, Message: s.refused}
	if s.refused != "" {
		if s.reason == reasonRefused && s.ours != nil {
			c.Message += "; the earlier state stays in force"
		}
		return c
	}
	if ready := s.oursReady(); ready != nil {
		c.Status, c.Reason, c.Message = ready.Status, ready.Reason, ready.Message
		if ready.Status == metav1.ConditionTrue {
			c.Reason = reasonSucceeded
		}
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonProgressing, "the Tenant of tenure.dev is not ready yet"
	return c
}

// cordoned returns the condition Cordoned of the Tenant. It changes once the manager has written the parameters of all
// namespaces, or cannot write those of one: until then, the API server still decides by the former ones.
func (s *state) cordoned() metav1.Condition {
	if s.ours == nil || !s.own {
		return cordoned(false)
	}
	if before := apimeta.FindStatusCondition(s.theirs.Status.Conditions, conditionCordoned); before != nil && s.progressing() {
		return metav1.Condition{Type: before.Type, Status: before.Status, Reason: before.Reason, Message: before.Message}
	}
	return cordoned(s.ours.Spec.Cordoned)
}

// progressing reports whether the manager still writes the objects of the namespaces of ours.
func (s *state) progressing() bool {
	c := s.oursCondition(conditionProvisioned)
	return c == nil || c.Status == metav1.ConditionUnknown
}

// cordoned returns the condition Cordoned, which always has a status.
func cordoned(cordoned bool) metav1.Condition {
	if cordoned {
		return metav1.Condition{Type: conditionCordoned, Status: metav1.ConditionTrue, Reason: reasonCordoned, Message: "the tenant must not make changes"}
	}
	return metav1.Condition{Type: conditionCordoned, Status: metav1.ConditionFalse, Reason: reasonActive, Message: "the tenant may make changes"}
}

// oursReady returns the condition Ready of ours. It returns nil if the condition is missing or
// out of date.
func (s *state) oursReady() *metav1.Condition { return s.oursCondition(conditionReady) }

// oursCondition returns a condition of ours. It returns nil if the condition is missing or out
// of date.
func (s *state) oursCondition(kind string) *metav1.Condition {
	if s.ours == nil || s.ours.Status.ObservedGeneration != s.ours.Generation {
		return nil
	}
	return apimeta.FindStatusCondition(s.ours.Status.Conditions, kind)
}

// honoured returns the condition Honoured, which names the fields without effect and the
// fields with a different effect.
func honoured(notes []capsule.Note) metav1.Condition {
	c := metav1.Condition{Type: conditionHonoured, Status: metav1.ConditionTrue, Reason: reasonAll, Message: "every field has an effect"}
	var without, otherwise []capsule.Note
	for _, n := range notes {
		if n.State == capsule.Different {
			otherwise = append(otherwise, n)
			continue
		}
		without = append(without, n)
	}
	var parts []string
	if len(otherwise) > 0 {
		parts = []string{"in another way: " + join(otherwise)}
		c.Message = parts[0]
	}
	if len(without) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, reasonSome
		c.Message = strings.Join(append([]string{"without effect: " + join(without)}, parts...), "; ")
	}
	return c
}

// join joins at most [maxNotes] notes.
func join(notes []capsule.Note) string {
	var all []string
	for i, n := range notes {
		if i == maxNotes {
			all = append(all, fmt.Sprintf("and %d more", len(notes)-i))
			break
		}
		all = append(all, n.String())
	}
	return strings.Join(all, "; ")
}

func shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + " …"
}
