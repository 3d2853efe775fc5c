package load

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sharedFleet is a fleet with a repository from which a tenant delivers twice: through a
// source of its own, and through a source that the platform shares.
var sharedFleet = map[string]string{
	"clusters/test/flux-system/gotk-components.yaml": "# put in place\n",
	"clusters/test/flux-system/kustomization.yaml": `resources: [gotk-components.yaml, gotk-sync.yaml]
patches:
  - target: {kind: Deployment, name: (kustomize-controller|helm-controller)}
    patch: |
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --feature-gates=ExternalArtifact=true}
`,
	"clusters/test/flux-system/gotk-sync.yaml": `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1h, url: https://git.example.com/acme/fleet, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1h, retryInterval: 2s, path: ./clusters/test, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`,
	"clusters/test/tenure.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: tenure, namespace: flux-system}
spec: {interval: 1h, path: ./tenure, prune: true, wait: true, timeout: 2m, sourceRef: {kind: GitRepository, name: flux-system}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: teams, namespace: flux-system}
spec: {interval: 1h, path: ./teams, prune: true, dependsOn: [{name: tenure}], sourceRef: {kind: GitRepository, name: flux-system}}
`,
	"tenure/all.yaml": string(bytes.Join([][]byte{config.CRDs(), config.Roles(), config.Policies(), config.Manager(), []byte(posture)}, []byte("\n---\n"))),
	"teams/all.yaml": `apiVersion: v1
kind: Namespace
metadata: {name: shared}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: common, namespace: shared}
spec: {interval: 1h, url: "https://git.example.com/acme/common", ref: {branch: main}}
---
apiVersion: tenure.dev/v1alpha1
kind: SourceGrant
metadata: {name: common, namespace: shared}
spec: {to: [{kind: GitRepository, name: common}], from: [{namespaceSelector: {}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {tenure.dev/tenant: team}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: own, namespace: team}
spec: {interval: 1h, url: "https://git.example.com/acme/common", ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: own, namespace: team}
spec: {interval: 1h, retryInterval: 1m, path: ./, prune: true, targetNamespace: team, namePrefix: own-, serviceAccountName: team, sourceRef: {kind: GitRepository, name: own}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: granted, namespace: team}
spec: {interval: 1h, retryInterval: 1m, path: ./, prune: true, targetNamespace: team, namePrefix: granted-, serviceAccountName: team, sourceRef: {kind: ExternalArtifact, name: shared.common}}
`,
}

// BenchmarkSharedSource measures the time from the artifact of a new revision until the
// consumer has applied it, through the consumer's own source and through a shared source in
// turn. It also measures the time until a thousand consumers of a source have the revision,
// and the writes for each consumer.
func BenchmarkSharedSource(b *testing.B) {
	fleet, common := b.TempDir(), b.TempDir()
	for name, content := range sharedFleet {
		writeFile(b, content, fleet, name)
	}
	move := func(i int) {
		writeFile(b, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: common}\ndata: {value: %q}\n", strconv.Itoa(i)), common, "common.yaml")
	}
	move(0)
	m, err := network.ParseMap("https://git.example.com/acme/common#main=" + common)
	if err != nil {
		b.Fatal(err)
	}
	cluster, kube := startFleet(b, fleet, m)
	followRevisions(b, kube, move)
	thousandConsumers(b, kube, cluster.REST, move)
	b.ReportMetric(0, "ns/op")
}

// startFleet starts a cluster with Flux and a fleet, and waits until all objects are ready.
func startFleet(b *testing.B, fleet string, maps ...network.Map) (*localcluster.Cluster, client.WithWatch) {
	b.Helper()
	cluster, err := localcluster.Start(b.Context(), localcluster.Options{
		Name: "bench", Root: stateRoot(b), BinDir: binDir(b), Fleet: fleet, Path: "clusters/test", Maps: maps,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			b.Error(err)
		}
	})
	awaitReady(b, cluster)
	kube, err := client.NewWithWatch(cluster.REST, client.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return cluster, kube
}

func writeFile(b *testing.B, content string, path ...string) {
	b.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		b.Fatal(err)
	}
}

var (
	repositories   = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	kustomizations = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	artifacts      = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "ExternalArtifact"}
)

// revisions returns a function that waits until an object has a revision other than before,
// and returns the revision and the time of the event.
func revisions(b *testing.B, kube client.WithWatch, kind schema.GroupVersionKind, namespace, name string, path ...string) func(before string) (string, time.Time) {
	b.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	events, err := kube.Watch(b.Context(), list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(events.Stop)
	return func(before string) (string, time.Time) {
		deadline := time.After(time.Minute)
		for {
			select {
			case e := <-events.ResultChan():
				u, ok := e.Object.(*unstructured.Unstructured)
				if !ok || e.Type == watch.Deleted {
					b.Fatalf("the watch of %s %s/%s has ended", kind.Kind, namespace, name)
				}
				if now, _, _ := unstructured.NestedString(u.Object, path...); now != "" && now != before {
					return now, time.Now()
				}
			case <-deadline:
				b.Fatalf("%s %s/%s has no new revision after a minute", kind.Kind, namespace, name)
			}
		}
	}
}

// fetch requests Flux to reconcile a repository now.
func fetch(b *testing.B, kube client.Client, namespace, name string) {
	b.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(repositories)
	u.SetNamespace(namespace)
	u.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().Format(time.RFC3339Nano))
	if err := kube.Patch(b.Context(), u, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		b.Fatal(err)
	}
}

func followRevisions(b *testing.B, kube client.WithWatch, move func(int)) {
	b.Helper()
	const rounds = 50
	type side struct {
		namespace, source, consumer string
		made, applied               func(string) (string, time.Time)
		revision                    string
		took                        []time.Duration
	}
	sides := []*side{{namespace: "team", source: "own", consumer: "own"}, {namespace: "shared", source: "common", consumer: "granted"}}
	for _, s := range sides {
		s.made = revisions(b, kube, repositories, s.namespace, s.source, "status", "artifact", "revision")
		s.applied = revisions(b, kube, kustomizations, "team", s.consumer, "status", "lastAppliedRevision")
		s.revision, _ = s.made("")
		if got, _ := s.applied(""); got != s.revision {
			b.Fatalf("%s is at %s, its source at %s", s.consumer, got, s.revision)
		}
	}
	for i := range rounds {
		move(i + 1)
		for _, s := range sides {
			fetch(b, kube, s.namespace, s.source)
			next, began := s.made(s.revision)
			got, ended := s.applied(s.revision)
			if got != next {
				b.Fatalf("%s is at %s, its source at %s", s.consumer, got, next)
			}
			s.revision = next
			s.took = append(s.took, ended.Sub(began))
		}
	}
	quantile := func(s *side, q float64) float64 {
		slices.Sort(s.took)
		return s.took[int(q*float64(len(s.took)-1))].Seconds()
	}
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		own, shared := quantile(sides[0], q), quantile(sides[1], q)
		b.ReportMetric(own, "s-own-"+name)
		b.ReportMetric(shared, "s-shared-"+name)
		b.ReportMetric(shared-own, "s-added-"+name+"(max=1)")
	}
}

func thousandConsumers(b *testing.B, kube client.Client, restConfig *rest.Config, move func(int)) {
	b.Helper()
	const consumers = 1000
	fast := rest.CopyConfig(restConfig)
	fast.QPS = -1
	admin, err := kubernetes.NewForConfig(fast)
	if err != nil {
		b.Fatal(err)
	}
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(8)
	for i := range consumers {
		group.Go(func() error {
			_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("consumer-%d", i), Labels: map[string]string{"tenure.dev/tenant": fmt.Sprintf("tenant-%d", i%100)},
			}}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	// at counts the copies by their revision.
	at := func() map[string]int {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(artifacts)
		if err := kube.List(b.Context(), list); err != nil {
			b.Fatal(err)
		}
		count := map[string]int{}
		for i := range list.Items {
			revision, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "artifact", "revision")
			count[revision]++
		}
		return count
	}
	all := func(other string) (revision string) {
		testwait.For(b, "all consumers to have the source", 5*time.Minute, func() (bool, string) {
			count := at()
			for r, n := range count {
				if revision = r; n == consumers+1 && r != "" && r != other {
					return true, ""
				}
			}
			return false, fmt.Sprint(count)
		})
		return revision
	}
	// No other work may run during the measurement.
	testwait.For(b, "the profile to be in force", 5*time.Minute, func() (bool, string) {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "tenure.dev", Version: "v1alpha1", Kind: "TenancyProfile"})
		if err := kube.Get(b.Context(), client.ObjectKey{Name: "default"}, u); err != nil {
			return false, err.Error()
		}
		conditions := fmt.Sprint(u.Object["status"])
		return strings.Contains(conditions, "InForce"), conditions
	})
	before := all("")
	writes := artifactWrites(b, admin)
	move(-1)
	began := time.Now()
	fetch(b, kube, "shared", "common")
	all(before)
	b.ReportMetric(time.Since(began).Seconds(), "s/thousand")
	b.ReportMetric((artifactWrites(b, admin)-writes)/consumers, "writes/consumer")
}

// artifactWrites returns the number of writes of ExternalArtifacts that the API server has
// counted.
func artifactWrites(b *testing.B, admin *kubernetes.Clientset) float64 {
	b.Helper()
	text, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || !strings.Contains(line, `resource="externalartifacts"`) {
			continue
		}
		for _, verb := range []string{"APPLY", "PATCH", "POST", "PUT", "DELETE"} {
			if strings.Contains(line, `verb="`+verb+`"`) {
				fields := strings.Fields(line)
				n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
				if err != nil {
					b.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
