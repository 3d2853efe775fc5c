// Tenure-server contains the programs of Tenure that run inside a cluster. See
// `tenure-server --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenure-dev/tenure/internal/server"
	"github.com/tenure-dev/tenure/internal/ui"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one ends the program at once.
	context.AfterFunc(ctx, stop)
	code := server.Run(ctx, ui.Std(), os.Args[1:])
	stop()
	os.Exit(code)
}
