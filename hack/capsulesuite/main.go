// Capsulesuite runs the end-to-end tests of Capsule against Tenure's layer for Capsule: it starts a
// local cluster with the manager and a TenancyProfile for Capsule's way, compiles the tests from
// the module that suite/go.mod pins, runs them and prints a table of the results by file. The tests' failures do
// not change the exit code: some cases check what Tenure does by another way, on purpose.
//
//	go run ./hack/capsulesuite -out dist/capsulesuite
//
// It needs the programs in bin/, which `make build` makes, and bin/kubectl.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-dev/tenure/internal/localcluster"
)

const (
	module  = "github.com/projectcapsule/capsule"
	cluster = "capsulesuite"
	// serial is the label of cases that change the CapsuleConfiguration, which run one by one after the
	// others, as in Capsule's own run.
	serial = "config"
	// maxRounds bounds the runs of ordered groups of which a case fails.
	maxRounds = 6
)

// suite is the folder of the module that pins Capsule's version.
var suite = filepath.Join("hack", "capsulesuite", "suite")

//go:embed profile.yaml
var profile []byte

//go:embed objects.yaml
var objects []byte

// options are the flags.
type options struct {
	bin, out, focus, skip string
	processes             int
	timeout               time.Duration
}

func main() {
	var opts options
	flag.StringVar(&opts.bin, "bin", "bin", "the folder of the built programs")
	flag.StringVar(&opts.out, "out", filepath.Join("dist", "capsulesuite"), "the folder for the compiled tests, the reports and the table")
	flag.StringVar(&opts.focus, "focus", "", "regular expression that the names of the test files must match")
	flag.StringVar(&opts.skip, "skip", "pool_|customquota_|global_resource_quota|rules_quota_", "regular expression of the names of test files that are left out: by default those of kinds that Tenure does not have")
	flag.IntVar(&opts.processes, "processes", 6, "how many cases run at a time")
	flag.DurationVar(&opts.timeout, "timeout", 2*time.Hour, "how long each of the two runs may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, opts); err != nil {
		fmt.Fprintf(os.Stderr, "capsulesuite: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options) (err error) {
	for _, dir := range []*string{&opts.bin, &opts.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(opts.out, 0o750); err != nil {
		return err
	}
	if err := compile(ctx, opts); err != nil {
		return fmt.Errorf("cannot compile Capsule's tests: %w", err)
	}
	source, err := exec.CommandContext(ctx, "go", "-C", suite, "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("cannot find Capsule's module: %w", err)
	}
	stop, err := start(ctx, opts, strings.TrimSpace(string(source)))
	if err != nil {
		return fmt.Errorf("cannot start the cluster: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	all := results{}
	for _, part := range []struct {
		name, labels string
		processes    int
	}{{"parallel", "!" + serial, opts.processes}, {serial, serial, 1}} {
		if err := rounds(ctx, opts, part.name, part.labels, part.processes, all); err != nil {
			return err
		}
	}
	table := all.table()
	fmt.Print(table)
	return os.WriteFile(filepath.Join(opts.out, "table.md"), []byte(table), 0o600)
}

// compile makes the tests and Ginkgo's runner, in the versions of suite/go.mod.
func compile(ctx context.Context, opts options) error {
	if err := command(ctx, nil, "go", "-C", suite, "test", "-vet=off", "-c", "-o", filepath.Join(opts.out, "e2e.test"), module+"/e2e"); err != nil {
		return err
	}
	return command(ctx, nil, "go", "-C", suite, "build", "-o", filepath.Join(opts.out, "ginkgo"), "github.com/onsi/ginkgo/v2/ginkgo")
}

// start starts the cluster with a new fleet and returns a function that stops it. It applies objects.yaml
// and, from the source of Capsule's module, what Capsule's own run applies: roles, and a kind that Tenure does not
// have and that the suite lists at its end.
func start(ctx context.Context, opts options, source string) (stop func() error, err error) {
	fleet, err := os.MkdirTemp("", "capsulesuite")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fleet)) }()
	tenure := filepath.Join(opts.bin, "tenure")
	const path = "clusters/suite"
	for _, args := range [][]string{
		{"create", "fleet", fleet, "--git-url", "https://git.example.com/platform", "--cluster", "suite", "--yes"},
		{"profile", "multi-tenant", "--fleet", fleet, "--path", path, "--capsule", "--defaults", "--yes"},
	} {
		if out, err := exec.CommandContext(ctx, tenure, args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(fleet, "infrastructure", "tenure", "profile.yaml"), profile, 0o600); err != nil {
		return nil, err
	}
	if err := command(ctx, nil, tenure, "up", "--detach", "--name", cluster, "--fleet", fleet, "--path", path,
		"--crds", filepath.Join("test", "fixtures", "testcrds", "gateway-api.yaml")); err != nil {
		return nil, err
	}
	stop = func() error {
		return command(context.WithoutCancel(ctx), nil, tenure, "down", "--name", cluster)
	}
	kubectl := []string{filepath.Join(opts.bin, "kubectl"), "--kubeconfig", kubeconfig(), "apply", "--server-side", "-f", "-",
		"-f", filepath.Join(source, "e2e", "rbac.yaml"),
		"-f", filepath.Join(source, "charts", "capsule", "crds", "capsule.clastix.io_globalresourcequotas.yaml")}
	if err := command(ctx, bytes.NewReader(objects), kubectl...); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func kubeconfig() string { return filepath.Join(localcluster.Root(), cluster, "kubeconfig") }

// rounds runs the cases with some labels. Ginkgo leaves out the cases after a failed one in an ordered group, so
// rounds runs the groups again without the failed cases, until each case has had its turn.
func rounds(ctx context.Context, opts options, name, labels string, processes int, all results) error {
	focus, without := opts.focus, ""
	for round := 1; round <= maxRounds; round++ {
		report, err := test(ctx, opts, fmt.Sprintf("%s-%d", name, round), labels, focus, without, processes)
		if err != nil {
			return err
		}
		found, err := read(report)
		if err != nil {
			return fmt.Errorf("cannot read the report of round %d of the cases with the labels %s: %w", round, labels, err)
		}
		all.add(found)
		if focus, without = all.remaining(found); focus == "" {
			return nil
		}
	}
	return nil
}

// test runs the cases with some labels, of files that match focus, without cases whose text matches without. It
// returns Ginkgo's report. Failed cases are no error.
func test(ctx context.Context, opts options, name, labels, focus, without string, processes int) ([]byte, error) {
	report := filepath.Join(opts.out, name+".json")
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(opts.out, name+".log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	args := []string{
		fmt.Sprintf("--procs=%d", processes), "--timeout", opts.timeout.String(), "--no-color", "-v", "--keep-going",
		"--label-filter", labels, "--output-dir", opts.out, "--json-report", filepath.Base(report),
	}
	for flag, pattern := range map[string]string{"--focus-file": focus, "--skip-file": opts.skip, "--skip": without} {
		if pattern != "" { // an empty filter is an error
			args = append(args, flag, pattern)
		}
	}
	args = append(args, filepath.Join(opts.out, "e2e.test"))
	cmd := exec.CommandContext(ctx, filepath.Join(opts.out, "ginkgo"), args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(os.Environ(), "KUBECONFIG="+kubeconfig()), opts.out, log, log
	// The group has the runner and a process for each case that runs at a time.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel, cmd.WaitDelay = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }, time.Minute
	fmt.Fprintf(os.Stderr, "running the cases with the labels %s; the log is %s\n", labels, log.Name())
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what an interrupted runner leaves
	}
	content, missing := os.ReadFile(report)
	if missing != nil {
		return nil, fmt.Errorf("the tests wrote no report: %w; see %s", errors.Join(err, missing), log.Name())
	}
	return content, nil
}

// command runs a program with its output on the standard error.
func command(ctx context.Context, stdin io.Reader, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(args[0]), err)
	}
	return nil
}
