package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// events opens a watch and returns a channel of its events, as words, until the watch ends.
func events(t *testing.T, config *rest.Config, contentType string) <-chan string {
	t.Helper()
	config = rest.CopyConfig(config)
	config.ContentType = contentType
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := clients.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	words := make(chan string, 100)
	go func() {
		defer close(words)
		for e := range w.ResultChan() {
			switch o := e.Object.(type) {
			case *corev1.Namespace:
				words <- fmt.Sprintf("%s %s", e.Type, o.Name)
			case *metav1.Status:
				words <- fmt.Sprintf("%s %d %s", e.Type, o.Code, o.Reason)
			}
		}
	}()
	return words
}

// expect waits for an event and skips others of the same object.
func expect(t *testing.T, words <-chan string, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		select {
		case got, ok := <-words:
			if got == want {
				return
			}
			if !ok || !strings.HasPrefix(got, string(watch.Modified)) {
				t.Fatalf("want %q, got %q (open: %v)", want, got, ok)
			}
		case <-ctx.Done():
			t.Fatalf("still waiting for %q", want)
		}
	}
}

const (
	added   = "ADDED "
	gone410 = "ERROR 410 Expired"
)

// TestWatch checks that a watch shows namespaces that join and leave a tenant, and ends
// when the user's tenants change, so that the client lists again, in each serialization.
func TestWatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, name, contentType string }{
		{"JSON", "watch-json", "application/json"},
		{"protobuf", "watch-proto", "application/vnd.kubernetes.protobuf"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := fixture(t)
			home := tc.name
			apply(t, namespace(home, tc.name)+namespace(home+"-free", "other-"+tc.name)+tenant(tc.name, accountOwner(home, "owner")))
			config := s.as(account(t, home, "owner"))
			sees(t, newClient(t, config), home)
			words := events(t, config, tc.contentType)
			expect(t, words, added+home)

			joins := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home + "-free"}}
			label := func(tenant string) {
				if err := s.admin.Patch(t.Context(), joins, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{"tenure.dev/tenant":%q}}}`, tenant))); err != nil {
					t.Fatal(err)
				}
			}
			label(tc.name)
			expect(t, words, added+home+"-free")
			label("other-" + tc.name)
			expect(t, words, "DELETED "+home+"-free")

			apply(t, tenant("other-"+tc.name, accountOwner(home, "owner")))
			expect(t, words, gone410)
			if got, open := <-words; open {
				t.Errorf("the watch goes on with %q after it has ended", got)
			}
			sees(t, newClient(t, config), home+" "+home+"-free")
		})
	}
}

// TestWatchRights checks that the watch of a user without tenants follows RBAC: new and
// removed rights.
func TestWatchRights(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("rights-a", "rights")+`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: view, namespace: rights-a}, rules: [{apiGroups: [""], resources: [namespaces], verbs: [get]}]}`)
	config := s.as(account(t, "rights-a", "guest"))
	c := newClient(t, config)
	sees(t, c, "")
	words := events(t, config, "application/json")
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "view", Namespace: "rights-a"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "guest", Namespace: "rights-a"}},
	}
	if err := s.admin.Create(t.Context(), binding.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expect(t, words, gone410)
	sees(t, c, "rights-a")
	words = events(t, config, "application/json")
	expect(t, words, added+"rights-a")
	if err := s.admin.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	expect(t, words, gone410)
	sees(t, c, "")
}

// TestWatchGoesOn checks that a client that continues from a list learns of a right that
// was added after the list.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("goes-a", "goes"))
	config := s.as(account(t, "goes-a", "owner"))
	c := newClient(t, config)
	var before corev1.NamespaceList
	if err := c.List(t.Context(), &before); err != nil || len(before.Items) > 0 {
		t.Fatal(before.Items, err)
	}
	watchFrom := func(version string) string {
		code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/api/v1/namespaces?watch=true&timeoutSeconds=1&resourceVersion="+version, config.BearerToken))
		return fmt.Sprint(code, " ", body)
	}
	if got := watchFrom(before.ResourceVersion); strings.Contains(got, "410") {
		t.Errorf("nothing has changed, but got %s", got)
	}
	apply(t, tenant("goes", accountOwner("goes-a", "owner")))
	sees(t, c, "goes-a")
	if got := watchFrom(before.ResourceVersion); !strings.HasPrefix(got, "410 ") {
		t.Errorf("what is to be seen has changed, but got %s", got)
	}
	testwait.For(t, "a new list to be gone on from", patience, func() (bool, string) {
		var now corev1.NamespaceList
		if err := c.List(t.Context(), &now); err != nil {
			t.Fatal(err)
		}
		got := watchFrom(now.ResourceVersion)
		return strings.HasPrefix(got, "200"), got
	})
}

// TestDrain checks that a stopping proxy ends watches as after their timeout.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("drain-a", "drain")+tenant("drain", accountOwner("drain-a", "owner"))+
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: view, namespace: drain-a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: owner, namespace: drain-a}]}`)
	own := *s
	own.proxy = newProxy(t, s.rest, Options{})
	own.server = serve(own.proxy)
	t.Cleanup(own.server.Close)
	token := account(t, "drain-a", "owner")
	sees(t, newClient(t, own.as(token)), "drain-a")
	for _, path := range []string{"/api/v1/namespaces?watch=true", "/api/v1/namespaces/drain-a/pods?watch=true"} {
		testwait.For(t, "the account to have its rights", patience, func() (bool, string) {
			code, body, _ := own.raw(t, own.request(t, http.MethodGet, strings.TrimSuffix(path, "?watch=true"), token))
			return code == http.StatusOK, body
		})
	}
	ended := make(chan error, 2)
	for _, path := range []string{"/api/v1/namespaces?watch=true", "/api/v1/namespaces/drain-a/pods?watch=true"} {
		response, err := own.server.Client().Do(own.request(t, http.MethodGet, path, token))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, response.Status)
		}
		go func() {
			_, err := io.Copy(io.Discard, response.Body)
			ended <- err
		}()
	}
	own.proxy.Drain()
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("a watch has been torn: %v", err)
		}
	}
	if err := own.proxy.Ready(t.Context()); err == nil {
		t.Error("a proxy that stops says that it is ready")
	}
}

