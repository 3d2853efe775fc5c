package tenantnamespace

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestLogConstructor holds the keys by which a tenant is followed in the log.
func TestLogConstructor(t *testing.T) {
	t.Parallel()
	cache := fake.NewClientBuilder().WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "apps", Labels: map[string]string{"tenure.dev/tenant": "dev"}}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}).Build()
	for _, tc := range []struct {
		reason  string
		of      func(types.NamespacedName) string
		request *reconcile.Request
		want    string
	}{
		{"a Tenant", TenantByName, &reconcile.Request{NamespacedName: types.NamespacedName{Name: "dev"}}, `controller=x namespace="" name=dev tenant=dev`},
		{"a tenant's namespace", TenantByNamespace(cache), &reconcile.Request{NamespacedName: types.NamespacedName{Name: "apps"}}, `controller=x namespace="" name=apps tenant=dev`},
		{"an object in it", TenantByNamespace(cache), &reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "apps", Name: "ci"}}, `controller=x namespace=apps name=ci tenant=dev`},
		{"another namespace", TenantByNamespace(cache), &reconcile.Request{NamespacedName: types.NamespacedName{Name: "other"}}, `controller=x namespace="" name=other`},
		{"a namespace that is gone", TenantByNamespace(cache), &reconcile.Request{NamespacedName: types.NamespacedName{Name: "gone"}}, `controller=x namespace="" name=gone`},
		{"no object", TenantByName, nil, `controller=x`},
	} {
		var out bytes.Buffer
		LogConstructor(logr.FromSlogHandler(slog.NewTextHandler(&out, nil)), "x", tc.of)(tc.request).Info("m")
		if got := strings.TrimSpace(out.String()); !strings.HasSuffix(got, "msg=m "+tc.want) {
			t.Errorf("%s: want %s, got %s", tc.reason, tc.want, got)
		}
	}
}
