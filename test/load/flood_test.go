package load

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/profile"
	"github.com/tenure-dev/tenure/internal/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the flood is made of. The bounds are narrow, so that the measurement takes
// minutes: a pass over all that the bounds allow holds the workers for
// floodQuota × floodTimeout / floodWorkers.
const (
	floodObjects = 500
	floodQuota   = 20
	floodTimeout = 5 * time.Second
	// floodWorkers is how many Kustomizations kustomize-controller works on at a time
	// unless --concurrent says otherwise.
	floodWorkers = 4
	// floodRounds are the commits of which the slowest counts.
	floodRounds = 3
	// floodPatience is when a commit is not waited for any more.
	floodPatience = 2 * time.Minute
)

// floodFleet has two tenants, each with a repository and a Kustomization.
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
spec: {interval: 1h, retryInterval: 1m, timeout: 5s, path: ./, prune: true, targetNamespace: %[1]s, serviceAccountName: %[1]s, sourceRef: {kind: GitRepository, name: %[1]s}}
`, tenant)
	}
	return files
}

// BenchmarkFlood measures how long a tenant waits from its commit until it is applied,
// while another one has as many Kustomizations as it may, at the shortest interval,
// that wait as long as they may for what never gets ready: with bounds, with bounds
// that hold nothing back, and with a shard of its own for who floods. All are of one
// run; the ratios are what counts.
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
	lockDownWith(b, fleetDir, profile.Options{Tenants: true, Shards: []string{"loud"}})
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
	f.bound("30s", floodTimeout, floodQuota)
	calm := f.slowest("quiet")
	if made := f.start("30s"); made >= floodQuota {
		// One is the platform's own, which counts too.
		b.Fatalf("the quota lets %d be made", made)
	}
	bounded := f.slowest("with bounds")
	f.bound("1s", time.Hour, floodObjects+1)
	f.start("1s")
	unbounded := f.slowest("without bounds")
	f.shard("loud")
	sharded := f.slowest("in shards")

	const allowed = floodQuota * floodTimeout / floodWorkers
	b.ReportMetric(calm.Seconds(), "s-quiet")
	b.ReportMetric(bounded.Seconds(), "s-bounded")
	b.ReportMetric(unbounded.Seconds(), "s-unbounded")
	b.ReportMetric(sharded.Seconds(), "s-sharded")
	b.ReportMetric((bounded-calm).Seconds()/allowed.Seconds(), "bounded/allowed(max=1)")
	b.ReportMetric(sharded.Seconds()/calm.Seconds(), "sharded/quiet(max=1.5)")
	b.ReportMetric(0, "ns/op")
}

// lockDownWith writes the profile into a fleet.
func lockDownWith(b *testing.B, dir string, o profile.Options) {
	b.Helper()
	f, err := fleet.Load(dir, "clusters/test", fleet.Options{URL: "https://fleet.invalid", Components: config.FluxComponents()})
	if err != nil {
		b.Fatal(err)
	}
	plan, err := profile.Make(f, o)
	if err != nil {
		b.Fatal(err)
	}
	if err := plan.Write(dir); err != nil {
		b.Fatal(err)
	}
}

// flood is a cluster in which one tenant floods and the other delivers.
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

// bound sets the bounds of all tenants, in the place of the fleet, and waits until
// they are in force.
func (f *flood) bound(interval string, timeout time.Duration, objects int) {
	f.b.Helper()
	u := f.object("tenure.dev", "TenancyProfile", "", "default")
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "tenure.dev", Version: "v1alpha1", Kind: "TenancyProfile"})
	f.patch(u, fmt.Sprintf(`{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/reconcile":"disabled"}},"spec":{"tenants":{"bounds":{"minInterval":%q,"maxTimeout":%q,"maxObjects":%d}}}}`,
		interval, timeout, objects))
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

// hog is a Kustomization of the loud tenant that waits for what never gets ready.
func (f *flood) hog(i int, interval string, timeout time.Duration) *unstructured.Unstructured {
	u := f.object(kustomizations.Group, kustomizations.Kind, "loud", "hog-"+strconv.Itoa(i+1))
	u.Object["spec"] = map[string]any{
		"interval": interval, "retryInterval": interval, "timeout": timeout.String(), "path": "./", "prune": true, "serviceAccountName": "loud",
		"targetNamespace": "loud", "namePrefix": "hog-" + strconv.Itoa(i+1) + "-",
		"sourceRef":    map[string]any{"kind": "GitRepository", "name": "loud"},
		"healthChecks": []any{map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "never", "namespace": "loud"}},
	}
	return u
}

// start makes as many of the flood's objects as there may be, and says how many it
// made.
func (f *flood) start(interval string) int {
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
			// Most are refused, if there are bounds.
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
	f.b.Logf("%d Kustomizations flood at an interval of %s", n, interval)
	return n
}

// shard moves the loud tenant into a shard, as its platform would.
func (f *flood) shard(name string) {
	f.b.Helper()
	ns := f.object("", "Namespace", "", "loud")
	f.patch(ns, fmt.Sprintf(`{"metadata":{"annotations":{"kustomize.toolkit.fluxcd.io/reconcile":"disabled"},"labels":{"sharding.fluxcd.io/key":%q}}}`, name))
	testwait.For(f.b, "the objects to be in the shard", 4*time.Minute, func() (bool, string) {
		outside := 0
		for _, kind := range []schema.GroupVersionKind{kustomizations, repositories} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := f.kube.List(f.b.Context(), list, client.InNamespace("loud")); err != nil {
				return false, err.Error()
			}
			for i := range list.Items {
				if list.Items[i].GetLabels()["sharding.fluxcd.io/key"] != name {
					outside++
					f.patch(&list.Items[i], fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().Format(time.RFC3339Nano)))
				}
			}
		}
		return outside == 0, fmt.Sprintf("%d are not", outside)
	})
}

// slowest commits several times and returns the longest time until one was applied;
// what took too long counts as the time that it was waited for.
func (f *flood) slowest(when string) time.Duration {
	f.b.Helper()
	var worst time.Duration
	for range floodRounds {
		f.commits++
		f.move(f.commits)
		began := time.Now()
		fetch(f.b, f.kube, "quiet", "quiet")
		took := f.applied(began)
		f.b.Logf("%s: commit %d applied after %.1f s", when, f.commits, took.Seconds())
		worst = max(worst, took)
		if took >= floodPatience {
			break
		}
	}
	return worst
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
