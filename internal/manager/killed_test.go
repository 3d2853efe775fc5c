package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// errKilled is what a manager sees that is dead: nothing.
var errKilled = errors.New("the manager was killed")

// dying is a connection that ends for good after some writes, as that of a process
// that is killed between two of them, or in the middle of several.
type dying struct {
	http.RoundTripper
	left *atomic.Int32
	die  func()
}

// RoundTrip implements [http.RoundTripper].
func (d *dying) RoundTrip(request *http.Request) (*http.Response, error) {
	if d.left.Load() <= 0 {
		return nil, errKilled
	}
	response, err := d.RoundTripper.RoundTrip(request)
	if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/events") && d.left.Add(-1) <= 0 {
		d.die()
		if err == nil {
			_ = response.Body.Close()
		}
		return nil, errKilled // what was written was written
	}
	return response, err
}

// TestKilled ends managers after their first write, their second and so on, while
// they make Tenants and while they take them away. The next one goes on, and the last
// one finishes everything; meanwhile nobody else notices.
func TestKilled(t *testing.T) {
	t.Parallel()
	restConfig := testcluster.Start(t, localcluster.Options{}).REST
	admin := newClient(t, restConfig, rest.ImpersonationConfig{})
	lowest := install(t, restConfig)
	options := Options{
		MetricsAddr: "0", HealthAddr: "0", WebhookAddr: "0", Namespace: "flux-system", Instance: "test",
		ProxyURL: restConfig.Host, ProxyCA: "tenure-proxy-ca", TokenLifetime: time.Hour, another: true,
	}
	const count = 9
	name := func(n int) string { return fmt.Sprintf("killed-%d", n) }
	settled := func(n int) bool {
		tenant := &v1alpha1.Tenant{}
		err := admin.Get(t.Context(), client.ObjectKey{Name: name(n)}, tenant)
		return client.IgnoreNotFound(err) == nil && (err != nil || apimeta.IsStatusConditionTrue(tenant.Status.Conditions, "Ready"))
	}
	for n := 1; n <= count; n++ {
		create(t, admin, tenantManifest(name(n), fmt.Sprintf("{owners: [{kind: User, name: ann}], namespaces: {create: [%s]}, quotas: [{name: all, hard: {secrets: 9}}]}", name(n))))
		if n > count/2 {
			if err := admin.Delete(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name(n - count/2)}}); err != nil {
				t.Fatal(err)
			}
		}
		killed(t, lowest, options, n, func() bool { return settled(n) })
		if err := admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name(n)}}); err != nil {
			t.Errorf("an admin notices that the manager is dead: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, lowest, options) }()
	for n := 1; n <= count; n++ {
		if n <= count-count/2 {
			testwait.For(t, "Tenant "+name(n)+" to be gone", 2*patience, func() (bool, string) {
				tenant := &v1alpha1.Tenant{}
				err := admin.Get(t.Context(), client.ObjectKey{Name: name(n)}, tenant)
				return apierrors.IsNotFound(err), fmt.Sprint(tenant.Status.Conditions, len(done))
			})
			exists(t, admin, false, &corev1.Namespace{}, "", name(n))
			exists(t, admin, false, &rbacv1.ClusterRoleBinding{}, "", "tenure:owners:"+name(n))
			continue
		}
		condition(t, admin, name(n), "Ready", "InPlace", "1 namespace")
		governed(t, admin, name(n), name(n))
		exists(t, admin, true, &rbacv1.RoleBinding{}, name(n), "tenure:owners:tenure-tenant")
		exists(t, admin, true, &rbacv1.ClusterRoleBinding{}, "", "tenure:owners:"+name(n))
		exists(t, admin, true, &corev1.ResourceQuota{}, name(n), "tenure-all")
	}
	var bindings rbacv1.RoleBindingList
	if err := admin.List(t.Context(), &bindings, client.HasLabels{"app.kubernetes.io/managed-by"}); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(bindings.Items, func(b rbacv1.RoleBinding) bool { return !strings.HasPrefix(b.Namespace, "killed-") }); i >= 0 {
		t.Errorf("a manager that was killed has left a binding outside: %s/%s", bindings.Items[i].Namespace, bindings.Items[i].Name)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the last manager: %v", err)
	}
	proxyMoves(t, admin, restConfig, lowest, options)
	released(t, restConfig, lowest, options, []string{name(count - 1), name(count)})
}

// killed runs a manager that dies after some writes, or is ended when it has nothing
// more to do.
func killed(t *testing.T, restConfig *rest.Config, options Options, writes int, settled func() bool) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	defer die()
	left := &atomic.Int32{}
	left.Store(int32(writes))
	restConfig = rest.CopyConfig(restConfig)
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &dying{RoundTripper: next, left: left, die: die}
	})
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, restConfig, options) }()
	testwait.For(t, fmt.Sprintf("the manager to end after %d writes", writes), patience, func() (bool, string) {
		if len(ended) == 0 && settled() {
			die()
		}
		return len(ended) > 0, fmt.Sprintf("%d writes are left", left.Load())
	})
	t.Logf("the manager died with %d of %d writes left: %v", left.Load(), writes, <-ended)
}
