package catalog

import (
	"context"
	"testing"

	"github.com/tenure-dev/tenure/internal/discovery"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// I7 takes an answer about the content of a patch for a read namespace, from people and groups only.
func TestReadsByPatch(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "canary", nil)
	for _, tc := range []struct {
		reason string
		owner  *discovery.Owner
		answer error
		want   Outcome
	}{
		{"the API server decoded the namespace", &discovery.Owner{Kind: "User", Name: "ann"}, invalid, GotThrough},
		{"the same, with another code", &discovery.Owner{Kind: "Group", Name: "team"}, apierrors.NewBadRequest("no"), GotThrough},
		{"RBAC refuses it", &discovery.Owner{Kind: "User", Name: "ann"}, forbidden(`User "ann" cannot patch resource "namespaces" in API group "" in the namespace "canary"`), Stopped},
	} {
		e := newFakeEnv(interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return tc.answer
		}})
		e.Owner = tc.owner
		all := readsByPatch(e)
		if len(all) != 1 {
			t.Fatalf("%s: got %d requests", tc.reason, len(all))
		}
		if f := judge(all[0].aimed(t.Context(), e), ""); f.Outcome != tc.want {
			t.Errorf("%s: got %+v, want %s", tc.reason, f, tc.want)
		}
	}
	for _, owner := range []*discovery.Owner{nil, {Kind: "ServiceAccount", Namespace: "team", Name: "ci"}} {
		if all := readsByPatch(&Scenario{Owner: owner}); len(all) > 0 {
			t.Errorf("%v tries it, although Flux needs the right for it", owner)
		}
	}
}
