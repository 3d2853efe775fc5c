package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// podTenants is the number of tenants, and podPairs the number of pairs of requests.
	podTenants, podPairs = 20, 2000
	// podClients is the number of concurrent clients, podRounds the number of rounds for
	// each API server, and podRound the duration of a round.
	podClients, podRounds, podRound = 8, 5, 3 * time.Second
)

// BenchmarkPodCreate compares the dry-run creation of a Pod on two API servers with the
// same program and flags. On the first, the owner of a Tenant creates it in a namespace
// that the manager created and in which all rules apply. On the second, without Tenure, a
// user with the role admin in a namespace creates it. The benchmark measures the time of
// one creation, in pairs in random order, and the creations a second of eight clients, in
// rounds one after the other.
func BenchmarkPodCreate(b *testing.B) {
	bare, ruled := unbounded(startBare(b).REST), unbounded(startBare(b).REST)
	prepareManager(b, ruled)
	m := startManager(b, ruled)
	defer m.stop()
	all := awaitAll(b, ruled, podTenants)
	applyTenants(b, ruled, podTenants)
	m.await(all)
	prepareBare(b, bare)
	var sides [2][]client.Client
	for side, config := range []*rest.Config{bare, ruled} {
		config.WarningHandlerWithContext = rest.NoWarnings{}
		for i := range podTenants {
			sides[side] = append(sides[side], impersonating(b, config, tenantName(i)))
		}
	}
	for side := range sides {
		testwait.For(b, "Pods to be accepted", time.Minute, func() (bool, string) {
			err := createPod(b.Context(), sides[side][podTenants-1], podTenants-1)
			return err == nil, fmt.Sprint(err)
		})
	}
	awaitQuiet(b, ruled)
	create := func(ctx context.Context, side, tenant int) error { return createPod(ctx, sides[side][tenant], tenant) }
	without, with := creationTimes(b, podTenants, create)
	b.ReportMetric(without, "ms-bare")
	b.ReportMetric(with, "ms-tenure")
	b.ReportMetric(with/without, "ratio(max=1.2)")
	bareRate, rate := creationRates(b, podTenants, create)
	b.ReportMetric(bareRate, "bare/s")
	b.ReportMetric(rate, "tenure/s")
	b.ReportMetric(rate/bareRate, "rate-ratio(min=0.85)")
	b.ReportMetric(0, "ns/op")
}

// prepareBare creates a namespace for each user, and a binding that allows the user to
// create Pods.
func prepareBare(b *testing.B, restConfig *rest.Config) {
	b.Helper()
	admin, err := client.New(restConfig, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i := range podTenants {
		namespace := podNamespace(i)
		for _, o := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: tenantName(i)}},
			},
		} {
			if err := admin.Create(b.Context(), o); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func podNamespace(tenant int) string { return tenantName(tenant) + "-a" }

// createPod creates a Pod as a dry run.
func createPod(ctx context.Context, c client.Client, tenant int) error {
	some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return c.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace(tenant), Name: "app", Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "registry.example.com/app:1", Resources: corev1.ResourceRequirements{Requests: some, Limits: some},
		}}},
	}, client.DryRunAll)
}

// creation creates an object of a tenant on one of two API servers, as a dry run.
type creation func(ctx context.Context, side, tenant int) error

// creationTimes returns the median times of both sides, in milliseconds.
func creationTimes(b *testing.B, tenants int, create creation) (without, with float64) {
	b.Helper()
	// Exclude the garbage collection of this process from the measurement.
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	random := rand.New(rand.NewPCG(1, 2)) // the same order each time
	var took [2][]time.Duration
	for i := range warmUp + podPairs {
		tenant, first := random.IntN(tenants), random.IntN(2)
		for _, side := range []int{first, 1 - first} {
			began := time.Now()
			if err := create(b.Context(), side, tenant); err != nil {
				b.Fatal(err)
			}
			if i >= warmUp {
				took[side] = append(took[side], time.Since(began))
			}
		}
	}
	return medianOf(took[0]).median, medianOf(took[1]).median
}

// creationRates returns the requests a second of both sides.
func creationRates(b *testing.B, tenants int, create creation) (without, with float64) {
	b.Helper()
	var made [2]float64
	for round := range 2 * podRounds {
		side := (round + round/2) % 2 // 0, 1, 1, 0: each side is first in turn
		ctx, cancel := context.WithTimeout(b.Context(), podRound)
		var n atomic.Int64
		group := errgroup.Group{}
		for worker := range podClients {
			group.Go(func() error {
				for tenant := worker; ctx.Err() == nil; tenant++ {
					if err := create(ctx, side, tenant%tenants); err != nil && ctx.Err() == nil {
						return err
					}
					n.Add(1)
				}
				return nil
			})
		}
		err := group.Wait()
		cancel()
		if err != nil {
			b.Fatal(err)
		}
		made[side] += float64(n.Load()) / (podRounds * podRound.Seconds())
	}
	return made[0], made[1]
}
