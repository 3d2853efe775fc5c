package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type valid struct{}

func (valid) Profile(context.Context) (*v1alpha1.TenancyProfile, error) {
	return &v1alpha1.TenancyProfile{}, nil
}

// TestStaleOwner asks a replica whose cache does not show the tenants yet for a
// namespace that does not say whose it is.
func TestStaleOwner(t *testing.T) {
	t.Parallel()
	owned := func(name string) client.Object {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: "ann"}}}}
	}
	free := func(name string) client.Object {
		tenant := owned(name).(*v1alpha1.Tenant)
		tenant.Spec.Namespaces.Prefix = new(false)
		return tenant
	}
	for name, tc := range map[string]struct {
		reason, user string
		tenants      []client.Object
		refusal      string
	}{
		"owner":    {"a tenant that was made a moment ago counts", "ann", []client.Object{owned("dev")}, ""},
		"of two":   {"to guess would be to give one tenant's quota away", "ann", []client.Object{free("dev"), free("ops")}, "you own several tenants (dev, ops)"},
		"of each":  {"the tenant that demands its prefix has it", "ann", []client.Object{owned("dev"), free("ops")}, ""},
		"longer":   {"the longest prefix counts, if one is demanded", "ann", []client.Object{owned("de"), free("dev")}, ""},
		"prefix":   {"only one tenant can have the name", "ann", []client.Object{owned("dev"), owned("ops"), owned("de")}, ""},
		"no match": {"no tenant can have the name", "ann", []client.Object{owned("ops"), owned("dev-a")}, "you own several tenants (dev-a, ops)"},
		"stranger": {"others' tenants do not count", "joe", []client.Object{owned("dev")}, "there is no tenant that you own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := runtime.NewScheme()
			if err := errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
				t.Fatal(err)
			}
			indexed := func(client.Object) []string { return nil }
			live := fake.NewClientBuilder().WithScheme(s).WithObjects(tc.tenants...).Build()
			stale := fake.NewClientBuilder().WithScheme(s).WithIndex(&v1alpha1.Tenant{}, indexOwner, indexed).WithIndex(&corev1.Namespace{}, indexTenant, indexed).WithIndex(&corev1.Namespace{}, indexAnyTenant, indexed).Build()
			h := NewHandler(stale, live, &reservations.Keeper{Client: live, Namespace: "flux-system", Now: time.Now}, valid{})
			raw, err := json.Marshal(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "dev-a"}})
			if err != nil {
				t.Fatal(err)
			}
			got := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				UserInfo: authenticationv1.UserInfo{Username: tc.user}, Object: runtime.RawExtension{Raw: raw},
			}})
			if got.Allowed != (tc.refusal == "") || !got.Allowed && !strings.Contains(got.Result.Message, tc.refusal) {
				t.Errorf("%s: allowed: %v, %v", tc.reason, got.Allowed, got.Result)
			}
		})
	}
}

