package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// faulty is a namespace that shares its source common, with a consumer of its own
// that uses it: all that goes wrong with the one is seen at the other.
type faulty struct {
	t               *testing.T
	admin           client.Client
	owner, consumer string
}

func newFaulty(t *testing.T, name, spec string) faulty {
	t.Helper()
	admin, _ := cluster(t)
	f := faulty{t: t, admin: admin, owner: name + "-owner", consumer: name + "-team"}
	create(t, admin, fmt.Sprintf(`{apiVersion: v1, kind: Namespace, metadata: {name: %[1]s}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: %[2]s, labels: {tenure.dev/tenant: %[2]s}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: user, namespace: %[2]s},
  spec: {interval: 1h, prune: true, serviceAccountName: %[2]s, sourceRef: {kind: ExternalArtifact, name: %[1]s.common}}}
`, f.owner, f.consumer))
	f.source("common")
	f.grant("one", "common", spec)
	return f
}

func (f faulty) source(name string) {
	f.t.Helper()
	create(f.t, f.admin, fmt.Sprintf(`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: %s, namespace: %s}, spec: {interval: 1h, url: "https://git.example.com/acme/common"}}`, name, f.owner))
}

// grant shares a source with the consumer alone, or as spec says.
func (f faulty) grant(name, source, spec string) {
	f.t.Helper()
	if spec == "" {
		spec = "from: [{tenant: " + f.consumer + "}]"
	}
	create(f.t, f.admin, fmt.Sprintf("{apiVersion: tenure.dev/v1alpha1, kind: SourceGrant, metadata: {name: %s, namespace: %s}, spec: {to: [{kind: GitRepository, name: %s}], %s}}", name, f.owner, source, spec))
}

func (f faulty) remove(o client.Object) {
	f.t.Helper()
	if err := f.admin.Delete(f.t.Context(), o); err != nil {
		f.t.Fatal(err)
	}
}

func (f faulty) git(name string) *unstructured.Unstructured {
	return ofKind("source.toolkit.fluxcd.io", "v1", "GitRepository", f.owner, name)
}

func (f faulty) the(name string) *v1alpha1.SourceGrant {
	return &v1alpha1.SourceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: f.owner, Name: name}}
}

