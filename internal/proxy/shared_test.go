package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// priority returns the manifest of a PriorityClass, a cluster-scoped kind that needs few
// fields.
func priority(name, labels string) string {
	return fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %s, labels: {%s}}, value: 1}\n---\n", name, labels)
}

func clients(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// priorities returns the names of the PriorityClasses that a client sees, or the reason of
// the error.
func priorities(t testing.TB, c kubernetes.Interface) string {
	t.Helper()
	all, err := c.SchedulingV1().PriorityClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return string(apierrors.ReasonForError(err))
	}
	var names []string
	for _, p := range all.Items {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// shows waits until a client sees the PriorityClasses.
func shows(t testing.TB, c kubernetes.Interface, want string) {
	t.Helper()
	testwait.For(t, "the PriorityClasses to be "+want, patience, func() (bool, string) {
		got := priorities(t, c)
		return got == want, got
	})
}

func sharing(name, resources string, owners ...string) string {
	return fmt.Sprintf("{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: %s}, spec: {owners: [%s], clusterResources: [%s]}}\n---\n", name, strings.Join(owners, ", "), resources)
}

func ofPriorities(selector, rest string) string {
	return fmt.Sprintf("{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], selector: {%s}%s}", selector, rest)
}

// TestShared checks the objects that Tenants and Capsule's objects share with each user.
func TestShared(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("share-home", "share")+namespace("share-other", "share-other")+
		priority("share-a", "share: a")+priority("share-b", "share: b, size: big")+priority("share-c", "size: big, share: c")+
		sharing("share", ofPriorities("matchLabels: {share: a}", "")+","+ofPriorities("matchLabels: {share: b}", ", subjects: [{kind: User, name: x}, {kind: ServiceAccount, namespace: share-home, name: guest}]"), accountOwner("share-home", "owner"))+
		sharing("share-other", ofPriorities("matchLabels: {share: b}", "")+","+ofPriorities("matchLabels: {size: big}", ", subjects: [{kind: ServiceAccount, namespace: share-home, name: torn}]"), accountOwner("share-home", "both"))+
		sharing("share-third", ofPriorities("matchLabels: {share: a}", ""), accountOwner("share-home", "both"))+
		sharing("share-fourth", ofPriorities("matchLabels: {share: a}", ""), accountOwner("share-home", "torn"))+
		sharing("share-lists", ofPriorities("matchLabels: {share: a}", ", verbs: [list]"), accountOwner("share-home", "lister"))+`
{apiVersion: capsule.clastix.io/v1beta1, kind: GlobalProxySettings, metadata: {name: share}, spec: {rules: [
 {subjects: [{kind: ServiceAccount, name: "system:serviceaccount:share-home:global"}],
  clusterResources: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], operations: [List, Get], selector: {matchLabels: {share: c}}}]},
 {subjects: [{kind: ServiceAccount, name: "system:serviceaccount:share-home:greedy"}],
  clusterResources: [{apiGroups: ["*"], resources: ["*"], selector: {}}, {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], selector: {}}, {apiGroups: [""], resources: [secrets, namespaces], selector: {}}]}]}}
---
{apiVersion: capsule.clastix.io/v1beta1, kind: ProxySetting, metadata: {name: share, namespace: share-home}, spec: {subjects: [
 {kind: ServiceAccount, name: "system:serviceaccount:share-home:helper",
  proxySettings: [{kind: PriorityClasses, operations: [List]}, {kind: Nodes, operations: [List]}]},
 {kind: ServiceAccount, name: "system:serviceaccount:share-home:none",
  clusterResources: [{apiGroups: [scheduling.k8s.io], resources: [priorityclasses], selector: {matchLabels: {share: b}}}]},
 {kind: ServiceAccount, name: "system:serviceaccount:share-home:global", proxySettings: [{kind: PriorityClasses, operations: [List]}]},
 {kind: ServiceAccount, name: "system:serviceaccount:share-other:stranger", proxySettings: [{kind: PriorityClasses, operations: [List]}]}]}}
`)
	for _, tc := range []struct{ reason, namespace, account, want, get string }{
		{"an owner sees what is shared with the tenant", "share-home", "owner", "share-a", "share-a"},
		{"so does the tenant's account", "share-home", "share", "share-a", "share-a"},
		{"another account of the tenant does not", "share-home", "other", "Forbidden", ""},
		{"nor the account of that name elsewhere", "share-other", "share", "Forbidden", ""},
		{"whom an entry names sees that and no more", "share-home", "guest", "share-b", "share-b"},
		{"what several tenants show is put together", "share-home", "both", "share-a share-b", "share-a share-b"},
		{"what cannot be asked for at once is refused, and got by name", "share-home", "torn", "Forbidden", "share-a share-b share-c"},
		{"a verb that is not given is refused", "share-home", "lister", "share-a", ""},
		{"the platform's settings hold for whom they name", "share-home", "global", "share-a share-c", "share-a share-c"},
		{"a tenant shows to others what its owners see", "share-home", "helper", "share-a", "share-a"},
		{"and nothing that they do not", "share-home", "none", "", ""},
		{"nor to another tenant's accounts", "share-other", "stranger", "Forbidden", ""},
		{"who is named for no kind sees nothing", "share-home", "greedy", "Forbidden", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			c := clients(t, s.as(account(t, tc.namespace, tc.account)))
			// A refused list does not show whether the proxy knows all shares yet, so get
			// the objects.
			for name := range strings.FieldsSeq(tc.get) {
				testwait.For(t, name+" to be got", patience, func() (bool, string) {
					_, err := c.SchedulingV1().PriorityClasses().Get(t.Context(), name, metav1.GetOptions{})
					return err == nil, fmt.Sprint(err)
				})
			}
			shows(t, c, tc.want)
			var got []string
			for _, name := range []string{"share-a", "share-b", "share-c", "system-node-critical", "share-missing"} {
				object, err := c.SchedulingV1().PriorityClasses().Get(t.Context(), name, metav1.GetOptions{})
				if err == nil && object.Name == name {
					got = append(got, name)
				} else if !apierrors.IsForbidden(err) {
					t.Errorf("get %s: want the API server's refusal, got %v", name, err)
				}
			}
			if diff := cmp.Diff(tc.get, strings.Join(got, " ")); diff != "" {
				t.Errorf("got by name (-want +got):\n%s", diff)
			}
			if err := c.SchedulingV1().PriorityClasses().Delete(t.Context(), "share-a", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("nothing is changed through the proxy: got %v", err)
			}
			for _, path := range []string{"/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/secrets", "/api/v1/nodes", "/api/v1/nodes/x"} {
				if code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, account(t, tc.namespace, tc.account))); code != http.StatusForbidden {
					t.Errorf("%s: got %d %s", path, code, body)
				}
			}
		})
	}
}