// TestWatchQuota checks that a user cannot open more watches than MaxWatches.
func TestWatchQuota(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("quota-a", "quota")+tenant("quota", accountOwner("quota-a", "owner")))
	own := *s
	own.proxy = newProxy(t, s.rest, Options{Limits: Limits{MaxWatches: 1}})
	own.server = serve(own.proxy)
	t.Cleanup(own.server.Close)
	config := own.as(account(t, "quota-a", "owner"))
	sees(t, newClient(t, config), "quota-a")
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	first, err := clients.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	once := rest.CopyConfig(config)
	once.ContentType = "application/json"
	code, body, header := own.raw(t, own.request(t, http.MethodGet, "/api/v1/namespaces?watch=true", config.BearerToken))
	if code != http.StatusTooManyRequests || !strings.Contains(body, "too many watches, logs and connections open") || header.Get("Retry-After") == "" {
		t.Errorf("a second watch: got %d %s", code, body)
	}
	first.Stop()
	testwait.For(t, "the first watch to be given back", patience, func() (bool, string) {
		w, err := clients.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
		if err == nil {
			w.Stop()
		}
		return err == nil || !apierrors.IsTooManyRequests(err), fmt.Sprint(err)
	})
}

// TestWatchQuotaOfImpersonators checks that the limits count who sends the requests: a caller that
// may impersonate several users has the watches of one.
func TestWatchQuotaOfImpersonators(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("paid-a", "paid")+tenant("paid", "{kind: User, name: paid-ann}", "{kind: User, name: paid-ben}")+
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: paid}, rules: [
  {apiGroups: [""], resources: [users], resourceNames: [paid-ann, paid-ben], verbs: [impersonate]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: paid}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: paid}, subjects: [{kind: ServiceAccount, name: lender, namespace: paid-a}]}`)
	own := *s
	own.proxy = newProxy(t, s.rest, Options{Limits: Limits{MaxWatches: 1}})
	own.server = serve(own.proxy)
	t.Cleanup(own.server.Close)
	as := func(user string) *rest.Config {
		config := own.as(account(t, "paid-a", "lender"))
		config.Impersonate.UserName = user
		return config
	}
	sees(t, newClient(t, as("paid-ann")), "paid-a")
	sees(t, newClient(t, as("paid-ben")), "paid-a")
	watch := func(user string) (watch.Interface, error) {
		clients, err := kubernetes.NewForConfig(as(user))
		if err != nil {
			t.Fatal(err)
		}
		return clients.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	}
	first, err := watch("paid-ann")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Stop()
	if _, err := watch("paid-ben"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a second watch, as another user: got %v, want too many requests", err)
	}
}

// FuzzStream splits a watch into chunks of any size and ends it anywhere, and checks that
// the output is complete events in order, and then the last event.
func FuzzStream(f *testing.F) {
	f.Add([]byte("a\nbc\n"), uint8(1), uint8(2), false)
	f.Add([]byte("\x00\x00\x00\x03abc\x00\x00\x00\x00"), uint8(3), uint8(1), true)
	f.Fuzz(func(t *testing.T, text []byte, size, at uint8, proto bool) {
		var frames framing = &lines{}
		var whole [][]byte
		var input []byte
		for part := range strings.SplitSeq(string(text), "\n") {
			if proto {
				e := binary.BigEndian.AppendUint32(nil, uint32(len(part)))
				whole = append(whole, append(e, part...))
			} else {
				whole = append(whole, []byte(part+"\n"))
			}
		}
		for _, e := range whole {
			input = append(input, e...)
		}
		if proto {
			frames = &lengths{}
		}
		out := &sink{}
		stopped := false
		s := &stream{to: out, frames: frames, stop: func() { stopped = true }}
		chunks := 0
		for rest := input; len(rest) > 0; chunks++ {
			if chunks == int(at) {
				s.end([]byte("END"))
			}
			n := min(max(int(size), 1), len(rest))
			if _, err := s.Write(rest[:n]); err != nil {
				break
			}
			rest = rest[n:]
		}
		if chunks < int(at) {
			s.end([]byte("END"))
		}
		got := out.String()
		if !stopped || !strings.HasSuffix(got, "END") {
			t.Fatalf("the stream did not end: %q", got)
		}
		got = strings.TrimSuffix(got, "END")
		sofar := ""
		for i := 0; ; i++ {
			if got == sofar {
				return
			}
			if i == len(whole) {
				t.Fatalf("got %q of %q, which is not whole events", got, input)
			}
			sofar += string(whole[i])
		}
	})
}

// sink is a response writer that records the body.
type sink struct {
	http.ResponseWriter
	strings.Builder
}

func (s *sink) Write(b []byte) (int, error)       { return s.Builder.Write(b) }
func (s *sink) WriteString(b string) (int, error) { return s.Builder.WriteString(b) }
func (s *sink) Flush()                            {}

// TestWatchOfUnknownType checks that the client gets the whole error if the API server answers a
// watch in a form in which the proxy cannot find the ends of events.
func TestWatchOfUnknownType(t *testing.T) {
	t.Parallel()
	s := facing(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "2")
		_, _ = io.WriteString(w, "no")
	}, Options{})
	code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/api/v1/namespaces?watch=true", "ann"))
	if code != http.StatusServiceUnavailable || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, "text/plain") {
		t.Errorf("got %d %s", code, body)
	}
}
