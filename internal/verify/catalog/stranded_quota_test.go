package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestStrandsQuota divides a quota of 8 CPUs between two namespaces.
func TestStrandsQuota(t *testing.T) {
	t.Parallel()
	tenant := object("tenure.dev/v1alpha1", "Tenant", "", "team", map[string]any{"spec": map[string]any{
		"quotas": []any{map[string]any{"name": "compute", "hard": map[string]any{"requests.cpu": "8"}}},
	}})
	part := func(namespace, hard, used string) client.Object {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tenancy.QuotaObjectName(&v1alpha1.Tenant{}, "compute")},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(hard)}},
			Status:     corev1.ResourceQuotaStatus{Used: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(used)}},
		}
	}
	partly := []client.Object{tenant, part("team", "4", "1"), part("team-more", "4", "2")}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		refusal string
		admits  int // the request that is admitted although there is a refusal
		outcome Outcome
		words   string
	}{
		"moved":   {"the Pod needs a little more than its namespace has", partly, "", 0, Stopped, "requests.cpu=3001m in namespace team, of which its tenant has 5 free"},
		"stays":   {"the part decides", partly, "exceeded quota: " + tenancy.QuotaObjectName(&v1alpha1.Tenant{}, "compute") + ", requested: requests.cpu=3001m, used: requests.cpu=1, limited: requests.cpu=4", 0, GotThrough, "is refused"},
		"late":    {"the webhook is too slow for the first requests", partly, "exceeded quota: " + tenancy.QuotaObjectName(&v1alpha1.Tenant{}, "compute") + ", requested: requests.cpu=3001m, used: requests.cpu=1, limited: requests.cpu=4", 3, Stopped, "is admitted"},
		"total":   {"the tenant's total is no part", partly, "exceeded quota: compute of all namespaces of tenant team, requested: limits.cpu=4", 0, NotProven, "another control"},
		"other":   {"another control says nothing about the quota", partly, "maximum cpu usage per Container is 1", 0, NotProven, "another control"},
		"used":    {"nothing is free elsewhere", []client.Object{tenant, part("team", "4", "4"), part("team-more", "4", "4")}, "", 0, NotProven, "used all"},
		"whole":   {"one namespace has all", []client.Object{tenant, part("team", "8", "1")}, "", 0, Stopped, "no quota for Pods is divided"},
		"none":    {"no part is there yet", []client.Object{tenant}, "", 0, Stopped, "no quota for Pods is divided"},
		"no team": {"the tenant is none of Tenure's", nil, "", 0, Stopped, "no quota for Pods is divided"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{}, tc.objects...)
			e.Tenant.Namespaces = []string{"team", "team-more"}
			admin, requests := e.Admin, 0
			e.controllers["replicaset-controller"] = interceptor.NewClient(admin, interceptor.Funcs{
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					if requests++; tc.refusal == "" || requests == tc.admits {
						return nil
					}
					return forbidden(tc.refusal)
				},
			})
			got := strandsQuota(t.Context(), e)
			if said := got.Message + got.Evidence + got.Reason; got.Outcome != tc.outcome || !strings.Contains(said, tc.words) {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
}

// TestHoldsOthersUp compares what applied two Tenants.
func TestHoldsOthersUp(t *testing.T) {
	t.Parallel()
	by := func(name, kustomization string) client.Object {
		u := object("tenure.dev/v1alpha1", "Tenant", "", name, nil)
		if kustomization != "" {
			u.SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": kustomization, "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		}
		return u
	}
	for name, tc := range map[string]struct {
		reason  string
		objects []client.Object
		outcome Outcome
		control string
	}{
		"together": {"a mistake of one stops the other", []client.Object{by("team", "tenants"), by("other", "tenants")}, GotThrough, ""},
		"apart":    {"each has its own Kustomization", []client.Object{by("team", "tenant-team"), by("other", "tenant-other")}, Stopped, "a Kustomization for each Tenant"},
		"by hand":  {"nothing holds up what a person applies", []client.Object{by("team", ""), by("other", "")}, Stopped, notInstalled},
		"none":     {"the tenant is none of Tenure's", []client.Object{by("other", "tenants")}, Stopped, notInstalled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := holdsOthersUp(t.Context(), newFakeEnv(interceptor.Funcs{}, tc.objects...)); got.Outcome != tc.outcome || got.Control != tc.control {
				t.Errorf("%s: %+v", tc.reason, got)
			}
		})
	}
}
