package catalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A costly expression gets through in each field that no policy bounds.
func TestCostlyExpressions(t *testing.T) {
	t.Parallel()
	const policy = "ValidatingAdmissionPolicy 'bounds' with binding 'bounds' denied request: needs a simpler expression"
	for _, tc := range []struct {
		reason string
		// open are parts of the fields that the policy leaves out.
		open string
		want Outcome
	}{
		{"the policy bounds every field", "none", Stopped},
		{"not the conditions of dependencies", "readyExpr", GotThrough},
		{"not the health checks", "healthCheckExprs", GotThrough},
		{"not the filter of a Receiver", "resourceFilter", GotThrough},
		{"not the expressions about the token of a Receiver's caller", "oidcProviders", GotThrough},
		{"not the template of a commit message", "messageTemplate", GotThrough},
	} {
		e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			content := fmt.Sprint(o)
			if (strings.Contains(content, costly) || strings.Contains(content, costlyMessage)) && !strings.Contains(content, tc.open) {
				return forbidden(policy)
			}
			return c.Create(ctx, o, opts...)
		}})
		if f := expressions(t.Context(), e); f.Outcome != tc.want {
			t.Errorf("%s: got %s %s %s", tc.reason, f.Outcome, f.Reason, f.Evidence)
		}
	}
}

// A3 tries to include a repository in a GitRepository, and not where the tenant has a disk of its own.
func TestInclusions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, refused string
		want            Outcome
	}{
		{"no policy looks at inclusions", "nothing", GotThrough},
		{"a policy refuses them", "include:", Stopped},
		{"a policy that refuses every GitRepository says nothing about them", "GitRepository", NotProven},
	} {
		e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if strings.Contains(fmt.Sprint(o), tc.refused) {
				return forbidden("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no")
			}
			return c.Create(ctx, o, opts...)
		}})
		if f := inclusions(t.Context(), e); f.Outcome != tc.want {
			t.Errorf("%s: got %+v, want %s", tc.reason, f, tc.want)
		}
	}
}
