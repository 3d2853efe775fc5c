// Tenure makes a Kubernetes cluster with Flux multi-tenant, and proves it. See
// `tenure --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tenure-dev/tenure/internal/cli"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/ui"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == process.ReapCommand {
		process.RunReaper(os.Stdin, os.Args[2:])
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// After the first signal the next one ends the program at once.
	context.AfterFunc(ctx, stop)
	cli.HideInterrupts()
	code := cli.RunAs(ctx, ui.Std(), os.Args[0], os.Args[1:])
	stop()
	os.Exit(code)
}
