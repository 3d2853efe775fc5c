package artifacts

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var fixedTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// fixture is a reconciler with a generator, a source, and a server for the archive of the source.
type fixture struct {
	*reconciler
	t      *testing.T
	server *httptest.Server
	served []byte
	hits   int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		f.hits++
		_, _ = w.Write(f.served)
	}))
	t.Cleanup(f.server.Close)
	generator := ofKind(generatorKind.Kind)
	generator.SetNamespace("apps")
	generator.SetName("parts")
	generator.SetUID("1")
	generator.Object["spec"] = map[string]any{
		"sources": []any{map[string]any{"alias": "repo", "kind": "GitRepository", "name": "mono"}},
		"artifacts": []any{
			map[string]any{"name": "front", "originRevision": "@repo", "copy": []any{map[string]any{"from": "@repo/front/**", "to": "@artifact/"}}},
			map[string]any{"name": "back", "revision": "@repo", "copy": []any{map[string]any{"from": "@repo/back/**", "to": "@artifact/"}}},
		},
	}
	source := ofKind("GitRepository")
	source.SetNamespace("apps")
	source.SetName("mono")
	f.reconciler = &reconciler{
		Client:        fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithObjects(generator, source).WithStatusSubresource(generator, source, ofKind("ExternalArtifact")).Build(),
		storage:       &storage{root: newRoot(t, nil), host: "artifacts.example.com", client: f.server.Client()},
		retryInterval: time.Second, now: func() time.Time { return fixedTime },
	}
	f.serve("main@sha1:1", map[string]string{"front/a.yaml": "1", "back/b.yaml": "2"})
	return f
}

// serve gives the source an artifact with files.
func (f *fixture) serve(revision string, files map[string]string) {
	f.t.Helper()
	var archive bytes.Buffer
	if err := pack(newRoot(f.t, files), &archive); err != nil {
		f.t.Fatal(err)
	}
	f.served = archive.Bytes()
	source := f.get("GitRepository", "mono")
	source.Object["status"] = map[string]any{"artifact": map[string]any{
		"url": f.server.URL, "digest": digest.FromBytes(f.served).String(), "revision": revision,
	}}
	if err := f.Status().Update(f.t.Context(), source); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) get(kind, name string) *unstructured.Unstructured {
	f.t.Helper()
	object := ofKind(kind)
	if err := f.Get(f.t.Context(), client.ObjectKey{Namespace: "apps", Name: name}, object); err != nil {
		f.t.Fatal(err)
	}
	return object
}

// edit changes the generator's spec.
func (f *fixture) edit(change func(spec map[string]any)) {
	f.t.Helper()
	generator := f.get(generatorKind.Kind, "parts")
	change(generator.Object["spec"].(map[string]any))
	if err := f.Update(f.t.Context(), generator); err != nil {
		f.t.Fatal(err)
	}
}

// reconcileNow reconciles the generator and returns its Ready condition.
func (f *fixture) reconcileNow() metav1.Condition {
	f.t.Helper()
	_, _ = f.Reconcile(context.WithoutCancel(f.t.Context()), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "apps", Name: "parts"}})
	for _, condition := range statusOf(f.get(generatorKind.Kind, "parts")).Conditions {
		if condition.Type == "Ready" {
			return condition
		}
	}
	f.t.Fatal("the generator has no condition Ready")
	return metav1.Condition{}
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if ready := f.reconcileNow(); ready.Status != metav1.ConditionTrue || ready.Reason != reasonSucceeded {
		t.Fatalf("the generator says %+v", ready)
	}
	front, back := artifactOf(f.get("ExternalArtifact", "front")), artifactOf(f.get("ExternalArtifact", "back"))
	if front.Revision != "latest@"+front.Digest || front.Metadata[originRevision] != "main@sha1:1" {
		t.Errorf("the artifact without a revision has %+v, want its digest and the origin of the source", front)
	}
	if back.Revision != "main@sha1:1" || back.Metadata != nil {
		t.Errorf("the artifact with a revision has %+v, want the revision of the source", back)
	}
	content, err := f.storage.root.Open(front.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	unpacked := newRoot(t, nil)
	if err := unpack(content, unpacked, newBudget()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a.yaml": "1"}, contents(t, unpacked)); diff != "" {
		t.Errorf("the content: -want +got:\n%s", diff)
	}

	f.serve("main@sha1:2", map[string]string{"front/a.yaml": "changed", "back/b.yaml": "2"})
	f.reconcileNow()
	if changed := artifactOf(f.get("ExternalArtifact", "front")); changed.Digest == front.Digest || changed.Metadata[originRevision] != "main@sha1:2" {
		t.Errorf("after a change the artifact has %+v", changed)
	}
	if same := artifactOf(f.get("ExternalArtifact", "back")); same.Digest != back.Digest {
		t.Errorf("the artifact whose files did not change has digest %s, want %s", same.Digest, back.Digest)
	}

	f.edit(func(spec map[string]any) { spec["artifacts"] = spec["artifacts"].([]any)[:1] })
	f.reconcileNow()
	orphan := ofKind("ExternalArtifact")
	if err := f.Get(t.Context(), client.ObjectKey{Namespace: "apps", Name: "back"}, orphan); !apierrors.IsNotFound(err) {
		t.Errorf("an artifact that is no longer wanted: %v", err)
	}
	if err := f.Delete(t.Context(), f.get(generatorKind.Kind, "parts")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "apps", Name: "parts"}}); err != nil {
		t.Fatal(err)
	}
	if left := contents(t, f.storage.root); len(left) > 0 {
		t.Errorf("files of a deleted generator are left: %v", left)
	}
}

