package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/manager/capsule"
	"github.com/tenure-dev/tenure/internal/manager/classes"
	"github.com/tenure-dev/tenure/internal/manager/crdgate"
	"github.com/tenure-dev/tenure/internal/manager/credentials"
	"github.com/tenure-dev/tenure/internal/manager/failureevents"
	"github.com/tenure-dev/tenure/internal/manager/isolation"
	"github.com/tenure-dev/tenure/internal/manager/profile"
	"github.com/tenure-dev/tenure/internal/manager/reconcileretry"
	"github.com/tenure-dev/tenure/internal/manager/replication"
	"github.com/tenure-dev/tenure/internal/manager/sourcegrant"
	"github.com/tenure-dev/tenure/internal/manager/tenant"
	"github.com/tenure-dev/tenure/internal/manager/tenantnamespace"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/ui"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// leaseName is the name of the Lease that the working manager holds.
	leaseName = "tenure-manager"
	// postTimeout is the timeout of a post to notification-controller.
	postTimeout = 5 * time.Second
	// shutdownTimeout is how long the manager waits for running reconciliations, and then for answers of
	// webhooks, when it stops. A request may wait 8 s for a part of a quota. The Deployment's
	// terminationGracePeriodSeconds is longer, and contains the 5 s before the manager stops.
	shutdownTimeout = 20 * time.Second
	// unlimited disables client-side rate limiting: the number of workers limits concurrent
	// requests, and API priority and fairness distributes the API server's time.
	unlimited = -1
)

// Run runs the controllers until the context ends. It returns an error if the configuration
// is not valid, if the manager loses its lease, if the cluster does not serve a kind that the
// controllers need, or, with Options.Capsule, if Capsule itself runs.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	config = rest.CopyConfig(config)
	config.QPS = unlimited
	config.Wrap(logWrites)
	if o.Release {
		return runReleaser(ctx, config, o)
	}
	mgr, err := newManager(ctx, config, o)
	if err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	rules := &rulesEnforced{kube: mgr.GetClient(), namespace: o.Namespace}
	if err := addControllers(ctx, mgr, rules, o); err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	if err := addHealth(ctx, mgr, rules, o.Namespace); err != nil {
		return fmt.Errorf("cannot make the manager: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("cannot run the manager: %w", err)
	}
	return nil
}

// newManager returns a manager without controllers, which serves the metrics.
func newManager(ctx context.Context, config *rest.Config, o Options) (ctrlmanager.Manager, error) {
	mgr, err := ctrl.NewManager(config, managerOptions(o))
	if err != nil {
		return nil, err
	}
	return mgr, addMetrics(ctx, mgr, o.MetricsAddr)
}

func managerOptions(o Options) ctrlmanager.Options {
	return ctrlmanager.Options{
		Scheme:                        newScheme(),
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // see addMetrics
		HealthProbeBindAddress:        o.HealthAddr,
		LeaderElection:                o.LeaderElection,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(shutdownTimeout),
		Controller:                    ctrlconfig.Controller{SkipNameValidation: &o.another},
		Cache: cache.Options{
			// It applies to all kinds, because ByObject fails for kinds that are not served.
			DefaultTransform: trimForCache,
			ByObject: map[client.Object]cache.ByObject{
				&rbacv1.ClusterRole{}:        {Label: ours},
				&rbacv1.ClusterRoleBinding{}: {Label: ours},
			},
		},
		Client: client.Options{Cache: &client.CacheOptions{
			// The manager reads the profile and Flux's objects as unstructured objects.
			Unstructured: true,
			// Events are many, and the manager rarely reads one.
			DisableFor: []client.Object{&eventsv1.Event{}},
		}},
	}
}

// ours selects the objects that the manager created. The cache holds no others of some kinds.
var ours = labels.SelectorFromSet(labels.Set{tenancy.LabelManaged: tenancy.ManagedValue})

// newScheme returns a scheme with the kinds that the controllers read and write.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, authenticationv1.AddToScheme, networkingv1.AddToScheme, rbacv1.AddToScheme, eventsv1.AddToScheme, coordinationv1.AddToScheme,
		v1alpha1.AddToScheme, v1beta1.AddToScheme, v1beta2.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // only for types that contradict each other
		}
	}
	return scheme
}

