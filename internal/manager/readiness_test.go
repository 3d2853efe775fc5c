package manager

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestParametersFound checks the readiness while the API server does not know the profile's kind, and
// after that.
func TestParametersFound(t *testing.T) {
	t.Parallel()
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "tenantparameters"}, "x", errors.New(reason))
	}
	var answer error
	kube := fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.CreateOption) error {
			var all client.CreateOptions
			all.ApplyOptions(options)
			if _, ok := o.(*v1alpha1.TenantParameters); !ok || o.GetNamespace() != "flux-system" || len(all.DryRun) == 0 {
				t.Errorf("the check creates %T %s/%s, dry run: %v", o, o.GetNamespace(), o.GetName(), all.DryRun)
			}
			return answer
		},
	}).Build()
	check := (&parametersFound{kube: kube, namespace: "flux-system"}).check
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)
	for _, tt := range []struct {
		reason       string
		answer, want error
	}{
		{"the kind is not found", forbidden("ValidatingAdmissionPolicy 'tenure-manager-parameters' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'tenure.dev/v1alpha1, Kind=TenancyProfile'"), errParametersNotFound},
		{"it is not found yet", forbidden("failed to find resource referenced by paramKind: 'tenure.dev/v1alpha1, Kind=TenancyProfile'"), errParametersNotFound},
		{"the API server does not answer", context.DeadlineExceeded, context.DeadlineExceeded},
		{"it is found", nil, nil},
		{"the API server does not answer any more", context.DeadlineExceeded, nil},
		{"a refusal for another reason", forbidden("another reason"), nil},
		{"the rules were installed later", forbidden("failed to find resource referenced by paramKind: 'x'"), errParametersNotFound},
	} {
		answer = tt.answer
		if err := check(request); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.reason, err, tt.want)
		}
	}
}
