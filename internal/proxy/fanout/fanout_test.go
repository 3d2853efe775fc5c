package fanout

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	os.Exit(code)
}

const patience = 2 * time.Minute

// front is a proxy for one identity.
type front struct {
	*httptest.Server
	server *Server
	mu     sync.Mutex
	names  []string
	change chan struct{}
	// cut closes all open connections.
	cut func()
}

func (f *front) visible() ([]string, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.names), f.change
}

func (f *front) show(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(names)
	f.names = names
	close(f.change)
	f.change = make(chan struct{})
}

// newFront returns a front for a user with the given name, who may edit the namespaces. It
// impersonates the user, and the API server authorizes the requests.
func newFront(t *testing.T, user string, namespaces ...string) (*front, *kubernetes.Clientset) {
	t.Helper()
	c := testcluster.Shared(t)
	admin, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range namespaces {
		newNamespace(t, admin, user, name)
	}
	transport, err := rest.TransportFor(c.REST)
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(c.REST.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{server: &Server{Transport: transport, Base: base, Memory: budget.New(budget.Default())}, change: make(chan struct{})}
	f.show(namespaces...)
	ctx, cut := context.WithCancel(t.Context())
	f.cut = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		cut()
		ctx, cut = context.WithCancel(context.Background())
	}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Impersonate-User", user)
		f.mu.Lock()
		open := ctx
		f.mu.Unlock()
		request, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(open, cancel)()
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
		answered := f.server.Answer(w, r.WithContext(request), Request{
			Identity: user, Prefix: "/" + strings.Join(parts[:len(parts)-1], "/"), Resource: parts[len(parts)-1],
			Watch: r.URL.Query().Get("watch") == "true", Visible: f.visible,
		})
		if !answered {
			http.Error(w, `{"kind":"NotAnswered"}`, http.StatusNotImplemented)
		}
	}))
	t.Cleanup(f.Close)
	t.Cleanup(f.cut)
	return f, admin
}

func newNamespace(t *testing.T, admin *kubernetes.Clientset, user, name string) {
	t.Helper()
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := admin.RbacV1().RoleBindings(name).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the user's rights in "+name, patience, func() (bool, string) {
		_, err := admin.CoreV1().RESTClient().Get().Namespace(name).Resource("configmaps").SetHeader("Impersonate-User", user).DoRaw(t.Context())
		return err == nil, fmt.Sprint(err)
	})
}

func put(t *testing.T, admin *kubernetes.Clientset, namespace, name string) {
	t.Helper()
	_, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"by": "test"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (f *front) client(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: f.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func names(list *corev1.ConfigMapList) []string {
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Namespace+"/"+list.Items[i].Name)
	}
	return names
}

// by selects the objects of the tests: Kubernetes creates a ConfigMap in each namespace.
var by = metav1.ListOptions{LabelSelector: "by=test"}

func TestList(t *testing.T) {
	t.Parallel()
	f, admin := newFront(t, "lister", "list-a", "list-b", "list-c")
	for _, namespace := range []string{"list-a", "list-c", "default"} {
		for i := range 3 {
			put(t, admin, namespace, fmt.Sprintf("m%d", i))
		}
	}
	want := []string{"list-a/m0", "list-a/m1", "list-a/m2", "list-c/m0", "list-c/m1", "list-c/m2"}
	maps := f.client(t).CoreV1().ConfigMaps("")
	all, err := maps.List(t.Context(), by)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, names(all)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	for limit := int64(1); limit <= 7; limit++ {
		var got []string
		pages, version := 0, ""
		for options := (metav1.ListOptions{LabelSelector: "by=test", Limit: limit}); ; pages++ {
			page, err := maps.List(t.Context(), options)
			if err != nil {
				t.Fatalf("limit %d: %v", limit, err)
			}
			if int64(len(page.Items)) > limit || version != "" && page.ResourceVersion != version {
				t.Errorf("limit %d: a page of %d objects at version %s after %s", limit, len(page.Items), page.ResourceVersion, version)
			}
			got, version = append(got, names(page)...), page.ResourceVersion
			if options.Continue = page.Continue; page.Continue == "" {
				break
			}
			if pages == 0 {
				// Objects that are created between two pages are not on a later page.
				put(t, admin, "list-c", fmt.Sprintf("between-%d", limit))
				if err := admin.CoreV1().ConfigMaps("list-c").Delete(t.Context(), fmt.Sprintf("between-%d", limit), metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, diff)
		}
	}
	// A namespace that the front shows and the API server refuses adds nothing.
	f.show("default", "kube-system", "list-a")
	all, err = maps.List(t.Context(), by)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want[:3], names(all)); diff != "" {
		t.Errorf("without rights (-want +got):\n%s", diff)
	}
	f.show()
	if _, err := maps.List(t.Context(), by); !apierrors.IsForbidden(err) {
		t.Errorf("nowhere: want forbidden, got %v", err)
	}
}

// get sends a request and returns the code, the kind and the number of rows or items of the
// answer.
func (f *front) get(t *testing.T, path, accept string) (int, string, int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Kind        string
		Items, Rows []any
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("%s is no JSON: %v", body, err)
	}
	return response.StatusCode, answer.Kind, len(answer.Items) + len(answer.Rows)
}

