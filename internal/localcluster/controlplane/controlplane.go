// Package controlplane runs a Kubernetes control plane as plain processes: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, each upstream's own,
// out of the one program of the module cluster/.
//
// The API server listens on a free loopback port, etcd on a Unix socket; the other
// two do not listen. Authorization is RBAC with the Node authorizer, certificates
// are real, admission plugins are the defaults.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/localcluster/port"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"k8s.io/client-go/rest"
)

// ServiceCIDR is the range of the cluster IPs of Services.
const ServiceCIDR = "10.96.0.0/16"

// Config configures a control plane.
type Config struct {
	// Program is the path of tenure-cluster.
	Program string
	// Dir holds sockets, certificates, kubeconfigs and logs. Only its owner may be
	// able to enter it. Its path may be at most 80 bytes long, because it contains
	// sockets.
	Dir string
	// Data holds the data that outlives the processes: etcd's data and the keys that
	// sign tokens and certificates. If Data is in Dir, the cluster is ephemeral.
	Data string
	// Durable makes etcd write through to the disk.
	Durable bool
	// Group runs the processes.
	Group *process.Group
	// EgressConfig is an EgressSelectorConfiguration. If it is empty, the API server
	// dials directly.
	EgressConfig []byte
	// Authentication is an AuthenticationConfiguration: the issuers whose tokens the API server
	// accepts beside its own. If it is empty, there are none.
	Authentication []byte
	// BeforeControllers, when set, is called when the API server is ready and before
	// the controllers start. The controllers discover kinds at their start, and
	// later only every 30 seconds.
	BeforeControllers func(context.Context, *rest.Config) error
	// OnCrash is called when a component ends without having been stopped.
	OnCrash func(*process.CrashError)
	// Step is called at the start of each step, and its result at the end of the
	// step.
	Step func(name string) func(error)
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Keys are the certificates and keys in use.
	Keys *Keys
	// Server is the API server's address, https://127.0.0.1:PORT.
	Server string

	cfg Config
	// started are the components during the start; afterwards kept holds them.
	started []component
	kept    []*process.Kept
	// reservePort is [port.Reserve].
	reservePort func() (number int, release func(), err error)
	// releasePort ends the reservation of the API server's port. The reservation
	// lasts through restarts of the API server.
	releasePort func()
}

// Start starts the components in the order of their dependencies. It returns when
// the API server is ready and the controllers run. After an error, the started
// components still run in the Group, which the caller must close.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	c := &ControlPlane{cfg: cfg, reservePort: port.Reserve, releasePort: func() {}}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"certificates", c.makeKeys},
		{"etcd", c.startEtcd},
		{"kube-apiserver", c.startAPIServer},
		{"kube-controller-manager, kube-scheduler", c.startControllers},
	}
	for _, step := range steps {
		done := cfg.Step(step.name)
		err := step.run(ctx)
		done(err)
		if err != nil {
			c.releasePort()
			return nil, err
		}
	}
	c.keep()
	return c, nil
}

// RESTConfig returns the client configuration of a cluster admin, without a
// client-side rate limit: the API server has its own.
func (c *ControlPlane) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: c.Server,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.Keys.CA.CertPEM,
			CertData: c.Keys.Admin.CertPEM,
			KeyData:  c.Keys.Admin.KeyPEM,
		},
		QPS:       -1,
		UserAgent: "tenure",
	}
}