// told waits until who uses the copy has been told that there is none any more.
func (f faulty) told() {
	f.t.Helper()
	testwait.For(f.t, "the user of the copy to be told", patience, func() (bool, string) {
		var events eventsv1.EventList
		if err := f.admin.List(f.t.Context(), &events, client.InNamespace(f.consumer)); err != nil {
			return false, err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == "GrantEnded" && e.Regarding.Name == "user" && strings.Contains(e.Note, "what was applied stays, and nothing new comes") {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d events", len(events.Items))
	})
}

// TestSourceGrantFaults breaks what is shared in all ways that are known: consumers
// keep the last good revision, and owner and consumer are told what is wrong.
func TestSourceGrantFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, spec string
		run          func(f faulty)
	}{
		"not-ready": {"a source whose last fetch failed still offers what it has", "", func(f faulty) {
			status := `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"GitOperationFailed","message":"host unreachable","lastTransitionTime":"2026-11-21T12:00:00Z"}]}}`
			if err := f.admin.Status().Patch(f.t.Context(), f.git("common"), client.RawPatch("application/merge-patch+json", []byte(status))); err != nil {
				f.t.Fatal(err)
			}
			fetched(f.t, f.admin, f.owner, "common", "2")
			f.at("2")
		}},
		"artifact-gone": {"a source that has nothing to offer any more: the copy stays at what it was", "", func(f faulty) {
			if err := f.admin.Status().Patch(f.t.Context(), f.git("common"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"artifact":null}}`))); err != nil {
				f.t.Fatal(err)
			}
			f.says("one", "SourceNotReady", "GitRepository common has nothing to offer: see why it is not ready")
			f.at("1")
			fetched(f.t, f.admin, f.owner, "common", "2")
			f.at("2")
			f.says("one", "Granted", "1 sources for 1 namespaces")
		}},
		"recreated": {"a source that is deleted takes its copies with it, and brings them back when it is made again", "", func(f faulty) {
			f.remove(f.git("common"))
			f.at("")
			f.told()
			f.says("one", "SourceNotReady", "there is no GitRepository common")
			f.source("common")
			f.says("one", "SourceNotReady", "has nothing to offer")
			fetched(f.t, f.admin, f.owner, "common", "3")
			f.at("3")
		}},
		"renamed": {"a source by another name is another source, which nobody has granted", "", func(f faulty) {
			f.source("renamed")
			fetched(f.t, f.admin, f.owner, "renamed", "2")
			f.remove(f.git("common"))
			f.at("")
			f.told()
			f.grant("two", "renamed", "")
			f.says("two", "Granted", "1 sources for 1 namespaces")
			artifactOf(f.t, f.admin, f.consumer, f.owner+".renamed", "2")
		}},
		"two-grants": {"what two grants give stays until both are gone", "", func(f faulty) {
			f.grant("two", "common", "")
			f.says("two", "Granted", "1 sources for 1 namespaces")
			f.remove(f.the("one"))
			fetched(f.t, f.admin, f.owner, "common", "2")
			f.at("2")
			f.remove(f.the("two"))
			f.at("")
			f.told()
		}},
		"own-object": {"an object of the consumer's with the name is left alone, and gives way when it goes", "", func(f faulty) {
			f.source("taken")
			fetched(f.t, f.admin, f.owner, "taken", "2")
			own := ofKind("source.toolkit.fluxcd.io", "v1", "ExternalArtifact", f.consumer, f.owner+".taken")
			own.Object["spec"] = map[string]any{}
			if err := f.admin.Create(f.t.Context(), own); err != nil {
				f.t.Fatal(err)
			}
			f.grant("two", "taken", "")
			f.says("two", "NameTaken", "namespace "+f.consumer+" has an ExternalArtifact "+own.GetName()+" that this grant did not create: delete it there")
			artifactOf(f.t, f.admin, f.consumer, f.owner+".common", "1")
			if err := f.admin.Get(f.t.Context(), client.ObjectKeyFromObject(own), own); err != nil || own.Object["status"] != nil {
				f.t.Errorf("somebody else's object was touched: %v %v", err, own.Object)
			}
			f.remove(own)
			artifactOf(f.t, f.admin, f.consumer, own.GetName(), "2")
			f.says("two", "Granted", "1 sources for 1 namespaces")
		}},
		"everyone": {"a grant to everyone is for tenants, also for those that come later, and not for the platform", "from: [{namespaceSelector: {}}]", func(f faulty) {
			create(f.t, f.admin, "{apiVersion: v1, kind: Namespace, metadata: {name: everyone-late, labels: {tenure.dev/tenant: everyone-late}}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: everyone-nobody}}")
			artifactOf(f.t, f.admin, "everyone-late", f.owner+".common", "1")
			for _, namespace := range []string{"everyone-nobody", "flux-system", f.owner} {
				exists(f.t, f.admin, false, ofKind("source.toolkit.fluxcd.io", "v1", "ExternalArtifact", namespace, f.owner+".common"), namespace, f.owner+".common")
			}
		}},
		"expired": {"a grant ends by itself", "", func(f faulty) {
			merge(f.t, f.admin, f.the("one"), fmt.Sprintf(`{"spec":{"expires":%q}}`, time.Now().Add(3*time.Second).UTC().Format(time.RFC3339)))
			f.at("")
			f.told()
			f.says("one", "Expired", "expired at ")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaulty(t, name, tc.spec)
			fetched(t, f.admin, f.owner, "common", "1")
			f.at("1")
			tc.run(f)
			if t.Failed() {
				t.Log(tc.reason)
			}
		})
	}
}

// at waits until the copy of the source common has a revision; "" waits until it is
// gone.
func (f faulty) at(revision string) {
	f.t.Helper()
	artifactOf(f.t, f.admin, f.consumer, f.owner+".common", revision)
}

func (f faulty) says(grant, reason, message string) {
	f.t.Helper()
	grantedBy(f.t, f.admin, f.owner, grant, reason, message)
}
