package catalog

import (
	"slices"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A failed health check is no missing right if all objects of the source are applied. Everything
// else that keeps a Kustomization from being ready is one.
func TestAppliedUnhealthy(t *testing.T) {
	t.Parallel()
	const revision = "main@sha1:2"
	condition := func(kind, status, reason, message string, generation int64) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation}
	}
	failed := condition("Ready", "False", "HealthCheckFailed", "timeout waiting for: [Deployment/apps/web status: 'InProgress']", 2)
	entry := func(id, version string) any { return map[string]any{"id": id, "v": version} }
	role, claim := entry("_team__writer_rbac.authorization.k8s.io_ClusterRole", "v1"), entry("apps_env_example.org_Environment", "v1")
	withReady := func(name, status string) client.Object {
		return object("example.org/v1", "Environment", "apps", name, map[string]any{"status": map[string]any{"conditions": []any{condition("Ready", status, "Any", "", 0)}}})
	}
	source := object("source.toolkit.fluxcd.io/v1", "GitRepository", "flux-system", "fleet", map[string]any{"status": map[string]any{"artifact": map[string]any{"revision": revision}}})
	cluster := []client.Object{
		source, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "team:writer"}}, withReady("env", "False"), withReady("done", "True"),
		object("source.toolkit.fluxcd.io/v1", "GitRepository", "apps", "web", map[string]any{"status": map[string]any{"conditions": []any{condition("Ready", "False", "Failed", "", 0)}}}),
	}
	for reason, tc := range map[string]struct {
		revision   string
		conditions []any
		entries    []any
		want       bool
	}{
		"the health check failed":  {revision, []any{failed}, []any{role}, true},
		"it runs":                  {revision, []any{condition("Ready", "Unknown", "Progressing", "Reconciliation in progress", 2), condition("Reconciling", "True", "Progressing", "Running health checks for revision "+revision, 2)}, []any{role}, true},
		"a custom object is ready": {revision, []any{failed}, []any{role, entry("apps_done_example.org_Environment", "v1")}, true},
		"a source is not ready, and what it holds is judged":    {revision, []any{failed}, []any{role, entry("apps_web_source.toolkit.fluxcd.io_GitRepository", "v1")}, true},
		"a custom object may stand for rights":                  {revision, []any{failed}, []any{role, claim}, false},
		"an object is not there any more":                       {revision, []any{failed}, []any{role, entry("_other_rbac.authorization.k8s.io_ClusterRole", "v1")}, false},
		"nothing was applied":                                   {revision, []any{failed}, nil, false},
		"the build failed":                                      {revision, []any{condition("Ready", "False", "BuildFailed", "", 2)}, []any{role}, false},
		"the build failed after an older check":                 {revision, []any{condition("Ready", "False", "BuildFailed", "", 2), condition("Reconciling", "True", "ProgressingWithRetry", "Running health checks for revision main@sha1:1", 2)}, []any{role}, false},
		"an earlier form of it failed":                          {revision, []any{condition("Ready", "False", "HealthCheckFailed", "", 1)}, []any{role}, false},
		"an older revision failed and the new one is not tried": {"main@sha1:1", []any{failed}, []any{role}, false},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "flux-system", "infra", map[string]any{
				"spec":   map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}},
				"status": map[string]any{"lastAttemptedRevision": tc.revision, "conditions": tc.conditions, "inventory": map[string]any{"entries": tc.entries}},
			})
			u.SetGeneration(2)
			e := newFakeEnv(interceptor.Funcs{}, append(slices.Clone(cluster), u)...)
			missing, err := unreadyOf(t.Context(), e.Admin, []discovery.Tenant{e.Tenant})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(missing) == 0; got != tc.want {
				t.Errorf("applied: got %t, want %t", got, tc.want)
			}
		})
	}
}
