package server

import (
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// TestRights checks with the proxy's own token that it can read RBAC and write nothing but
// the proxy's certificate, among all resources that the API server serves.
func TestRights(t *testing.T) {
	t.Parallel()
	c := testcluster.Shared(t)
	install(t, c.REST)
	admin, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("flux-system").CreateToken(t.Context(), "tenure-proxy", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(c.REST)
	own.BearerToken = token.Status.Token
	stolen, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	may := func(verb, group, resource, namespace, name string) bool {
		resource, subresource, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource, Name: name,
		}}}
		review, err := stolen.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	testwait.For(t, "the proxy to have its rights", patience, func() (bool, string) {
		return may("list", "", "namespaces", "", ""), "not yet"
	})
	_, lists, err := admin.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	// All users may create these reviews, which concern the user alone.
	self := []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
	var reads []string
	for _, list := range lists {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		if !grouped {
			group = ""
		}
		for _, r := range list.APIResources {
			for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection", "impersonate", "bind", "escalate", "approve", "sign"} {
				if may(verb, group, r.Name, "flux-system", "") && !slices.Contains(self, r.Name) {
					t.Errorf("the proxy may %s %s of %q", verb, r.Name, group)
				}
			}
			if r.Namespaced && may("get", group, r.Name, "flux-system", "") {
				reads = append(reads, r.Name)
			}
		}
	}
	slices.Sort(reads)
	if reads = slices.Compact(reads); !slices.Equal(reads, []string{"rolebindings", "roles"}) {
		t.Errorf("of what is in namespaces the proxy reads %v, want role bindings and roles", reads)
	}
	for _, who := range []string{"users", "groups", "serviceaccounts", "uids"} {
		if may("impersonate", "", who, "", "") {
			t.Errorf("the proxy may impersonate %s", who)
		}
	}
	if !may("update", "", "secrets", "flux-system", "tenure-proxy-own") || may("update", "", "secrets", "flux-system", "tenure-webhook") {
		t.Error("the proxy may write the Secret of its certificate, and no other")
	}
}
