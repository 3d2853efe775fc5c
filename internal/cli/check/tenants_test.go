package check

import (
	"bytes"
	"context"
	appsv1 "k8s.io/api/apps/v1"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/ui"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestFewerRights checks that a user with the rights of the CronJob, who may read no objects of Flux, still
// gets the results, and a note about the missing ones.
func TestFewerRights(t *testing.T) {
	t.Parallel()
	kustomize := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "kustomize-controller", Namespace: "flux-system"}}
	kube := fake.NewClientBuilder().WithObjects(kustomize).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if kind := list.GetObjectKind().GroupVersionKind(); strings.HasPrefix(kind.Kind, "Kustomization") {
				return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "kustomizations"}, "", nil)
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	served := &discoveryfake.FakeDiscovery{Fake: &kubetesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: "v1.36.0"}}
	var errs bytes.Buffer
	results, err := (&options{}).check(t.Context(), ui.IO{Err: &errs}, lockdown.Cluster{Client: kube, Discovery: served, Namespace: "flux-system"})
	if err != nil || len(results) < 10 {
		t.Errorf("got %d results and %v", len(results), err)
	}
	if said := errs.String(); !strings.HasPrefix(said, "note: tenants are found by their labels only") || !strings.Contains(said, "kustomizations") {
		t.Errorf("the note is %q", said)
	}
	for _, r := range results {
		if r.Name == "labels of tenants" || r.Name == "dependencies of the platform" {
			t.Errorf("there is a result for %s: %s", r.Name, r.Message)
		}
	}
}
