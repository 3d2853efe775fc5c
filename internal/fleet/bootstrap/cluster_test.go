package bootstrap

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestCheckClusterTooOld checks a bare cluster of several versions, before bootstrap writes anything.
func TestCheckClusterTooOld(t *testing.T) {
	t.Parallel()
	// As an admin's cluster answers.
	admin := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
				review.Status.Allowed = true
				return nil
			}
			t.Errorf("it creates %T", o)
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	const policy = "ValidatingAdmissionPolicy"
	for _, tt := range []struct {
		reason, version, served, want string
	}{
		{"the oldest version", "v1.33.0", policy, ""},
		{"it refuses expressions of the rules", "v1.32.9", policy, "Kubernetes: v1.32.9 refuses Tenure's kinds or rules: update it to 1.33 or newer"},
		{"the policies are switched off", "v1.34.0", "Other", "ValidatingAdmissionPolicy: not served"},
	} {
		disco := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: tt.version}}
		disco.Resources = []*metav1.APIResourceList{{
			GroupVersion: "admissionregistration.k8s.io/v1",
			APIResources: []metav1.APIResource{{Kind: tt.served}},
		}}
		b := &bootstrapper{kube: admin, disco: disco}
		err := b.checkCluster(t.Context())
		if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, ErrCluster) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: want the error %q, got %v", tt.reason, tt.want, err)
		}
	}
}
