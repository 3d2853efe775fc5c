package local

import (
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestPendingTenants checks for which Tenants a fleet waits, and for how long.
func TestPendingTenants(t *testing.T) {
	t.Parallel()
	tenant := func(name string, conditions ...metav1.Condition) *v1alpha1.Tenant {
		o := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}}
		o.Status.Conditions = conditions
		return o
	}
	ready := func(status metav1.ConditionStatus, reason string, generation int64) metav1.Condition {
		return metav1.Condition{Type: "Ready", Status: status, Reason: reason, ObservedGeneration: generation}
	}
	deleted := tenant("deleted")
	deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"tenure.dev/tenant"}
	for name, tt := range map[string]struct {
		reason  string
		tenants []client.Object
		want    bool
	}{
		"none":        {"most fleets have no Tenants", nil, false},
		"new":         {"the manager has not seen the Tenant", []client.Object{tenant("a")}, true},
		"in progress": {"a Kustomization of the Tenant is not ready", []client.Object{tenant("a", ready("Unknown", "Progressing", 2))}, true},
		"changed":     {"the status is about the former spec", []client.Object{tenant("a", ready("True", "InPlace", 1))}, true},
		"rules":       {"the manager waits for the API server", []client.Object{tenant("a", ready("False", "RulesNotEnforced", 2))}, true},
		"one of two":  {"the fleet waits for all", []client.Object{tenant("a", ready("True", "InPlace", 2)), tenant("b")}, true},
		"ready":       {"all is in place", []client.Object{tenant("a", ready("True", "InPlace", 2))}, false},
		"failed":      {"waiting does not help", []client.Object{tenant("a", ready("False", "NamespaceTaken", 2))}, false},
		"deleted":     {"it does not become ready", []client.Object{deleted}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			p := pendingTenants{kube: fake.NewClientBuilder().WithScheme(scheme).WithObjects(tt.tenants...).Build()}
			start := time.Now()
			if got := p.unfinished(t.Context(), start); got != tt.want {
				t.Errorf("%s: got %v, want %v", tt.reason, got, tt.want)
			}
			if p.unfinished(t.Context(), start.Add(tenantsPause)) {
				t.Errorf("%s: it waits longer than %s", tt.reason, tenantsPause)
			}
		})
	}
	if (&pendingTenants{kube: fake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()}).unfinished(t.Context(), time.Now()) {
		t.Error("a cluster that does not serve the kind has no Tenants to wait for")
	}
}
