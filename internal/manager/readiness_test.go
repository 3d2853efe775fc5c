package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
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

// TestRulesEnforced checks the readiness before and after the API server refuses the Lease.
func TestRulesEnforced(t *testing.T) {
	t.Parallel()
	var answer error
	kube := fake.NewClientBuilder().WithScheme(newScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, options ...client.CreateOption) error {
			var all client.CreateOptions
			all.ApplyOptions(options)
			if _, ok := o.(*coordinationv1.Lease); !ok || o.GetNamespace() != "flux-system" || len(all.DryRun) == 0 {
				t.Errorf("the check creates %T %s/%s, dry run: %v", o, o.GetNamespace(), o.GetName(), all.DryRun)
			}
			return answer
		},
	}).Build()
	check := (&rulesEnforced{kube: kube, namespace: "flux-system"}).check
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)
	noRight := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, lastPolicy, errors.New("cannot create resource"))
	for _, tt := range []struct {
		reason       string
		answer, want error
	}{
		{"the API server admits the Lease", nil, errNotEnforced},
		{"it does not answer", context.DeadlineExceeded, context.DeadlineExceeded},
		{"it refuses the Lease for another reason", noRight, noRight},
		{"the policy refuses it", errors.New("leases \"tenure-enforced\" is forbidden: ValidatingAdmissionPolicy 'tenure-enforced' with binding 'tenure-enforced' denied request: x"), nil},
		{"it does not answer any more", context.DeadlineExceeded, nil},
		{"somebody has deleted the policy since", nil, nil},
	} {
		answer = tt.answer
		if err := check(request); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.reason, err, tt.want)
		}
	}
}

// TestRulesEnforcedByAPIServer checks that the manager has the right to ask, and that it understands the
// API server, which enforces a policy some time after its creation.
func TestRulesEnforcedByAPIServer(t *testing.T) {
	t.Parallel()
	_, restConfig := cluster(t)
	account := "system:serviceaccount:flux-system:tenure-manager"
	own := newClient(t, restConfig, rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}})
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)
	ready := func() error { return (&rulesEnforced{kube: own, namespace: "flux-system"}).check(request) }
	if err := ready(); err != nil {
		t.Errorf("with the policy: %v", err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: lastPolicy}}
	admin, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the manager to be unready without the policy", patience, func() (bool, string) {
		err := ready()
		return errors.Is(err, errNotEnforced), fmt.Sprint(err)
	})
	testcluster.Apply(t, restConfig, testcluster.WithoutControllers, config.Manager())
	testwait.For(t, "the manager to be ready with the policy", patience, func() (bool, string) {
		err := ready()
		return err == nil, fmt.Sprint(err)
	})
}
