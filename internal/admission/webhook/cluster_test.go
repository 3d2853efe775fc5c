package webhook_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }

const patience = 2 * time.Minute

// fixture are tenants with their owners, and the rights that RBAC gives owners.
const fixture = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec: {protectedNamespaces: [prod-*]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: makers}
rules: [{apiGroups: [""], resources: [namespaces], verbs: [create, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: makers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: makers}
subjects: [{kind: User, name: ci}]
`

// owned is a tenant with a quota and what makes people its owners.
func owned(name string, quota int, owners ...string) string {
	return fmt.Sprintf(`---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: %[1]s}
spec: {owners: [%[3]s], namespaces: {quota: %[2]d, podSecurity: restricted, labels: {team: %[1]s, istio-injection: enabled}}}
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
subjects: [%[3]s]
`, name, quota, strings.Join(owners, ", "))
}

// cluster is an API server with the rules, and the webhook's address.
type cluster struct {
	rest    *rest.Config
	admin   client.Client
	address string
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), admissionregistrationv1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *cluster) as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	restConfig := rest.CopyConfig(c.rest)
	restConfig.QPS = -1
	restConfig.WarningHandlerWithContext = rest.NoWarnings{}
	if user != "" {
		restConfig.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	}
	made, err := client.New(restConfig, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func prepare(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{rest: testcluster.Shared(t).REST}
	c.admin = c.as(t, "")
	c.address = address(t)
	c.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system}}\n---\n"+string(config.CRDs())+"\n---\n"+fixture+"\n---\n"+string(config.Policies())+"\n---\n"+string(config.Manager()))
	return c
}

// address returns an address that no other program takes while no replica listens on it. All other tests
// listen and connect at 127.0.0.1, which macOS requires here as well.
func address(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.77.0.1:0")
	if err != nil {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// apply applies manifests without what needs Flux and Pods, and with the webhook
// where it runs here: by an address, which the rule tenure-manager does not let the
// manager change.
func (c *cluster) apply(t *testing.T, manifests string) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || strings.HasPrefix(o.GetName(), admission.Prefix+"manager") && o.GetKind() == "ValidatingAdmissionPolicyBinding"
	})
	for _, o := range objects {
		if o.GetKind() != "MutatingWebhookConfiguration" {
			continue
		}
		webhooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
		webhooks[0].(map[string]any)["clientConfig"] = map[string]any{"url": "https://" + c.address + admission.WebhookPath}
		o.Object["webhooks"] = webhooks
	}
	if err := flux.ApplyManifests(t.Context(), c.rest, objects); err != nil {
		t.Fatal(err)
	}
}

type profiles struct{ client.Reader }

func (p profiles) Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error) {
	profile := &v1alpha1.TenancyProfile{}
	return profile, p.Get(ctx, client.ObjectKey{Name: v1alpha1.ProfileName}, profile)
}

// replica runs a webhook with the manager's rights, and returns what ends it.
func (c *cluster) replica(t *testing.T) (stop func()) {
	t.Helper()
	restConfig := rest.CopyConfig(c.rest)
	restConfig.QPS = -1
	restConfig.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:flux-system:tenure-manager",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:flux-system", "system:authenticated"},
	}
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{Scheme: scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	host, _, err := net.SplitHostPort(c.address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	if _, err := webhook.Setup(ctx, mgr, webhook.Options{
		Address: c.address, Namespace: "flux-system", Names: []string{host}, Profiles: profiles{mgr.GetClient()},
	}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the replica ended: %v", err)
		}
	})
}

// answers waits until the webhook answers: then an owner may ask.
func (c *cluster) answers(t *testing.T, owner client.Client, name string) {
	t.Helper()
	testwait.For(t, "the webhook to answer", patience, func() (bool, string) {
		err := owner.Create(t.Context(), space(name), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
}

func space(name string, labels ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		ns.Labels[labels[i]] = labels[i+1]
	}
	return ns
}

// of returns the names of a tenant's namespaces.
func (c *cluster) of(t *testing.T, tenant string) []string {
	t.Helper()
	var list corev1.NamespaceList
	if err := c.admin.List(t.Context(), &list, client.MatchingLabels{v1alpha1.LabelTenant: tenant}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// reserved returns the stored reservations of a tenant.
func (c *cluster) reserved(t *testing.T, tenant string) reservations.Reservations {
	t.Helper()
	found, err := c.keeper(t).Read(t.Context(), tenant)
	if err != nil {
		t.Fatal(err)
	}
	return found.Reservations
}

func (c *cluster) keeper(t *testing.T) *reservations.Keeper {
	return &reservations.Keeper{Client: c.as(t, ""), Namespace: "flux-system", Now: time.Now}
}

func says(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestWebhook runs on one API server, one case after the other.
func TestWebhook(t *testing.T) {
	c := prepare(t)
	const alice, bob = "{kind: User, name: alice}", "{kind: Group, name: bobs}"
	c.apply(t, owned("solo", 2, alice, "{kind: ServiceAccount, namespace: solo-home, name: solo}")+
		owned("left", 9, bob)+owned("right", 9, bob)+owned("left-wing", 9, "{kind: User, name: winger}")+owned("left-own", 9, bob)+"---\n{apiVersion: v1, kind: Namespace, metadata: {name: elsewhere, labels: {toolkit.fluxcd.io/tenant: left-labelled}}}\n"+owned("race", 5, "{kind: User, name: racer}")+owned("pair", 5, "{kind: User, name: pair}")+owned("again", 1, "{kind: User, name: againer}")+owned("mass", 10, "{kind: User, name: masser}"))
	stop := c.replica(t)
	defer func() { stop() }()
	c.answers(t, c.as(t, "alice"), "solo-x")
	t.Run("Decides", func(t *testing.T) { c.decides(t) })
	t.Run("Edits", func(t *testing.T) { c.edits(t) })
	t.Run("DomainNames", func(t *testing.T) { c.domainNames(t) })
	t.Run("Stranger", func(t *testing.T) { c.stranger(t) })
	t.Run("Race", func(t *testing.T) { c.race(t) })
	t.Run("Replicas", func(t *testing.T) { c.replicas(t) })
	t.Run("Again", func(t *testing.T) { c.again(t) })
	t.Run("Away", func(t *testing.T) {
		stop()
		c.away(t)
		stop = c.replica(t)
		c.answers(t, c.as(t, "masser"), "mass-x")
	})
	t.Run("Killed", func(t *testing.T) { c.killed(t, &stop) })
}

// edits changes labels of a namespace that an owner made.
func (c *cluster) edits(t *testing.T) {
	solo, both := c.as(t, "alice"), c.as(t, "bob", "bobs")
	label := func(by client.Client, labels string) (*corev1.Namespace, error) {
		ns := space("solo-1")
		return ns, by.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+labels+`}}`)))
	}
	_, err := label(solo, `{"kustomize.toolkit.fluxcd.io/name":"apps"}`)
	says(t, err, "")
	_, err = label(solo, `{"control-plane":"x"}`)
	says(t, err, "tenant solo: namespace solo-1 must not have the label control-plane, which is not among those that owners choose")
	_, err = label(both, `{"kustomize.toolkit.fluxcd.io/name":"web"}`)
	says(t, err, "tenant solo: namespace solo-1 must not be changed: you are not one of the owners of its tenant")
	ns, err := label(solo, `{"team":"ops","istio-injection":null}`)
	says(t, err, "")
	if ns.Labels["team"] != "solo" || ns.Labels["istio-injection"] != "enabled" {
		t.Errorf("the labels of the Tenant have not got their values back: %v", ns.Labels)
	}
	_, err = label(c.as(t, ""), `{"control-plane":"x"}`)
	says(t, err, "")
	_, err = label(c.as(t, ""), `{"control-plane":null}`)
	says(t, err, "")
	references := func(by client.Client, list string) (*corev1.Namespace, error) {
		ns := space("solo-1")
		return ns, by.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":`+list+`}}`)))
	}
	const reference = `[{"apiVersion":"capsule.clastix.io/v1beta2","kind":"Tenant","name":"solo","uid":"1"}]`
	_, err = references(c.as(t, ""), reference)
	says(t, err, "")
	ns, err = references(solo, strings.ReplaceAll(reference, "solo", "left"))
	says(t, err, "")
	if len(ns.OwnerReferences) != 1 || ns.OwnerReferences[0].Name != "solo" {
		t.Errorf("an owner has changed the Capsule Tenant of a namespace: %v", ns.OwnerReferences)
	}
	_, err = references(c.as(t, ""), "null")
	says(t, err, "")
}