func TestForms(t *testing.T) {
	t.Parallel()
	f, admin := newFront(t, "former", "form-a", "form-b")
	put(t, admin, "form-a", "x")
	put(t, admin, "form-b", "y")
	const maps = "/api/v1/configmaps?labelSelector=by%3Dtest"
	for _, tc := range []struct {
		reason, path, accept string
		code                 int
		kind                 string
		size                 int
	}{
		{"as kubectl get asks", maps, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 200, "Table", 2},
		{"as metadata clients ask", maps, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 200, "PartialObjectMetadataList", 2},
		{"as client-go asks", maps, "application/vnd.kubernetes.protobuf,application/json", 200, "ConfigMapList", 2},
		{"whatever there is", maps, "*/*", 200, "ConfigMapList", 2},
		{"nothing but protobuf", maps, "application/vnd.kubernetes.protobuf", 406, "Status", 0},
		{"a selector that is none", "/api/v1/configmaps?labelSelector=%3D%3D", "application/json", 400, "Status", 0},
		{"a kind that the user has no right to", "/api/v1/nothings", "application/json", 403, "Status", 0},
		{"a page of nothing that we said", maps + "&continue=x", "application/json", 400, "Status", 0},
		{"a limit that is none", maps + "&limit=x", "application/json", 400, "Status", 0},
		{"a version of the future", maps + "&resourceVersion=99999999&resourceVersionMatch=Exact", "application/json", 504, "Status", 0},
	} {
		code, kind, size := f.get(t, tc.path, tc.accept)
		if code != tc.code || kind != tc.kind || size != tc.size {
			t.Errorf("%s: got %d, %s with %d, want %d, %s with %d", tc.reason, code, kind, size, tc.code, tc.kind, tc.size)
		}
	}
}

// informer runs an informer of client-go and returns a function that returns its content.
func informer(t *testing.T, f *front) func() map[string]string {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(f.client(t), 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "by=test" }))
	maps := factory.Core().V1().ConfigMaps().Informer()
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.Start(stop)
	if !cache.WaitForCacheSync(t.Context().Done(), maps.HasSynced) {
		t.Fatal("the informer has not been filled")
	}
	return func() map[string]string {
		got := map[string]string{}
		for _, o := range maps.GetStore().List() {
			m := o.(*corev1.ConfigMap)
			got[m.Namespace+"/"+m.Name] = m.Data["value"]
		}
		return got
	}
}

func shows(t *testing.T, reason string, got func() map[string]string, want map[string]string) {
	t.Helper()
	testwait.For(t, reason, patience, func() (bool, string) {
		diff := cmp.Diff(want, got())
		return diff == "", diff
	})
}

// TestWatchFollowsNamespaces checks that an informer sees namespaces join and leave during
// a watch.
func TestWatchFollowsNamespaces(t *testing.T) {
	t.Parallel()
	f, admin := newFront(t, "watcher", "watch-a", "watch-b")
	put(t, admin, "watch-a", "x")
	got := informer(t, f)
	shows(t, "the beginning", got, map[string]string{"watch-a/x": ""})
	newNamespace(t, admin, "watcher", "watch-c")
	put(t, admin, "watch-c", "z")
	put(t, admin, "watch-b", "y")
	shows(t, "an event of the other namespace", got, map[string]string{"watch-a/x": "", "watch-b/y": ""})
	f.show("watch-a", "watch-b", "watch-c")
	shows(t, "what was in the namespace that came", got, map[string]string{"watch-a/x": "", "watch-b/y": "", "watch-c/z": ""})
	put(t, admin, "watch-c", "z2")
	f.show("watch-b", "watch-c")
	shows(t, "nothing of the namespace that went", got, map[string]string{"watch-b/y": "", "watch-c/z": "", "watch-c/z2": ""})
}

// TestWatchLosesNothing checks that an informer has the current objects after many changes
// and dropped connections.
func TestWatchLosesNothing(t *testing.T) {
	t.Parallel()
	const changes, drops = 10_000, 50 // in all namespaces together
	namespaces := []string{"lose-a", "lose-b", "lose-c"}
	f, _ := newFront(t, "loser", namespaces...)
	got := informer(t, f)
	config := rest.CopyConfig(testcluster.Shared(t).REST)
	config.QPS, config.Burst = -1, 0
	fast, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	var mu sync.Mutex
	var writers errgroup.Group
	for _, namespace := range namespaces {
		writers.Go(func() error {
			maps := fast.CoreV1().ConfigMaps(namespace)
			there := map[string]string{}
			for i := range changes / len(namespaces) {
				name := fmt.Sprintf("m%d", i%21)
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"by": "test"}}, Data: map[string]string{"value": fmt.Sprint(i)}}
				var err error
				switch _, old := there[name]; {
				case !old:
					_, err = maps.Create(t.Context(), m, metav1.CreateOptions{})
					there[name] = m.Data["value"]
				case i%5 == 0:
					err = maps.Delete(t.Context(), name, metav1.DeleteOptions{})
					delete(there, name)
				default:
					_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
					there[name] = m.Data["value"]
				}
				if err != nil {
					return err
				}
				if i%(changes/drops) == 0 {
					f.cut() // each writer cuts at different times
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for name, value := range there {
				want[namespace+"/"+name] = value
			}
			return nil
		})
	}
	if err := writers.Wait(); err != nil {
		t.Fatal(err)
	}
	shows(t, "all changes", got, want)
}
