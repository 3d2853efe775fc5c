package load

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The parameters of the flood. The bounds are narrow, so that the measurement takes
// minutes: [tenancy.MaxQueueDelay] is 105 s.
const (
	floodObjects = 500
	floodQuota   = 10
	// floodInterval keeps all objects of the flood in the queue. The maximum delay does not
	// depend on it.
	floodInterval = 5 * time.Second
	// floodTimeout is the minimum time for which kustomize-controller waits: it treats a
	// shorter spec.timeout as this value (GetTimeout in its API).
	floodTimeout = 30 * time.Second
	// floodRounds is the number of commits during a flood; the slowest one counts. The
	// first commit is not behind the flood: an object that waits for its interval keeps its
	// position in the queue.
	floodRounds = 3
	// calmRounds is the number of commits without a flood; the median counts.
	calmRounds = 9
	// floodPatience is the maximum time to wait for a commit. It is longer than the bounds
	// allow.
	floodPatience = 2 * time.Minute
)

// floodFleet returns a fleet with two tenants, each with a repository and a Kustomization.
func floodFleet() map[string]string {
	files := map[string]string{"clusters/test/teams.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenants, namespace: flux-system}
spec: {interval: 1h, retryInterval: 5s, path: ./teams, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`, "clusters/test/flux-system/kustomization.yaml": "resources:\n- gotk-components.yaml\n- gotk-sync.yaml\n"}
	for _, name := range []string{"clusters/test/flux-system/gotk-components.yaml", "clusters/test/flux-system/gotk-sync.yaml"} {
		files[name] = sharedFleet[name]
	}
	for _, tenant := range []string{"quiet", "loud"} {
		files["teams/"+tenant+".yaml"] = fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {tenure.dev/tenant: %[1]s}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: %[1]s, namespace: %[1]s}
spec: {interval: 1h, url: "https://git.example.com/acme/%[1]s", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %[1]s, namespace: %[1]s}
spec: {interval: 1h, retryInterval: 1m, timeout: 30s, path: ./, prune: true, targetNamespace: %[1]s, serviceAccountName: %[1]s, sourceRef: {kind: GitRepository, name: %[1]s}}
`, tenant)
	}
	return files
}

// BenchmarkFlood measures the time from a tenant's commit until it is applied, while
// another tenant has the maximum number of Kustomizations, at the minimum interval, that
// wait for the maximum time for an object that never becomes ready. It measures with
// bounds, with bounds that limit nothing, and with a shard for the flooding tenant. All
// measurements are in one run; the ratios count. It measures the time without a flood
// before and after the flood, so that both have the same noise as the other measurements.
// It takes 9 minutes.
func BenchmarkFlood(b *testing.B) {
	fleetDir, quiet, loud := b.TempDir(), b.TempDir(), b.TempDir()
	for name, content := range floodFleet() {
		writeFile(b, content, fleetDir, name)
	}
	move := func(i int) {
		writeFile(b, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: value}\ndata: {value: %q}\n", strconv.Itoa(i)), quiet, "value.yaml")
	}
	move(0)
	writeFile(b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: value}\n", loud, "value.yaml")
	lockDownWith(b, fleetDir, lockdown.Options{Tenants: true, Shards: []string{"loud"}})
	var maps []network.Map
	for name, dir := range map[string]string{"quiet": quiet, "loud": loud} {
		m, err := network.ParseMap("https://git.example.com/acme/" + name + "#main=" + dir)
		if err != nil {
			b.Fatal(err)
		}
		maps = append(maps, m)
	}
	_, kube := startFleet(b, fleetDir, maps...)
	f := &flood{b: b, kube: kube, move: move}
	f.bound(floodInterval, floodTimeout, floodQuota)
	calm := f.times("quiet", calmRounds)
	if made := f.start(floodInterval); made >= floodQuota {
		// The platform's own Kustomization also counts against the quota.
		b.Fatalf("the quota lets %d be made", made)
	}
	bounded := slices.Max(f.times("with bounds", floodRounds))
	f.bound(time.Second, time.Hour, floodObjects+1)
	f.start(time.Second)
	unbounded := slices.Max(f.times("without bounds", floodRounds))
	moved := f.shard("loud")
	sharded := f.times("in shards", calmRounds)
	f.suspend()
	calm = append(calm, f.times("quiet again", calmRounds)...)

	allowed := tenancy.MaxQueueDelay(v1alpha1.Bounds{MaxObjects: floodQuota, MaxTimeout: metav1.Duration{Duration: floodTimeout}}, tenancy.Workers)
	b.ReportMetric(median(calm).Seconds(), "s-quiet")
	b.ReportMetric(bounded.Seconds(), "s-bounded")
	b.ReportMetric(unbounded.Seconds(), "s-unbounded")
	b.ReportMetric(moved.Seconds(), "s-move")
	b.ReportMetric(median(sharded).Seconds(), "s-sharded")
	b.ReportMetric((bounded-median(calm)).Seconds()/allowed.Seconds(), "bounded/allowed(max=1)")
	b.ReportMetric(median(sharded).Seconds()/median(calm).Seconds(), "sharded/quiet(max=1.5)")
	b.ReportMetric(0, "ns/op")
}