// TestSharedForms checks that the answers are equal to the API server's answers, in every
// format that clients request.
func TestSharedForms(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("form-home", "form")+priority("form-a", "form: x, n: a")+priority("form-b", "form: x, n: b")+priority("form-c", "form: x, n: c")+priority("form-hidden", "form: z, n: a")+
		sharing("form", ofPriorities("matchLabels: {form: x}", ""), accountOwner("form-home", "owner")))
	token := account(t, "form-home", "owner")
	c := clients(t, s.as(token))
	shows(t, c, "form-a form-b form-c")
	all, err := c.SchedulingV1().PriorityClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	exact := "&resourceVersionMatch=Exact&resourceVersion=" + all.ResourceVersion
	const path = "/apis/scheduling.k8s.io/v1/priorityclasses"
	for _, tc := range []struct{ reason, accept, query, direct string }{
		{"plain", "application/json", "", "labelSelector=form%3Dx"},
		{"a table", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "", "labelSelector=form%3Dx"},
		{"a table without objects", "application/json;as=Table;v=v1;g=meta.k8s.io", "includeObject=None", "includeObject=None&labelSelector=form%3Dx"},
		{"metadata alone", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "", "labelSelector=form%3Dx"},
		{"protobuf", "application/vnd.kubernetes.protobuf", "", "labelSelector=form%3Dx"},
		{"metadata in protobuf", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "", "labelSelector=form%3Dx"},
		{"yaml", "application/yaml", "", "labelSelector=form%3Dx"},
		{"a label selector", "application/json", "labelSelector=n+in+(a,b)", "labelSelector=form%3Dx,n+in+(a,b)"},
		{"a label selector for what is hidden", "application/json", "labelSelector=form%3Dz", "labelSelector=form%3Dx,form%3Dz"},
		{"a field selector", "application/json", "fieldSelector=metadata.name%3Dform-b", "labelSelector=form%3Dx&fieldSelector=metadata.name%3Dform-b"},
		{"a field selector for what is hidden", "application/json", "fieldSelector=metadata.name%3Dform-hidden", "labelSelector=form%3Dx&fieldSelector=metadata.name%3Dform-hidden"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			r := s.request(t, http.MethodGet, path+"?"+strings.TrimPrefix(tc.query+exact, "&"), token)
			r.Header.Set("Accept", tc.accept)
			code, got, header := s.raw(t, r)
			direct, want, wantHeader := s.direct(t, path+"?"+tc.direct+exact, tc.accept, "")
			if diff := cmp.Diff([]any{direct, wantHeader.Get("Content-Type"), ageless(want)}, []any{code, header.Get("Content-Type"), ageless(got)}); diff != "" {
				t.Errorf("(-direct +proxy):\n%s", diff)
			}
			if strings.Contains(got, "form-hidden") && !strings.Contains(tc.query, "form-hidden") {
				t.Errorf("what is hidden is there: %s", got)
			}
		})
	}
	t.Run("single objects", func(t *testing.T) {
		t.Parallel()
		for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"} {
			for _, query := range []string{"", "?resourceVersion=0", "?resourceVersion=" + all.ResourceVersion} {
				r := s.request(t, http.MethodGet, path+"/form-b"+query, token)
				r.Header.Set("Accept", accept)
				code, got, header := s.raw(t, r)
				direct, want, wantHeader := s.direct(t, path+"/form-b", accept, "")
				if diff := cmp.Diff([]any{direct, wantHeader.Get("Content-Type"), ageless(want)}, []any{code, header.Get("Content-Type"), ageless(got)}); diff != "" {
					t.Errorf("%s %s (-direct +proxy):\n%s", accept, query, diff)
				}
			}
		}
	})
	t.Run("pages", func(t *testing.T) {
		t.Parallel()
		var names []string
		for options := (metav1.ListOptions{Limit: 1}); ; {
			page, err := c.SchedulingV1().PriorityClasses().List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range page.Items {
				names = append(names, p.Name)
			}
			if page.RemainingItemCount != nil {
				t.Errorf("the number of what is left is told: %d", *page.RemainingItemCount)
			}
			if options.Continue = page.Continue; options.Continue == "" {
				break
			}
		}
		if diff := cmp.Diff([]string{"form-a", "form-b", "form-c"}, names); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("gzip", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("x", 200_000) // the API server compresses from 128 KiB
		apply(t, namespace("form-gzip", "form-gzip")+sharing("form-gzip", ofPriorities("matchLabels: {form: gzip}", ""), accountOwner("form-gzip", "owner"))+
			fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: form-gzip, labels: {form: gzip}, annotations: {a: %s}}, value: 1}", long))
		token := account(t, "form-gzip", "owner")
		shows(t, clients(t, s.as(token)), "form-gzip")
		for _, at := range []string{path, path + "/form-gzip"} {
			r := s.request(t, http.MethodGet, at, token)
			r.Header.Set("Accept-Encoding", "gzip")
			code, body, header := s.raw(t, r)
			if code != http.StatusOK || header.Get("Content-Encoding") != "gzip" || len(body) > 10_000 {
				t.Fatalf("%s: want it compressed, got %d %v, %d bytes", at, code, header, len(body))
			}
			reader, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := io.ReadAll(reader); err != nil || !bytes.Contains(plain, []byte(long)) {
				t.Errorf("%s: %d bytes, %v", at, len(plain), err)
			}
		}
	})
}

