package load

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/corpus"
	"github.com/tenure-dev/tenure/test/fixtures/fleetgen"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// BenchmarkVerifyExample measures `tenure verify` with the example fleet: the time from the
// start to the report, the time of the attacks, the mean time of an attack for each
// [catalog.Via], and the maximum memory of all processes together.
func BenchmarkVerifyExample(b *testing.B) {
	verify(b, bounds{whole: "35"}, startExample)
}

// BenchmarkVerifyHundredTenants measures the same with a hundred tenants of five shapes,
// each with a repository of its own.
func BenchmarkVerifyHundredTenants(b *testing.B) {
	root, err := testcluster.Repository()
	if err != nil {
		b.Fatal(err)
	}
	fleet, err := fleetgen.Write(b.TempDir(), fleetgen.ShapesPlatform(), fleetgen.Shapes(100, "web"))
	if err != nil {
		b.Fatal(err)
	}
	verify(b, bounds{whole: "150"}, startsFleet(b, fleet.Dir, fleetgen.Path, append(fleet.Maps, fleetgen.ChartHost+"="+filepath.Join(root, "examples", "charts"))))
}

// BenchmarkVerifyMonorepo measures the same with fifty teams that share one repository, which a
// source in the platform's namespace fetches for all of them.
func BenchmarkVerifyMonorepo(b *testing.B) {
	fleet, err := fleetgen.Write(b.TempDir(), fleetgen.MonorepoPlatform(), fleetgen.Monorepo(50))
	if err != nil {
		b.Fatal(err)
	}
	verify(b, bounds{whole: "240"}, startsFleet(b, fleet.Dir, fleetgen.Path, fleet.Maps))
}

// BenchmarkVerifyScaffolded measures the same with a fleet of `tenure create fleet` that has a
// tenant of `tenure create tenant`.
func BenchmarkVerifyScaffolded(b *testing.B) {
	dir := b.TempDir()
	fleet, team := filepath.Join(dir, "fleet"), filepath.Join(dir, "team")
	deploy := filepath.Join(team, "deploy")
	if err := errors.Join(os.Mkdir(fleet, 0o750), os.MkdirAll(deploy, 0o750),
		os.WriteFile(filepath.Join(deploy, "app.yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app, namespace: team}\n"), 0o600)); err != nil {
		b.Fatal(err)
	}
	const address = "https://git.example.com/acme/"
	for _, args := range [][]string{
		{"create", "fleet", fleet, "--git-url", address + "fleet", "--cluster", "staging", "--allow", "git=" + address + "*", "--yes"},
		{"create", "tenant", "team", "--fleet", fleet, "--with-namespace", "team", "--git-url", address + "team", "--environment", "staging=./deploy", "--yes"},
	} {
		command := exec.CommandContext(b.Context(), filepath.Join(binDir(b), "tenure"), args...)
		if out, err := command.CombinedOutput(); err != nil {
			b.Fatalf("cannot scaffold the fleet: %v\n%s", err, out)
		}
	}
	verify(b, bounds{whole: "30"}, startsFleet(b, fleet, "clusters/staging", []string{address + "team#main=" + team}))
}

// BenchmarkVerifyOperator measures the same with the fleet of test/corpus in the shape of flux-operator's
// reference architecture. Its maximum total time includes the report; the time of s/ready ends when
// everything is ready.
func BenchmarkVerifyOperator(b *testing.B) {
	verifyCorpus(b, "reference", "120", "60")
}

// BenchmarkVerifyKyverno measures the same with the fleet of test/corpus in the shape of
// flux2-multi-tenancy, whose Kyverno runs with the fleet's policies.
func BenchmarkVerifyKyverno(b *testing.B) {
	verifyCorpus(b, "flux2-multi-tenancy", "90", "")
}

func verifyCorpus(b *testing.B, name, bound, readyBound string) {
	b.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		b.Fatal(err)
	}
	fleets, err := corpus.Load(filepath.Join(root, "test", "corpus"))
	if err != nil {
		b.Fatal(err)
	}
	at := slices.IndexFunc(fleets, func(f corpus.Fleet) bool { return f.Name == name })
	if at < 0 {
		b.Fatalf("the corpus has no fleet %s", name)
	}
	f := fleets[at]
	var maps []string
	for address, folder := range f.Maps {
		maps = append(maps, address+"="+filepath.Join(f.Dir, folder))
	}
	verify(b, bounds{whole: bound, ready: readyBound}, startsFleet(b, filepath.Join(f.Dir, "platform"), f.Path, maps))
}

