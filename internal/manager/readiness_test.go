package manager

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
			if _, ok := o.(*coordinationv1.Lease); ok {
				return nil
			}
			var all client.CreateOptions
			all.ApplyOptions(options)
			if _, ok := o.(*v1alpha1.TenantParameters); !ok || o.GetNamespace() != "flux-system" || len(all.DryRun) == 0 {
				t.Errorf("the check creates %T %s/%s, dry run: %v", o, o.GetNamespace(), o.GetName(), all.DryRun)
			}
			return answer
		},
	}).Build()
	rules := &rulesEnforced{kube: kube, namespace: "flux-system"}
	check := (&parametersFound{kube: kube, namespace: "flux-system", rules: rules}).check
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
	rules.proven.Store(true)
	if err := check(request); !errors.Is(err, errParametersNotFound) {
		t.Errorf("the rules are enforced, and the kind is not found: %v", err)
	}
	answer = nil
	if err := check(request); err != nil {
		t.Errorf("the rules are enforced, and the kind is found: %v", err)
	}
	answer = forbidden("failed to find resource referenced by paramKind: 'x'")
	if err := check(request); err != nil {
		t.Errorf("after that, the check asks no more, which every audit log would show: %v", err)
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

// TestTenantsWaitForTheRules checks that the manager asks with its own rights, that it understands the API
// server, and that it creates nothing of a Tenant before the API server enforces the last policy.
func TestTenantsWaitForTheRules(t *testing.T) {
	t.Parallel()
	restConfig := testcluster.Start(t, localcluster.Options{}).REST
	admin := newClient(t, restConfig, rest.ImpersonationConfig{})
	lowest := install(t, restConfig)
	policies, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: lastPolicy}}
	if err := errors.Join(policies.Delete(t.Context(), binding), catalog.AwaitPolicies(t.Context(), policies, "in-force")); err != nil {
		t.Fatal(err)
	}
	own, err := client.New(lowest, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/readyz", nil)
	rules := &rulesEnforced{kube: own, namespace: "flux-system"}
	if err := rules.check(request); !errors.Is(err, errNotEnforced) {
		t.Errorf("without the policy: got %v, want %v", err, errNotEnforced)
	}
	ended := make(chan error, 1)
	ctx := t.Context() // ends before the cleanup runs
	go func() {
		ended <- Run(ctx, lowest, Options{
			MetricsAddr: "0", HealthAddr: "0", WebhookAddr: "0", Namespace: "flux-system", Instance: "test", TokenLifetime: time.Hour, another: true,
		})
	}()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
	})
	create(t, admin, tenantManifest("early", "{owners: [{kind: User, name: ann}], namespaces: {create: [early]}}"))
	condition := func() *metav1.Condition {
		tenant := &v1alpha1.Tenant{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: "early"}, tenant); err != nil {
			t.Fatal(err)
		}
		return apimeta.FindStatusCondition(tenant.Status.Conditions, "Ready")
	}
	testwait.For(t, "the Tenant to wait for the rules", patience, func() (bool, string) {
		is := condition()
		return is != nil && is.Status == metav1.ConditionFalse && strings.Contains(is.Message, "does not enforce the rules"), fmt.Sprint(is)
	})
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "early"}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace of a Tenant that waits for the rules: %v", err)
	}
	testcluster.Apply(t, restConfig, func(o *unstructured.Unstructured) bool { return o.GetName() == lastPolicy }, config.Manager())
	testwait.For(t, "the Tenant to be ready", patience, func() (bool, string) {
		is := condition()
		return is.Status == metav1.ConditionTrue, fmt.Sprint(is)
	})
	if err := rules.check(request); err != nil {
		t.Errorf("with the policy: %v", err)
	}
}
