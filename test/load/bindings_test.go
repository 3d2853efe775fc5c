package load

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bindingPairs is the number of pairs of requests for a median. The measured difference is
// tens of microseconds, and grows to hundreds.
const bindingPairs = 3000

// BenchmarkBindings measures how the rights of many tenants' owners slow down the requests
// of all other users: Kubernetes' RBAC authorizer goes through all ClusterRoleBindings for
// each request, and each tenant with owners has one. The benchmark sends pairs of requests
// that differ only in whether RBAC decides about them, with the ClusterRoleBindings of no,
// of 1,000 and of 3,000 tenants. It reports the median of the differences, and the growth
// for each ClusterRoleBinding.
func BenchmarkBindings(b *testing.B) {
	fast := unbounded(startBare(b).REST)
	admin, err := client.New(fast, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	by := [2]client.Client{}
	for i, as := range []rest.ImpersonationConfig{{UserName: "ann", Groups: []string{"system:masters"}}, {UserName: "ann"}} {
		config := rest.CopyConfig(fast)
		config.Impersonate = as
		if by[i], err = client.New(config, client.Options{}); err != nil {
			b.Fatal(err)
		}
	}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ann"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ann"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "ann"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "ann"}}},
	} {
		if err := admin.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	var added []estimate
	sizes := []int{0, 1000, 3000}
	for i, tenants := range sizes {
		if i > 0 {
			bindOwners(b, admin, sizes[i-1], tenants)
		}
		settle(b, admin)
		e := decided(b, by)
		added = append(added, e)
		b.Logf("%d tenants: RBAC takes %.3f ms (95 %%: %.3f to %.3f)", tenants, e.median, e.low, e.high)
		b.ReportMetric(1000*e.median, fmt.Sprintf("us-rbac-%d", tenants))
	}
	last := len(sizes) - 1
	b.ReportMetric(1000*(added[last].median-added[0].median)/float64(sizes[last]), "us/binding")
	b.ReportMetric(0, "ns/op")
}

// bindOwners gives owners their rights, as the manager does.
func bindOwners(b *testing.B, admin client.Client, from, to int) {
	b.Helper()
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := from; i < to; i++ {
		group.Go(func() error {
			t := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenantName(i)}}
			t.Spec.Owners = []v1alpha1.Owner{{Kind: rbacv1.UserKind, Name: t.Name}, {Kind: rbacv1.GroupKind, Name: t.Name + "-team"}}
			for _, o := range tenancy.Cluster(t, &v1alpha1.TenancyProfile{}, nil) {
				if err := admin.Create(ctx, o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

// decided returns the median of the additional time of the second client's requests, which
// RBAC has to authorize.
func decided(b *testing.B, by [2]client.Client) estimate {
	b.Helper()
	key := client.ObjectKey{Namespace: "default", Name: "kube-root-ca.crt"}
	get := func(side int) error { return by[side].Get(b.Context(), key, &corev1.ConfigMap{}) }
	testwait.For(b, "the right to read", time.Minute, func() (bool, string) {
		err := get(1)
		return err == nil, fmt.Sprint(err)
	})
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	random := rand.New(rand.NewPCG(1, 2)) // the same order each time
	var differences []time.Duration
	for i := range warmUp + bindingPairs {
		var took [2]time.Duration
		first := random.IntN(2)
		for _, side := range []int{first, 1 - first} {
			began := time.Now()
			if err := get(side); err != nil {
				b.Fatal(err)
			}
			took[side] = time.Since(began)
		}
		if i >= warmUp {
			differences = append(differences, took[1]-took[0])
		}
	}
	return medianOf(differences)
}
