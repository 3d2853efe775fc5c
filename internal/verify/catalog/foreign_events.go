package catalog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addForeignEvents(register func(...Attack)) {
	register(Attack{
		ID: "N1", Via: API,
		Kinds:      []string{"Alert"},
		Title:      "receives another tenant's events",
		Controls:   []string{"flag --no-cross-namespace-refs of notification-controller"},
		References: []string{"RFC-0003", "flux2-multi-tenancy: enforce tenant isolation"},
		Fix: Fix{
			Advice: "start notification-controller with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("notification-controller")},
		},
		Layers: []Layer{flagLayer(noCrossNamespaceRefs("notification-controller"))},
		Deep:   true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			aimed := e.notificationsReceived(ctx, "n1", e.Victim.Namespace)
			if aimed.Outcome != Stopped {
				return aimed
			}
			return e.unless(ctx, aimed, e.notificationsReceived(ctx, "n1-own", e.Namespace))
		},
	})
}

// unless returns the finding of an attack. A stopped attack counts only if the positive control, the same
// steps with the tenant's own objects, succeeded.
func (e *Scenario) unless(ctx context.Context, aimed, own Finding) Finding {
	switch {
	case own.Outcome == GotThrough:
		return aimed
	case own.Outcome == Stopped && own.Control == aimed.Control:
		return e.withPositiveControl(ctx, aimed)
	}
	return notProven("the same steps with the tenant's own objects do not work either: " + own.Reason + own.Message)
}

// sinkHost is the host to which the Providers of attacks send. RFC 2606 reserves the name.
const sinkHost = "sink.tenure-canary.example"

// notificationsReceived creates an Alert of the tenant for an object in a namespace, sends an event about
// this object, and checks whether the tenant receives a notification.
func (e *Scenario) notificationsReceived(ctx context.Context, id, namespace string) Finding {
	if e.outside == nil {
		return notProven(errNoOutside.Error())
	}
	// Only the sender of the event knows the random word.
	word := rand.Text()
	received := make(chan struct{}, 1)
	path := "/" + name(id)
	e.outside.Handle(sinkHost, path, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(io.LimitReader(r.Body, maxLog)); err == nil && strings.Contains(string(body), word) {
			select {
			case received <- struct{}{}:
			default:
			}
		}
	}))
	defer e.outside.Forget(sinkHost, path)
	provider := object("notification.toolkit.fluxcd.io/v1beta3", "Provider", e.Namespace, name(id), map[string]any{"spec": map[string]any{
		"type": "generic", "address": "https://" + sinkHost + path,
	}})
	// A policy may refuse an unapproved address. Then the Alert refers to a missing Provider: if Flux looks
	// for the Provider, it has processed the event.
	made := e.create(ctx, provider) == nil
	if made {
		defer e.remove(provider)
	}
	alert := object("notification.toolkit.fluxcd.io/v1beta3", "Alert", e.Namespace, name(id), map[string]any{"spec": map[string]any{
		"providerRef":  map[string]any{"name": provider.GetName()},
		"eventSources": []any{map[string]any{"kind": "Kustomization", "namespace": namespace, "name": name(id)}},
	}})
	if err := e.create(ctx, alert); err != nil {
		return judge(err, "")
	}
	defer e.remove(alert)
	var said string
	var told bool
	err := pollUntil(ctx, outsidePatience, func(ctx context.Context) (_ bool, err error) {
		// Flux drops repeated events, and events that arrive before it knows the Alert. So each attempt
		// sends a new event.
		if err := e.emitEvent(ctx, namespace, name(id), word+" "+rand.Text()); err != nil {
			return false, err
		}
		select {
		case <-received:
			told = true
			return true, nil
		case <-time.After(look):
		}
		said, err = e.failedAlert(ctx, alert, made)
		return said != "", err
	})
	control, refused := controlOf(said)
	switch {
	case told:
		return gotThrough("an event of Kustomization/" + namespace + "/" + name(id) + " reached the tenant's Provider")
	case err != nil:
		return notProven("cannot find out what happened to an event: " + firstLine(err.Error()))
	case refused:
		return stopped(control, firstLine(said))
	case !made && strings.Contains(said, noProvider):
		return gotThrough("an event of Kustomization/" + namespace + "/" + name(id) + " was accepted for the tenant's Alert")
	}
	return notProven("the event was neither delivered nor refused: " + firstLine(said))
}

// emitEvent sends an event about a Kustomization to notification-controller, as kustomize-controller does.
func (e *Scenario) emitEvent(ctx context.Context, namespace, name, message string) error {
	// Marshalling maps and strings cannot fail.
	body, _ := json.Marshal(map[string]any{
		"involvedObject":      map[string]any{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": namespace, "name": name},
		"severity":            "info",
		"timestamp":           time.Now().UTC().Format(time.RFC3339),
		"message":             message,
		"reason":              "Canary",
		"reportingController": "tenure-verify",
	})
	_, err := e.post(ctx, "notification-controller", "/", body, http.Header{})
	return err
}

// noProvider is the beginning of notification-controller's message about an Alert without its Provider.
const noProvider = "failed to read provider"

// failedAlert returns the message of notification-controller about an Alert that it could not process, or
// "". The controller writes the message only into Events, which outlive the Alert. So failedAlert ignores
// the Events of earlier Alerts with the same name. If the Provider exists, it also ignores that the controller
// did not find it: the controller may learn of the Alert first.
func (e *Scenario) failedAlert(ctx context.Context, alert *unstructured.Unstructured, provided bool) (string, error) {
	var events corev1.EventList
	err := e.Admin.List(ctx, &events, client.InNamespace(e.Namespace), client.MatchingFields{
		"involvedObject.kind": "Alert", "involvedObject.name": alert.GetName(),
	})
	if err != nil {
		return "", err
	}
	for _, event := range events.Items {
		earlier := event.InvolvedObject.UID != "" && event.InvolvedObject.UID != alert.GetUID()
		unknown := provided && strings.Contains(event.Message, noProvider)
		if event.Type == corev1.EventTypeWarning && !earlier && !unknown {
			return event.Message, nil
		}
	}
	return "", nil
}