// addControllers wires the reconcilers.
func addControllers(ctx context.Context, mgr ctrlmanager.Manager, rules tenant.Rules, o Options) error {
	names := ruleNames()
	profiles := &tenantnamespace.ProfileReader{Client: mgr.GetClient(), Rules: names, Home: o.Namespace}
	var keeper tenant.Reservations
	if o.WebhookAddr != "0" {
		hosts := o.webhookNames
		if hosts == nil {
			hosts = webhook.ServiceNames(o.Namespace)
		}
		var err error
		options := webhook.Options{
			Address: o.WebhookAddr, Namespace: o.Namespace, Names: hosts, Profiles: profiles,
			ClientCA: o.WebhookClientCA, ClientName: o.WebhookClientName, Replica: o.Instance,
		}
		if o.Capsule {
			options.Refuses, options.Administers = capsule.Refuses(mgr.GetClient()), capsule.Administers(mgr.GetClient())
			options.More = map[string]ctrladmission.Handler{
				admission.AuditWebhookPath: &capsule.AuditHandler{Client: mgr.GetClient(), Events: mgr.GetEventRecorder(leaseName)},
				admission.HostsWebhookPath: &capsule.HostsHandler{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Namespace: o.Namespace, Now: time.Now, Limits: webhook.NewLimits()},
			}
		}
		if keeper, err = webhook.Setup(ctx, mgr, options); err != nil {
			return err
		}
	}
	failures := &profile.Failures{}
	reports := &tenant.Reports{}
	classesChanged := make(chan event.GenericEvent)
	namespaces := &tenantnamespace.Reconciler{
		Client:    mgr.GetClient(),
		Secrets:   mgr.GetAPIReader(),
		Workloads: mgr.GetAPIReader(),
		Profiles:  profiles,
		Kinds:     tenantnamespace.ServedKinds{Client: mgr.GetClient()},
		Classes:   classes.Reader{Client: mgr.GetClient()},
		Failures:  failures,
		Reports:   reports,
		Events:    mgr.GetEventRecorder(leaseName),
		Manager:   rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.Namespace, Name: tenancy.ManagerAccount},
		Now:       time.Now,

		ClassesChanged: classesChanged,
		Layer:          o.Capsule,
	}
	if err := namespaces.Setup(ctx, mgr); err != nil {
		return err
	}
	selected := &classes.Reconciler{Client: mgr.GetClient(), Profiles: profiles, Changed: classesChanged}
	if err := selected.Setup(mgr); err != nil {
		return err
	}
	tenants := &tenant.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Profiles: profiles, Rules: rules, Reservations: keeper, Reports: reports,
		Moves: keeper != nil, Now: time.Now,
	}
	if err := tenants.Setup(ctx, mgr); err != nil {
		return err
	}
	above := &isolation.Reconciler{Client: mgr.GetClient(), Profiles: profiles}
	if err := above.Setup(ctx, mgr); err != nil {
		return err
	}
	status := &profile.Reconciler{
		Client: mgr.GetClient(),
		Read: func(u *unstructured.Unstructured) (*v1alpha1.TenancyProfile, error) {
			return tenancy.ReadProfile(u, names, o.Namespace)
		},
		Failures: failures,
		Count:    count,
	}
	if err := status.Setup(ctx, mgr); err != nil {
		return err
	}
	shared := &sourcegrant.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder(leaseName), Now: time.Now,
	}
	if err := shared.Setup(mgr); err != nil {
		return err
	}
	if err := addCredentials(ctx, mgr, profiles, o); err != nil {
		return err
	}
	if err := addFailureHandling(ctx, mgr, profiles, o); err != nil {
		return err
	}
	engine := replication.NewEngine(mgr)
	if o.Capsule {
		if err := addCapsule(ctx, mgr, engine, profiles); err != nil {
			return err
		}
	}
	return replication.Setup(mgr, engine, profiles)
}

