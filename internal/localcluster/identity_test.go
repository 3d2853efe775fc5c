package localcluster

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// withIdentity are sources for which Flux got no credentials of a cloud, and one that fails for another reason.
const withIdentity = `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: app, namespace: flux-system, generation: 1}
spec: {interval: 1h, url: "oci://1.dkr.ecr.eu-west-1.amazonaws.com/app", provider: aws}
status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: AuthenticationFailed, lastTransitionTime: "2026-01-01T00:00:00Z", message: failed to get access token for artifact registry}]}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: team, generation: 1}
spec: {type: oci, url: "oci://acme.azurecr.io/charts", provider: azure}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: team-web, namespace: team, generation: 1}
spec: {interval: 1h, chart: web, sourceRef: {kind: HelmRepository, name: charts}}
status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: AuthenticationError, lastTransitionTime: "2026-01-01T00:00:00Z", message: failed to get credential from 'azure'}]}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: plain, namespace: team, generation: 1}
spec: {interval: 1h, url: "https://github.com/acme/plain", provider: generic}
status: {observedGeneration: 1, conditions: [{type: Ready, status: "False", reason: GitOperationFailed, lastTransitionTime: "2026-01-01T00:00:00Z", message: not found}]}
`

// TestSkipCloudIdentities checks which sources are fetched without the credentials of a cloud, and that none
// is once the fleet has settled.
func TestSkipCloudIdentities(t *testing.T) {
	t.Parallel()
	objects, err := flux.ReadObjects([]byte(withIdentity))
	if err != nil {
		t.Fatal(err)
	}
	scheme := flux.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, object := range objects {
		builder = builder.WithObjects(object)
	}
	kube := builder.WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if obj.GetNamespace() != "default" {
				return c.Create(ctx, obj, opts...)
			}
			// As the policy of the API server does.
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				return err
			}
			if err := unstructured.SetNestedField(fields, "generic", "spec", "provider"); err != nil {
				return err
			}
			return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj)
		},
	}).Build()
	c := &Cluster{life: t.Context(), log: slog.New(slog.DiscardHandler), opts: Options{Report: func(err error) { t.Error(err) }}}
	go func() { _ = c.skipCloudIdentities(kube) }()
	policy := &admissionv1.MutatingAdmissionPolicy{}
	testwait.For(t, "the policy with two sources", 20*time.Second, func() (bool, string) {
		if err := kube.Get(t.Context(), client.ObjectKey{Name: "tenure-cloud-identity"}, policy); err != nil {
			return false, err.Error()
		}
		expression := policy.Spec.MatchConditions[0].Expression
		return strings.Contains(expression, `"OCIRepository/flux-system/app"`) && strings.Contains(expression, `"HelmRepository/team/charts"`) && len(c.Fakes()) == 2, expression
	})
	if expression := policy.Spec.MatchConditions[0].Expression; strings.Contains(expression, "plain") {
		t.Errorf("a source without an identity is changed: %s", expression)
	}
	c.Settled()
	rows := []flux.Row{{Kind: flux.OCIRepository, Namespace: "flux-system", Name: "app", State: flux.Failed}}
	if skipped := c.skipCloudIdentitiesOf(kube, rows, nil); len(skipped) > 0 {
		t.Errorf("after the fleet has settled, the source of an attack is changed: %v", skipped)
	}
}

// TestServesWithoutIdentity lists whose credentials are left out.
func TestServesWithoutIdentity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		online bool
		want   bool
	}{
		{"without a network nothing asks for credentials", false, true},
		{"the network may ask", true, false},
	} {
		c := &Cluster{opts: Options{Online: tc.online}}
		if got := c.servesWithoutIdentity("oci://acme.azurecr.io/app"); got != tc.want {
			t.Errorf("%s: got %v", tc.reason, got)
		}
	}
}
