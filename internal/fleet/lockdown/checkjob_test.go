package lockdown_test

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestCheckJob checks that the CronJob has the manager's image, that a cluster in warn mode tells it so,
// and that the first step of the way back keeps the patch for it.
func TestCheckJob(t *testing.T) {
	t.Parallel()
	dir := small(t, nil)
	yes, no := true, false
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Warn: new(true), Check: &yes, ManagerImage: "registry.example.com/x:1"})
	files := read(t, dir)
	const job, list = "infrastructure/tenure/manager/check.yaml", "infrastructure/tenure/manager/kustomization.yaml"
	for _, want := range []string{"image: registry.example.com/x:1", "- --mode=enforce"} {
		if !strings.Contains(files[job], want) {
			t.Errorf("%q is missing in\n%s", want, files[job])
		}
	}
	if !strings.Contains(files[list], "- check.yaml") {
		t.Errorf("the CronJob is not applied:\n%s", files[list])
	}
	for _, step := range []struct {
		reason  string
		options lockdown.Options
		want    []string
	}{
		{"warn mode", lockdown.Options{Tenants: true, Warn: new(true)}, []string{"CronJob"}},
		{"the way back", lockdown.Options{}, []string{"CronJob", "Deployment"}},
	} {
		apply(t, dir, "clusters/one", step.options)
		if got := strings.Join(patched(t, read(t, dir)[folder+"tenure/sync.yaml"]), ", "); got != strings.Join(step.want, ", ") {
			t.Errorf("%s: the patches are for %s, want %v", step.reason, got, step.want)
		}
	}
	apply(t, dir, "clusters/one", lockdown.Options{Tenants: true, Check: &no, Warn: new(false)})
	files = read(t, dir)
	if _, there := files[job]; there || strings.Contains(files[list], "check.yaml") {
		t.Errorf("the CronJob is still there:\n%s", files[list])
	}
	if got := patched(t, files[folder+"tenure/sync.yaml"]); len(got) > 0 {
		t.Errorf("in enforce mode there are patches for %v", got)
	}
}

// patched returns the kinds that the patches of the manager's Kustomization are for.
func patched(t *testing.T, manifests string) (kinds []string) {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatalf("%v\n%s", err, manifests)
	}
	for _, o := range objects {
		if o.GetName() != "tenure-manager" {
			continue
		}
		patches, _, _ := unstructured.NestedSlice(o.Object, "spec", "patches")
		for _, p := range patches {
			kind, _, _ := unstructured.NestedString(p.(map[string]any), "target", "kind")
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
