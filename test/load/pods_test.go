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

// podPolicy is a policy that admits every Pod by a match condition, as one of Tenure's does, and
// reads nothing.
const podPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: pods}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]}
  matchConditions: [{name: never, expression: object.metadata.name == "refused"}]
  validations: [{expression: "false"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: pods}
spec: {policyName: pods, validationActions: [Deny]}
`

// BenchmarkPodCreate compares the creation of a Pod on API servers with the same program and
// flags. On the first, a user with the role admin in a namespace creates it. On the second, the
// owner of a Tenant creates it in a namespace that the manager created and in which all rules
// apply. On the third, there is nothing of Tenure but one policy that admits every Pod: the least
// that a rule in the API server can cost. The benchmark measures the time of one creation, in pairs
// in random order, and the creations a second of eight clients, in rounds one after the other.
// The figures without "real" are of dry runs, which leave out the storage.
func BenchmarkPodCreate(b *testing.B) {
	configs := []*rest.Config{unbounded(startBare(b).REST), unbounded(startBare(b).REST), unbounded(startBare(b).REST)}
	bare, ruled, policy := configs[0], configs[1], configs[2]
	prepareManager(b, ruled)
	m := startManager(b, ruled)
	defer m.stop()
	all := awaitAll(b, ruled, podTenants)
	applyTenants(b, ruled, podTenants)
	m.await(all)
	prepareBare(b, bare)
	prepareBare(b, policy)
	var sides [3][]client.Client
	for side, config := range configs {
		config.WarningHandlerWithContext = rest.NoWarnings{}
		for i := range podTenants {
			sides[side] = append(sides[side], impersonating(b, config, tenantName(i)))
		}
		testwait.For(b, "Pods to be accepted", time.Minute, func() (bool, string) {
			err := sides[side][podTenants-1].Create(b.Context(), newPod(podTenants-1, "app"), client.DryRunAll)
			return err == nil, fmt.Sprint(err)
		})
	}
	addPodPolicy(b, policy, sides[2][0])
	awaitQuiet(b, ruled)
	try := func(ctx context.Context, side, tenant int) error {
		return sides[side][tenant].Create(ctx, newPod(tenant, "app"), client.DryRunAll)
	}
	ratio, rate := comparePods(b, "", try)
	b.ReportMetric(ratio, "ratio(max=1.2)")
	b.ReportMetric(rate, "rate-ratio(min=0.85)")
	ratio, rate = comparePods(b, "-one-policy", func(ctx context.Context, side, tenant int) error { return try(ctx, 2*side, tenant) })
	b.ReportMetric(ratio, "ratio-one-policy")
	b.ReportMetric(rate, "rate-ratio-one-policy")
	var made atomic.Int64
	ratio, rate = comparePods(b, "-real", func(ctx context.Context, side, tenant int) error {
		return sides[side][tenant].Create(ctx, newPod(tenant, fmt.Sprintf("app-%d", made.Add(1))))
	})
	b.ReportMetric(ratio, "ratio-real(max=1.2)")
	b.ReportMetric(rate, "rate-ratio-real(min=0.85)")
	b.ReportMetric(0, "ns/op")
}

// comparePods reports the times and rates of creations on side 0, which has no rules, and on side 1, which
// has rules. It returns the ratio of the times and the ratio of the rates.
func comparePods(b *testing.B, name string, create creation) (ratio, rateRatio float64) {
	b.Helper()
	without, with := creationTimes(b, podTenants, create)
	bareRate, rate := creationRates(b, podTenants, create)
	b.ReportMetric(without, "ms-bare"+name)
	b.ReportMetric(with, "ms-ruled"+name)
	b.ReportMetric(bareRate, "bare"+name+"/s")
	b.ReportMetric(rate, "ruled"+name+"/s")
	return with / without, rate / bareRate
}

// addPodPolicy adds the policy, and waits until it is in force.
func addPodPolicy(b *testing.B, config *rest.Config, user client.Client) {
	b.Helper()
	admin, err := client.New(config, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if err := createAll(b.Context(), admin, podPolicy); err != nil {
		b.Fatal(err)
	}
	testwait.For(b, "the policy to be in force", time.Minute, func() (bool, string) {
		err := user.Create(b.Context(), newPod(0, "refused"), client.DryRunAll)
		return err != nil, "a Pod that it refuses is accepted"
	})
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

// newPod returns a Pod that is never scheduled, so that nobody works on it.
func newPod(tenant int, name string) *corev1.Pod {
	some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace(tenant), Name: name, Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/never"}},
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example.com/app:1", Resources: corev1.ResourceRequirements{Requests: some, Limits: some},
			}},
		},
	}
}

// creation creates an object of a tenant on one of two API servers.
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
