package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	vk "github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

const (
	// podWorkers is the number of workers for each queue.
	podWorkers = 16
	// leaseSeconds is the duration of the node's lease, the kubelet's default.
	leaseSeconds = 40
	// statusInterval is the interval of writes of an unchanged node status. The
	// lease shows that the node is alive.
	statusInterval = time.Minute
)

// runControllers runs virtual-kubelet's controllers for the node and its Pods
// until the context ends or one of them fails.
func (n *Node) runControllers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	version, err := n.cfg.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("cannot read the version of the API server: %w", err)
	}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.cfg.Client.CoreV1().Events("")})
	n.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: n.cfg.Name})

	factory := n.podInformers()
	pods := factory.Core().V1().Pods()
	n.lister = pods.Lister()
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: n.onGateChange}); err != nil {
		return fmt.Errorf("cannot watch Pods: %w", err)
	}
	factory.Start(ctx.Done())
	defer func() {
		cancel()
		factory.Shutdown()
	}()
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		return errors.New("cannot read the Pods of the node: the context ended")
	}
	if err := n.removeStale(); err != nil {
		return err
	}
	podController, err := n.podController(factory)
	if err != nil {
		return err
	}
	object := nodeObject(n.cfg.Name, version.GitVersion, n.port(), n.cfg.ExternalIP)
	nodeController, err := vk.NewNodeController(vk.NaiveNodeProvider{}, object, nodeClient{n.cfg.Client.CoreV1().Nodes()},
		vk.WithNodeEnableLeaseV1(n.cfg.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease), leaseSeconds),
		vk.WithNodeStatusUpdateInterval(statusInterval))
	if err != nil {
		return fmt.Errorf("cannot make the node's controller: %w", err)
	}

	ended := make(chan error, 3)
	go func() { ended <- n.serve() }()
	go func() { ended <- podController.Run(ctx, podWorkers) }()
	go func() { ended <- nodeController.Run(ctx) }()
	defer func() {
		cancel()
		<-podController.Done()
		<-nodeController.Done()
	}()
	for _, c := range []<-chan struct{}{podController.Ready(), nodeController.Ready()} {
		select {
		case <-c:
		case err := <-ended:
			return orEnded(ctx, err)
		}
	}
	if err := n.untaint(ctx); err != nil {
		return orEnded(ctx, err)
	}
	close(n.ready)
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return orEnded(ctx, err)
	}
}

// orEnded returns an error for a part of the node that has ended, unless the context
// has ended.
func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		return errors.New("a part of the node ended by itself")
	}
	return err
}

// podInformers returns informers for the Pods of this node only.
func (n *Node) podInformers() informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(n.cfg.Client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.cfg.Name).String()
		}),
		informers.WithTransform(func(obj any) (any, error) {
			if pod, ok := obj.(*corev1.Pod); ok {
				pod.ManagedFields = nil
			}
			return obj, nil
		}))
}

func (n *Node) podController(pods informers.SharedInformerFactory) (*vk.PodController, error) {
	// The controller requires these informers, but uses them only to resolve
	// variables, which this package does itself. They are never started.
	unused := informers.NewSharedInformerFactory(n.cfg.Client, 0).Core().V1()
	limiter := func() workqueue.TypedRateLimiter[any] {
		return workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Millisecond, 5*time.Second)
	}
	// Retry Pods forever, however long the API server is unavailable.
	retry := func(context.Context, string, int, time.Time, error) (*time.Duration, error) { return nil, nil }
	c, err := vk.NewPodController(vk.PodControllerConfig{
		PodClient:         patchingPods{n.cfg.Client.CoreV1(), n.log},
		PodInformer:       pods.Core().V1().Pods(),
		EventRecorder:     silence{},
		Provider:          provider{n},
		ConfigMapInformer: unused.ConfigMaps(),
		SecretInformer:    unused.Secrets(),
		ServiceInformer:   unused.Services(),

		SyncPodsFromKubernetesRateLimiter:        limiter(),
		DeletePodsFromKubernetesRateLimiter:      limiter(),
		SyncPodStatusFromProviderRateLimiter:     limiter(),
		SyncPodsFromKubernetesShouldRetryFunc:    retry,
		DeletePodsFromKubernetesShouldRetryFunc:  retry,
		SyncPodStatusFromProviderShouldRetryFunc: retry,
		SkipDownwardAPIResolution:                true,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the controller for Pods: %w", err)
	}
	return c, nil
}

// untaint removes the taint that the API server adds to every new node. The node
// lifecycle controller would remove it later.
func (n *Node) untaint(ctx context.Context) error {
	node, err := n.cfg.Client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot read the node: %w", err)
	}
	kept := slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": kept}})
	if err != nil {
		return fmt.Errorf("cannot encode the node's taints: %w", err)
	}
	_, err = n.cfg.Client.CoreV1().Nodes().Patch(ctx, n.cfg.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("cannot make the node schedulable: %w", err)
	}
	return nil
}

// removeStale removes the state folders of Pods that were deleted while no node ran.
func (n *Node) removeStale() error {
	pods, err := n.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("cannot list Pods: %w", err)
	}
	entries, err := os.ReadDir(n.cfg.Dir)
	if err != nil {
		return fmt.Errorf("cannot read the folder for the state of Pods: %w", err)
	}
	for _, e := range entries {
		if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return string(p.UID) == e.Name() }) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(n.cfg.Dir, e.Name())); err != nil {
			return fmt.Errorf("cannot remove the state of a Pod that is gone: %w", err)
		}
	}
	return nil
}

// onGateChange reports the status of a Pod with readiness gates after a change,
// because another controller may have opened or closed a gate. virtual-kubelet
// ignores changes of the status.
func (n *Node) onGateChange(_, updated any) {
	pod, ok := updated.(*corev1.Pod)
	if !ok || len(pod.Spec.ReadinessGates) == 0 {
		return
	}
	if p := n.find(pod.Namespace, pod.Name); p != nil && p.uid == pod.UID {
		// publish may wait for virtual-kubelet, which waits for this informer.
		go p.publish()
	}
}

// silence is an event recorder that drops virtual-kubelet's events, which a kubelet
// does not record.
type silence struct{}

func (silence) Event(runtime.Object, string, string, string)          {}
func (silence) Eventf(runtime.Object, string, string, string, ...any) {}
func (silence) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
}

// remove deletes a Pod from the API without a grace period.
func (n *Node) remove(ctx context.Context, pod *corev1.Pod) error {
	opts := metav1.NewDeleteOptions(0)
	opts.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	err := n.cfg.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *opts)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
