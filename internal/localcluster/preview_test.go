package localcluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestAskSourcesRepeats checks that a change in a folder reaches its source although the API server
// refuses the first requests.
func TestAskSourcesRepeats(t *testing.T) {
	t.Parallel()
	const address = "https://git.example.com/acme/shop"
	repository := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"url": address}}}
	repository.SetGroupVersionKind(flux.GitRepository.GroupVersionKind())
	repository.SetNamespace("shop")
	repository.SetName("shop")
	busy := errors.New("the server is busy")
	lists, patches := 0, 0
	kube := fakeclient.NewClientBuilder().WithScheme(flux.NewScheme()).WithObjects(repository).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if lists++; lists == 1 {
				return busy
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if patches++; patches == 1 {
				return busy
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	life, end := context.WithCancel(t.Context())
	c := &Cluster{life: life, log: slog.New(slog.DiscardHandler)}
	changed := newChangedFolders()
	changed.Add(address)
	ended := make(chan struct{})
	go func() { c.askSources(kube, changed); close(ended) }()
	testwait.For(t, "the source to be asked", time.Minute, func() (bool, string) {
		got := repository.DeepCopy()
		err := kube.Get(t.Context(), client.ObjectKeyFromObject(repository), got)
		return err == nil && got.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] != "", "no request yet"
	})
	end()
	<-ended
	if lists < 3 || patches != 2 {
		t.Errorf("%d lists and %d patches: no request was repeated", lists, patches)
	}
}