// TestExistingNamespace asks for a namespace that exists, and for one that a policy refuses: nothing is
// written down, as what would be admitted never appears.
func TestExistingNamespace(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	indexed := func(client.Object) []string { return nil }
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: "ann"}}}}
	there := func(name string) client.Object { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	live := fake.NewClientBuilder().WithScheme(s).WithObjects(tenant, there("dev-a")).Build()
	cache := fake.NewClientBuilder().WithScheme(s).WithObjects(tenant, there("dev-a"), there("dev-gone")).
		WithIndex(&v1alpha1.Tenant{}, indexOwner, indexed).WithIndex(&corev1.Namespace{}, indexTenant, indexed).WithIndex(&corev1.Namespace{}, indexAnyTenant, indexed).Build()
	h := NewHandler(cache, live, &reservations.Keeper{Client: live, Namespace: "flux-system", Now: time.Now}, valid{})
	for name, want := range map[string]bool{"dev-a": false, "dev-gone": true} {
		raw, err := json.Marshal(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		got := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: raw},
		}})
		if got.Allowed != want || !want && (got.Result.Reason != metav1.StatusReasonAlreadyExists || got.Result.Code != http.StatusConflict) {
			t.Errorf("%s: allowed: %v, %v", name, got.Allowed, got.Result)
		}
	}
	h.Refuses = func(_ context.Context, _ string, groups []string, _ *corev1.Namespace) (string, error) {
		return strings.Join(groups, ", "), nil
	}
	refused := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		UserInfo: authenticationv1.UserInfo{Username: "ann", Groups: []string{"ignored"}}, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"dev-refused"}}`)},
	}})
	if refused.Allowed || refused.Result.Message != "ignored" {
		t.Errorf("a namespace that a policy refuses: allowed: %v, %v", refused.Allowed, refused.Result)
	}
	r, err := h.Reservations.Read(t.Context(), "dev")
	if err != nil || len(r.Admitted) != 1 || r.Admitted[0].Name != "dev-gone" {
		t.Errorf("the reservations are %+v, %v", r, err)
	}
}

// TestLargeNamespace asks for namespaces that would take long to check. The cache must not be read for each part of the name.
func TestLargeNamespace(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: "ann"}}}}
	entries := func(n int) map[string]string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprint("kustomize.toolkit.fluxcd.io/", i)] = "x"
		}
		return all
	}
	for _, tc := range []struct {
		reason string
		meta   metav1.ObjectMeta
		want   string
	}{
		{"a name with many parts", metav1.ObjectMeta{Name: "dev" + strings.Repeat("-a", 1000)}, "a name of 2003 characters: choose one with 63 at most"},
		{"a long name that belongs to a tenant", metav1.ObjectMeta{Name: "dev-" + strings.Repeat("a", 59)}, ""},
		{"many labels", metav1.ObjectMeta{Name: "dev-a", Labels: entries(maxEntries + 1)}, "1001 labels and 0 annotations"},
		{"many annotations", metav1.ObjectMeta{Name: "dev-a", Annotations: entries(maxEntries + 1)}, "0 labels and 1001 annotations"},
		{"the name of a tenant that is too long", metav1.ObjectMeta{Name: "dev-a", Labels: map[string]string{v1alpha1.LabelFluxTenant: strings.Repeat("a", 64)}}, "a value of 64 characters in the label toolkit.fluxcd.io/tenant"},
	} {
		reads := 0
		indexed := func(client.Object) []string { return nil }
		stored := fake.NewClientBuilder().WithScheme(s).WithObjects(tenant).
			WithIndex(&v1alpha1.Tenant{}, indexOwner, indexed).WithIndex(&corev1.Namespace{}, indexTenant, indexed).WithIndex(&corev1.Namespace{}, indexAnyTenant, indexed).Build()
		cache := interceptor.NewClient(stored, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, o, options...)
		}})
		h := NewHandler(cache, stored, &reservations.Keeper{Client: stored, Namespace: "flux-system", Now: time.Now}, valid{})
		raw, err := json.Marshal(&corev1.Namespace{ObjectMeta: tc.meta})
		if err != nil {
			t.Fatal(err)
		}
		got := h.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: raw},
		}})
		if got.Allowed != (tc.want == "") || !got.Allowed && !strings.Contains(got.Result.Message, tc.want) || reads > 10 {
			t.Errorf("%s: allowed: %v, %v, after %d reads of the cache", tc.reason, got.Allowed, got.Result, reads)
		}
	}
}

// TestSlowDecision asks for a namespace while another decision for the tenant does not end. The handler answers before the API
// server's timeout.
func TestSlowDecision(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: "ann"}}}}
	synctest.Test(t, func(t *testing.T) {
		indexed := func(client.Object) []string { return nil }
		stored := fake.NewClientBuilder().WithScheme(s).WithObjects(tenant).
			WithIndex(&v1alpha1.Tenant{}, indexOwner, indexed).WithIndex(&corev1.Namespace{}, indexTenant, indexed).WithIndex(&corev1.Namespace{}, indexAnyTenant, indexed).Build()
		h := NewHandler(stored, stored, &reservations.Keeper{Client: stored, Namespace: "flux-system", Now: time.Now}, valid{})
		for i := range h.turns {
			<-h.turns[i]
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		got := h.Handle(ctx, admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
			UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"dev-a"}}`)},
		}})
		if took := time.Since(began); got.Allowed || !strings.Contains(got.Result.Message, "try again in a moment") || took >= 5*time.Second {
			t.Errorf("allowed: %v, %v, after %s", got.Allowed, got.Result, took)
		}
	})
}

// TestUnansweredAdmission lets the API server stop waiting, or the answer to a write get lost, after the
// reservation is written: the request makes no namespace, so that nothing may count.
func TestUnansweredAdmission(t *testing.T) {
	t.Parallel()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	indexed := func(client.Object) []string { return nil }
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev", UID: "u"}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: "ann"}}}}
	cache := fake.NewClientBuilder().WithScheme(s).WithObjects(tenant).
		WithIndex(&v1alpha1.Tenant{}, indexOwner, indexed).WithIndex(&corev1.Namespace{}, indexTenant, indexed).WithIndex(&corev1.Namespace{}, indexAnyTenant, indexed).Build()
	for reason, lost := range map[string]error{"the API server has stopped waiting": nil, "the answer to the write is lost": errors.New("connection reset")} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(s).WithObjects(tenant).Build(), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if lost == nil {
						cancel()
					}
					return errors.Join(c.Create(ctx, o, options...), lost)
				},
			})
			h := NewHandler(cache, live, &reservations.Keeper{Client: live, Namespace: "flux-system", Now: time.Now}, valid{})
			if got := h.Handle(ctx, admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				UID: "r", Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"},
				UserInfo: authenticationv1.UserInfo{Username: "ann"}, Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"dev-a"}}`)},
			}}); got.Allowed {
				t.Error("the namespace is allowed")
			}
			if r, err := h.Reservations.Read(t.Context(), "dev"); err != nil || r.Tenant != tenant.UID || len(r.Admitted) > 0 || len(r.Names) > 0 {
				t.Errorf("the reservations are %+v, %v", r, err)
			}
		})
	}
}