// lockDownWith writes the lockdown with the profile into a fleet.
func lockDownWith(b *testing.B, dir string, o lockdown.Options) {
	b.Helper()
	f, err := layout.Load(dir, "clusters/test", layout.Options{URL: "https://fleet.invalid", Components: config.FluxComponents()})
	if err != nil {
		b.Fatal(err)
	}
	plan, err := lockdown.Make(f, o)
	if err != nil {
		b.Fatal(err)
	}
	if err := plan.Write(dir); err != nil {
		b.Fatal(err)
	}
}

// flood is a cluster in which one tenant floods the queue and the other tenant delivers.
type flood struct {
	b       *testing.B
	kube    client.WithWatch
	move    func(int)
	commits int
}

func (f *flood) object(group, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func (f *flood) patch(o client.Object, body string) {
	f.b.Helper()
	if err := f.kube.Patch(f.b.Context(), o, client.RawPatch("application/merge-patch+json", []byte(body))); err != nil {
		f.b.Fatal(err)
	}
}

// bound sets the bounds of all tenants in the cluster instead of the fleet, and waits until
// they are in force.
func (f *flood) bound(interval, timeout time.Duration, objects int) {
	f.b.Helper()
	u := f.object("tenure.dev", "TenancyProfile", "", "default")
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "tenure.dev", Version: "v1alpha1", Kind: "TenancyProfile"})
	f.patch(u, fmt.Sprintf(`{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/reconcile":"disabled"}},"spec":{"tenants":{"bounds":{"minInterval":%q,"maxTimeout":%q,"maxObjects":%d}}}}`,
		interval.String(), timeout.String(), objects))
	testwait.For(f.b, "the bounds to be in force", 2*time.Minute, func() (bool, string) {
		quotas := &corev1.ResourceQuotaList{}
		if err := f.kube.List(f.b.Context(), quotas, client.InNamespace("loud")); err != nil {
			return false, err.Error()
		}
		for _, q := range quotas.Items {
			if hard := q.Status.Hard["count/kustomizations.kustomize.toolkit.fluxcd.io"]; hard.Value() == int64(objects) {
				err := f.kube.Create(f.b.Context(), f.hog(-1, interval, timeout+time.Second), client.DryRunAll)
				return err != nil && strings.Contains(err.Error(), timeout.String()), fmt.Sprint(err)
			}
		}
		return false, "the quota is another one"
	})
}

// hog returns a Kustomization of the loud tenant that waits for an object that never
// becomes ready.
func (f *flood) hog(i int, interval, timeout time.Duration) *unstructured.Unstructured {
	u := f.object(kustomizations.Group, kustomizations.Kind, "loud", "hog-"+strconv.Itoa(i+1))
	u.Object["spec"] = map[string]any{
		"interval": interval.String(), "retryInterval": interval.String(), "timeout": timeout.String(), "path": "./", "prune": true, "serviceAccountName": "loud",
		"targetNamespace": "loud", "namePrefix": "hog-" + strconv.Itoa(i+1) + "-",
		"sourceRef":    map[string]any{"kind": "GitRepository", "name": "loud"},
		"healthChecks": []any{map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "never", "namespace": "loud"}},
	}
	return u
}

// start creates as many objects of the flood as the quota allows, waits until the flood
// holds all workers, and returns the number of objects.
func (f *flood) start(interval time.Duration) int {
	f.b.Helper()
	never := f.object(repositories.Group, repositories.Kind, "loud", "never")
	never.Object["spec"] = map[string]any{"interval": "1h", "timeout": floodTimeout.String(), "suspend": true, "url": "https://git.example.com/acme/loud", "ref": map[string]any{"branch": "main"}}
	if err := client.IgnoreAlreadyExists(f.kube.Create(f.b.Context(), never)); err != nil {
		f.b.Fatal(err)
	}
	made := make([]bool, floodObjects)
	group, ctx := errgroup.WithContext(f.b.Context())
	group.SetLimit(8)
	for i := range floodObjects {
		group.Go(func() error {
			// With bounds, the API server refuses most of them.
			made[i] = f.kube.Create(ctx, f.hog(i, interval, floodTimeout)) == nil
			return nil
		})
	}
	_ = group.Wait()
	n := 0
	for _, ok := range made {
		if ok {
			n++
		}
	}
	testwait.For(f.b, "the flood to hold all workers", 4*floodTimeout, f.flooded)
	f.b.Logf("%d Kustomizations flood at an interval of %s", n, interval)
	return n
}

