package manager

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// layer is a cluster with everything that Capsule's Tenants need, for managers with the layer for
// Capsule or without it.
type layer struct {
	transferCluster
	rest       *rest.Config
	kubeconfig string
	options    Options
}

// startLayer starts the cluster, without a manager. The API server reaches the webhooks at an address.
func startLayer(t *testing.T) *layer {
	t.Helper()
	cluster := testcluster.Start(t, localcluster.Options{})
	cluster.REST.QPS = -1
	l := &layer{rest: cluster.REST, kubeconfig: cluster.Kubeconfig}
	testcluster.Apply(t, l.rest, testcluster.WithoutControllers, testcrds.GatewayAPI(), config.CapsuleCRDs())
	l.lowest = install(t, l.rest)
	testcluster.Apply(t, l.rest, testcluster.WithoutControllers, config.CapsuleRoles(), config.CapsulePolicies(), config.Defaults())
	l.admin = l.as(t, "")
	address := freeAddress(t)
	l.options = Options{
		MetricsAddr: "0", HealthAddr: "0", WebhookAddr: address, Namespace: "flux-system", Instance: "test",
		ProxyURL: l.rest.Host, ProxyCA: "tenure-proxy-ca", TokenLifetime: time.Hour, webhookNames: []string{"127.0.0.1"}, another: true,
	}
	// The rule lets the manager change the path of a Service, and not of an address.
	rule := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: admission.Prefix + "manager"}}
	if err := l.admin.Delete(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{URL: new("https://" + address + path)}
	}
	for name, path := range map[string]string{admission.WebhookName: admission.WebhookPath, admission.AuditWebhookName: admission.AuditWebhookPath} {
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
		l.change(t, name, configuration, func() {
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig = at(path)
			}
		})
	}
	for name, path := range map[string]string{admission.QuotaWebhookName: admission.QuotaWebhookPath, admission.HostsWebhookName: admission.HostsWebhookPath} {
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		l.change(t, name, configuration, func() {
			for i := range configuration.Webhooks {
				configuration.Webhooks[i].ClientConfig = at(path)
			}
		})
	}
	if err := catalog.AwaitPolicies(t.Context(), l.admin, "in-force"); err != nil {
		t.Fatal(err)
	}
	return l
}

// change reads an object, changes and writes it.
func (l *layer) change(t *testing.T, name string, o client.Object, change func()) {
	t.Helper()
	if err := l.admin.Get(t.Context(), client.ObjectKey{Name: name}, o); err != nil {
		t.Fatal(err)
	}
	change()
	if err := l.admin.Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// start starts a manager, with the layer for Capsule or without it.
func (l *layer) start(t *testing.T, capsule bool) (stop func()) {
	t.Helper()
	options := l.options
	options.Capsule = capsule
	end := l.run(t, options)
	return func() {
		if err := end(); err != nil {
			t.Errorf("the manager: %v", err)
		}
	}
}

// as returns a client of a user, or of the admin.
func (l *layer) as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	all := newScheme()
	if err := scheme.AddToScheme(all); err != nil {
		t.Fatal(err)
	}
	restConfig := rest.CopyConfig(l.rest)
	restConfig.WarningHandlerWithContext = rest.NoWarnings{}
	if user != "" {
		restConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	}
	c, err := client.New(restConfig, client.Options{Scheme: all})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply applies manifests like `kubectl apply --server-side --force-conflicts`.
func (l *layer) apply(t *testing.T, manifests string) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	if err := flux.ApplyManifests(t.Context(), l.rest, objects); err != nil {
		t.Fatal(err)
	}
}

// theirs waits until the condition Ready of a Tenant of Capsule has a reason.
func (l *layer) theirs(t *testing.T, name, reason string, namespaces int32) *v1beta2.Tenant {
	t.Helper()
	tenant := &v1beta2.Tenant{}
	testwait.For(t, "Capsule's Tenant "+name+" to say "+reason, patience, func() (bool, string) {
		*tenant = v1beta2.Tenant{}
		if err := l.admin.Get(t.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		ready := apimeta.FindStatusCondition(tenant.Status.Conditions, "Ready")
		said := ready != nil && ready.Reason == reason && ready.ObservedGeneration == tenant.Generation
		return said && tenant.Status.Size == namespaces, fmt.Sprint(tenant.Status.Conditions, tenant.Status.Namespaces)
	})
	return tenant
}
