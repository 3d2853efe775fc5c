// Package cloud simulates a cloud provider for a local cluster: it creates volumes
// for claims, assigns addresses to load balancers, and has a node for Pods that want
// another one. No storage and no load balancer exists behind them; they let the scheduler
// place Pods and let waits end.
package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	storagev1listers "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Config configures the cloud.
type Config struct {
	// Client is the client of an administrator, without client-side limits.
	Client kubernetes.Interface
	// Addresses is the range of the load balancers' addresses; an invalid range stands for
	// TEST-NET-3 of RFC 5737, which is not routed on the Internet.
	Addresses netip.Prefix
	// Log receives failures; nil discards them.
	Log *slog.Logger
}

// kind is the kind of an object in the queue.
type kind string

const (
	claimKind   kind = "claim"
	volumeKind  kind = "volume"
	serviceKind kind = "service"
	podKind     kind = "pod"
)

type item struct {
	kind kind
	key  string
}

type cloud struct {
	client kubernetes.Interface
	pool   netip.Prefix // of load balancers
	log    *slog.Logger
	queue  workqueue.TypedRateLimitingInterface[item]

	claims   corev1listers.PersistentVolumeClaimLister
	volumes  corev1listers.PersistentVolumeLister
	classes  storagev1listers.StorageClassLister
	services corev1listers.ServiceLister
	pods     corev1listers.PodLister // without a node

	mu        sync.Mutex
	addresses map[string]string // address → namespace/name of its Service
}

// workers is the number of objects that are handled at the same time.
const workers = 4

// Run creates the default storage class if the cluster has no class, and serves
// claims, volumes, load balancers and Pods until the context ends. It logs and retries
// failures of single objects. The returned error is an error of the start.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("cannot run the cloud: Client is missing")
	}
	c := &cloud{
		client: cfg.Client,
		pool:   cfg.Addresses,
		log:    cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[item](5*time.Millisecond, 10*time.Second)),
		addresses: map[string]string{},
	}
	if !c.pool.IsValid() {
		c.pool = testNet
	}
	defer c.queue.ShutDown()
	if err := c.ensureClass(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("cannot run the cloud: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactory(c.client, 0)
	defer func() {
		cancel()
		factory.Shutdown()
	}()
	if err := c.watch(factory); err != nil {
		return fmt.Errorf("cannot run the cloud: %w", err)
	}
	factory.Start(ctx.Done())
	for informer, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced && ctx.Err() == nil {
			return fmt.Errorf("cannot run the cloud: cannot read %v", informer)
		}
	}
	if err := c.adopt(); err != nil {
		return fmt.Errorf("cannot run the cloud: %w", err)
	}
	var group wait.Group
	for range workers {
		group.Start(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
	return nil
}

// watch adds changed objects to the queue. A new storage class adds all claims.
func (c *cloud) watch(factory informers.SharedInformerFactory) error {
	core, storage := factory.Core().V1(), factory.Storage().V1()
	c.claims = core.PersistentVolumeClaims().Lister()
	c.volumes = core.PersistentVolumes().Lister()
	c.services = core.Services().Lister()
	c.classes = storage.StorageClasses().Lister()
	pods := factory.InformerFor(&corev1.Pod{}, pendingPods)
	c.pods = corev1listers.NewPodLister(pods.GetIndexer())
	for k, informer := range map[kind]cache.SharedIndexInformer{
		claimKind:   core.PersistentVolumeClaims().Informer(),
		volumeKind:  core.PersistentVolumes().Informer(),
		serviceKind: core.Services().Informer(),
		podKind:     pods,
	} {
		if _, err := informer.AddEventHandler(c.enqueue(k)); err != nil {
			return fmt.Errorf("cannot watch: %w", err)
		}
	}
	again := func() {
		for _, key := range core.PersistentVolumeClaims().Informer().GetStore().ListKeys() {
			c.queue.Add(item{claimKind, key})
		}
	}
	if _, err := storage.StorageClasses().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { again() },
	}); err != nil {
		return fmt.Errorf("cannot watch: %w", err)
	}
	return nil
}

func (c *cloud) enqueue(k kind) cache.ResourceEventHandler {
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			c.queue.Add(item{k, key})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    add,
		UpdateFunc: func(_, obj any) { add(obj) },
		DeleteFunc: add,
	}
}

// next handles one item. It returns false after the queue is shut down.
func (c *cloud) next(ctx context.Context) bool {
	it, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(it)
	err := c.handle(ctx, it)
	if err == nil {
		c.queue.Forget(it)
		return true
	}
	if ctx.Err() == nil {
		c.log.Warn("cannot serve an object; it is tried again", "kind", it.kind, "object", it.key, "error", err)
	}
	c.queue.AddRateLimited(it)
	return true
}

func (c *cloud) handle(ctx context.Context, it item) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(it.key)
	if err != nil {
		return fmt.Errorf("cannot read the key %q: %w", it.key, err)
	}
	switch it.kind {
	case claimKind:
		return c.serveClaim(ctx, namespace, name)
	case volumeKind:
		return c.reclaim(ctx, name)
	case podKind:
		return c.placePod(ctx, namespace, name)
	default:
		return c.serveService(ctx, namespace, name)
	}
}
