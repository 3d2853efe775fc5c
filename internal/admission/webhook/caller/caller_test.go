package caller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestOnly lets two replicas with one Secret decide who may call.
func TestOnly(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kept := map[string][]byte{"tls.crt": []byte("a certificate")}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "flux-system", Name: "tenure-webhook"}, Data: kept}).Build()
	server := interceptor.NewClient(stored, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
		return errors.Join(ctx.Err(), c.Get(ctx, key, o, options...))
	}})
	now, called := time.Now(), ""
	replica := func() *Keeper {
		return &Keeper{
			Client: server, Namespace: "flux-system", Secret: "tenure-webhook", Now: func() time.Time { return now },
			Publish: func(_ context.Context, secret string) error { called = secret; return nil },
		}
	}
	keep := func(k *Keeper, renew bool) string {
		t.Helper()
		if err := k.keep(t.Context(), renew); err != nil {
			t.Fatal(err)
		}
		return called
	}
	status := func(k *Keeper, path string) int {
		recorder := httptest.NewRecorder()
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		k.Only("/namespaces", ok).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, path, nil))
		return recorder.Code
	}
	one := replica()
	first := keep(one, true)
	if again := keep(one, false); again != first {
		t.Error("the path is another one after a minute")
	}
	other := replica()
	second := keep(other, true)
	if second == first || len(second) < 20 {
		t.Errorf("a replica that starts makes the path %q after %q", second, first)
	}
	now = now.Add(2 * lookAgain)
	left, leave := context.WithCancel(t.Context())
	leave()
	late := replica()
	late.set(one.known)
	now = now.Add(2 * lookAgain)
	late.Only("/namespaces", http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/namespaces/x", nil).WithContext(left))
	if got := status(late, "/namespaces/"+second); got != http.StatusOK {
		t.Errorf("after a client with an unknown path that leaves, the path of now: got %d, want %d", got, http.StatusOK)
	}
	for _, tc := range []struct {
		reason, path string
		replica      *Keeper
		after        time.Duration
		want         int
	}{
		{"the path of now", "/namespaces/" + second, other, 0, http.StatusOK},
		{"a replica that has not heard of it reads the Secret", "/namespaces/" + second, one, 0, http.StatusOK},
		{"the one before, as an API server may be behind", "/namespaces/" + first, other, 0, http.StatusOK},
		{"another webhook's", "/quotas/" + second, one, 0, http.StatusNotFound},
		{"no secret", "/namespaces", one, 0, http.StatusNotFound},
		{"an empty secret", "/namespaces/", one, 0, http.StatusNotFound},
		{"a part of it", "/namespaces/" + second[:10], one, 0, http.StatusNotFound},
		{"more than it", "/namespaces/" + second + "/x", one, 0, http.StatusNotFound},
		{"the one before, later", "/namespaces/" + first, other, overlap, http.StatusNotFound},
		{"the path of now, later", "/namespaces/" + second, one, 0, http.StatusOK},
	} {
		now = now.Add(tc.after)
		if got := status(tc.replica, tc.path); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
		}
	}
	now = now.Add(rotation)
	if third := keep(one, false); third == second {
		t.Error("the path is the same after an hour")
	}
	secret := &corev1.Secret{}
	if err := server.Get(t.Context(), client.ObjectKey{Namespace: one.Namespace, Name: one.Secret}, secret); err != nil || string(secret.Data["tls.crt"]) != "a certificate" {
		t.Errorf("the certificate beside it is %q (%v)", secret.Data["tls.crt"], err)
	}
}
