package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reachable creates a tenant whose owner, in home, may also get namespaces of other
// tenants.
func reachable(t *testing.T, home string, others ...string) {
	t.Helper()
	text := namespace(home, home) + tenant(home, accountOwner(home, "owner")) +
		fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s-view}, rules: [{apiGroups: [\"\"], resources: [namespaces], verbs: [get]}]}\n---\n", home)
	for _, other := range others {
		text += namespace(other, other) + readBinding(home, other)
	}
	apply(t, text)
}

func readBinding(home, in string) string {
	return fmt.Sprintf("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s-view, namespace: %[2]s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s-view}, subjects: [{kind: ServiceAccount, name: owner, namespace: %[1]s}]}\n---\n", home, in)
}

// label changes the tenant of a namespace; null means no tenant.
func (s *setup) label(t *testing.T, name, tenant string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"tenure.dev/tenant":%s}}}`, tenant)
	if err := s.admin.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}

// TestWatchOfOwnAndOthers checks the watch of a user who owns a tenant and sees a namespace
// of another tenant by RBAC. The watch shows namespaces that join and leave both sets, and
// continues, also when the manager gives the owner rights in a new namespace. It ends when
// a change of rights alone makes a namespace visible.
func TestWatchOfOwnAndOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, home, contentType string }{
		{"JSON", "reach-json", "application/json"},
		{"who would take protobuf gets JSON", "reach-proto", "application/vnd.kubernetes.protobuf"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := fixture(t)
			home, other := tc.home, tc.home+"-other"
			reachable(t, home, other)
			config := s.as(account(t, home, "owner"))
			sees(t, newClient(t, config), home+" "+other)
			words := events(t, config, tc.contentType)
			expect(t, words, added+home)
			expect(t, words, added+other)
			apply(t, namespace(home+"-new", home))
			expect(t, words, added+home+"-new")
			apply(t, readBinding(home, home+"-new"))
			s.label(t, other, "null")
			expect(t, words, "DELETED "+other)
			s.label(t, other, `"`+other+`"`)
			expect(t, words, added+other)
			apply(t, namespace(home+"-hidden", other))
			s.label(t, home+"-new", "null")
			expect(t, words, "DELETED "+home+"-new")
			s.label(t, home+"-hidden", `"`+home+`"`)
			expect(t, words, added+home+"-hidden")
			s.label(t, home+"-hidden", `"`+other+`"`)
			expect(t, words, "DELETED "+home+"-hidden")
			s.label(t, home+"-new", `"`+home+`"`)
			expect(t, words, added+home+"-new")
			sees(t, newClient(t, config), home+" "+home+"-new "+other)
			apply(t, readBinding(home, home+"-hidden"))
			expect(t, words, gone410)
			sees(t, newClient(t, config), home+" "+home+"-hidden "+home+"-new "+other)
		})
	}
}

// TestReachGoesOn checks that a namespace that joins a tenant is in the owner's next list,
// also if the owner sees other namespaces, and in all pages of one version. A watch that
// continues from a list shows only later changes.
func TestReachGoesOn(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	const home, other = "reach-on", "reach-on-other"
	reachable(t, home, other)
	config := s.as(account(t, home, "owner"))
	c := newClient(t, config)
	sees(t, c, home+" "+other)
	for i := range 20 {
		name := fmt.Sprintf("reach-on-%02d", i)
		if err := s.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tenure.dev/tenant": home}}}); err != nil {
			t.Fatal(err)
		}
		if got := list(t, c, client.MatchingLabels{"kubernetes.io/metadata.name": name}); got != name {
			t.Fatalf("namespace %s was just made and is not in the list: %q", name, got)
		}
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	settled(t, clients)
	first, err := clients.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 15})
	if err != nil {
		t.Fatal(err)
	}
	s.label(t, "reach-on-19", `"`+other+`"`)
	second, err := clients.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{Limit: 15, Continue: first.Continue})
	if err != nil || len(first.Items) != 15 || len(second.Items) != 7 || first.ResourceVersion != second.ResourceVersion {
		t.Fatalf("want 22 namespaces in two pages of one version, got %d and %d: %v", len(first.Items), len(second.Items), err)
	}
	s.label(t, "reach-on-03", `"`+other+`"`)
	s.label(t, other, "null")
	s.label(t, other, `"x"`)
	apply(t, namespace("reach-on-late", home))
	want := "DELETED reach-on-19, DELETED reach-on-03, DELETED reach-on-other, ADDED reach-on-other, ADDED reach-on-late"
	for _, contentType := range []string{"application/json", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"} {
		r := s.request(t, http.MethodGet, "/api/v1/namespaces?watch=true&timeoutSeconds=1&resourceVersion="+first.ResourceVersion, config.BearerToken)
		r.Header.Set("Accept", contentType)
		var got, body string
		testwait.For(t, "the watch to show what came", patience, func() (bool, string) {
			_, body, _ = s.raw(t, r.Clone(t.Context()))
			got = strings.Join(wordsOf(t, body), ", ")
			// On a busy machine the watch may end before it has shown all events.
			return got == want || !strings.HasPrefix(want, got), got
		})
		if got != want {
			t.Errorf("%s: the watch shows %s, want %s", contentType, got, want)
		}
		if strings.Contains(body, `"tenure.dev/tenant":"`+other+`"`) && !strings.Contains(body, `"tenure.dev/tenant":"x"`) {
			t.Errorf("the watch shows whose a namespace is that has left: %s", body)
		}
	}
}

// settled waits until a watch can continue from a list. It cannot right after a change of
// rights.
func settled(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	testwait.For(t, "a list to be gone on from", patience, func() (bool, string) {
		list, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		w, err := c.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			return false, err.Error()
		}
		w.Stop()
		return true, ""
	})
}

// wordsOf returns the events of a watch that has ended, as words, without MODIFIED events.
func wordsOf(t *testing.T, body string) []string {
	t.Helper()
	var words []string
	for line := range strings.Lines(body) {
		var e struct {
			Type   string
			Object struct {
				Code     int
				Metadata struct{ Name string }
				Rows     []struct {
					Object struct{ Metadata struct{ Name string } }
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		name := e.Object.Metadata.Name
		for _, row := range e.Object.Rows {
			name = row.Object.Metadata.Name
		}
		if e.Type == string(watch.Error) {
			name = fmt.Sprint(e.Object.Code)
		}
		if e.Type != string(watch.Modified) && e.Type != string(watch.Bookmark) {
			words = append(words, e.Type+" "+name)
		}
	}
	return words
}
