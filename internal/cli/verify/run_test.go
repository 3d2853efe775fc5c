package verify

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process"
)

// TestAnswerPatience checks that answerPatience exceeds the restarts of a component, so that
// verify reports why the control plane failed and not only that it does not answer.
func TestAnswerPatience(t *testing.T) {
	t.Parallel()
	var pauses time.Duration
	for i := range process.DefaultRestart.Max {
		pauses += process.DefaultRestart.First << i
	}
	if answerPatience < 2*pauses {
		t.Errorf("an answer is awaited for %s, want at least twice the %s between restarts", answerPatience, pauses)
	}
}
