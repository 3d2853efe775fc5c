// Package node is the only node of a local cluster: a kubelet without containers.
//
// A Pod of a platform namespace whose image is a known program becomes a host
// process, with the arguments of the Pod that a list allows and with the token of
// its service account. The node replaces listen addresses and paths, so that several
// programs can use port 8080 or the folder /data. Every other Pod is simulated: it
// is Running and Ready at once, or completes if its restart policy says so, and runs
// no program.
//
// The Pods of a fleet under review are untrusted input. Three places limit their
// effects on the host: [Program] (which flags and variables), rewrite (how flags are
// understood) and Config.Platform (which namespaces).
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/tenure-dev/tenure/internal/localcluster/port"
	"github.com/tenure-dev/tenure/internal/process"
	"github.com/tenure-dev/tenure/internal/process/pki"
)

var (
	// ErrSimulated reports that no program listens at a Pod's port because the Pod
	// is simulated.
	ErrSimulated = errors.New("the Pod is simulated: no program listens there")
	// ErrUnknownPod reports that no Pod of the node has the address.
	ErrUnknownPod = errors.New("no Pod has this address")
)

// Starter starts host processes; *process.Group implements it.
type Starter interface {
	Start(process.Spec) (*process.Process, error)
}

// Config configures a node. All fields but Env and Log are required.
type Config struct {
	// Client is the client of an administrator, without client-side limits.
	Client kubernetes.Interface
	// Server and CAPEM are the API server's address and CA certificate for the
	// processes.
	Server string
	CAPEM  []byte
	// Name is the node's name.
	Name string
	// ExternalIP is the address at which the cluster serves node ports, or "".
	ExternalIP string
	// Serving is the certificate of the kubelet endpoint, for 127.0.0.1.
	Serving pki.Pair
	// ClientCAs and ClientName restrict the clients of the kubelet endpoint: one of
	// these authorities must have signed the client's certificate, and its common
	// name must be ClientName, the API server's kubelet client. The name matters
	// because the authority may sign certificates of users too.
	ClientCAs  []byte
	ClientName string
	// Dir holds the state folders of Pods. The node removes the folders of deleted
	// Pods.
	Dir string
	// Short is a folder for temporary files of Pods, with a path that is short
	// enough for sockets. The caller removes it.
	Short string
	// Programs are the programs that may become processes.
	Programs []Program
	// Platform reports whether the Pods of a namespace may become processes.
	Platform func(namespace string) bool
	// Processes starts the processes.
	Processes Starter
	// Env returns the base environment of the process of a container, as NAME=value, from the container's
	// variables and the IP address of its Pod. Nil means none.
	Env func(vars map[string]string, podIP string) []string
	// OnCrash is called when a program ends with an error, and when it cannot be started for
	// some time. It may be called from any goroutine; nil ignores crashes.
	OnCrash func(*Crash)
	// Log receives messages for the user; nil discards them.
	Log *slog.Logger
}

func (c Config) validate() error {
	missing := ""
	switch {
	case c.Client == nil:
		missing = "Client"
	case c.Server == "":
		missing = "Server"
	case c.Name == "":
		missing = "Name"
	case len(c.ClientCAs) == 0:
		missing = "ClientCAs"
	case c.ClientName == "":
		missing = "ClientName"
	case c.Dir == "":
		missing = "Dir"
	case c.Short == "":
		missing = "Short"
	case c.Platform == nil:
		missing = "Platform"
	case c.Processes == nil:
		missing = "Processes"
	}
	if missing != "" {
		return fmt.Errorf("cannot make a node: %s is missing", missing)
	}
	return nil
}

// Node is the node of a local cluster.
type Node struct {
	cfg      Config
	log      *slog.Logger
	endpoint *http.Server
	listener net.Listener
	ready    chan struct{}

	// Run sets these fields before they are used.
	runCtx, hardCtx context.Context
	lister          corev1listers.PodLister
	events          record.EventRecorder
	notify          func(*corev1.Pod)

	mu        sync.Mutex
	addresses *addresses
	pods      map[string]*podState
	byIP      map[netip.Addr]*podState
	running   sync.WaitGroup
	// reserve is [port.Reserve].
	reserve func() (number int, release func(), err error)
	// shorts counts the folders in cfg.Short.
	shorts atomic.Uint64
}

// New prepares a node. It opens a port of loopback for the kubelet endpoint. Run serves the
// endpoint and closes the port. New returns an error if a folder cannot be created or the port
// cannot be opened.
func New(cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s for the state of Pods: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	if cfg.Short, err = filepath.Abs(cfg.Short); err != nil {
		return nil, fmt.Errorf("cannot use %s for temporary files of Pods: %w", cfg.Short, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the folder for the state of Pods: %w", err)
	}
	n := &Node{
		cfg:       cfg,
		log:       cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		ready:     make(chan struct{}),
		addresses: newAddresses(),
		pods:      map[string]*podState{},
		byIP:      map[netip.Addr]*podState{},
		reserve:   port.Reserve,
	}
	if err := n.listen(); err != nil {
		return nil, err
	}
	return n, nil
}

// Ready is closed when the node is registered and accepts Pods.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// HostAddress returns the loopback address, as host:port, for a container port of a
// Pod. The address changes when the Pod's process restarts. HostAddress does not
// check whether the process runs and answers. The errors wrap [ErrUnknownPod] or
// [ErrSimulated]; any other error means that the Pod's processes do not listen at
// this port.
func (n *Node) HostAddress(podIP string, port int) (string, error) {
	ip, err := netip.ParseAddr(podIP)
	if err != nil {
		return "", fmt.Errorf("cannot find the Pod %q: %w", podIP, ErrUnknownPod)
	}
	n.mu.Lock()
	p := n.byIP[ip]
	n.mu.Unlock()
	if p == nil {
		return "", fmt.Errorf("cannot find the Pod %s: %w", podIP, ErrUnknownPod)
	}
	return p.hostAddress(port)
}

// shutdownPatience limits the time that processes may take to end when the node
// stops. It is short, because a cluster must stop within three seconds.
const shutdownPatience = 1500 * time.Millisecond

// Run registers the node and runs Pods until the context ends; then it stops the processes. The
// Pods stay in the API: a node that runs later with the same folder continues them. Run returns an
// error if the node cannot be registered or its controllers fail.
func (n *Node) Run(ctx context.Context) error {
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	runCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.runCtx, n.hardCtx = runCtx, hard

	err := n.runControllers(runCtx)

	cancel()
	timer := time.AfterFunc(shutdownPatience, kill)
	defer timer.Stop()
	n.running.Wait()
	_ = n.endpoint.Close()
	_ = n.listener.Close()
	if err != nil {
		return fmt.Errorf("cannot run node %s: %w", n.cfg.Name, err)
	}
	return nil
}
