package catalog

import (
	"context"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestArtifactList checks that a server that refuses the list of artifacts stops the attack only if it refuses an
// artifact by its name too.
func TestArtifactList(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(Catalogue(), func(a Attack) bool { return a.Key() == "S16-git" })
	attack := Catalogue()[i]
	const byProxy, unknown, applied = "HTTP Error: status code 421 (Misdirected Request)", "HTTP Error: status code 403 (Forbidden)", ""
	for reason, tc := range map[string]struct {
		list, latest string
		outcome      Outcome
		control      string
	}{
		"source-controller answers every request":           {list: applied, latest: applied, outcome: GotThrough},
		"the artifact proxy refuses both":                   {list: byProxy, latest: byProxy, outcome: Stopped, control: artifactProxy},
		"a proxy passes names":                              {list: byProxy, latest: applied, outcome: GotThrough},
		"a server without lists passes names":               {list: unknown, latest: applied, outcome: GotThrough},
		"a server refuses both, for a reason of its own":    {list: unknown, latest: unknown, outcome: NotProven},
		"the artifact proxy, and a source without artifact": {list: byProxy, latest: unknown, outcome: NotProven},
	} {
		answers := map[string]string{"aimed": tc.list, latestFolder: tc.latest, "own": applied}
		var created client.Object
		var e *Scenario
		e = newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == "Kustomization" {
				created = o
				at, _, _ := unstructured.NestedString(u.Object, "spec", "path")
				if path.Base(at) != "own" && answers[path.Base(at)] == applied && strings.Contains(at, folder(attack.Key())) {
					if err := e.Admin.Create(ctx, configMap("team", name("s16"))); err != nil {
						return err
					}
				}
			}
			return c.Create(ctx, o, opts...)
		}}, object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", "apps", map[string]any{"spec": map[string]any{"serviceAccountName": "team"}}))
		e.Root = flux.Ref{Kind: flux.GitRepository, Namespace: "flux-system", Name: "fleet"}
		e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
			u := created.DeepCopyObject().(*unstructured.Unstructured)
			at, _, _ := unstructured.NestedString(u.Object, "spec", "path")
			condition := map[string]any{"type": "Ready", "status": "True", "message": "Applied revision"}
			if message := answers[path.Base(at)]; message != applied {
				condition = map[string]any{"type": "Ready", "status": "False", "reason": "BuildFailed", "message": message}
			}
			u.Object["status"] = map[string]any{"conditions": []any{condition}}
			w := watch.NewFakeWithChanSize(1, false)
			w.Add(u)
			return w, nil
		}})
		e.Repository = &discovery.Repository{Kustomization: flux.Ref{Kind: flux.Kustomization, Namespace: "team", Name: "apps"}}
		if got := attack.Run(t.Context(), e); got.Outcome != tc.outcome || got.Control != tc.control {
			t.Errorf("%s: got %q by %q (%s%s), want %q by %q", reason, got.Outcome, got.Control, got.Evidence, got.Reason, tc.outcome, tc.control)
		}
		if files := attack.Files(e); !strings.Contains(files["latest/kustomization.yaml"], "http://source-controller.flux-system.svc.cluster.local./gitrepository/flux-system/fleet/latest.tar.gz") {
			t.Errorf("the file with the name is %s", files["latest/kustomization.yaml"])
		}
	}
}
