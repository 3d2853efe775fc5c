package catalog

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// acceptedWrite is a request for a Pod with labels, which the API server accepted.
func acceptedWrite(method, path string, labels map[string]string, body string) sentRequest {
	answer, _ := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	s := sentRequest{who: identity{user: "team", groups: []string{"devs"}}, method: method, url: url.URL{Path: path}, body: []byte(body), status: http.StatusOK, answer: answer}
	if method == http.MethodPatch {
		s.contentType = "application/merge-patch+json"
	}
	return s
}

// TestWebhookSelectors checks that a webhook that does not run here is a doubt only if the API server would ask it about a
// request of the attack.
func TestWebhookSelectors(t *testing.T) {
	t.Parallel()
	const pods, own = "/api/v1/namespaces/team/pods", "/api/v1/namespaces/team/pods/x"
	opted := &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}}
	others := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "inject", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	inject := map[string]string{"inject": "yes"}
	plain, labelled := acceptedWrite(http.MethodPost, pods, nil, "{}"), acceptedWrite(http.MethodPost, pods, inject, "{}")
	longer := plain
	longer.answer = nil
	refused := labelled
	refused.status = http.StatusForbidden
	for _, tc := range []struct {
		reason     string
		objects    *metav1.LabelSelector
		conditions []string
		attack     Attack
		sent       []sentRequest
		want       bool
	}{
		{"no selector", &metav1.LabelSelector{}, nil, Attack{Via: API}, []sentRequest{plain}, true},
		{"an object without the label", opted, nil, Attack{Via: API}, []sentRequest{plain}, false},
		{"an object with the label", opted, nil, Attack{Via: API}, []sentRequest{plain, labelled}, true},
		{"a label that the API server adds", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodPost, pods, inject, `{"metadata":{}}`)}, true},
		{"a label that the API server removes", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodPost, pods, nil, `{"metadata":{"labels":{"inject":"yes"}}}`)}, true},
		{"a refused request", opted, nil, Attack{Via: API}, []sentRequest{refused, plain}, false},
		{"a selector of all other objects", others, nil, Attack{Via: API}, []sentRequest{plain}, true},
		{"a long object", opted, nil, Attack{Via: API}, []sentRequest{longer}, true},
		{"a change that leaves the labels", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodPatch, own, nil, `{"spec":{}}`)}, false},
		{"a change that removes the label", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodPatch, own, nil, `{"metadata":{"labels":null}}`)}, true},
		{"a deletion", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodDelete, own, nil, "")}, true},
		{"a subresource", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodPost, own+"/eviction", nil, "{}")}, true},
		{"only reads", opted, nil, Attack{Via: API}, []sentRequest{acceptedWrite(http.MethodGet, own, nil, "")}, true},
		{"a connection to a Pod", opted, nil, Attack{Via: API}, []sentRequest{plain, acceptedWrite(http.MethodGet, own+"/proxy", nil, "")}, true},
		{"a read beside a write", opted, nil, Attack{Via: API}, []sentRequest{plain, acceptedWrite(http.MethodGet, own, nil, "")}, false},
		{"an attack that waits for Flux", opted, nil, Attack{Via: API, Deep: true}, []sentRequest{plain}, true},
		{"an attack by a commit", opted, nil, Attack{Via: Git}, []sentRequest{plain}, true},
		{"a condition that is false", nil, []string{"request.namespace == 'other'"}, Attack{Via: API}, []sentRequest{plain}, false},
		{"a condition that is true", nil, []string{"request.namespace == 'team'"}, Attack{Via: API}, []sentRequest{plain}, true},
		{"one of two conditions", nil, []string{"has(object.spec)", "request.namespace != 'team'"}, Attack{Via: API}, []sentRequest{plain}, false},
		{"a condition that is not known", nil, []string{"object.spec.hostNetwork"}, Attack{Via: API}, []sentRequest{plain}, true},
		{"a condition in another namespace", nil, []string{"request.namespace == 'other'"}, Attack{Via: API}, []sentRequest{plain, acceptedWrite(http.MethodPost, "/api/v1/namespaces/other/pods", nil, "{}")}, true},
	} {
		hook := webhookDoubt{name: "webhook w", rules: []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{Resources: []string{"pods"}}}}, objects: tc.objects, conditions: tc.conditions}
		tc.attack.Controls, tc.attack.Kinds = []string{"policy"}, []string{"Pod"}
		f := gotThrough("it could")
		f.Sent = tc.sent
		if got := (&Scenario{webhookDoubts: []webhookDoubt{hook}}).withDoubts(tc.attack, f).Outcome == NotProven; got != tc.want {
			t.Errorf("%s: a doubt: %t, want %t", tc.reason, got, tc.want)
		}
	}
}