// addCredentials adds the reconciler of the kubeconfigs of accounts that own Tenants.
func addCredentials(ctx context.Context, mgr ctrlmanager.Manager, profiles credentials.Profiles, o Options) error {
	now := o.now
	if now == nil {
		now = time.Now
	}
	kept := &credentials.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Profiles: profiles,
		Targets:  credentials.Proxy{APIReader: mgr.GetAPIReader(), URL: o.ProxyURL, Namespace: o.Namespace, ConfigMap: o.ProxyCA},
		Events:   mgr.GetEventRecorder(leaseName),
		Manager:  rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: o.Namespace, Name: tenancy.ManagerAccount},
		Lifetime: o.TokenLifetime,
		Now:      now,
	}
	return kept.Setup(ctx, mgr)
}

// addFailureHandling adds, for Kustomizations and HelmReleases, the reconcilers that report
// failures to tenants and that retry objects after the rights of their account have changed.
func addFailureHandling(ctx context.Context, mgr ctrlmanager.Manager, profiles failureevents.Profiles, o Options) error {
	if err := failureevents.Index(ctx, mgr); err != nil {
		return err
	}
	for _, kind := range []schema.GroupVersionKind{failureevents.Kustomization, failureevents.HelmRelease} {
		failures := &failureevents.Reconciler{
			Kind: kind, Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Profiles: profiles,
			Instance: o.Instance, Home: o.Namespace, Now: time.Now,
		}
		if o.EventsAddr != "" {
			failures.Alerts = &failureevents.Notifier{
				Address: o.EventsAddr, HTTP: &http.Client{Timeout: postTimeout}, Instance: o.Instance, Now: time.Now,
			}
		}
		if err := failures.Setup(mgr); err != nil {
			return err
		}
		retries := &reconcileretry.Reconciler{Kind: kind, Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Profiles: profiles, Now: time.Now}
		if err := retries.Setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// addCapsule adds the reconcilers for Capsule's API, if the cluster serves it. If its CRDs are
// installed later, Capsule itself must not run either.
func addCapsule(ctx context.Context, mgr ctrlmanager.Manager, engine *replication.Engine, profiles capsule.Profiles) error {
	var kinds []schema.GroupVersionKind
	for _, kind := range []string{"Tenant", "CapsuleConfiguration", "TenantResource", "GlobalTenantResource"} {
		kinds = append(kinds, v1beta2.GroupVersion.WithKind(kind))
	}
	return crdgate.StartWhenServed(mgr, func() error {
		if err := capsule.Preflight(ctx, mgr.GetAPIReader()); err != nil {
			return ui.WithHint(err, "see docs/how-to/move-from-capsule.md")
		}
		if err := capsule.Setup(mgr, profiles); err != nil {
			return err
		}
		return replication.SetupCapsule(mgr, engine, profiles)
	}, kinds...)
}

func ruleNames() []string {
	var names []string
	for _, r := range admission.Rules() {
		names = append(names, r.Name)
	}
	return names
}

// addHealth adds the health checks. /healthz reports that the process runs. /readyz reports that
// the cache has synced, so that the manager can reconcile or take over the lease, and that the API
// server has found the kinds of the rules and enforces the rules, so that tenants may be admitted.
func addHealth(ctx context.Context, mgr ctrlmanager.Manager, rules *rulesEnforced, namespace string) error {
	// These informers start now, so that a replica that waits for the lease syncs its cache.
	early := []client.Object{&corev1.Namespace{}, &v1alpha1.TenantParameters{}}
	if crdgate.Serves(mgr, failureevents.Kustomization) {
		early = append(early, failureevents.Object(failureevents.Kustomization))
	}
	for _, object := range early {
		if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	log := mgr.GetLogger()
	for name, check := range map[string]healthz.Checker{
		"parameters-found": (&parametersFound{kube: mgr.GetClient(), namespace: namespace, rules: rules}).check,
		"rules-enforced":   rules.check,
		"cluster-read": func(request *http.Request) error {
			ctx, cancel := context.WithTimeout(request.Context(), time.Second)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("the cluster has not been read yet")
			}
			return nil
		},
	} {
		if err := mgr.AddReadyzCheck(name, logReason(log, name, check)); err != nil {
			return err
		}
	}
	return nil
}
