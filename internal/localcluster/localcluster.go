// Package localcluster runs a fleet on its own Kubernetes and its own Flux, as plain
// processes on this machine: the control plane, a node, a network that maps outside
// addresses to folders, and the upstream Flux controllers that the fleet's manifests
// ask for. docs/design/local-cluster.md explains the design.
package localcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/cloud"
	"github.com/tenure-dev/tenure/internal/localcluster/controlplane"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"github.com/tenure-dev/tenure/internal/localcluster/node"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/process/pki"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options configure a cluster.
type Options struct {
	// Name distinguishes clusters that run side by side; "" is DefaultName.
	Name string
	// Root is the folder for the state of running clusters; "" is Root().
	Root string
	// Data, when set, is a folder that keeps the cluster's objects and keys after
	// the cluster has ended. Without it the cluster is ephemeral and faster.
	Data string
	// BinDir holds the programs; "" is the folder of the running program.
	BinDir string
	// Fleet and Path are the platform's repository and the cluster's folder
	// in it. Without a Fleet the cluster is a bare Kubernetes.
	Fleet, Path string
	// Maps map outside addresses to folders.
	Maps []network.Map
	// Private are the mapped Git repositories that need credentials. If a repository
	// has several entries, each grants access.
	Private []network.Private
	// Assume names Flux objects, as [KIND/]NAMESPACE/NAME with * for all, that the cluster assumes
	// to be ready: see [flux.ParseAssumption].
	Assume []string
	// AssumeUnmapped assumes each source, Kustomization, HelmRelease and input provider to be
	// ready that fails for an address without a map.
	AssumeUnmapped bool
	// Apply are files and folders of manifests that the admin applies by
	// hand, such as decryption keys, before the fleet is synced.
	Apply []string
	// CRDs are files and folders with CustomResourceDefinitions that charts or operators
	// install which do not run here.
	CRDs []string
	// FakeSecrets makes the missing Secrets that Flux objects name, with invented content.
	FakeSecrets bool
	// EndOnCrash ends the cluster when a controller of Flux, or flux-operator, does not start,
	// until [Cluster.Settled] is called. Otherwise crashes are reported.
	EndOnCrash bool
	// Kubernetes is the wanted version of Kubernetes, [KubernetesMinor] or one of
	// [OtherKubernetes]; "" is the first.
	Kubernetes string
	// Authentication is an AuthenticationConfiguration of the API server, which says where people
	// log in: the content of a file. Without it nobody does.
	Authentication []byte
	// Online lets requests for hosts that are not mapped through.
	Online bool
	// Step is called at the start of each step, and its result at the end of the
	// step; nil reports nothing.
	Step func(name string) func(error)
	// Report receives later problems of the cluster, such as crashes and vanished
	// folders. It may be called from any goroutine.
	Report func(error)
}

// Cluster is a running local cluster.
type Cluster struct {
	// Name is the cluster's name, Dir its state folder.
	Name, Dir string
	// Kubeconfig is the path of an admin's kubeconfig.
	Kubeconfig string
	// REST is an admin's client configuration without rate limit.
	REST *rest.Config
	// Git serves the mapped repositories.
	Git *githost.Host
	// OCI serves the mapped OCI artifacts.
	OCI *ocihost.Host
	// Network is the network of the controllers.
	Network *network.Network
	// Fleet is the running fleet, or nil.
	Fleet *layout.Fleet

	// oci serves the mapped OCI artifacts, and artifact is the fleet's own.
	artifact ocihost.Address

	opts  Options
	state *State
	data  *os.File
	group *process.Group
	plane *controlplane.ControlPlane
	// controlPlane is the name of the program with the control plane.
	controlPlane string

	node   *node.Node
	client kubernetes.Interface
	log    *slog.Logger
	logTo  *os.File

	// settled is set when a crash must not end the cluster any more.
	settled atomic.Bool

	fakesMu sync.Mutex
	fakes   []Fake

	assumed    []flux.Ref
	objects    fleetObjects
	kyverno    *kyverno // nil without Kyverno
	platformMu sync.Mutex
	platforms  map[string]bool

	// life ends when the cluster is stopped or when the control plane has failed for
	// good.
	life       context.Context
	end        context.CancelCauseFunc
	background sync.WaitGroup
	stopOnce   sync.Once
	stopErr    error
}