// startsFleet returns a function that starts a cluster with a fleet and mapped folders.
func startsFleet(b *testing.B, dir, path string, maps []string) func(*testing.B) *localcluster.Cluster {
	b.Helper()
	opts := localcluster.Options{Name: "bench", BinDir: binDir(b), Fleet: dir, Path: path}
	for _, address := range maps {
		m, err := network.ParseMap(address)
		if err != nil {
			b.Fatal(err)
		}
		opts.Maps = append(opts.Maps, m)
	}
	return func(b *testing.B) *localcluster.Cluster {
		b.Helper()
		opts.Root = stateRoot(b)
		cluster, err := localcluster.Start(b.Context(), opts)
		if err != nil {
			b.Fatal(err)
		}
		return cluster
	}
}

// bounds are the maximum seconds of a verification: of the whole, and until the fleet is ready, or
// "" for no bound.
type bounds struct{ whole, ready string }

// maxMB bounds the memory of all processes of a verification together.
const maxMB = "3072"

// verify measures a verification of the fleet that start starts. A result that is not
// proven fails the benchmark, because an attack that was not tried took no time.
func verify(b *testing.B, bound bounds, start func(*testing.B) *localcluster.Cluster) {
	b.Helper()
	var whole, ready, attacks time.Duration
	var peak, self float64
	took, tried := map[catalog.Via]time.Duration{}, map[catalog.Via]int{}
	for b.Loop() {
		began := time.Now()
		cluster := start(b)
		awaitReady(b, cluster)
		ready += time.Since(began)
		stopSampling := sample(b, cluster, &peak, &self)
		attacked := time.Now()
		report, err := catalog.Run(b.Context(), catalog.Options{
			Config: cluster.REST, Git: cluster.Git, OCI: cluster.OCI, Network: cluster.Network, Platform: cluster.Fleet.FluxNamespace(),
			Root: flux.Ref{Kind: flux.GitRepository, Namespace: cluster.Fleet.Sync.Namespace, Name: cluster.Fleet.Sync.Source},
		})
		stopSampling()
		if err != nil {
			b.Fatal(err)
		}
		attacks += time.Since(attacked)
		whole += time.Since(began)
		for _, r := range report.Results {
			took[r.Attack.Via] += r.Took
			tried[r.Attack.Via]++
			if r.Finding.Outcome == catalog.NotProven {
				b.Errorf("%s as %s is not proven: %s", r.Attack.Key(), r.Tenant, r.Finding.Reason)
			}
		}
		if err := cluster.Stop(); err != nil {
			b.Fatal(err)
		}
	}
	n := float64(b.N)
	b.ReportMetric(whole.Seconds()/n, "s/verify(max="+bound.whole+")")
	readyFigure := "s/ready"
	if bound.ready != "" {
		readyFigure += "(max=" + bound.ready + ")"
	}
	b.ReportMetric(ready.Seconds()/n, readyFigure)
	b.ReportMetric(attacks.Seconds()/n, "s/attacks")
	for _, via := range []catalog.Via{catalog.API, catalog.Git} {
		if tried[via] > 0 {
			b.ReportMetric(took[via].Seconds()/float64(tried[via]), "s/"+string(via)+"-attack")
			b.ReportMetric(float64(tried[via])/n, string(via)+"-attacks")
		}
	}
	b.ReportMetric(peak, "MB-peak(max="+maxMB+")")
	b.ReportMetric(self, "MB-verify")
	b.ReportMetric(0, "ns/op")
}

// sample measures the memory of the cluster's processes and of this process twice a second,
// and keeps the maximum until stop is called.
func sample(b *testing.B, cluster *localcluster.Cluster, peak, self *float64) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			all, own := residentMB(b, cluster)
			*peak, *self = max(*peak, all), max(*self, own)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
	}
}