func (c *ControlPlane) makeKeys(context.Context) error {
	keys, err := loadKeys(filepath.Join(c.cfg.Data, "pki"), filepath.Join(c.cfg.Dir, "pki"))
	if err != nil {
		return err
	}
	c.Keys = keys
	return nil
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	args := []string{
		"--name=tenure",
		"--data-dir=" + filepath.Join(c.cfg.Data, "etcd"),
		"--listen-client-urls=unix://" + c.socket("etcd"),
		"--listen-peer-urls=unix://" + c.socket("peer"),
		// A single member announces its addresses to no other member, but must have
		// some.
		"--advertise-client-urls=http://127.0.0.1:2379",
		"--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=tenure=http://127.0.0.1:2380",
		"--log-level=warn",
	}
	if !c.cfg.Durable {
		args = append(args, "--unsafe-no-fsync")
	}
	return c.startReady(ctx, c.spec("etcd", args), func() error {
		conn, err := net.Dial("unix", c.socket("etcd"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// component is a started process and its spec.
type component struct {
	*process.Process
	spec process.Spec
}

// crash returns the reason why a component has ended, or nil while it runs.
func (s component) crash() error {
	select {
	case <-s.Done():
		return &process.CrashError{Name: s.spec.Name, Err: s.Err(), GaveUp: true, Tail: process.CrashLogTail(s.Log())}
	default:
		return nil
	}
}

// keep restarts the components from now on. A component that ends earlier is broken:
// a restart would not repair it.
func (c *ControlPlane) keep() {
	for _, s := range c.started {
		c.kept = append(c.kept, c.cfg.Group.KeepStarted(s.Process, s.spec, process.DefaultRestart, c.cfg.OnCrash))
	}
	c.started = nil
}

// startReady starts a component and waits until it is ready.
func (c *ControlPlane) startReady(ctx context.Context, spec process.Spec, ready func() error) error {
	p, err := c.cfg.Group.Start(spec)
	if err != nil {
		return err
	}
	s := component{p, spec}
	if err := c.await(ctx, s, ready); err != nil {
		return err
	}
	c.started = append(c.started, s)
	return nil
}

// authenticationFile is the file with the AuthenticationConfiguration.
const authenticationFile = "authentication.yaml"

// portAttempts is the number of loopback ports to try: on macOS another program can
// take a port before the API server listens on it.
const portAttempts = 3

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	for name, content := range map[string][]byte{"egress.yaml": c.cfg.EgressConfig, authenticationFile: c.cfg.Authentication} {
		if err := os.WriteFile(filepath.Join(c.cfg.Dir, name), content, 0o600); err != nil {
			return fmt.Errorf("cannot start kube-apiserver: %w", err)
		}
	}
	var err error
	for range portAttempts {
		number, release, reserveErr := c.reservePort()
		if reserveErr != nil {
			return reserveErr
		}
		c.releasePort = release
		if err = c.tryAPIServer(ctx, number); err == nil {
			return nil
		}
		c.releasePort()
		if !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// errPortTaken reports that another program listens on the chosen port.
var errPortTaken = errors.New("the port is taken")

func (c *ControlPlane) tryAPIServer(ctx context.Context, number int) error {
	c.Server = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
	spec := c.spec("kube-apiserver", c.apiServerArgs(number))
	ready, err := c.readyProbe()
	if err != nil {
		return err
	}
	err = c.startReady(ctx, spec, ready)
	var crash *process.CrashError
	if errors.As(err, &crash) && strings.Contains(strings.Join(process.Tail(spec.Log, 20), "\n"), inUse(number)) {
		return fmt.Errorf("cannot listen on 127.0.0.1:%d: %w", number, errPortTaken)
	}
	return err
}

// inUse returns the text that the API server logs when another program listens on
// its port. The text contains the port, so that logs of an earlier attempt do not
// match.
func inUse(number int) string {
	return fmt.Sprintf("127.0.0.1:%d: bind: address already in use", number)
}

func (c *ControlPlane) startControllers(ctx context.Context) error {
	if c.cfg.BeforeControllers != nil {
		if err := c.cfg.BeforeControllers(ctx, c.RESTConfig()); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		name   string
		client pki.Pair
		args   []string
	}{
		{"kube-controller-manager", c.Keys.ControllerManager, c.controllerManagerArgs()},
		{"kube-scheduler", c.Keys.Scheduler, c.schedulerArgs()},
	} {
		if err := c.WriteKubeconfig(c.kubeconfig(part.name), part.name, part.client); err != nil {
			return err
		}
		spec := c.spec(part.name, part.args)
		p, err := c.cfg.Group.Start(spec)
		if err != nil {
			return err
		}
		c.started = append(c.started, component{p, spec})
	}
	return nil
}

func (c *ControlPlane) kubeconfig(component string) string {
	return filepath.Join(c.cfg.Dir, "pki", component+".kubeconfig")
}

func (c *ControlPlane) socket(name string) string {
	return filepath.Join(c.cfg.Dir, name+".sock")
}

func (c *ControlPlane) spec(component string, args []string) process.Spec {
	env := []string{"HOME=" + c.cfg.Dir, "TMPDIR=" + c.cfg.Dir, "PATH=/usr/bin:/bin"}
	if percent, ok := os.LookupEnv("GOGC"); ok {
		env = append(env, "GOGC="+percent)
	}
	return process.Spec{
		Name: component,
		Path: c.cfg.Program,
		Args: append([]string{component}, args...),
		Env:  env,
		Dir:  c.cfg.Dir,
		Log:  filepath.Join(c.cfg.Dir, "log", component+".log"),
		// A client's open watch would delay a graceful end by a minute, and only
		// etcd has data to lose.
		StopTimeout: stopTimeout(c.cfg.Durable && component == "etcd"),
	}
}

func stopTimeout(hasData bool) time.Duration {
	if hasData {
		return process.DefaultStopTimeout
	}
	return 500 * time.Millisecond
}

// startPatience limits the time that one component may take to be ready on a slow
// and busy machine.
const startPatience = 2 * time.Minute

// await waits until ready returns nil. It returns an error when the component or one
// of its dependencies ends, and after startPatience.
func (c *ControlPlane) await(ctx context.Context, s component, ready func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		for _, needed := range append(c.started[:len(c.started):len(c.started)], s) {
			if err := needed.crash(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%s is not ready after %s: %w", s.spec.Name, startPatience, err)
			}
			return context.Cause(ctx)
		case <-s.Done():
		case <-tick.C:
		}
	}
}

// Stop stops the components in the reverse order of their start: clients of the API
// server first.
func (c *ControlPlane) Stop(ctx context.Context) {
	for i := len(c.kept) - 1; i >= 0; i-- {
		c.kept[i].Stop(ctx)
	}
	c.kept = nil
	c.releasePort()
}
