package verify

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/process"
)

// Why a control plane was given up is said, rather than that it does not answer: that
// has to be known by then.
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