// flooded reports whether objects of the flood hold all workers, and whether the controller
// has reconciled each other object once, for its finalizer, so that the object waits in the
// queue.
func (f *flood) flooded() (bool, string) {
	f.b.Helper()
	held, unseen := 0, 0
	for _, o := range f.loud(kustomizations) {
		if len(o.GetFinalizers()) == 0 {
			unseen++
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if slices.ContainsFunc(conditions, func(c any) bool {
			condition, ok := c.(map[string]any)
			return ok && condition["type"] == "Healthy" && condition["status"] == "Unknown"
		}) {
			held++
		}
	}
	return held == tenancy.Workers && unseen == 0, fmt.Sprintf("%d workers are held, and %d objects have not been looked at", held, unseen)
}

// loud returns the loud tenant's objects of a kind.
func (f *flood) loud(kind schema.GroupVersionKind) []unstructured.Unstructured {
	f.b.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := f.kube.List(f.b.Context(), list, client.InNamespace("loud")); err != nil {
		f.b.Fatal(err)
	}
	return list.Items
}

// shard moves the loud tenant into a shard, as the platform would, and returns the time
// until a commit of the quiet tenant from just before the move was applied. The cluster's
// own controllers hold objects of the flood for the timeout after these have left; shard
// returns when the last one is released.
func (f *flood) shard(name string) time.Duration {
	f.b.Helper()
	f.commits++
	f.move(f.commits)
	fetch(f.b, f.kube, "quiet", "quiet")
	began := time.Now()
	ns := f.object("", "Namespace", "", "loud")
	f.patch(ns, fmt.Sprintf(`{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/reconcile":"disabled"},"labels":{"sharding.fluxcd.io/key":%q}}}`, name))
	testwait.For(f.b, "the objects to be in the shard", 4*time.Minute, func() (bool, string) {
		outside := 0
		for _, kind := range []schema.GroupVersionKind{kustomizations, repositories} {
			for _, o := range f.loud(kind) {
				if o.GetLabels()["sharding.fluxcd.io/key"] != name {
					outside++
					f.patch(&o, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().Format(time.RFC3339Nano)))
				}
			}
		}
		return outside == 0, fmt.Sprintf("%d are not", outside)
	})
	took := f.applied(began)
	f.b.Logf("commit %d, from before the move, was applied after %.1f s", f.commits, took.Seconds())
	f.settle("while the shard settles")
	return took
}

// suspend ends the flood and keeps its objects.
func (f *flood) suspend() {
	f.b.Helper()
	for _, o := range f.loud(kustomizations) {
		f.patch(&o, `{"spec":{"suspend":true}}`)
	}
	f.settle("while the flood ends")
}

// settle commits until the controllers have stopped waiting for objects of the flood.
func (f *flood) settle(when string) {
	f.b.Helper()
	for began := time.Now(); time.Since(began) < floodTimeout+floodInterval; {
		f.commit(when)
	}
}

// times commits the given number of times and returns the time until each commit was
// applied. A commit that takes too long counts with the time waited, and is the last one.
func (f *flood) times(when string, rounds int) []time.Duration {
	f.b.Helper()
	var took []time.Duration
	for range rounds {
		took = append(took, f.commit(when))
		if took[len(took)-1] >= floodPatience {
			break
		}
	}
	return took
}

// commit returns the time until a commit of the quiet tenant was applied.
func (f *flood) commit(when string) time.Duration {
	f.b.Helper()
	f.commits++
	f.move(f.commits)
	began := time.Now()
	fetch(f.b, f.kube, "quiet", "quiet")
	took := f.applied(began)
	f.b.Logf("%s: commit %d applied after %.2f s", when, f.commits, took.Seconds())
	return took
}

func (f *flood) applied(began time.Time) time.Duration {
	f.b.Helper()
	ctx, cancel := context.WithTimeout(f.b.Context(), floodPatience)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"})
	events, err := f.kube.Watch(ctx, list, client.InNamespace("quiet"), client.MatchingFields{"metadata.name": "value"})
	if err != nil {
		f.b.Fatal(err)
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		if value, _, _ := unstructured.NestedString(u.Object, "data", "value"); value == strconv.Itoa(f.commits) {
			return time.Since(began)
		}
	}
	return floodPatience
}

func median(took []time.Duration) time.Duration {
	took = slices.Sorted(slices.Values(took))
	return took[len(took)/2]
}
