package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestWithoutInterrupts checks that the errors of interrupted requests are not printed, and all others are.
func TestWithoutInterrupts(t *testing.T) {
	var got []string
	handle := withoutInterrupts(func(_ context.Context, err error, message string, keysAndValues ...any) {
		got = append(got, fmt.Sprint(message, ": ", err, keysAndValues))
	})
	handle(t.Context(), fmt.Errorf("failed to list *v1.Pod: %w", context.Canceled), "Failed to watch", "reflector", "x")
	handle(t.Context(), errors.New("failed to list *v1.Pod: refused"), "Failed to watch", "reflector", "x")
	handle(t.Context(), nil, "no error")
	if want := []string{"Failed to watch: failed to list *v1.Pod: refused [reflector x]", "no error: <nil> []"}; !slices.Equal(got, want) {
		t.Errorf("printed %q, want %q", got, want)
	}
}
