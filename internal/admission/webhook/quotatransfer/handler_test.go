package quotatransfer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// A request does not wait for quota while the manager stops: the manager ends when the last
// request has its response.
func TestStopped(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stops time.Duration
		want  string
		took  time.Duration
	}{
		"the manager runs":  {time.Hour, "exceeded", grace},
		"the manager stops": {tick / 2, "the manager stopped", tick},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				one := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}
				stopped := make(chan struct{})
				time.AfterFunc(tc.stops, func() { close(stopped) })
				h := handlerOf(t, one, partOf(one))
				h.Stopped = stopped
				start := time.Now()
				response := h.Handle(t.Context(), createPod())
				said := strings.Join(response.Warnings, " ")
				if response.Result != nil {
					said += response.Result.Message
				}
				if !strings.Contains(said, tc.want) {
					t.Errorf("the response is %q, want %q", said, tc.want)
				}
				if took := time.Since(start); took > 2*tc.took {
					t.Errorf("the response took %s, want about %s", took, tc.took)
				}
			})
		})
	}
}

// A resource that the Tenant limits no longer refuses nothing: the request waits until the manager has removed
// it from the part.
func TestRemovedResource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		services := corev1.ResourceList{corev1.ResourceServices: resource.MustParse("1")}
		before := corev1.ResourceList{corev1.ResourceServices: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("1")}
		part := partOf(before)
		h := handlerOf(t, services, part)
		const change = grace + time.Second // a refusal would come earlier
		time.AfterFunc(change, func() {
			part.Spec.Hard, part.Status.Hard, part.Status.Used = services, services, nil
			part.ResourceVersion = ""
			if err := h.Client.Update(t.Context(), part); err != nil {
				t.Error(err)
			}
		})
		start := time.Now()
		response := h.Handle(t.Context(), createPod())
		if took := time.Since(start); !response.Allowed || len(response.Warnings) > 0 || took < change || took > change+time.Second {
			t.Errorf("after %s: %+v, want an admission after %s", took, response, change)
		}
	})
}

// partOf returns a part that is used up.
func partOf(hard corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "dev", Name: "tenure-all", Labels: map[string]string{tenancy.LabelQuotaScope: tenancy.QuotaScopeTenant, v1alpha1.LabelFluxTenant: "dev"}},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
		Status:     corev1.ResourceQuotaStatus{Hard: hard, Used: hard},
	}
}

// handlerOf returns a handler for a part of the quota of a Tenant.
func handlerOf(t *testing.T, limit corev1.ResourceList, part *corev1.ResourceQuota) *Handler {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: v1alpha1.TenantSpec{Quotas: []v1alpha1.TenantQuota{{Name: "all", Scope: tenancy.QuotaScopeTenant, Hard: v1alpha1.Quantities(limit)}}}}
	return &Handler{
		Client: fake.NewClientBuilder().WithScheme(s).WithObjects(part, tenant).
			WithIndex(&corev1.ResourceQuota{}, indexTenant, func(o client.Object) []string { return []string{o.GetLabels()[v1alpha1.LabelFluxTenant]} }).Build(),
		Replica: "one",
		Owns:    func(admission.Request, *v1alpha1.Tenant) bool { return true },
	}
}

func createPod() admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "dev", Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Kind:   metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","namespace":"dev"},"spec":{"containers":[{"name":"a","image":"a"}]}}`)},
	}}
}