// TestExpressionValues checks that an expression has a value only if it is sure.
func TestExpressionValues(t *testing.T) {
	t.Parallel()
	s := acceptedWrite(http.MethodPost, "/api/v1/namespaces/team/pods", nil, "{}")
	for expression, want := range map[string]truth{
		`request.namespace == "team"`:                                                                             isTrue,
		`request.namespace=='other'`:                                                                              isFalse,
		`!(request.namespace == 'other')`:                                                                         isTrue,
		`request.namespace in ['a', 'team']`:                                                                      isTrue,
		`!(request.namespace in ["team", "b"])`:                                                                   isFalse,
		`!request.namespace in ['a']`:                                                                             isUnknown,
		`request.resource.resource != 'pods'`:                                                                     isFalse,
		`request.userInfo.username == 'team'`:                                                                     isTrue,
		`'devs' in request.userInfo.groups`:                                                                       isTrue,
		`!('system:nodes' in request.userInfo.groups)`:                                                            isTrue,
		`'system:nodes' in request.userInfo.groups`:                                                               isFalse,
		`'system:authenticated' in request.userInfo.groups`:                                                       isUnknown,
		`request.namespace == 'other' || request.namespace == 'team'`:                                             isTrue,
		`request.namespace == 'other' || object.spec.x`:                                                           isUnknown,
		`request.namespace == 'team' || object.spec.x`:                                                            isTrue,
		`object.spec.x && request.namespace == 'other'`:                                                           isFalse,
		`object.spec.x && request.namespace == 'team'`:                                                            isUnknown,
		`!(object.x && request.namespace == 'other' || request.namespace == 'b' && 'c')`:                          isUnknown,
		`[object.x && request.namespace == 'other' && object.y] == []`:                                            isUnknown,
		`request.namespace == 'other' ? object.x : true`:                                                          isUnknown,
		`request.namespace == 'other' // && `:                                                                     isUnknown,
		`'a && request.namespace == "b" && c' == object.x`:                                                        isUnknown,
		`'\' && request.namespace == \'b'`:                                                                        isUnknown,
		`request.namespace.startsWith('team')`:                                                                    isUnknown,
		`request.namespace == object.metadata.namespace`:                                                          isUnknown,
		`(request.namespace == 'other') == (request.namespace == 'b')`:                                            isUnknown,
		`'1' in request.userInfo.groups || request.namespace in ['0','1','2','3','4','5','6','7','8','9','team']`: isUnknown,
		`object.metadata.name == 'x'`:                                                                             isUnknown,
		``:                                                                                                        isUnknown,
	} {
		if got := s.value(expression); got != want {
			t.Errorf("%s is %d, want %d", expression, got, want)
		}
	}
	namespaces := acceptedWrite(http.MethodPost, "/api/v1/namespaces", nil, "{}")
	if got := namespaces.value("request.namespace == 'other'"); got != isUnknown {
		t.Errorf("the namespace of a request for a Namespace is %d, want %d", got, isUnknown)
	}
}

// TestKeptAnswers checks that a client still reads the whole answer of which a recorder keeps the object, and that the
// requests of controllers are in no command.
func TestKeptAnswers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, maxRepeated} {
		answer := `{"metadata":{"name":"` + strings.Repeat("x", size) + `"}}`
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		defer server.Close()
		who := identity{user: "team"}
		for _, controller := range []bool{false, true} {
			who.controller = controller
			config := &rest.Config{Host: server.URL}
			recording(config, who)
			c, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, r := recorded(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/api/v1/namespaces/team/pods", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := c.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(content) != answer {
				t.Errorf("the client reads %d bytes, %v, want %d", len(content), err, len(answer))
			}
			if kept := string(r.all[0].answer) == answer; kept != (size == 1) {
				t.Errorf("an answer of %d bytes is kept: %t", len(answer), kept)
			}
			if command := r.repeat(gotThrough("it could"), who); (command == "") != controller {
				t.Errorf("the command is %q, for a controller: %t", command, controller)
			}
		}
	}
}

// TestDoubtsHaveSelectors checks that the selectors and conditions of the fleet's webhooks are read.
func TestDoubtsHaveSelectors(t *testing.T) {
	t.Parallel()
	config := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Name: "s", Namespace: "n"}}
	conditions := []admissionv1.MatchCondition{{Name: "c", Expression: "request.namespace == 'a'"}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	e := newFakeEnv(interceptor.Funcs{},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Webhooks: []admissionv1.ValidatingWebhook{{Name: "v", ClientConfig: config, FailurePolicy: new(admissionv1.Ignore), ObjectSelector: selector, MatchConditions: conditions}}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Webhooks: []admissionv1.MutatingWebhook{{Name: "m", ClientConfig: config, FailurePolicy: new(admissionv1.Ignore), ObjectSelector: selector, MatchConditions: conditions}}})
	got, err := simulatedWebhooks(t.Context(), e.Admin)
	if err != nil || len(got) != 2 {
		t.Fatalf("got %d webhooks, %v, want 2", len(got), err)
	}
	for _, w := range got {
		if w.objects == nil || w.objects.MatchLabels["a"] != "b" || !slices.Equal(w.conditions, []string{"request.namespace == 'a'"}) {
			t.Errorf("%s has objects %v and conditions %q", w.name, w.objects, w.conditions)
		}
	}
}