// Start starts a cluster. It returns when the API server answers,
// kube-controller-manager has created the objects that every cluster has and, with a
// fleet, Flux's manifests and the root objects have been applied. After an error no
// process is left. The caller must stop the cluster; if the caller's process dies
// instead, the cluster ends with it.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	c := &Cluster{opts: opts}
	if err := c.complete(); err != nil {
		return nil, err
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	// A control plane that fails for good ends the start.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer context.AfterFunc(c.life, func() { giveUp(context.Cause(c.life)) })()
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"", c.acquire},
		{"", c.startNetwork},
		{c.kyverno.describe(), c.serveKyverno},
		{"repositories", c.mapWorld},
		{"", c.readFleet},
		{"", c.fakeEncrypted},
		{"", c.startControlPlane},
		{"node", c.startNode},
		{c.fluxStep(), c.installFlux},
		{"", c.preview},
		{"", c.awaitControllers},
	}
	for _, step := range steps {
		done := func(error) {}
		if step.name != "" {
			done = c.opts.Step(step.name)
		}
		err := step.run(ctx)
		if ctx.Err() != nil {
			// The error of the step is only a consequence of this cause.
			err = context.Cause(ctx)
		}
		done(err)
		if err != nil {
			if stopErr := c.Stop(); stopErr != nil {
				c.opts.Report(fmt.Errorf("cannot stop the cluster cleanly: %w", stopErr))
			}
			return nil, c.explainFull(err)
		}
	}
	return c, nil
}

func (c *Cluster) complete() error {
	if c.opts.Name == "" {
		c.opts.Name = DefaultName
	}
	if c.opts.Root == "" {
		c.opts.Root = Root()
	}
	if c.opts.Step == nil {
		c.opts.Step = func(string) func(error) { return func(error) {} }
	}
	if c.opts.Report == nil {
		c.opts.Report = func(error) {}
	}
	if c.opts.BinDir == "" {
		dir, err := BinDir()
		if err != nil {
			return err
		}
		c.opts.BinDir = dir
	}
	c.Name = c.opts.Name
	var err error
	if c.controlPlane, err = controlPlaneOf(c.opts.Kubernetes); err != nil {
		return err
	}
	for _, name := range c.opts.Assume {
		refs, err := flux.ParseAssumption(name)
		if err != nil {
			return err
		}
		c.assumed = append(c.assumed, refs...)
	}
	// Report errors of the input first: they do not depend on the machine.
	if err := c.loadFleet(); err != nil {
		return err
	}
	if c.Fleet != nil {
		c.findKyverno()
	}
	if c.controlPlane != controlPlane && (len(c.assumed) > 0 || c.opts.AssumeUnmapped || c.kyverno != nil) {
		return fmt.Errorf("cannot run this fleet on Kubernetes %s: --assume, --assume-unmapped and Kyverno need MutatingAdmissionPolicies, which Kubernetes %s serves: leave out --kubernetes", c.opts.Kubernetes, KubernetesMinor)
	}
	return checkPrograms(c.opts.BinDir, c.controlPlane, c.hasOperator())
}