// age matches the age of an object in a Table: it may differ by a second between two
// requests.
var age = regexp.MustCompile(`"(\d+[dhms])+"`)

func ageless(body string) string { return age.ReplaceAllString(body, `"AGE"`) }

// direct sends a request to the API server itself, as the admin.
func (s *setup) direct(t testing.TB, path, accept, encoding string) (int, string, http.Header) {
	t.Helper()
	config, err := s.rest.TransportConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.DisableCompression = true
	way, err := transport.New(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.rest.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	response, err := way.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, readAll(response), response.Header
}

// TestSharedWatch checks that a watch shows objects that become shared and objects that are
// no longer shared, and no others, and that it ends when the selectors change.
func TestSharedWatch(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	given := func(label string) string {
		return sharing("follow", ofPriorities("matchLabels: {follow: "+label+"}", ""), accountOwner("follow-home", "owner"))
	}
	apply(t, namespace("follow-home", "follow")+priority("follow-a", "follow: x")+priority("follow-hidden", "follow: z")+given("x"))
	c := clients(t, s.as(account(t, "follow-home", "owner")))
	shows(t, c, "follow-a")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seconds := int64(patience / time.Second)
	yes := true
	events, err := c.SchedulingV1().PriorityClasses().Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true, TimeoutSeconds: &seconds})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	sees := func(want string) {
		t.Helper()
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*schedulingv1.PriorityClass); ok && (e.Type != watch.Bookmark || want == "BOOKMARK ") {
				if got := string(e.Type) + " " + p.Name; got != want {
					t.Fatalf("want %s, got %s", want, got)
				}
				return
			}
			if status, ok := e.Object.(*metav1.Status); ok {
				if got := string(e.Type) + " " + string(status.Reason); got != want {
					t.Fatalf("want %s, got %s: %s", want, got, status.Message)
				}
				return
			}
		}
		t.Fatalf("the watch has ended before %s", want)
	}
	sees("ADDED follow-a")
	sees("BOOKMARK ")
	apply(t, priority("follow-hidden", "follow: x"))
	sees("ADDED follow-hidden")
	apply(t, priority("follow-a", "follow: z"))
	sees("DELETED follow-a")
	apply(t, given("z"))
	sees("ERROR Expired")
	shows(t, c, "follow-a")

	// An informer lists again by itself.
	informer := informOf(t, informers.NewSharedInformerFactory(c, 0).Scheduling().V1().PriorityClasses().Informer())
	for _, step := range []struct {
		label, want string
	}{{"z", "follow-a"}, {"x", "follow-hidden"}} {
		apply(t, given(step.label))
		testwait.For(t, "the informer to have "+step.want, patience, func() (bool, string) {
			got := strings.Join(informer(), " ")
			return got == step.want, got
		})
	}
}

