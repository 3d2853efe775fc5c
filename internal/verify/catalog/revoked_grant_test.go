package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// grantManager simulates the manager: share is called when a source first has a revision, end when a grant
// is deleted, and later when another grant is created.
type grantManager struct {
	share, end, later func(context.Context, client.Client) error
}

// play lets the manager act on what an admin does.
func (m grantManager) play(admin client.WithWatch) client.WithWatch {
	act := func(ctx context.Context, c client.Client, do func(context.Context, client.Client) error) error {
		if do == nil {
			return nil
		}
		return do(ctx, c)
	}
	offered := false
	return interceptor.NewClient(admin, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetGeneration(1)
			if err := c.Create(ctx, o, opts...); err != nil || !strings.HasSuffix(o.GetName(), "-later") {
				return err
			}
			return act(ctx, c, m.later)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.Delete(ctx, o, opts...); err != nil || o.GetObjectKind().GroupVersionKind().Kind != "SourceGrant" || strings.HasSuffix(o.GetName(), "-later") {
				return err
			}
			return act(ctx, c, m.end)
		},
		// The fake client knows no status of its kinds.
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			if err := c.Patch(ctx, o, patch); err != nil || offered {
				return err
			}
			offered = true
			return act(ctx, c, m.share)
		},
	})
}

// TestKeepsWhatWasGranted checks that the attack gets through only if the manager has reconciled the grants
// and left the copy.
func TestKeepsWhatWasGranted(t *testing.T) {
	t.Parallel()
	source := name("s11-team")
	copied := func() *unstructured.Unstructured {
		return object("source.toolkit.fluxcd.io/v1", "ExternalArtifact", "team", VictimNamespace+"."+source, map[string]any{
			"status": map[string]any{"artifact": map[string]any{"revision": "main@sha1:1"}},
		})
	}
	share := func(ctx context.Context, c client.Client) error { return c.Create(ctx, copied()) }
	end := func(ctx context.Context, c client.Client) error { return c.Delete(ctx, copied()) }
	looks := func(ctx context.Context, c client.Client) error {
		later := object("tenure.dev/v1alpha1", "SourceGrant", VictimNamespace, source+"-later", nil)
		return c.Patch(ctx, later, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"observedGeneration":1}}`)))
	}
	for name, tc := range map[string]struct {
		reason  string
		manager grantManager
		broken  error         // what the API server says of the copy after the grant went
		takes   time.Duration // how long it takes for that
		outcome Outcome
	}{
		"works":    {reason: "what was given goes with the grant", manager: grantManager{share, end, nil}, outcome: Stopped},
		"in order": {reason: "or when the manager has looked", manager: grantManager{share, nil, end}, outcome: Stopped},
		"keeps":    {reason: "a manager that has looked and left it", manager: grantManager{share, nil, looks}, outcome: GotThrough},
		"slow":     {reason: "an answer that the wait is too short for is asked for again", manager: grantManager{share, nil, looks}, takes: 70 * time.Millisecond, outcome: GotThrough},
		"late":     {reason: "a manager that has not looked yet proves nothing", manager: grantManager{share, nil, nil}, outcome: NotProven},
		"none":     {reason: "without a manager nothing is given", outcome: NotProven},
		"outage":   {reason: "an API server that does not answer keeps nothing", manager: grantManager{share, nil, looks}, broken: errors.New("connection reset"), outcome: NotProven},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newFakeEnv(interceptor.Funcs{})
				taken := false
				if tc.broken != nil || tc.takes > 0 {
					tc.manager.end = func(context.Context, client.Client) error { taken = true; return nil }
				}
				e.Admin = interceptor.NewClient(tc.manager.play(e.Admin), interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						if taken && key.Namespace == "team" {
							select {
							case <-time.After(tc.takes):
							case <-ctx.Done():
								return ctx.Err()
							}
							if tc.broken != nil {
								return tc.broken
							}
						}
						return c.Get(ctx, key, o, opts...)
					},
				})
				got := keepsWhatWasGranted(t.Context(), e)
				if got.Outcome != tc.outcome {
					t.Errorf("%s: got %q (%s%s%s), want %q", tc.reason, got.Outcome, got.Message, got.Evidence, got.Reason, tc.outcome)
				}
				for _, kind := range []string{"SourceGrant", "GitRepository"} {
					list := &unstructured.UnstructuredList{}
					list.SetGroupVersionKind(object("source.toolkit.fluxcd.io/v1", kind, "", "", nil).GroupVersionKind())
					if kind == "SourceGrant" {
						list.SetGroupVersionKind(grantOf(copied(), "", nil).GroupVersionKind())
					}
					if err := e.Admin.List(t.Context(), list); err != nil || len(list.Items) > 0 {
						t.Errorf("%s: left behind are %d of kind %s: %v", tc.reason, len(list.Items), kind, err)
					}
				}
			})
		})
	}
}
