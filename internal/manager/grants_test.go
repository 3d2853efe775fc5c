package manager

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func ofKind(group, version, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// fetched lets a source say that it has fetched a revision, as Flux would.
func fetched(t *testing.T, admin client.Client, namespace, name, revision string) {
	t.Helper()
	u := ofKind("source.toolkit.fluxcd.io", "v1", "GitRepository", namespace, name)
	status := fmt.Sprintf(`{"status":{"artifact":{"url":"http://storage/%[1]s.tar.gz","digest":"sha256:%064[1]s","revision":"main@sha1:%[1]s","path":"x","lastUpdateTime":"2026-11-21T12:00:00Z","metadata":{"private":"word"}}}}`, revision)
	if err := admin.Status().Patch(t.Context(), u, client.RawPatch("application/merge-patch+json", []byte(status))); err != nil {
		t.Fatal(err)
	}
}

// artifact waits until a copy has a revision; "" waits until it is gone.
func artifact(t *testing.T, admin client.Client, namespace, revision string) *unstructured.Unstructured {
	t.Helper()
	return artifactOf(t, admin, namespace, "sharing.common", revision)
}

func artifactOf(t *testing.T, admin client.Client, namespace, name, revision string) *unstructured.Unstructured {
	t.Helper()
	u := ofKind("source.toolkit.fluxcd.io", "v1", "ExternalArtifact", namespace, name)
	testwait.For(t, fmt.Sprintf("the copy %s in %s to be at revision %q", name, namespace, revision), patience, func() (bool, string) {
		err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), u)
		if apierrors.IsNotFound(err) {
			return revision == "", "it is not there"
		}
		got, _, _ := unstructured.NestedString(u.Object, "status", "artifact", "revision")
		return err == nil && revision != "" && got == "main@sha1:"+revision, fmt.Sprint(got, err)
	})
	return u
}

func granted(t *testing.T, admin client.Client, name, reason, message string) {
	t.Helper()
	grantedBy(t, admin, "sharing", name, reason, message)
}

func grantedBy(t *testing.T, admin client.Client, namespace, name, reason, message string) {
	t.Helper()
	testwait.For(t, "the grant to say "+message, patience, func() (bool, string) {
		g := &v1alpha1.SourceGrant{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, g); err != nil {
			return false, err.Error()
		}
		c := apimeta.FindStatusCondition(g.Status.Conditions, "Ready")
		return c != nil && c.Reason == reason && strings.Contains(c.Message, message), fmt.Sprint(c)
	})
}

const sharing = `
{apiVersion: v1, kind: Namespace, metadata: {name: sharing}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: common, namespace: sharing}, spec: {interval: 1h, url: "https://git.example.com/acme/common"}}
---
apiVersion: tenure.dev/v1alpha1
kind: SourceGrant
metadata: {name: gold, namespace: sharing}
spec:
  to: [{kind: GitRepository, name: common}]
  from: [{namespaceSelector: {matchLabels: {tier: gold}}}]
---
{apiVersion: v1, kind: Namespace, metadata: {name: gold-1, labels: {tenure.dev/tenant: gold, tier: gold}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: iron-1, labels: {tenure.dev/tenant: iron}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: lead-1, labels: {tenure.dev/tenant: lead, tenure.dev/made-by: owner, tier: gold}}}
`

