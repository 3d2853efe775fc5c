package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testmanager"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

const (
	// patience is the timeout for the manager on a busy machine.
	patience = 2 * time.Minute
	// pace is the time between two rounds of a person's requests.
	pace = 100 * time.Millisecond

	platform = `
{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: platform-ci}}
`
	profile = "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}, spec: {platformNamespaces: [flux-system, platform-ci]}}"

	capsuleTenants = `
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: oil}
spec:
  owners:
    - {kind: User, name: alice}
    - {kind: ServiceAccount, name: "system:serviceaccount:platform-ci:robot", clusterRoles: [edit]}
  additionalRoleBindings: [{clusterRoleName: view, subjects: [{kind: User, name: vera}]}]
  namespaceOptions: {quota: 3, additionalMetadata: {labels: {cost: oil}}, forbiddenLabels: {denied: [foo]}}
  containerRegistries: {allowed: [registry.example.com]}
  resourceQuotas: {scope: Tenant, items: [{hard: {services: "1"}}]}
  limitRanges: {items: [{limits: [{type: Container, max: {cpu: "1"}, default: {cpu: 100m}}]}]}
  networkPolicies: {items: [{podSelector: {}, policyTypes: [Egress], egress: [{}]}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: gas}
spec:
  owners: [{kind: User, name: bob}]
`
	tenantNamespaces = `
{apiVersion: v1, kind: Namespace, metadata: {name: oil-a, labels: {tenure.dev/tenant: oil, capsule.clastix.io/tenant: oil}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: oil-b, labels: {tenure.dev/tenant: oil, capsule.clastix.io/tenant: oil}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gas-a, labels: {tenure.dev/tenant: gas, capsule.clastix.io/tenant: gas}}}
`
	// tenantObjects have the only Service that oil may have.
	tenantObjects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: oil-a}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: work, namespace: gas-a}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: oil-a}, spec: {ports: [{port: 80}]}}
`
)

// live is a cluster whose tenants are moved.
type live struct {
	*testing.T
	rest       *rest.Config
	kubeconfig string
	admin      client.Client
}

func startLive(t *testing.T) *live {
	t.Helper()
	cluster := testcluster.Shared(t)
	cluster.REST.QPS = -1
	withoutWebhooks := func(manifests []byte) []byte { return manifests }
	testcluster.Apply(t, cluster.REST, testcluster.WithoutControllers, []byte(platform), config.FluxComponents(), config.CRDs(), config.CapsuleCRDs(), config.Roles(),
		withoutWebhooks(config.Manager()), config.CapsuleRoles(), []byte(profile), config.Policies(), config.CapsulePolicies())
	l := &live{T: t, rest: cluster.REST, kubeconfig: cluster.Kubeconfig}
	l.admin = l.as("")
	return l
}

// as returns a client of a user, or of the admin.
func (l *live) as(user string) client.Client {
	l.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), networkingv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), v1beta2.AddToScheme(scheme)); err != nil {
		l.Fatal(err)
	}
	restConfig := rest.CopyConfig(l.rest)
	if user != "" {
		restConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	c, err := client.New(restConfig, client.Options{Scheme: scheme})
	if err != nil {
		l.Fatal(err)
	}
	return c
}

// apply applies manifests like `kubectl apply --server-side --force-conflicts`.
func (l *live) apply(manifests string) {
	l.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		l.Fatal(err)
	}
	if err := flux.ApplyManifests(l.Context(), l.rest, objects); err != nil {
		l.Fatal(err)
	}
}

// theirs waits for what a Tenant of Capsule says of itself.
func (l *live) theirs(name, reason string, namespaces int32) {
	l.Helper()
	testwait.For(l, fmt.Sprintf("Capsule's Tenant %s to say %s, with %d namespaces", name, reason, namespaces), patience, func() (bool, string) {
		tenant := &v1beta2.Tenant{}
		if err := l.admin.Get(l.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		ready := apimeta.FindStatusCondition(tenant.Status.Conditions, "Ready")
		return ready != nil && ready.Reason == reason && tenant.Status.Size == namespaces, fmt.Sprint(ready, tenant.Status.Namespaces)
	})
}

// ours waits until the spec of a Tenant of Tenure is in force.
func (l *live) ours(name string) {
	l.Helper()
	testwait.For(l, "Tenant "+name+" to be in force", patience, func() (bool, string) {
		tenant := &v1alpha1.Tenant{}
		if err := l.admin.Get(l.Context(), client.ObjectKey{Name: name}, tenant); err != nil {
			return false, err.Error()
		}
		ready := apimeta.FindStatusCondition(tenant.Status.Conditions, "Ready")
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == tenant.Generation, fmt.Sprint(ready)
	})
}

// mergeOurs patches a Tenant of Tenure.
func (l *live) mergeOurs(name, patch string) {
	l.Helper()
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := l.admin.Patch(l.Context(), tenant, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		l.Fatal(err)
	}
}

// objects returns the UIDs of the namespaces and of what gives rights and limits there.
func (l *live) objects() map[string]types.UID {
	l.Helper()
	uids := map[string]types.UID{}
	for _, list := range []client.ObjectList{&corev1.NamespaceList{}, &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}, &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{}} {
		if err := l.admin.List(l.Context(), list); err != nil {
			l.Fatal(err)
		}
		items, err := apimeta.ExtractList(list)
		if err != nil {
			l.Fatal(err)
		}
		for _, item := range items {
			o := item.(client.Object)
			if where := o.GetNamespace() + o.GetName(); strings.Contains(where, "oil") || strings.Contains(where, "gas") {
				uids[fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName())] = o.GetUID()
			}
		}
	}
	return uids
}

// owned reports how many owner references the namespaces of the tenants have.
func (l *live) owned() int {
	l.Helper()
	var namespaces corev1.NamespaceList
	if err := l.admin.List(l.Context(), &namespaces, client.HasLabels{v1alpha1.LabelTenant}); err != nil {
		l.Fatal(err)
	}
	references := 0
	for _, ns := range namespaces.Items {
		references += len(ns.OwnerReferences)
	}
	return references
}

// attempt is a request that somebody makes all the time.
type attempt struct {
	what    string
	do      func(context.Context, client.Client) error
	allowed bool
}

// problem says what is wrong with the answer.
func (a attempt) problem(ctx context.Context, c client.Client) string {
	switch err := a.do(ctx, c); {
	case ctx.Err() != nil:
		return ""
	case a.allowed && err != nil:
		return fmt.Sprintf("is refused to %s: %v", a.what, err)
	case !a.allowed && err == nil:
		return "is let to " + a.what
	case !a.allowed && !apierrors.IsForbidden(err):
		return fmt.Sprintf("is refused to %s for another reason: %v", a.what, err)
	}
	return ""
}

func read(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "work"}, &corev1.ConfigMap{})
	}
}

func write(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "round-"}}
		if err := c.Create(ctx, o); err != nil {
			return err
		}
		return c.Delete(ctx, o)
	}
}

// pod tries to create a Pod whose container has the limits of the namespace, or the given processors.
func pod(namespace, image string, cpu ...corev1.ResourceList) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		container := corev1.Container{Name: "app", Image: image}
		if len(cpu) > 0 {
			container.Resources.Limits = cpu[0]
		}
		return c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}, client.DryRunAll)
	}
}

func service(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, client.DryRunAll)
	}
}
