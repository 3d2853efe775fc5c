// Ablation removes the controls of the example fleet, one row of test/ablation after the
// other, attacks the fleet, and prints the matrix. It exits with 1 if the matrix differs from
// the table. With -table FILE it writes the table as a page of documentation and runs nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/ablation"
)

func main() {
	table := flag.String("table", "", "write the table to a file instead")
	whole := flag.Bool("whole", false, "try every attack without every control, not only those that are quick")
	flag.Parse()
	if *table != "" {
		if err := os.WriteFile(*table, []byte(ablation.Document()), 0o644); err != nil { //nolint:gosec // a page that everybody may read
			fail(err)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *whole); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// options returns the options of `make up`.
func options() (localcluster.Options, error) {
	// Programs are started in other folders.
	bin, err := filepath.Abs("bin")
	if err != nil {
		return localcluster.Options{}, err
	}
	opts := localcluster.Options{
		Name: fmt.Sprintf("ablation-%d", os.Getpid()), BinDir: bin,
		Fleet: "examples/fleet/platform", Path: "clusters/staging", Apply: []string{"examples/fleet/bootstrap"},
	}
	for _, value := range []string{
		"https://git.example.com/acme/dev-team#main=examples/fleet/dev-team",
		"https://git.example.com/acme/billing#main=examples/fleet/billing",
		"https://charts.example.com=examples/charts",
	} {
		m, err := network.ParseMap(value)
		if err != nil {
			return opts, err
		}
		opts.Maps = append(opts.Maps, m)
	}
	return opts, nil
}

// patience bounds the wait for the fleet.
const patience = 5 * time.Minute

func run(ctx context.Context, whole bool) error {
	opts, err := options()
	if err != nil {
		return err
	}
	d := &local.Display{Screen: ui.NewScreen(os.Stderr)}
	cluster, err := d.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = d.Stop(cluster) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	rows, err := local.Watch(ctx, cluster, cancel)
	if err != nil {
		return err
	}
	if failures, err := d.Settle(ctx, cluster, rows, patience); err != nil || len(failures) > 0 {
		return errors.Join(fmt.Errorf("the example fleet is not ready: %v", failures), err)
	}
	sync := cluster.Fleet.Sync
	began, good := time.Now(), true
	all, err := ablation.Run(ctx, ablation.Options{
		Attack: catalog.Options{
			Config: cluster.REST, Git: cluster.Git, OCI: cluster.OCI, Network: cluster.Network, Platform: sync.Namespace, Tenant: "dev-team",
			Root: flux.Ref{Kind: flux.GitRepository, Namespace: sync.Namespace, Name: sync.Source},
		},
		Whole: whole,
		Progress: func(m ablation.Measured) {
			want := m.Row.Through()
			ok := slices.Equal(want, m.Through) && len(m.Faults) == 0
			good = good && ok
			mark := map[bool]string{true: "✓", false: "✗"}[ok]
			fmt.Fprintf(os.Stderr, "%s without %s: %v (%.1fs)\n", mark, m.Row.Name(), m.Through, m.Took.Seconds())
			for _, fault := range m.Faults {
				fmt.Fprintf(os.Stderr, "  %s\n", fault)
			}
		},
	})
	fmt.Print(ablation.Matrix(all))
	fmt.Fprintf(os.Stderr, "%d rows in %.0fs\n", len(all), time.Since(began).Seconds())
	if err == nil && !good {
		err = errors.New("the matrix is not what test/ablation says: see the rows marked ✗")
	}
	return err
}
