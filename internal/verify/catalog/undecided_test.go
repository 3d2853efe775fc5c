package catalog

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestUndecided checks that what a controller says before it has read an attack's files is no answer, also
// if the watch of the answer ends in between.
func TestUndecided(t *testing.T) {
	t.Parallel()
	const denied = `clusterrolebindings.rbac.authorization.k8s.io is forbidden: User "x" cannot create resource`
	release := func(change func(spec map[string]any)) *unstructured.Unstructured {
		spec := map[string]any{"chart": map[string]any{"spec": map[string]any{"chart": "./tenure-attack/i4", "sourceRef": map[string]any{"kind": "GitRepository", "name": "x"}}}}
		if change != nil {
			change(spec)
		}
		return object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "team", "x", map[string]any{"spec": spec})
	}
	sync := func(path, namespace string) *unstructured.Unstructured {
		ref := map[string]any{"kind": "GitRepository", "name": "x"}
		if namespace != "" {
			ref["namespace"] = namespace
		}
		return object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", "x", map[string]any{"spec": map[string]any{"path": path, "sourceRef": ref}})
	}
	const noChart = `could not get Source object: HelmChart.source.toolkit.fluxcd.io "team-x" not found`
	const noFolder = "kustomization path not found: stat /tmp/x/tenure-attack/i4: no such file or directory"
	for name, tc := range map[string]struct {
		reason string
		object *unstructured.Unstructured
		first  string
		final  bool
	}{
		"a chart that the cache does not have": {"helm-controller has just made it", release(nil), noChart, false},
		"a chart of another namespace": {"that it was looked for is what the attack asks", release(func(spec map[string]any) {
			delete(spec, "chart")
			spec["chartRef"] = map[string]any{"kind": "HelmChart", "name": "x", "namespace": "flux-system"}
		}), noChart, true},
		"an artifact from before the commit":  {"the folder comes with the next one", sync("./tenure-attack/i4", ""), noFolder, false},
		"a folder that is missing on purpose": {"this is how far the attack came", sync("./"+missingFolder, ""), noFolder, true},
		"a source of another namespace":       {"this is how far the attack came", sync("./tenure-attack/i4", "flux-system"), noFolder, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says := func(reason, message string) *unstructured.Unstructured {
				u := tc.object.DeepCopy()
				u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "False", "reason": reason, "message": message}}}
				return u
			}
			watches := 0
			e := newFakeEnv(interceptor.Funcs{})
			e.Admin = interceptor.NewClient(e.Admin, interceptor.Funcs{
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					events := watch.NewFakeWithChanSize(2, false)
					if watches++; watches == 1 {
						events.Modify(says("ArtifactFailed", tc.first))
						events.Error(&metav1.Status{Reason: metav1.StatusReasonExpired})
						return events, nil
					}
					events.Modify(says("InstallFailed", denied))
					return events, nil
				},
			})
			want := readiness{metav1.ConditionFalse, denied}
			if tc.final {
				want.message = tc.first
			}
			got, err := e.awaitCondition(t.Context(), tc.object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(readiness{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
