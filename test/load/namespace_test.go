package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// owningTenants is the number of tenants. Each has an owner.
	owningTenants = 20
	// ownersRights is a tenant with the objects that give its owner the rights.
	ownersRights = `
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: %[1]s}
spec: {owners: [{kind: User, name: %[1]s}], namespaces: {quota: 100000, labels: {team: %[1]s}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "tenure:owners:%[1]s"}
rules:
  - {apiGroups: [""], resources: [namespaces], verbs: [create, patch]}
  - {apiGroups: [tenure.dev], resources: [tenants], resourceNames: [%[1]s], verbs: [get, own, label]}
  - {apiGroups: [tenure.dev], resources: [tenantnamespaces], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "tenure:owners:%[1]s"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "tenure:owners:%[1]s"}
subjects: [{kind: User, name: %[1]s}]
---
`
)

// BenchmarkNamespaceCreate compares the creation of a namespace by a tenant's owner, whose
// request goes through the webhook and the admission rules, with the creation by an admin,
// one after the other: as a dry run, which reserves nothing, and without a dry run.
func BenchmarkNamespaceCreate(b *testing.B) {
	fast := unbounded(startBare(b).REST)
	fast.WarningHandlerWithContext = rest.NoWarnings{}
	prepareOwners(b, fast, serveWebhook(b, fast))
	admin := impersonating(b, fast, "admin", "system:masters")
	owners := make([]client.Client, owningTenants)
	for i := range owners {
		owners[i] = impersonating(b, fast, tenantName(i))
	}
	testwait.For(b, "the webhook to answer", time.Minute, func() (bool, string) {
		err := owners[owningTenants-1].Create(b.Context(), named(tenantName(owningTenants-1)+"-asked"), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	for _, mode := range []struct {
		name    string
		rounds  int
		options []client.CreateOption
	}{{"dry", 600, []client.CreateOption{client.DryRunAll}}, {"real", 300, nil}} {
		var took [2][]time.Duration
		for i := range mode.rounds {
			// The order changes, so that neither side has the warmer cache.
			for j := range 2 {
				side, c := (i+j)%2, admin
				if side == 1 {
					c = owners[i%owningTenants]
				}
				began := time.Now()
				if err := c.Create(b.Context(), named(fmt.Sprintf("%s-made-%s-%d-%d", tenantName(i%owningTenants), mode.name, i, side)), mode.options...); err != nil {
					b.Fatal(err)
				}
				took[side] = append(took[side], time.Since(began))
			}
		}
		var medians [2]float64
		for side := range took {
			slices.Sort(took[side])
			medians[side] = float64(took[side][len(took[side])/2]) / float64(time.Millisecond)
		}
		b.ReportMetric(medians[0], "ms-admin-"+mode.name)
		b.ReportMetric(medians[1], "ms-owner-"+mode.name)
		b.ReportMetric(medians[1]/medians[0], "ratio-"+mode.name+"(max=2)")
	}
	b.ReportMetric(0, "ns/op")
}

func named(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func impersonating(b *testing.B, restConfig *rest.Config, user string, groups ...string) client.Client {
	b.Helper()
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// prepareOwners installs the rules, the webhook with its address, and tenants.
func prepareOwners(b *testing.B, restConfig *rest.Config, address string) {
	b.Helper()
	var tenants strings.Builder
	for i := range owningTenants {
		fmt.Fprintf(&tenants, ownersRights, tenantName(i))
	}
	for _, manifests := range [][]byte{[]byte("{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}"), config.CRDs(), []byte(posture), config.Policies(), config.Manager(), []byte(tenants.String())} {
		objects, err := flux.ReadObjects(manifests)
		if err != nil {
			b.Fatal(err)
		}
		// The manager's rule allows a change of the path of a Service, and not of a URL.
		objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Deployment" || o.GetKind() == "ValidatingAdmissionPolicyBinding" && o.GetName() == admission.Prefix+"manager"
		})
		for _, o := range objects {
			if webhooks, ok, _ := unstructured.NestedSlice(o.Object, "webhooks"); ok {
				webhooks[0].(map[string]any)["clientConfig"] = map[string]any{"url": "https://" + address + admission.WebhookPath}
				o.Object["webhooks"] = webhooks
			}
		}
		if err := flux.ApplyManifests(b.Context(), restConfig, objects); err != nil {
			b.Fatal(err)
		}
	}
}

// validProfile reads the profile as if it were always valid.
type validProfile struct{ client.Reader }

// Profile implements [webhook.Profiles].
func (p validProfile) Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error) {
	found := &v1alpha1.TenancyProfile{}
	return found, p.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, found)
}

// serveWebhook installs the CRDs and runs the webhook in this process. It returns the
// address of the webhook.
func serveWebhook(b *testing.B, restConfig *rest.Config) string {
	b.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		b.Fatal(err)
	}
	objects, err := flux.ReadObjects(config.CRDs())
	if err == nil {
		err = flux.ApplyManifests(b.Context(), restConfig, objects)
	}
	if err != nil {
		b.Fatal(err)
	}
	testwait.For(b, "the kind Tenant to be served", time.Minute, func() (bool, string) {
		c, err := client.New(restConfig, client.Options{Scheme: scheme})
		if err == nil {
			err = c.List(b.Context(), &v1alpha1.TenantList{})
		}
		return err == nil, fmt.Sprint(err)
	})
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		b.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", freePort(b))
	if _, err := webhook.Setup(b.Context(), mgr, webhook.Options{
		Address: address, Namespace: "flux-system", Names: []string{"127.0.0.1"}, Profiles: validProfile{mgr.GetClient()},
	}); err != nil {
		b.Fatal(err)
	}
	go func() { _ = mgr.Start(b.Context()) }()
	return address
}
