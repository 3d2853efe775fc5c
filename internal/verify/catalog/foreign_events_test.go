package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// fakeOutside plays the cluster's network: hosts that were given a handler are
// served by that, everything else is a Service of the platform.
type fakeOutside struct {
	mu       sync.Mutex
	handlers map[string]http.Handler
	service  func(host string, body []byte) (int, error)
}

func (f *fakeOutside) Handle(host, prefix string, handler http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers[host+prefix] = handler
}

func (f *fakeOutside) Forget(host, prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.handlers, host+prefix)
}

func (f *fakeOutside) Client() *http.Client { return &http.Client{Transport: f} }

func (f *fakeOutside) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	code, err := f.service(r.URL.Hostname(), body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Body: http.NoBody, Request: r}, nil
}

// deliver sends what notification-controller would to the address of a Provider.
func (f *fakeOutside) deliver(id string, body []byte) {
	f.mu.Lock()
	handler := f.handlers[sinkHost+"/"+name(id)]
	f.mu.Unlock()
	if handler != nil {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/"+name(id), bytes.NewReader(body)))
	}
}

// TestNotified checks the findings for the reactions of notification-controller to an event, and for its
// message about an Alert that it could not serve.
func TestNotified(t *testing.T) {
	t.Parallel()
	const blocked = "failed to dispatch notification: alert can't process event, cross-namespace references have been blocked"
	says := func(message string) func(*Scenario, *fakeOutside, []byte) error {
		return func(e *Scenario, _ *fakeOutside, _ []byte) error {
			return client.IgnoreAlreadyExists(e.Admin.Create(context.Background(), &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "team", Name: "event"},
				InvolvedObject: corev1.ObjectReference{Kind: "Alert", Namespace: "team", Name: name("n1")},
				Type:           corev1.EventTypeWarning, Message: message,
			}))
		}
	}
	delivers := func(_ *Scenario, outside *fakeOutside, body []byte) error {
		outside.deliver("n1", body)
		return nil
	}
	policy := forbidden("ValidatingAdmissionPolicy 'providers' denied request: no")
	for name, tc := range map[string]struct {
		reason     string
		controller func(*Scenario, *fakeOutside, []byte) error
		tenant     interceptor.Funcs
		outcome    Outcome
		control    string
	}{
		"delivered": {reason: "what reaches the sink got through", controller: delivers, outcome: GotThrough},
		"another's": {
			reason: "another message at the sink is none of ours", outcome: NotProven,
			controller: func(_ *Scenario, outside *fakeOutside, _ []byte) error {
				outside.deliver("n1", []byte("somebody else's"))
				return nil
			},
		},
		"blocked":     {reason: "the flag speaks", controller: says(blocked), outcome: Stopped, control: "flag --no-cross-namespace-refs"},
		"not sent":    {reason: "a message that was lost on its way is no refusal", controller: says("failed to send notification: connection refused"), outcome: NotProven},
		"not reached": {reason: "a controller that is not there refuses nothing", controller: func(*Scenario, *fakeOutside, []byte) error { return errors.New("connection refused") }, outcome: NotProven},
		"no Provider": {reason: "without a Provider that is allowed, that one is looked for shows it", controller: says("failed to read provider: not found"), tenant: refusing(policy, nameIf("n1", policy)), outcome: GotThrough},
		"silent":      {reason: "no answer is none", controller: func(*Scenario, *fakeOutside, []byte) error { return nil }, outcome: NotProven},
		"late Provider": {
			reason: "the controller knows the Alert before its Provider", outcome: GotThrough,
			controller: func(e *Scenario, outside *fakeOutside, body []byte) error {
				var events corev1.EventList
				if err := e.Admin.List(context.Background(), &events); err != nil {
					return err
				}
				if len(events.Items) > 0 {
					return delivers(e, outside, body)
				}
				return says("failed to read provider: not found")(e, outside, body)
			},
		},
		"lost Provider": {reason: "a Provider that is there is always found", controller: says("failed to read provider: timeout"), outcome: NotProven},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// Only the Provider is refused, which is made first.
				var once sync.Once
				inner := tc.tenant.Create
				if inner != nil {
					tc.tenant.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) (err error) {
						create := c.Create
						once.Do(func() {
							create = func(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
								return inner(ctx, c, o, opts...)
							}
						})
						return create(ctx, o, opts...)
					}
				}
				e := newFakeEnv(tc.tenant)
				outside := &fakeOutside{handlers: map[string]http.Handler{}}
				outside.service = func(host string, body []byte) (int, error) {
					var event struct{ InvolvedObject corev1.ObjectReference }
					if err := json.Unmarshal(body, &event); err != nil || event.InvolvedObject.Namespace != VictimNamespace || !strings.HasPrefix(host, "notification-controller.flux-system.") {
						t.Errorf("%s: %s was sent %q, %v", tc.reason, host, body, err)
					}
					return http.StatusAccepted, tc.controller(e, outside, body)
				}
				e.outside = outside
				got := e.notificationsReceived(t.Context(), "n1", VictimNamespace)
				if got.Outcome != tc.outcome || got.Control != tc.control {
					t.Errorf("%s: got %q by %q (%s%s%s), want %q by %q", tc.reason, got.Outcome, got.Control, got.Message, got.Evidence, got.Reason, tc.outcome, tc.control)
				}
				if len(outside.handlers) != 0 {
					t.Errorf("%s: the sink is left behind", tc.reason)
				}
				for _, kind := range []string{"Alert", "Provider"} {
					left := object("notification.toolkit.fluxcd.io/v1beta3", kind, "team", nameIf("n1", policy), nil)
					if there, err := e.exists(t.Context(), left); there || err != nil {
						t.Errorf("%s: the %s is left behind: %t, %v", tc.reason, kind, there, err)
					}
				}
			})
		})
	}
}