// A source is shared, moves on, is shared with one more, and is not shared any
// more: each time the copies follow, and who used them is told.
func TestSourceGrant(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	create(t, admin, sharing)
	granted(t, admin, "gold", "SourceNotReady", "GitRepository common has nothing to offer")
	fetched(t, admin, "sharing", "common", "1")
	copied := artifact(t, admin, "gold-1", "1")
	if _, found, _ := unstructured.NestedFieldNoCopy(copied.Object, "status", "artifact", "metadata"); found {
		t.Errorf("the consumer learns more than it needs: %v", copied.Object["status"])
	}
	if spec := copied.Object["spec"]; fmt.Sprint(spec) != "map[]" && spec != nil {
		t.Errorf("the copy refers to the owner's object: %v", spec)
	}
	granted(t, admin, "gold", "Granted", "1 sources for 1 namespaces")

	// In a namespace that an owner created, a label counts that the Tenant sets.
	artifact(t, admin, "lead-1", "")
	create(t, admin, "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: lead}, spec: {owners: [{kind: User, name: lead}], namespaces: {labels: {tier: gold}}}}")
	artifact(t, admin, "lead-1", "1")

	fetched(t, admin, "sharing", "common", "2")
	artifact(t, admin, "gold-1", "2")
	// Written once for a revision: nothing goes on after it.
	settled := artifact(t, admin, "gold-1", "2").GetResourceVersion()

	iron := ofKind("", "v1", "Namespace", "", "iron-1")
	merge(t, admin, iron, `{"metadata":{"labels":{"tier":"gold"}}}`)
	artifact(t, admin, "iron-1", "2")
	if now := artifact(t, admin, "gold-1", "2").GetResourceVersion(); now != settled {
		t.Errorf("a copy that was right has been written again: %s, before %s", now, settled)
	}
	merge(t, admin, iron, `{"metadata":{"labels":{"tier":null}}}`)
	artifact(t, admin, "iron-1", "")

	// Somebody who changes a copy is put right.
	forged := ofKind("source.toolkit.fluxcd.io", "v1", "ExternalArtifact", "gold-1", "sharing.common")
	if err := admin.Status().Patch(t.Context(), forged, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"artifact":{"revision":"forged"}}}`))); err != nil {
		t.Fatal(err)
	}
	artifact(t, admin, "gold-1", "2")

	create(t, admin, `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: user, namespace: gold-1},
  spec: {interval: 1h, prune: true, serviceAccountName: gold, sourceRef: {kind: ExternalArtifact, name: sharing.common}}}`)
	if err := admin.Delete(t.Context(), &v1alpha1.SourceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: "sharing", Name: "gold"}}); err != nil {
		t.Fatal(err)
	}
	artifact(t, admin, "gold-1", "")
	user := ofKind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "gold-1", "user")
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(user), user); err != nil || user.GetAnnotations()["reconcile.fluxcd.io/requestedAt"] == "" {
		t.Errorf("the user of the copy was not asked to look: %v %v", err, user.GetAnnotations())
	}
	testwait.For(t, "the user of the copy to be told", patience, func() (bool, string) {
		var events eventsv1.EventList
		if err := admin.List(t.Context(), &events, client.InNamespace("gold-1")); err != nil {
			return false, err.Error()
		}
		for _, e := range events.Items {
			if e.Reason == "GrantEnded" && e.Regarding.Name == "user" && strings.Contains(e.Note, "the grant of sharing.common has ended") {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%d events", len(events.Items))
	})
}

// What cannot be granted is refused when it is written.
func TestSourceGrantSchema(t *testing.T) {
	t.Parallel()
	admin, _ := cluster(t)
	for _, tc := range []struct{ reason, spec, want string }{
		{"two ways to select", `{to: [{kind: Bucket, name: b}], from: [{tenant: a, namespaceSelector: {}}]}`, "give tenant, namespace, or both; or namespaceSelector alone"},
		{"no way to select", `{to: [{kind: Bucket, name: b}], from: [{}]}`, "give tenant, namespace, or both; or namespaceSelector alone"},
		{"nobody", `{to: [{kind: Bucket, name: b}], from: []}`, "spec.from"},
		{"nothing", `{to: [], from: [{tenant: a}]}`, "spec.to"},
		{"a kind that is not fetched", `{to: [{kind: HelmRepository, name: b}], from: [{tenant: a}]}`, `Unsupported value: "HelmRepository"`},
	} {
		u := ofKind("tenure.dev", "v1alpha1", "SourceGrant", "default", "bad")
		create := fmt.Sprintf("apiVersion: tenure.dev/v1alpha1\nkind: SourceGrant\nmetadata: {name: bad, namespace: default}\nspec: %s\n", tc.spec)
		if err := yaml.Unmarshal([]byte(create), &u.Object); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), u, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want a refusal that says %q, got %v", tc.reason, tc.want, err)
		}
	}
}
