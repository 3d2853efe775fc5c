package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// What a commit to one repository cannot do, a commit to another may: Flux may apply it with other rights.
func TestByDeliveries(t *testing.T) {
	t.Parallel()
	refused, through := stopped(rbac, "no"), gotThrough("it could")
	for _, tc := range []struct {
		reason       string
		via          Via
		first, other Finding
		unplanted    error
		want         Outcome
	}{
		{"the other repository is applied with more rights", Git, refused, through, nil, GotThrough},
		{"RBAC refuses both", Git, refused, refused, nil, Stopped},
		{"the other sync may lack what the attack needs", Git, refused, notProven("an outage"), nil, Stopped},
		{"the first one got through", Git, through, refused, nil, GotThrough},
		{"the other repository is not mapped", Git, refused, refused, errors.New("not mapped"), NotProven},
		{"the other repository is not mapped, and the first one suffices", Git, through, refused, errors.New("not mapped"), GotThrough},
		{"the attack needs no commit", API, refused, through, nil, Stopped},
	} {
		e := newFakeEnv(interceptor.Funcs{})
		other := *e
		other.suffix, other.unplanted = "-2", tc.unplanted
		other.Repository = &discovery.Repository{URL: "https://git.example.com/team/infra", Branch: "main", Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "team", Name: "infra"}}
		e.deliveries = []*Scenario{&other}
		f := e.tryAll(t.Context(), Attack{ID: "I11", Via: tc.via, Run: func(_ context.Context, e *Scenario) Finding {
			if e.suffix != "" {
				return tc.other
			}
			return tc.first
		}})
		if f.Outcome != tc.want || tc.first.Outcome == Stopped && tc.want == GotThrough && !strings.Contains(f.Evidence, "team/infra#main, which Flux applies for Kustomization/team/infra without an account") {
			t.Errorf("%s: got %+v, want %s", tc.reason, f, tc.want)
		}
	}
}

// A tenant attacks through each repository that Flux applies with rights that its first account lacks.
func TestPrepareDeliveries(t *testing.T) {
	t.Parallel()
	first := discovery.Account{Namespace: "team", Name: "team"}
	repository := func(name, account string) discovery.Repository {
		return discovery.Repository{URL: "https://git.example.com/team/" + name, Branch: "main", Account: discovery.Account{Namespace: "team", Name: account}}
	}
	e := newFakeEnv(interceptor.Funcs{})
	e.Tenant.Synced = true
	vendor, platform, remote := repository("x", ""), repository("y", ""), repository("z", "")
	vendor.URL, platform.OfPlatform, remote.Remote = "https://git.example.org/vendor/program", true, true
	e.Tenant.Repositories = []discovery.Repository{repository("apps", first.Name), repository("same", first.Name), repository("weak", "nobody"), vendor, platform, remote, repository("infra", ""), repository("more", "")}
	e.Repository = &e.Tenant.Repositories[0]
	if err := e.prepareDeliveries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(e.deliveries) != 1 || e.deliveries[0].Repository.URL != "https://git.example.com/team/infra" || e.deliveries[0].unplanted == nil {
		t.Errorf("got %d deliveries", len(e.deliveries))
	}
}

// Repositories beyond the maximum are not forgotten: what they could do is not proven.
func TestPrepareManyDeliveries(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{})
	e.Tenant.Synced = true
	for i := range maxDeliveries + 3 {
		account := discovery.Account{Namespace: "team", Name: fmt.Sprint("account-", i)}
		e.Tenant.Repositories = append(e.Tenant.Repositories, discovery.Repository{URL: fmt.Sprint("https://git.example.com/team/", i), Branch: "main", Account: account})
		e.Tenant.Holders = append(e.Tenant.Holders, discovery.Holder{Owner: discovery.Owner{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}, Rights: make([]discovery.Right, 1), Policies: []string{account.Name}})
	}
	e.Repository = &e.Tenant.Repositories[0]
	if err := e.prepareDeliveries(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(e.deliveries); n != maxDeliveries+1 {
		t.Fatalf("got %d deliveries, want %d", n, maxDeliveries+1)
	}
	if err := e.deliveries[maxDeliveries].unplanted; err == nil || !strings.Contains(err.Error(), "at most 3 further repositories") {
		t.Errorf("the last delivery: %v", err)
	}
}

// A tenant's name may be no part of an object's name.
func TestNamesOfTenant(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, tenant := range []string{"team", "Team_A.x", "Team_A.y", strings.Repeat("a", 63), strings.Repeat("a", 62) + "b"} {
		e := newFakeEnv(interceptor.Funcs{})
		e.Tenant.Name = tenant
		got := name(e.ofTenant("i4-git-own"))
		if len(validation.IsDNS1123Label(got)) > 0 || seen[got] {
			t.Errorf("%s: got %s", tenant, got)
		}
		seen[got] = true
	}
}
