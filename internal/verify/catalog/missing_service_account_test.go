package catalog

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The fix names each sync without an account, and the account that it should name.
func TestSyncsWithoutAccount(t *testing.T) {
	t.Parallel()
	sync := func(namespace, name string) flux.Ref {
		return flux.Ref{Kind: flux.Kustomization, Namespace: namespace, Name: name}
	}
	e := newFakeEnv(interceptor.Funcs{},
		object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "apps", "team", map[string]any{"spec": map[string]any{"path": "./"}}),
		object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "web", "web", map[string]any{"spec": map[string]any{"serviceAccountName": "web"}}),
		object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "bare", "bare", map[string]any{"spec": map[string]any{}}),
	)
	of := func(namespace, name, account string) discovery.Tenant {
		return discovery.Tenant{
			Name: name, Accounts: []discovery.Account{{Namespace: "elsewhere", Name: "x"}, {Namespace: namespace, Name: account}},
			Repositories: []discovery.Repository{{Kustomization: sync(namespace, name)}},
		}
	}
	e.tenants = []discovery.Tenant{of("apps", "team", "reconciler"), of("web", "web", "web"), of("bare", "bare", "default"), of("gone", "gone", "gone")}
	want := []string{
		"Kustomization/apps/team (to reconciler)",
		"Kustomization/bare/bare (to an account of namespace bare with rights in the tenant's namespaces only)",
	}
	if diff := cmp.Diff(want, e.syncsWithoutAccount(t.Context())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The fix names the account that the tenant's sync names, and otherwise the syncs without an account.
func TestFixOfSyncs(t *testing.T) {
	t.Parallel()
	e := newFakeEnv(interceptor.Funcs{}, object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "bare", "bare", map[string]any{"spec": map[string]any{}}))
	if got := e.fixOfSyncs(t.Context()); got != "" {
		t.Errorf("without a sync: got %q", got)
	}
	e.tenants = []discovery.Tenant{{Name: "bare", Repositories: []discovery.Repository{{Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "bare", Name: "bare"}}}}}
	if got, want := e.fixOfSyncs(t.Context()), "set spec.serviceAccountName in Kustomization/bare/bare (to "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q first", got, want)
	}
	e.sync = map[string]any{"serviceAccountName": "operator"}
	if got, want := e.fixOfSyncs(t.Context()), "names the account operator, which has rights in other namespaces"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}
