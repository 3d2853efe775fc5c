package capsule

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func ingressFor(namespace, name, host string, paths ...string) *networkingv1.Ingress {
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	rule := networkingv1.IngressRule{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{}}}
	for _, p := range paths {
		exact := networkingv1.PathTypeImplementationSpecific
		rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{
			Path: p, PathType: &exact, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s", Port: networkingv1.ServiceBackendPort{Number: 80}}},
		})
	}
	i.Spec.Rules = []networkingv1.IngressRule{rule}
	return i
}

// TestHosts asks for hosts in the scopes of Capsule, as two replicas would, and at the same time.
func TestHosts(t *testing.T) {
	t.Parallel()
	c, admin := cluster(t)
	for name, labels := range map[string]string{
		"dune-a": "tenure.dev/tenant: dune, projectcapsule.dev/hostname-collision-scope: Tenant",
		"dune-b": "tenure.dev/tenant: dune, projectcapsule.dev/hostname-collision-scope: Tenant",
		"sand-a": "tenure.dev/tenant: sand, projectcapsule.dev/hostname-collision-scope: Namespace",
		"rock-a": "tenure.dev/tenant: rock, projectcapsule.dev/hostname-collision-scope: Cluster",
		"rock-b": "tenure.dev/tenant: rock, projectcapsule.dev/hostname-collision-scope: Cluster",
		"free-a": "tenure.dev/tenant: free",
	} {
		apply(t, admin, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+", labels: {"+labels+"}}}")
	}
	now := time.Now()
	replica := func() *HostsHandler {
		return &HostsHandler{Client: c, APIReader: c, Namespace: "default", Now: func() time.Time { return now }}
	}
	ask := func(h *HostsHandler, o, old *networkingv1.Ingress, dryRun bool) string {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: o.Namespace, Object: runtime.RawExtension{Raw: raw}, DryRun: &dryRun}}
		if old != nil {
			if request.OldObject.Raw, err = json.Marshal(old); err != nil {
				t.Fatal(err)
			}
		}
		response := h.Handle(t.Context(), request)
		if response.Allowed {
			return ""
		}
		return response.Result.Message
	}
	create := func(o *networkingv1.Ingress) {
		t.Helper()
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	create(ingressFor("free-a", "one", "a.example", "/"))
	create(ingressFor("dune-a", "one", "b.example", "/"))
	create(ingressFor("sand-a", "one", "c.example", "/x", "/y"))
	for _, tc := range []struct {
		reason string
		object *networkingv1.Ingress
		want   string
	}{
		{"without a scope", ingressFor("free-a", "two", "a.example", "/"), ""},
		{"another tenant's in the cluster", ingressFor("rock-a", "one", "a.example"), "another Ingress has it"},
		{"another path", ingressFor("rock-a", "two", "a.example", "/x"), ""},
		{"of a sibling namespace", ingressFor("dune-b", "one", "b.example", "/"), "in the scope Tenant"},
		{"of another tenant", ingressFor("dune-b", "two", "a.example", "/"), ""},
		{"of the namespace", ingressFor("sand-a", "two", "c.example", "/z", "/y"), "in the scope Namespace"},
		{"of another namespace", ingressFor("sand-a", "three", "b.example", "/"), ""},
		{"its own", ingressFor("dune-a", "one", "b.example", "/"), ""},
	} {
		if got := ask(replica(), tc.object, nil, false); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
	if got := ask(replica(), ingressFor("rock-a", "old", "a.example", "/"), ingressFor("rock-a", "old", "a.example", "/"), false); got != "" {
		t.Errorf("an update that keeps its host: %q", got)
	}

	// Sixteen Ingresses at a time, of which none is stored yet.
	var allowed atomic.Int32
	var done sync.WaitGroup
	for i := range 16 {
		done.Go(func() {
			if got := ask(replica(), ingressFor(fmt.Sprintf("rock-%c", 'a'+i%2), fmt.Sprintf("race-%d", i), "race.example", "/"), nil, false); got == "" {
				allowed.Add(1)
			} else if !strings.Contains(got, "a moment ago") && !strings.Contains(got, "at a time") {
				t.Errorf("the race: %q", got)
			}
		})
	}
	done.Wait()
	if n := allowed.Load(); n != 1 {
		t.Errorf("%d Ingresses got one host", n)
	}

	// A dry run takes nothing, and a host is free again if the Ingress never came.
	if got := ask(replica(), ingressFor("rock-a", "dry", "dry.example", "/"), nil, true); got != "" {
		t.Errorf("a dry run: %q", got)
	}
	if got := ask(replica(), ingressFor("rock-b", "dry", "dry.example", "/"), nil, false); got != "" {
		t.Errorf("after a dry run: %q", got)
	}
	now = now.Add(2 * taking)
	if got := ask(replica(), ingressFor("rock-a", "late", "dry.example", "/"), nil, false); got != "" {
		t.Errorf("after an Ingress that never came: %q", got)
	}
}
