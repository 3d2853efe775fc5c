package cli

import (
	"context"
	"errors"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// HideInterrupts keeps client-go from printing the errors of requests that an interrupt ended, such as
// those of the informers of a local cluster. The program calls it once, before it runs a command.
func HideInterrupts() {
	for i, handle := range utilruntime.ErrorHandlers {
		utilruntime.ErrorHandlers[i] = withoutInterrupts(handle)
	}
}

func withoutInterrupts(handle utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, message string, keysAndValues ...any) {
		if !errors.Is(err, context.Canceled) {
			handle(ctx, err, message, keysAndValues...)
		}
	}
}
