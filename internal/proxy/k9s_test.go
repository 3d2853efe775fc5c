package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// pod returns the manifest of a Pod. No kubelet runs it.
func pod(namespace, name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {serviceAccountName: owner, containers: [{name: c, image: images.example.com/c}]}}\n---\n", name, namespace)
}

// governs returns a binding that lets a service account do everything in a namespace.
func governs(namespace, accountNamespace, account string) string {
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all, namespace: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin},
 subjects: [{kind: ServiceAccount, namespace: %s, name: %s}]}
---
`, namespace, accountNamespace, account)
}

// TestK9s sends the requests that k9s sends at its start, according to its sources, and
// checks its views: k9s opens each view after access reviews for list and watch, as a
// dynamic informer in all namespaces or as a Table.
func TestK9s(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("k9s-a", "k9s")+namespace("k9s-b", "k9s")+namespace("k9s-c", "k9s-other")+
		governs("k9s-a", "k9s-a", "owner")+governs("k9s-b", "k9s-a", "owner")+tenant("k9s", accountOwner("k9s-a", "owner")))
	config := s.as(account(t, "k9s-a", "owner"))
	for _, ns := range []string{"k9s-b", "k9s-c"} {
		account(t, ns, "owner")
	}
	apply(t, pod("k9s-a", "x")+pod("k9s-b", "x")+pod("k9s-c", "x"))
	sees(t, newClient(t, config), "k9s-a k9s-b")
	t.Run("discovery", func(t *testing.T) { testK9sDiscovery(t, config) })
	t.Run("reviews", func(t *testing.T) { testK9sReviews(t, config) })
	t.Run("views", func(t *testing.T) { testK9sViews(t, config) })
	t.Run("tables", func(t *testing.T) {
		request := s.request(t, http.MethodGet, "/api/v1/pods?includeObject=Object", config.BearerToken)
		request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io, application/json")
		code, body, _ := s.raw(t, request)
		var table struct {
			Kind string
			Rows []struct{ Object corev1.Pod }
		}
		if err := json.Unmarshal([]byte(body), &table); err != nil || code != http.StatusOK || table.Kind != "Table" {
			t.Fatalf("got %d, %v: %s", code, err, body)
		}
		var got []string
		for i := range table.Rows {
			got = append(got, table.Rows[i].Object.Namespace+"/"+table.Rows[i].Object.Name)
		}
		if diff := cmp.Diff([]string{"k9s-a/x", "k9s-b/x"}, got); diff != "" {
			t.Errorf("Pods as a table: -want +got:\n%s", diff)
		}
	})
}

// testK9sDiscovery checks the version and the API groups, without which k9s does not start.
// k9s looks for the metrics API among the groups.
func testK9sDiscovery(t *testing.T, config *rest.Config) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := c.Discovery().ServerVersion(); err != nil || version.Major == "" {
		t.Errorf("the version: %v, %v", version, err)
	}
	groups, lists, err := c.Discovery().ServerGroupsAndResources()
	if err != nil || len(lists) == 0 {
		t.Errorf("the kinds: %d lists, %v", len(lists), err)
	}
	if slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == "metrics.k8s.io" }) {
		t.Error("metrics are said to be served")
	}
	if err := c.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("metrics: want not found, got %v", err)
	}
}

// testK9sReviews checks the access reviews that k9s sends before it opens a view. An error
// would end k9s.
func testK9sReviews(t *testing.T, config *rest.Config) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, namespace, group, resource string
		verbs                              []string
		want                               bool
	}{
		{"the first view", "", "", "pods", []string{"list", "watch"}, true},
		{"the choice of namespaces", "", "", "namespaces", []string{"list", "watch"}, true},
		{"a view of another group", "", "apps", "deployments", []string{"list", "watch"}, true},
		{"an object of a view", "k9s-b", "", "pods", []string{"get", "delete"}, true},
		{"a log", "k9s-b", "", "pods/log", []string{"get"}, true},
		{"nodes, for the figures at the top", "", "", "nodes", []string{"list"}, false},
		{"definitions, for names and columns", "", "apiextensions.k8s.io", "customresourcedefinitions", []string{"list"}, false},
		{"another tenant's namespace", "k9s-c", "", "pods", []string{"list"}, false},
	} {
		resource, subresource, _ := strings.Cut(tc.resource, "/")
		for _, verb := range tc.verbs {
			review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: tc.namespace, Verb: verb, Group: tc.group, Resource: resource, Subresource: subresource,
				}},
			}, metav1.CreateOptions{})
			if err != nil || review.Status.Allowed != tc.want {
				t.Errorf("%s: %s %s in %q: want %v, got %v", tc.reason, verb, tc.resource, tc.namespace, tc.want, err)
			}
		}
	}
}

// testK9sViews checks that informers in all namespaces show existing, new and deleted
// objects, and that a refused list returns the error of a refusal.
func testK9sViews(t *testing.T, config *rest.Config) {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "nodes"}, {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	} {
		if _, err := c.Resource(kind).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: want a refusal, got %v", kind.Resource, err)
		}
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c, 0, metav1.NamespaceAll, nil)
	views := map[string]func() []string{}
	for _, kind := range []schema.GroupVersionResource{pods, {Version: "v1", Resource: "namespaces"}} {
		store := factory.ForResource(kind).Informer().GetStore()
		views[kind.Resource] = func() []string { return slices.Sorted(slices.Values(store.ListKeys())) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	shows := func(kind string, want ...string) {
		t.Helper()
		testwait.For(t, "the view of "+kind, patience, func() (bool, string) {
			diff := cmp.Diff(want, views[kind]())
			return diff == "", "-want +got:\n" + diff
		})
	}
	shows("namespaces", "k9s-a", "k9s-b")
	shows("pods", "k9s-a/x", "k9s-b/x")
	apply(t, pod("k9s-c", "later")+pod("k9s-b", "later"))
	shows("pods", "k9s-a/x", "k9s-b/later", "k9s-b/x")
	now := int64(0)
	if err := c.Resource(pods).Namespace("k9s-b").Delete(t.Context(), "later", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	shows("pods", "k9s-a/x", "k9s-b/x")
	apply(t, namespace("k9s-d", "k9s"))
	shows("namespaces", "k9s-a", "k9s-b", "k9s-d")
}