func (c *cluster) decides(t *testing.T) {
	solo, both := c.as(t, "alice"), c.as(t, "bob", "bobs")
	account := c.as(t, "system:serviceaccount:solo-home:solo", "system:serviceaccounts", "system:serviceaccounts:solo-home")
	ctx := t.Context()
	says(t, both.Create(ctx, space("left-wing-1", v1alpha1.LabelTenant, "left")), "tenant left: namespace left-wing-1 must not have this name, which begins with the name of another tenant: choose another one")
	says(t, both.Create(ctx, space("left-wing", v1alpha1.LabelTenant, "left")), "begins with the name of another tenant")
	says(t, both.Create(ctx, space("left-labelled-1", v1alpha1.LabelTenant, "left")), "begins with the name of another tenant")
	says(t, both.Create(ctx, space("left-winger", v1alpha1.LabelTenant, "left"), client.DryRunAll), "")
	says(t, c.as(t, "winger").Create(ctx, space("left-wing-1"), client.DryRunAll), "")
	says(t, both.Create(ctx, space("left-own-1", v1alpha1.LabelTenant, "left"), client.DryRunAll), "")
	chosen := space("left-own-1")
	says(t, both.Create(ctx, chosen, client.DryRunAll), "")
	if got := chosen.Labels[v1alpha1.LabelTenant]; got != "left-own" {
		t.Errorf("namespace left-own-1 is of tenant %q, want that with the longest prefix", got)
	}
	says(t, both.Create(ctx, space("left-wing-1")), "tenant left: namespace left-wing-1 must not have this name, which begins with the name of another tenant")
	says(t, both.Create(ctx, space("both")), "namespace both: you own several tenants (left, left-own, right); put the name of one into the label tenure.dev/tenant")
	says(t, both.Create(ctx, space("left-1", v1alpha1.LabelTenant, "left")), "")
	says(t, both.Create(ctx, space("right-1", v1alpha1.LabelCapsuleTenant, "right")), "")
	says(t, both.Create(ctx, space("solo-1", v1alpha1.LabelTenant, "solo")), "tenant solo: you are not one of its owners")
	says(t, both.Create(ctx, space("gone-1", v1alpha1.LabelTenant, "gone")), `there is no tenant "gone"`)
	says(t, solo.Create(ctx, space("prod-1")), "tenant solo: namespace prod-1 must have a name that begins with solo-")
	says(t, solo.Create(ctx, space("solo-1"), client.DryRunAll), "")
	if got := c.reserved(t, "solo"); got.Tenant != "" {
		t.Errorf("a dry run has written %v", got)
	}
	born := space("solo-1")
	says(t, solo.Create(ctx, born), "")
	for key, want := range map[string]string{"tenure.dev/tenant": "solo", "team": "solo", "pod-security.kubernetes.io/enforce": "restricted", "istio-injection": "enabled", "tenure.dev/made-by": "owner"} {
		if got := born.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	says(t, solo.Create(ctx, space("solo-1")), "already exists")
	apply := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"solo-2","labels":{"kustomize.toolkit.fluxcd.io/name":"apps"}}}`
	for range 2 {
		says(t, account.Patch(ctx, space("solo-2"), client.RawPatch(types.ApplyPatchType, []byte(apply)), client.FieldOwner("kustomize-controller"), client.ForceOwnership), "")
	}
	says(t, solo.Create(ctx, space("solo-3")), "tenant solo: has 2 of 2 namespaces (solo-1, solo-2); delete one or ask the platform team")
	says(t, solo.Create(ctx, space("solo-3"), client.DryRunAll), "has 2 of 2 namespaces")
	if got := c.reserved(t, "solo").Counted(nil); len(got) != 2 {
		t.Errorf("the reservations have %v, want two names", got)
	}
}

// domainNames creates namespaces without a hyphen before and after the profile allows them.
func (c *cluster) domainNames(t *testing.T) {
	c.apply(t, strings.NewReplacer("quota: 9", "quota: 9, prefix: false, forbiddenNameExpression: '^[a-z]o+l$'", "get, own", "get, own, name").Replace(owned("free", 9, "{kind: User, name: freeman}")))
	freeman := c.as(t, "freeman")
	allow := func(value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"domainNames":`+value+`}}`))
		if err := c.admin.Patch(t.Context(), &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	create := func(by client.Client, name string) func() (bool, string) {
		return func() (bool, string) {
			err := by.Create(t.Context(), space(name), client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		}
	}
	c.answers(t, freeman, "free-x")
	says(t, freeman.Create(t.Context(), space("tools"), client.DryRunAll), "the end of an internet address")
	allow(`"Allowed"`)
	defer allow("null")
	testwait.For(t, "names without a hyphen to be allowed", patience, create(freeman, "tools"))
	says(t, freeman.Create(t.Context(), space("pool"), client.DryRunAll), "those that match ^[a-z]o+l$ are forbidden")
	says(t, freeman.Create(t.Context(), space("xn--p1ai"), client.DryRunAll), "the end of an internet address")
	says(t, freeman.Create(t.Context(), space("solo"), client.DryRunAll), "the name of another tenant")
	says(t, c.as(t, "alice").Create(t.Context(), space("tools"), client.DryRunAll), "must have a name that begins with solo-")
}

// race lets 20 namespaces be made at once where 5 may be.
func (c *cluster) race(t *testing.T) {
	racer := c.as(t, "racer")
	var group sync.WaitGroup
	var made, refused atomic.Int32
	for i := range 20 {
		group.Go(func() {
			err := racer.Create(t.Context(), space(fmt.Sprintf("race-%d", i)))
			switch {
			case err == nil:
				made.Add(1)
			case strings.Contains(err.Error(), "tenant race: has 5 of 5 namespaces"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := c.of(t, "race"); len(got) != 5 || made.Load() != 5 || refused.Load() != 15 {
		t.Errorf("made %d, refused %d, and there are %v", made.Load(), refused.Load(), got)
	}
}

// replicas lets two replicas, of which neither knows the other, decide about 20
// namespaces at once where 5 may be.
func (c *cluster) replicas(t *testing.T) {
	var handlers []*webhook.Handler
	for range 2 {
		mgr, err := ctrl.NewManager(c.rest, ctrl.Options{Scheme: scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
		if err != nil {
			t.Fatal(err)
		}
		if err := webhook.Index(t.Context(), mgr.GetFieldIndexer()); err != nil {
			t.Fatal(err)
		}
		go func() { _ = mgr.Start(t.Context()) }()
		if !mgr.GetCache().WaitForCacheSync(t.Context()) {
			t.Fatal("the cache has not been filled")
		}
		handlers = append(handlers, webhook.NewHandler(mgr.GetClient(), mgr.GetAPIReader(), c.keeper(t), profiles{mgr.GetClient()}))
	}
	var group sync.WaitGroup
	var allowed atomic.Int32
	for i := range 20 {
		group.Go(func() {
			request := admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				UID: types.UID(fmt.Sprint("request-", i)), UserInfo: authenticationv1.UserInfo{Username: "pair"},
				Object: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"pair-%d"}}`, i)},
			}
			response := handlers[i%2].Handle(t.Context(), ctrladmission.Request{AdmissionRequest: request})
			if response.Allowed {
				allowed.Add(1)
			} else if !strings.Contains(response.Result.Message, "tenant pair: has 5 of 5 namespaces") {
				t.Error(response.Result)
			}
		})
	}
	group.Wait()
	if got := c.reserved(t, "pair").Counted(nil); len(got) != 5 || allowed.Load() != 5 {
		t.Errorf("allowed %d, and the reservations have %v", allowed.Load(), got)
	}
}

// again lets the only namespace of a tenant go, and others come in its place at once.
func (c *cluster) again(t *testing.T) {
	againer := c.as(t, "againer")
	began := time.Now()
	for i, name := range []string{"again-a", "again-b", "again-b"} {
		says(t, againer.Create(t.Context(), space(name)), "")
		says(t, againer.Create(t.Context(), space("again-c")), "tenant again: has 1 of 1 namespaces ("+name+")")
		if i == 2 {
			break
		}
		if err := c.admin.Delete(t.Context(), space(name)); err != nil {
			t.Fatal(err)
		}
		testwait.For(t, "namespace "+name+" to be gone", patience, func() (bool, string) {
			err := c.admin.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	}
	if took := time.Since(began); took > reservations.Lifetime {
		t.Errorf("the quota was free again after %s", took)
	}
}

// away checks which users' requests fail while the webhook is down: those of owners, and no others.
func (c *cluster) away(t *testing.T) {
	masser := c.as(t, "masser")
	testwait.For(t, "the webhook to be away", patience, func() (bool, string) {
		err := masser.Create(t.Context(), space("mass-away"), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "failed calling webhook"), fmt.Sprint(err)
	})
	for _, tc := range []struct {
		reason, user string
		groups       []string
	}{
		{"an admin", "", nil},
		{"a program that owns nothing", "ci", nil},
		{"Kubernetes", "system:apiserver", []string{"system:masters"}},
		{"a controller of Kubernetes'", "system:serviceaccount:kube-system:some-controller", []string{"system:masters"}},
	} {
		// A webhook that were asked would refuse it, since it is away.
		err := c.as(t, tc.user, tc.groups...).Create(t.Context(), space("away-"+strings.ReplaceAll(strings.ToLower(tc.reason[:7]), " ", "")+fmt.Sprint(len(tc.reason))))
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

// killed ends the webhook while namespaces are made, and starts another one.
func (c *cluster) killed(t *testing.T, stop *func()) {
	masser := c.as(t, "masser")
	var next, made, full atomic.Int32
	var last atomic.Value
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for full.Load() < 5 && ctx.Err() == nil {
				err := masser.Create(ctx, space(fmt.Sprintf("mass-%d", next.Add(1))))
				switch {
				case err == nil:
					made.Add(1)
				case strings.Contains(err.Error(), "tenant mass: has 10 of 10 namespaces"):
					full.Add(1)
				case apierrors.IsInternalError(err), apierrors.IsForbidden(err), ctx.Err() != nil: // the webhook is away
					last.Store(err.Error())
				default:
					t.Error(err)
				}
			}
		})
	}
	testwait.For(t, "some namespaces to be made", patience, func() (bool, string) {
		return made.Load() >= 3, fmt.Sprint(made.Load(), " were made, and last ", last.Load())
	})
	(*stop)()
	*stop = c.replica(t)
	group.Wait()
	written := c.reserved(t, "mass")
	if got := c.of(t, "mass"); int32(len(got)) != made.Load() || len(got) > 10 || len(written.Counted(got)) != 10 {
		t.Errorf("made %d, and there are %v, with the reservations %v", made.Load(), got, written)
	}
	if full.Load() < 5 {
		t.Errorf("refused %d times for the quota only", full.Load())
	}
}

// stranger calls the webhook as an owner, without the API server: a caller that knows the path in the
// configuration can reserve names of a tenant, and no other caller can.
func (c *cluster) stranger(t *testing.T) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: admission.WebhookName}, configuration); err != nil {
		t.Fatal(err)
	}
	secret, err := url.Parse(*configuration.Webhooks[0].ClientConfig.URL)
	if err != nil {
		t.Fatal(err)
	}
	caller := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for i, tc := range []struct {
		reason, path string
		reserves     bool
	}{
		{"the path without the secret", admission.WebhookPath, false},
		{"a secret that is guessed", admission.WebhookPath + "/aaaaaaaaaaaaaaaaaaaaaaaaaa", false},
		{"the path of the other webhook", admission.QuotaWebhookPath, false},
		{"the secret, as without this control", secret.Path, true},
	} {
		name := fmt.Sprint("left-stranger-", i)
		review := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"stranger-%d","operation":"CREATE","resource":{"version":"v1","resource":"namespaces"},`+
			`"userInfo":{"username":"bob","groups":["bobs"]},"object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"tenure.dev/tenant":"left"}}}}}`, i, name)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.address+tc.path, strings.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := caller.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if reserved := c.reserved(t, "left").Counted(nil)[name]; reserved != tc.reserves || (response.StatusCode == http.StatusOK) != tc.reserves {
			t.Errorf("%s: answered with %d, and the name is reserved: %v", tc.reason, response.StatusCode, reserved)
		}
	}
	large, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.address+admission.WebhookPath+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	large.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	if response, err := caller.Do(large); err != nil || response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a caller without the secret may send a header of 64 KiB: %v, %v", response, err)
	} else {
		_ = response.Body.Close()
	}
	guest := c.as(t, "alice")
	if err := guest.Get(t.Context(), client.ObjectKey{Name: admission.WebhookName}, configuration); !apierrors.IsForbidden(err) {
		t.Errorf("an owner can read the path: %v", err)
	}
}