// TestSharedNewKinds checks that the proxy shows a kind that is created while the proxy
// runs, without a restart, and only while the kind is cluster-scoped.
func TestSharedNewKinds(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	crd := func(plural, scope string) string {
		return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.fresh.example.com}, spec: {group: fresh.example.com, scope: %[2]s,
 names: {plural: %[1]s, singular: %[1]s1, kind: K%[1]s, listKind: K%[1]sList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
---
`, plural, scope)
	}
	apply(t, namespace("fresh-kinds", "fresh-kinds")+sharing("fresh-kinds", "{apiGroups: [fresh.example.com], resources: [gears, cogs], selector: {matchLabels: {fresh: x}}}", accountOwner("fresh-kinds", "owner"))+
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: fresh-kinds, labels: {rbac.tenure.dev/aggregate-to-proxy: "true"}}, rules: [{apiGroups: [fresh.example.com], resources: ["*"], verbs: [get, list, watch]}]}
---
`+crd("gears", "Cluster")+crd("cogs", "Namespaced"))
	token := account(t, "fresh-kinds", "owner")
	testwait.For(t, "the kinds to be served", patience, func() (bool, string) {
		gears, _, _ := s.direct(t, "/apis/fresh.example.com/v1/gears", "application/json", "")
		cogs, _, _ := s.direct(t, "/apis/fresh.example.com/v1/cogs", "application/json", "")
		return gears == http.StatusOK && cogs == http.StatusOK, fmt.Sprint(gears, cogs)
	})
	apply(t, `{apiVersion: fresh.example.com/v1, kind: Kgears, metadata: {name: mine, labels: {fresh: x}}}
---
{apiVersion: fresh.example.com/v1, kind: Kgears, metadata: {name: theirs}}
---
{apiVersion: fresh.example.com/v1, kind: Kcogs, metadata: {name: theirs, namespace: flux-system, labels: {fresh: x}}}
`)
	testwait.For(t, "the new kind to be shown", patience, func() (bool, string) {
		code, body, _ := s.raw(t, s.request(t, http.MethodGet, "/apis/fresh.example.com/v1/gears", token))
		return code == http.StatusOK && strings.Contains(body, `"name":"mine"`) && !strings.Contains(body, "theirs"), fmt.Sprint(code, body)
	})
	for path, want := range map[string]int{
		"/apis/fresh.example.com/v1/gears/mine":   http.StatusOK,
		"/apis/fresh.example.com/v1/gears/theirs": http.StatusForbidden,
		"/apis/fresh.example.com/v1/cogs":         http.StatusForbidden,
		"/apis/fresh.example.com/v2/gears":        http.StatusForbidden,
		"/apis/fresh.example.com/v1/gears/mine/x": http.StatusForbidden,
	} {
		if code, body, _ := s.raw(t, s.request(t, http.MethodGet, path, token)); code != want {
			t.Errorf("%s: want %d, got %d %s", path, want, code, body)
		}
	}
}

// TestSharedReviews checks that `kubectl auth can-i`, with and without --list, includes the
// requests that the proxy answers.
func TestSharedReviews(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("asks-home", "asks")+priority("asks-a", "asks: x")+priority("asks-hidden", "asks: z")+
		sharing("asks", ofPriorities("matchLabels: {asks: x}", ", verbs: [get, list]"), accountOwner("asks-home", "owner")))
	owner, stranger := clients(t, s.as(account(t, "asks-home", "owner"))), clients(t, s.as(account(t, "asks-home", "stranger")))
	shows(t, owner, "asks-a")
	for _, tc := range []struct {
		reason         string
		verb, resource string
		name           string
		want           bool
	}{
		{"what is listed", "list", "priorityclasses", "", true},
		{"what is got", "get", "priorityclasses", "", true},
		{"one that is seen", "get", "priorityclasses", "asks-a", true},
		{"one that is not", "get", "priorityclasses", "asks-hidden", false},
		{"one that is not there", "get", "priorityclasses", "asks-missing", false},
		{"a verb that is not given", "watch", "priorityclasses", "", false},
		{"what the proxy does for nobody", "delete", "priorityclasses", "asks-a", false},
		{"every verb", "*", "priorityclasses", "", false},
		{"another kind", "list", "runtimeclasses", "", false},
	} {
		for who, c := range map[string]kubernetes.Interface{"owner": owner, "stranger": stranger} {
			group := "scheduling.k8s.io"
			if tc.resource == "runtimeclasses" {
				group = "node.k8s.io"
			}
			review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tc.verb, Group: group, Resource: tc.resource, Name: tc.name}},
			}, metav1.CreateOptions{})
			if want := tc.want && who == "owner"; err != nil || review.Status.Allowed != want {
				t.Errorf("%s as the %s: want %v, got %v %v", tc.reason, who, want, review.Status, err)
			}
		}
	}
	for who, c := range map[string]kubernetes.Interface{"owner": owner, "stranger": stranger} {
		review, err := c.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "asks-home"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, r := range review.Status.ResourceRules {
			if slices.Contains(r.Resources, "priorityclasses") || slices.Contains(r.Resources, "namespaces") {
				got[r.Resources[0]] = strings.Join(r.Verbs, " ")
			}
		}
		want := map[string]string{"namespaces": "list watch"}
		if who == "owner" {
			want["priorityclasses"] = "get list"
		}
		if diff := cmp.Diff(want, got); diff != "" || len(review.Status.NonResourceRules) == 0 || len(review.Status.ResourceRules) < 3 {
			t.Errorf("the rules of the %s, with those of the API server (-want +got):\n%s\n%v", who, diff, review.Status)
		}
	}
	_, err := owner.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{}, metav1.CreateOptions{})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a review without a namespace: want the API server's refusal, got %v", err)
	}
}