// TestFaults checks the reason and the text of the condition after a fault.
func TestFaults(t *testing.T) {
	t.Parallel()
	source := func(f *fixture, change func(map[string]any)) {
		f.edit(func(spec map[string]any) { change(spec["sources"].([]any)[0].(map[string]any)) })
	}
	tests := map[string]struct {
		fault        func(*fixture)
		reason, text string
		stalled      bool
	}{
		"the source vanishes": {func(f *fixture) {
			if err := f.Delete(f.t.Context(), f.get("GitRepository", "mono")); err != nil {
				f.t.Fatal(err)
			}
		}, reasonFetch, `GitRepository/apps/mono`, false},
		"the source has no artifact": {func(f *fixture) {
			object := f.get("GitRepository", "mono")
			delete(object.Object, "status")
			if err := f.Status().Update(f.t.Context(), object); err != nil {
				f.t.Fatal(err)
			}
		}, reasonFetch, "has no artifact yet", false},
		"other content": {func(f *fixture) { f.served = []byte("other") }, reasonFetch, "does not have the digest", false},
		"no server":     {func(f *fixture) { f.server.Close() }, reasonFetch, "refused", false},
		"bad pattern": {func(f *fixture) {
			f.edit(func(spec map[string]any) {
				spec["artifacts"].([]any)[0].(map[string]any)["copy"].([]any)[0].(map[string]any)["from"] = "@repo/[a"
			})
		}, reasonBuild, `front build failed: cannot copy from "@repo/[a"`, false},
		"foreign source": {func(f *fixture) {
			f.noCrossNamespaceRefs = true
			source(f, func(s map[string]any) { s["namespace"] = "flux-system" })
		}, reasonDenied, "cross-namespace reference to source GitRepository/flux-system/mono is not allowed", true},
		"foreign source without the flag": {func(f *fixture) {
			source(f, func(s map[string]any) { s["namespace"] = "flux-system" })
		}, reasonFetch, "GitRepository/flux-system/mono", false},
		"two aliases": {func(f *fixture) {
			f.edit(func(spec map[string]any) {
				spec["sources"] = append(spec["sources"].([]any), spec["sources"].([]any)[0])
			})
		}, reasonInvalid, "two sources have the alias repo", true},
		"unknown alias": {func(f *fixture) {
			f.edit(func(spec map[string]any) { spec["artifacts"].([]any)[0].(map[string]any)["revision"] = "@other" })
		}, reasonInvalid, "from other", true},
		"path pattern": {func(f *fixture) {
			f.edit(func(spec map[string]any) { spec["pathPattern"] = "@repo/{app}" })
		}, reasonInvalid, "does not simulate pathPattern", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.reconcileNow()
			tt.fault(f)
			ready := f.reconcileNow()
			if ready.Status != metav1.ConditionFalse || ready.Reason != tt.reason || !strings.Contains(ready.Message, tt.text) {
				t.Errorf("got %s, %s: %s; want %s: %s", ready.Status, ready.Reason, ready.Message, tt.reason, tt.text)
			}
			status := statusOf(f.get(generatorKind.Kind, "parts"))
			if stalled := len(status.Conditions) == 2; stalled != tt.stalled {
				t.Errorf("stalled is %v, want %v: %+v", stalled, tt.stalled, status.Conditions)
			}
			if len(status.Inventory) != 2 {
				t.Errorf("the inventory is %v, want the two artifacts that were made before", status.Inventory)
			}
		})
	}
}
