package credentials

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// posture is the profile of a cluster, and what is wrong with it.
type posture struct {
	profile *v1alpha1.TenancyProfile
	err     error
}

func (p *posture) Profile(context.Context) (*v1alpha1.TenancyProfile, error) { return p.profile, p.err }

// proxy is where kubeconfigs lead to.
type proxy struct{}

func (proxy) Target(context.Context) (credentials.Target, error) {
	return credentials.Target{Server: "https://proxy:9001", CA: []byte("certificates")}, nil
}

// cluster returns a reconciler of a cluster in memory in which account home/gitops owns
// tenant solar with namespaces apps and more, and asks for credentials in all of them.
func cluster(t *testing.T, profile *posture, funcs interceptor.Funcs) (*Reconciler, *events.FakeRecorder) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	owner := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}}
	owner.Spec.Owners = []v1alpha1.Owner{{Kind: rbacv1.ServiceAccountKind, Namespace: "home", Name: "gitops"}}
	there := []client.Object{
		owner, namespace("apps", "solar"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "home", Labels: map[string]string{v1alpha1.LabelFluxTenant: "solar"}}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gitops", UID: "gitops", Annotations: map[string]string{credentials.Annotation: "tenant"}}},
	}
	funcs.SubResourceCreate = func(_ context.Context, _ client.Client, _ string, _, o client.Object, _ ...client.SubResourceCreateOption) error {
		request, ok := o.(*authenticationv1.TokenRequest)
		if !ok {
			return fmt.Errorf("%T is no request of a token", o)
		}
		request.Status.Token = "word"
		request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
		return nil
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).WithInterceptorFuncs(funcs)
	for _, i := range indexes {
		b = b.WithIndex(i.object, i.name, i.of)
	}
	b = b.WithIndex(&corev1.Namespace{}, indexTenant, func(o client.Object) []string { return []string{o.GetLabels()[v1alpha1.LabelTenant]} })
	c := b.Build()
	recorder := events.NewFakeRecorder(100)
	return &Reconciler{
		Client: c, APIReader: c, Profiles: profile, Targets: proxy{}, Events: recorder,
		Manager: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "tenure-manager"}, Lifetime: time.Hour, Now: time.Now,
	}, recorder
}

func namespace(name, tenant string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if tenant != "" {
		ns.Labels = map[string]string{v1alpha1.LabelTenant: tenant}
	}
	return ns
}

var gitops = reconcile.Request{NamespacedName: plan.Account}

// step reconciles the account.
func step(t *testing.T, r *Reconciler) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), gitops)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// issued are the namespaces with a kubeconfig, and what its token was made by.
func issued(t *testing.T, r *Reconciler) map[string]string {
	t.Helper()
	var secrets corev1.SecretList
	if err := r.APIReader.List(t.Context(), &secrets); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range secrets.Items {
		if len(s.Data[credentials.Key]) > 0 {
			got[s.Namespace] = s.ResourceVersion
		}
	}
	return got
}

// TestRenewWithoutProfile: tokens are replaced while there is no valid profile, and
// nothing else is made or taken away.
func TestRenewWithoutProfile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		broken posture
	}{
		"invalid": {"a mistake in the profile takes no tenant's credentials", posture{err: fmt.Errorf("%w: a mistake", tenancy.ErrInvalid)}},
		"none":    {"what tenants have stays without a profile", posture{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			profile := &posture{profile: &v1alpha1.TenancyProfile{}}
			profile.profile.Spec.Tenants.Bounds.MaxTimeout.Duration = 2 * time.Hour
			r, _ := cluster(t, profile, interceptor.Funcs{})
			step(t, r)
			before := issued(t, r)
			in := &v1alpha1.TenantParameters{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: v1alpha1.ParametersName}}
			in.Spec.TenancyProfileSpec = profile.profile.Spec
			for _, o := range []client.Object{in, namespace("later", "solar")} {
				if err := r.Client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			*profile = tc.broken
			if result := step(t, r); result.RequeueAfter == 0 {
				t.Errorf("%s: nobody looks again", tc.reason)
			}
			if diff := gocmp.Diff(before, issued(t, r)); diff != "" {
				t.Errorf("%s: what is good still is as it was (-want +got):\n%s", tc.reason, diff)
			}
			r.Now = func() time.Time { return time.Now().Add(credentials.MaxLifetime) }
			step(t, r)
			after := issued(t, r)
			for _, at := range []string{"home", "apps"} {
				if before[at] == "" || before[at] == after[at] {
					t.Errorf("%s: the token in namespace %s was not replaced: %v, then %v", tc.reason, at, before, after)
				}
			}
			if after["later"] != "" {
				t.Errorf("%s: a namespace that came meanwhile has a kubeconfig", tc.reason)
			}
		})
	}
}

// TestOwnerNoMore: without a profile, who owns nothing any more gets no new tokens.
func TestOwnerNoMore(t *testing.T) {
	t.Parallel()
	profile := &posture{profile: &v1alpha1.TenancyProfile{}}
	r, _ := cluster(t, profile, interceptor.Funcs{})
	step(t, r)
	before := issued(t, r)
	*profile = posture{}
	if err := r.Client.Delete(t.Context(), &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}}); err != nil {
		t.Fatal(err)
	}
	r.Now = func() time.Time { return time.Now().Add(credentials.MaxLifetime) }
	step(t, r)
	if diff := gocmp.Diff(before, issued(t, r)); diff != "" {
		t.Errorf("a token was replaced (-want +got):\n%s", diff)
	}
}

// TestEverybody: a new profile is a reason to look at accounts that stopped to ask
// while there was none.
func TestEverybody(t *testing.T) {
	t.Parallel()
	r, _ := cluster(t, &posture{profile: &v1alpha1.TenancyProfile{}}, interceptor.Funcs{})
	step(t, r)
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "asks", Annotations: map[string]string{credentials.Annotation: "true"}}}
	if err := r.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := r.Client.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "gitops"}}); err != nil {
		t.Fatal(err)
	}
	got := everybody(t.Context(), r.Client)
	slices.SortFunc(got, func(a, b reconcile.Request) int { return cmp.Compare(a.String(), b.String()) })
	want := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(other)}, gitops}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("who is looked at (-want +got):\n%s", diff)
	}
}
