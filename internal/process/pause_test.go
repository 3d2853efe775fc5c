package process

import (
	"context"
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	t.Parallel()
	if !Pause(t.Context(), time.Millisecond) {
		t.Error("a pause that ends before the context has to return true")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if Pause(ctx, time.Hour) {
		t.Error("a pause of an ended context has to return false")
	}
}