// TestSharedVolumes checks that a tenant sees a volume while the volume is bound to one of
// the tenant's claims.
func TestSharedVolumes(t *testing.T) {
	t.Parallel()
	s := fixture(t)
	apply(t, namespace("volumes-a", "volumes")+namespace("volumes-b", "volumes-other")+
		sharing("volumes", `{apiGroups: [""], resources: [persistentvolumes], selector: {}}`, accountOwner("volumes-a", "owner")))
	c := clients(t, s.as(account(t, "volumes-a", "owner")))
	admin := clients(t, s.rest)
	volume := func(name, namespace, label string) {
		t.Helper()
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *quantity("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}, StorageClassName: "volumes",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		}}
		if label != "" {
			pv.Labels = map[string]string{"tenure.dev/claim-namespace": label}
		}
		if _, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if namespace == "" {
			return
		}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: name, StorageClassName: &pv.Spec.StorageClassName, AccessModes: pv.Spec.AccessModes,
			Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		}}
		if _, err := admin.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The policy takes effect a moment after it was applied.
	testwait.For(t, "the policy to be in force", patience, func() (bool, string) {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volumes-probe", Labels: map[string]string{"tenure.dev/claim-namespace": "volumes-x"}}, Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *quantity("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
		}}
		made, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(made.Labels) == 0, fmt.Sprint(made.Labels, err)
	})
	volume("volumes-mine", "volumes-a", "")
	volume("volumes-theirs", "volumes-b", "volumes-a")
	volume("volumes-free", "", "volumes-a")
	seen := func() string {
		all, err := c.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, pv := range all.Items {
			names = append(names, pv.Name)
		}
		return strings.Join(names, " ")
	}
	testwait.For(t, "the tenant's volume alone", patience, func() (bool, string) { return seen() == "volumes-mine", seen() })
	testwait.For(t, "the other volume to be bound", patience, func() (bool, string) {
		pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), "volumes-theirs", metav1.GetOptions{})
		return err == nil && pv.Status.Phase == corev1.VolumeBound && pv.Labels["tenure.dev/claim-namespace"] == "volumes-b", fmt.Sprint(pv.Labels, pv.Status.Phase, err)
	})
	if got := seen(); got != "volumes-mine" {
		t.Errorf("want the tenant's own volume, got %s", got)
	}
	claims := admin.CoreV1().PersistentVolumeClaims("volumes-a")
	if err := claims.Delete(t.Context(), "volumes-mine", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the volume to be nobody's", patience, func() (bool, string) { return seen() == "", seen() })
}
