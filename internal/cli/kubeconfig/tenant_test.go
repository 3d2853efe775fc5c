package kubeconfig

import (
	"context"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/ui"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestWithoutTenure checks that the error on a cluster without the kind Tenant names the cause and the way out.
func TestWithoutTenure(t *testing.T) {
	t.Parallel()
	missing := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Tenant"}}
	}}
	kube := fake.NewClientBuilder().WithInterceptorFuncs(missing).Build()
	o := &options{tenant: "dev-team"}
	_, err := o.find(t.Context(), kube)
	for name, err := range map[string]error{"an account": err, "a person": o.person(t.Context(), kube, nil), "people who log in": o.loginFile(t.Context(), kube, nil)} {
		if err == nil || !strings.Contains(err.Error(), "is Tenure installed?") || len(ui.Hints(err)) != 1 {
			t.Errorf("%s: got %v with the hints %q", name, err, ui.Hints(err))
		}
	}
}
