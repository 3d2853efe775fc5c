package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const joinedObjects = `
{apiVersion: v1, kind: Namespace, metadata: {name: joined-a, labels: {tenure.dev/tenant: joined}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: joined-b, labels: {tenure.dev/tenant: joined}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: joined-c, labels: {tenure.dev/tenant: joined-other}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: joined-a, labels: {of: joined}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: joined-b, labels: {of: joined}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: joined-c, labels: {of: joined}}}
`

func joinedBinding(namespace string) string {
	return fmt.Sprintf(`
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: all, namespace: %s}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin},
 subjects: [{kind: ServiceAccount, name: owner, namespace: joined-a}]}`, namespace)
}

// TestAcrossNamespaces checks that lists and watches in all namespaces show the objects of
// the namespaces in which the caller may read, that they follow changes of these
// namespaces, and that `kubectl auth can-i` agrees.
func TestAcrossNamespaces(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, joinedObjects+joinedBinding("joined-a"))
	token := account(t, "joined-a", "owner")
	c, err := kubernetes.NewForConfig(s.as(token))
	if err != nil {
		t.Fatal(err)
	}
	lists := func(want string) {
		t.Helper()
		testwait.For(t, "the list to hold "+want, patience, func() (bool, string) {
			list, err := c.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "of=joined"})
			if err != nil {
				return false, err.Error()
			}
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].Namespace)
			}
			return strings.Join(got, " ") == want, strings.Join(got, " ")
		})
	}
	lists("joined-a")
	events, err := c.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{LabelSelector: "of=joined"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	sees := func(want string) {
		t.Helper()
		e := <-events.ResultChan()
		m, ok := e.Object.(*corev1.ConfigMap)
		if !ok || m.Namespace != want {
			t.Fatalf("want an event of %s, got %v", want, e)
		}
	}
	sees("joined-a")
	apply(t, strings.TrimPrefix(joinedBinding("joined-b"), "\n---\n"))
	sees("joined-b") // by the open watch
	lists("joined-a joined-b")

	may := func(verb, resource string) bool {
		t.Helper()
		review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	// cluster-admin in a namespace includes nodes, which are cluster-scoped.
	for resource, want := range map[string]bool{"configmaps": true, "nodes": false} {
		if got := may("list", resource); got != want {
			t.Errorf("can-i list %s in all namespaces: %v, want %v", resource, got, want)
		}
	}
	if may("delete", "configmaps") {
		t.Error("can-i delete configmaps in all namespaces: the proxy does not do that")
	}
	if _, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("nodes: want the API server's refusal, got %v", err)
	}
	stranger, err := kubernetes.NewForConfig(s.as(account(t, "joined-a", "stranger")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("who may read nowhere: want the API server's refusal, got %v", err)
	}
}
