package capsule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/admission/webhook"
	admissionv1 "k8s.io/api/admission/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	limits := webhook.NewLimits()
	replica := func() *HostsHandler {
		return &HostsHandler{Client: c, APIReader: c, Namespace: "default", Now: func() time.Time { return now }, Limits: limits}
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

	// Many paths are one write to each Lease.
	paths := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("/%d", i))
		}
		return all
	}
	writes := &countedWrites{Client: c}
	counting := replica()
	counting.Client = writes
	if got := ask(counting, ingressFor("rock-a", "wide", "wide.example", paths(maxRoutes)...), nil, false); got != "" || writes.n.Load() > 16 {
		t.Errorf("%d paths: %q after %d writes, want at most one to each of 16 Leases", maxRoutes, got, writes.n.Load())
	}
	if got := ask(replica(), ingressFor("rock-b", "wide", "wide.example", "/7"), nil, false); !strings.Contains(got, "a moment ago") {
		t.Errorf("one of many paths: %q", got)
	}
	if got := ask(replica(), ingressFor("rock-a", "wider", "wider.example", paths(maxRoutes+1)...), nil, false); !strings.Contains(got, "would get 513 hosts with paths at once, at most 512: divide it") {
		t.Errorf("more paths than an Ingress may get: %q", got)
	}
	if got := ask(replica(), ingressFor("free-a", "wider", "wider.example", paths(maxRoutes+1)...), nil, false); got != "" {
		t.Errorf("more paths, without a scope: %q", got)
	}

	// A tenant that floods the webhook waits, and no other tenant does.
	// The limit grows while the request is on its way.
	var got string
	for range 100 {
		for limits.Allow("rock") {
		}
		if got = ask(replica(), ingressFor("rock-a", "flood", "flood.example", "/"), nil, true); got != "" {
			break
		}
	}
	if !strings.Contains(got, "rock asks for more than 50 Ingresses a second") {
		t.Errorf("a flood: %q", got)
	}
	if got := ask(replica(), ingressFor("dune-a", "calm", "calm.example", "/"), nil, false); got != "" {
		t.Errorf("another tenant than the one that floods: %q", got)
	}
}

// countedWrites counts the writes of a client.
type countedWrites struct {
	client.Client
	n atomic.Int32
}

func (c *countedWrites) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.n.Add(1)
	return c.Client.Create(ctx, o, opts...)
}

func (c *countedWrites) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	c.n.Add(1)
	return c.Client.Update(ctx, o, opts...)
}

// A tenant takes its share of a Lease and no more, and a dozen tenants fill a Lease, but not beyond what Kubernetes
// stores.
func TestHostsShare(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := &HostsHandler{Now: func() time.Time { return now }}
	wanted := func(prefix string, n int) map[string]route {
		all := map[string]route{}
		for i := range n {
			all[fmt.Sprintf("%064s", fmt.Sprint(prefix, i))] = route{prefix, fmt.Sprint(i)}
		}
		return all
	}
	by := func(tenant, name string) claim {
		return claim{ingress: ingressFor(tenant, name, "x"), tenant: shortHash(tenant), holder: shortHash(tenant + "/" + name), scope: "Cluster"}
	}
	held := map[string]reservation{}
	take := func(reason, tenant, name string, routes map[string]route, want error) {
		t.Helper()
		before := len(held)
		trial := maps.Clone(held)
		content, err := h.take(by(tenant, name), trial, routes)
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Fatalf("%s: with %d reservations before: %v, want %v", reason, before, err, want)
		}
		if err == nil {
			held = trial
		}
		if len(content) > maxContent {
			t.Errorf("%s: a Lease of %d bytes", reason, len(content))
		}
	}
	take("half of the share", "dune", "a", wanted("a", maxReserved/2), nil)
	take("the other half", "dune", "b", wanted("b", maxReserved/2), nil)
	take("one more", "dune", "c", wanted("c", 1), errTooMany)
	take("the same again", "dune", "a", wanted("a", maxReserved/2), nil)
	take("those of another Ingress", "sand", "a", wanted("a", 1), errTaken)
	tenants := 0
	for ; tenants < 100; tenants++ {
		if content, err := h.take(by(fmt.Sprint("t", tenants), "a"), held, wanted(fmt.Sprint("t", tenants, "-"), maxReserved)); err != nil {
			if !errors.Is(err, errTooMany) || !strings.Contains(err.Error(), "all tenants together") {
				t.Errorf("a full Lease: %v", err)
			}
			break
		} else if len(content) > maxContent {
			t.Fatalf("a Lease of %d bytes", len(content))
		}
	}
	if tenants < 11 || tenants == 100 {
		t.Errorf("%d tenants fill a Lease", tenants)
	}
	now = now.Add(2 * taking)
	take("after a minute", "dune", "c", wanted("c", maxReserved), nil)
	if len(held) != maxReserved {
		t.Errorf("%d reservations stay after a minute, want %d", len(held), maxReserved)
	}
}

// FuzzHostsShare takes routes for many Ingresses: the content of a Lease stays within what Kubernetes stores, no two
// Ingresses hold one route, and no tenant has more than its share.
func FuzzHostsShare(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 130, 7, 7, 7})
	f.Add(bytes.Repeat([]byte{255, 3}, 200))
	f.Fuzz(func(t *testing.T, steps []byte) {
		now := time.Unix(0, 0)
		h := &HostsHandler{Now: func() time.Time { return now }}
		held := map[string]reservation{}
		for i, step := range steps {
			tenant := fmt.Sprint("tenant-", step%20)
			wanted := map[string]route{}
			for n := range int(step) {
				wanted[fmt.Sprintf("%064x", n*(i%7+1))] = route{path: fmt.Sprint(n)}
			}
			by := claim{ingress: ingressFor(tenant, fmt.Sprint(i%3), "x"), tenant: shortHash(tenant), holder: shortHash(fmt.Sprint(tenant, i%3))}
			trial := maps.Clone(held)
			content, err := h.take(by, trial, wanted)
			now = now.Add(time.Duration(step%5) * time.Second)
			if err != nil {
				if !errors.Is(err, errTaken) && !errors.Is(err, errTooMany) {
					t.Fatal(err)
				}
				continue
			}
			count := map[string]int{}
			for key, entry := range trial {
				count[entry.Tenant]++
				if old, was := held[key]; was && old.Holder != entry.Holder && now.Sub(old.At) < taking/2 {
					t.Fatalf("an Ingress lost its route after %s", now.Sub(old.At))
				}
			}
			if len(content) > maxContent || count[by.tenant] > maxReserved {
				t.Fatalf("%d bytes, and %d routes of the tenant", len(content), count[by.tenant])
			}
			held = trial
		}
	})
}
