// Package artifacts is the local cluster's stand-in for source-watcher, a controller of Flux that
// cannot be built here. It makes ExternalArtifacts from the sources of ArtifactGenerators, with
// the copy operations that source-watcher documents. It runs as the process of source-watcher's
// Pod, with the Pod's account and flags.
//
// The stand-in differs from source-watcher: it limits the size of sources and artifacts, knows no
// pathPattern, adds no finalizer (the garbage collector deletes the ExternalArtifacts), verifies
// stored archives only when it makes them, and sends no events.
package artifacts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Command is the argument with which tenure runs the stand-in.
const Command = "source-watcher-stand-in"

// options are the flags of source-watcher that the stand-in has.
type options struct {
	healthAddr, storagePath, storageAddr, storageAdvAddr string
	noCrossNamespaceRefs, watchAllNamespaces             bool
	requeueDependency                                    time.Duration
	concurrent                                           int
}

// Main runs the stand-in with its arguments until the context ends, and returns an exit code.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.healthAddr, "health-addr", ":9440", "address that serves /healthz and /readyz")
	flags.StringVar(&o.storagePath, "storage-path", "/data", "folder of the artifacts")
	flags.StringVar(&o.storageAddr, "storage-addr", ":9090", "address that serves the artifacts")
	flags.StringVar(&o.storageAdvAddr, "storage-adv-addr", "", "host in the URLs of the artifacts")
	flags.BoolVar(&o.noCrossNamespaceRefs, "no-cross-namespace-refs", false, "deny sources of other namespaces")
	flags.BoolVar(&o.watchAllNamespaces, "watch-all-namespaces", true, "reconcile generators of all namespaces")
	flags.DurationVar(&o.requeueDependency, "requeue-dependency", 5*time.Second, "interval at which missing sources are looked for")
	flags.IntVar(&o.concurrent, "concurrent", 10, "number of generators that are reconciled at a time")
	err := flags.Parse(args)
	if err == nil {
		ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(stderr, nil)))
		err = o.run(ctx)
	}
	if err != nil {
		fmt.Fprintf(stderr, "the stand-in for source-watcher ends: %v\n", err)
		return 1
	}
	return 0
}

func (o options) run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("cannot find the API server: %w", err)
	}
	root, err := os.OpenRoot(o.storagePath)
	if err != nil {
		return fmt.Errorf("cannot open the storage: %w", err)
	}
	defer root.Close()
	managerOptions := ctrl.Options{
		HealthProbeBindAddress: o.healthAddr,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	}
	if !o.watchAllNamespaces {
		managerOptions.Cache.DefaultNamespaces = map[string]cache.Config{os.Getenv("RUNTIME_NAMESPACE"): {}}
	}
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return err
	}
	r := &reconciler{
		Client:               mgr.GetClient(),
		storage:              &storage{root: root, host: strings.TrimSuffix(o.storageAdvAddr, "/"), client: http.DefaultClient},
		noCrossNamespaceRefs: o.noCrossNamespaceRefs,
		retryInterval:        o.requeueDependency,
		now:                  time.Now,
	}
	err = errors.Join(
		mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping),
		mgr.Add(&manager.Server{Name: "storage", Server: &http.Server{
			Addr: o.storageAddr, Handler: http.FileServerFS(root.FS()), ReadHeaderTimeout: time.Minute,
		}}),
		r.setup(mgr, o.concurrent),
	)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// setup adds the reconciler to a manager.
func (r *reconciler) setup(mgr ctrl.Manager, concurrent int) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("artifactgenerator").
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		For(ofKind(generatorKind.Kind), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})))
	for _, kind := range sourceKinds {
		b = b.Watches(ofKind(kind), handler.EnqueueRequestsFromMapFunc(r.generatorsOf), builder.WithPredicates(artifactChanged))
	}
	return b.Complete(r)
}

func ofKind(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(sourceKind(kind))
	if kind == generatorKind.Kind {
		object.SetGroupVersionKind(generatorKind)
	}
	return object
}

// artifactChanged selects the changes of sources that concern generators.
var artifactChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*unstructured.Unstructured)
	after, okAfter := e.ObjectNew.(*unstructured.Unstructured)
	if !ok || !okAfter {
		return false
	}
	old, current := artifactOf(before), artifactOf(after)
	if old == nil || current == nil {
		return old != current
	}
	return !sameArtifact(*old, *current)
}}

// generatorsOf returns the generators that have an object as a source, and the generator that made
// it.
func (r *reconciler) generatorsOf(ctx context.Context, source client.Object) []reconcile.Request {
	generators := &unstructured.UnstructuredList{}
	generators.SetGroupVersionKind(generatorKind)
	if err := r.List(ctx, generators); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the generators of a source")
		return nil
	}
	var requests []reconcile.Request
	for i := range generators.Items {
		generator := &generators.Items[i]
		spec, err := specOf(generator)
		uses := err == nil && slices.ContainsFunc(spec.Sources, func(reference reference) bool {
			return reference.Kind == source.GetObjectKind().GroupVersionKind().Kind && reference.key(generator.GetNamespace()) == client.ObjectKeyFromObject(source)
		})
		owns := slices.ContainsFunc(source.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == generator.GetUID() })
		if uses || owns {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(generator)})
		}
	}
	return requests
}