func (c *Cluster) acquire(ctx context.Context) error {
	state, err := AcquireState(ctx, c.opts.Root, c.Name)
	if err != nil {
		return err
	}
	c.state, c.Dir = state, state.Dir
	if c.opts.Data == "" {
		c.opts.Data = filepath.Join(c.Dir, "data")
	}
	if c.opts.Data, err = filepath.Abs(c.opts.Data); err != nil {
		return fmt.Errorf("cannot use the data folder: %w", err)
	}
	if c.data, err = acquireData(c.opts.Data); err != nil {
		return err
	}
	if c.logTo, err = os.OpenFile(filepath.Join(c.Dir, "log", "tenure.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return fmt.Errorf("cannot write to the state folder: %w", err)
	}
	c.log = slog.New(slog.NewTextHandler(c.logTo, nil))
	c.group, err = process.NewGroup(process.Options{
		Reaper: []string{filepath.Join(c.opts.BinDir, "tenure"), process.ReapCommand},
		Remove: state.Paths(),
		Hold:   []*os.File{state.lock, c.data},
	})
	return err
}

func (c *Cluster) startNetwork(context.Context) error {
	ca, err := pki.NewAuthority("tenure-local-network")
	if err != nil {
		return err
	}
	c.Network, err = network.New(network.Config{
		CA:           ca,
		Dir:          c.Dir,
		EgressSocket: filepath.Join(c.Dir, "egress.sock"),
		Online:       c.opts.Online,
		Log:          c.log.With("part", "network"),
	})
	if err != nil {
		return err
	}
	c.run("network", func() error { return c.Network.Run(c.life) })
	return nil
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	var err error
	c.plane, err = controlplane.Start(ctx, controlplane.Config{
		Program:           filepath.Join(c.opts.BinDir, c.controlPlane),
		Dir:               c.Dir,
		Data:              c.opts.Data,
		Durable:           c.durable(),
		Group:             c.group,
		EgressConfig:      network.EgressConfig(filepath.Join(c.Dir, "egress.sock")),
		Authentication:    c.opts.Authentication,
		BeforeControllers: c.installKinds,
		OnCrash:           c.onCrash,
		Step:              c.opts.Step,
	})
	if err != nil {
		return err
	}
	c.REST = c.plane.RESTConfig()
	c.Kubeconfig = filepath.Join(c.Dir, "kubeconfig")
	if err := c.plane.WriteKubeconfig(c.Kubeconfig, "tenure-"+c.Name, c.plane.Keys.Admin); err != nil {
		return err
	}
	c.client, err = kubernetes.NewForConfig(c.REST)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	return nil
}

func (c *Cluster) startNode(ctx context.Context) error {
	apiServer := strings.TrimPrefix(c.plane.Server, "https://")
	pool := network.LoadBalancerRange(apiServer)
	n, err := node.New(node.Config{
		Client:     c.client,
		Server:     c.plane.Server,
		CAPEM:      c.plane.Keys.CA.CertPEM,
		Name:       "tenure",
		ExternalIP: network.NodeAddress(pool),
		Serving:    c.plane.Keys.Node,
		ClientCAs:  c.plane.Keys.CA.CertPEM, ClientName: controlplane.KubeletClientName,
		Dir:       filepath.Join(c.opts.Data, "pods"),
		Short:     filepath.Join(c.Dir, "t"),
		Programs:  c.programs(),
		Platform:  c.platform,
		Processes: c.group,
		Env:       c.Network.Env,
		OnCrash:   c.onProgramCrash,
		Log:       c.log.With("part", "node"),
	})
	if err != nil {
		return err
	}
	c.node = n
	c.Network.AllowEgress(n.Endpoint())
	services, err := network.NewServices(c.life, c.client, n, apiServer)
	if err != nil {
		return err
	}
	c.Network.SetServices(services)
	c.run("node", func() error { return n.Run(c.life) })
	c.run("cloud", func() error {
		return cloud.Run(c.life, cloud.Config{
			Client: c.client, Addresses: pool, Log: c.log.With("part", "cloud"),
		})
	})
	c.run("load balancers", func() error { return services.ServeLoadBalancers(c.life, pool, c.log.With("part", "load balancers")) })
	select {
	case <-n.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(nodePatience):
		return fmt.Errorf("the node is not ready after %s; see %s", nodePatience, c.logTo.Name())
	}
}

// nodePatience limits the wait for the node on a slow and busy machine.
const nodePatience = 3 * time.Minute

// run runs a part of the cluster in the background and reports its failure. It
// ignores errors after the end of the cluster, which are a consequence of that end.
func (c *Cluster) run(name string, part func() error) {
	c.background.Go(func() {
		if err := part(); err != nil && c.life.Err() == nil {
			c.report(fmt.Errorf("the local cluster's %s has failed: %w", name, err))
		}
	})
}

// report passes an error to the user and writes it to the log.
func (c *Cluster) report(err error) {
	c.log.Error("something happened to the cluster", "error", err)
	c.opts.Report(err)
}

// onCrash reports a component that ended by itself. If the component will not be
// restarted, onCrash ends the cluster and Err returns the error.
func (c *Cluster) onCrash(crash *process.CrashError) {
	if crash.GaveUp {
		c.log.Error("the cluster ends", "error", crash)
		c.end(crash)
		return
	}
	c.report(crash)
}

// failedStarts is the number of starts that must fail at once until a crash ends the cluster.
const failedStarts = 2

// onProgramCrash reports a program of a Pod that ended by itself. Nothing that depends on a
// controller that does not start becomes ready, so onProgramCrash ends a cluster that starts.
func (c *Cluster) onProgramCrash(crash *node.Crash) {
	if c.life.Err() != nil {
		return
	}
	controller := func(p node.Program) bool { return p.Name == crash.Program }
	ofFlux := slices.ContainsFunc(node.FluxPrograms(""), controller) || crash.Program == fluxOperator
	if c.opts.EndOnCrash && !c.settled.Load() && ofFlux && crash.Starts >= failedStarts {
		c.log.Error("the cluster ends", "error", crash)
		c.end(fmt.Errorf("%w\nnothing that needs it becomes ready: %s", crash, crashAdvice(crash)))
		return
	}
	if crash.Starts <= failedStarts {
		c.report(crash)
	}
}

// crashAdvice returns what makes a controller start that ended with an error.
func crashAdvice(crash error) string {
	if missing := missingKind.FindStringSubmatch(crash.Error()); missing != nil {
		return fmt.Sprintf("the fleet's manifests of Flux lack the CRD of %s in %s: give it with --crds", missing[1], missing[2])
	}
	return "correct its arguments in the fleet's manifests of Flux"
}

// missingKind finds the kind in the log of a controller that does not start without its CRD.
var missingKind = regexp.MustCompile(`no matches for kind \\?"(\w+)\\?" in version \\?"([\w./]+)\\?"`)

// Settled records that the fleet has settled. From then on, crashes of Flux are reported and do
// not end the cluster.
func (c *Cluster) Settled() { c.settled.Store(true) }

// errStopped is the cause for the end of a cluster that was stopped.
var errStopped = errors.New("the cluster was stopped")

// Done is closed when the cluster has been stopped or has failed for good.
func (c *Cluster) Done() <-chan struct{} { return c.life.Done() }

// Err returns the reason why a cluster has failed: a [process.CrashError] about a component of the
// control plane whose restarts failed. It returns nil while the cluster works, and if the cluster
// was stopped before any failure. The caller must stop a failed cluster, too.
func (c *Cluster) Err() error {
	if err := context.Cause(c.life); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

func (c *Cluster) durable() bool { return filepath.Dir(c.opts.Data) != c.Dir }

// stopPatience limits the time that processes without data may take to end.
const stopPatience = time.Second

// Stop stops all processes and removes the state folder. It may be called more than once. It
// returns the errors of both.
func (c *Cluster) Stop() error {
	c.stopOnce.Do(func() { c.stopErr = c.stop() })
	return c.stopErr
}

func (c *Cluster) stop() error {
	c.end(errStopped)
	var errs []error
	if c.plane != nil && c.durable() {
		c.plane.Stop(context.Background())
	}
	if c.group != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
		defer cancel()
		errs = append(errs, c.group.Close(ctx))
	}
	c.background.Wait()
	if c.logTo != nil {
		errs = append(errs, c.logTo.Close())
	}
	if c.data != nil {
		errs = append(errs, c.data.Close())
	}
	if c.state != nil {
		errs = append(errs, c.state.Release())
	}
	return errors.Join(errs...)
}
