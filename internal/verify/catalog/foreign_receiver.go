package catalog

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addForeignReceiver(register func(...Attack)) {
	register(Attack{
		ID: "N2", Via: API,
		Kinds:      []string{"Receiver"},
		Title:      "triggers reconciliations of another tenant's object with its own Receiver",
		Controls:   []string{"flag --no-cross-namespace-refs of notification-controller"},
		References: []string{"flux2 discussion 263", "RFC-0003"},
		Fix: Fix{
			Advice: "start notification-controller with --no-cross-namespace-refs=true",
			Flags:  []Flag{noCrossNamespaceRefs("notification-controller")},
		},
		Layers: []Layer{flagLayer(noCrossNamespaceRefs("notification-controller"))},
		Deep:   true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			aimed := e.receiverCalled(ctx, "n2", e.Victim.Namespace)
			if aimed.Outcome != Stopped {
				return aimed
			}
			return e.unless(ctx, aimed, e.receiverCalled(ctx, "n2-own", e.Namespace))
		},
	})
}

// requestedAt is the annotation that requests a reconciliation from Flux.
const requestedAt = "reconcile.fluxcd.io/requestedAt"

// receiverCalled creates a Receiver of the tenant for an object in a namespace, calls it from outside as
// its sender would, and checks whether the call requested a reconciliation of the object.
func (e *Scenario) receiverCalled(ctx context.Context, id, namespace string) Finding {
	if e.outside == nil {
		return notProven(errNoOutside.Error())
	}
	// The object is suspended, so that Flux does not change it.
	target := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", namespace, name(id), map[string]any{"spec": map[string]any{
		"interval": "1h", "path": "./", "prune": true, "suspend": true, "serviceAccountName": e.Account.Name,
		"sourceRef": map[string]any{"kind": "GitRepository", "name": "none"},
	}})
	token := rand.Text()
	secret := object("v1", "Secret", e.Namespace, name(id), map[string]any{"stringData": map[string]any{"token": token}})
	for _, u := range []*unstructured.Unstructured{target, secret} {
		if err := e.Admin.Create(ctx, u); err != nil {
			return notProven("cannot create the target of the Receiver: " + firstLine(err.Error()))
		}
		defer e.remove(u)
	}
	receiver := object("notification.toolkit.fluxcd.io/v1", "Receiver", e.Namespace, name(id), map[string]any{"spec": map[string]any{
		"type": "generic-hmac", "secretRef": map[string]any{"name": secret.GetName()},
		"resources": []any{map[string]any{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "namespace": namespace, "name": name(id)}},
	}})
	var f Finding
	said, err := e.apply(ctx, receiver, func() { f = e.callReceiver(ctx, receiver, token, target) })
	switch {
	case err != nil:
		return judge(err, "")
	case said.ready != "True":
		return notProven("Flux does not serve the tenant's Receiver: " + firstLine(said.message))
	}
	return f
}

// callReceiver signs and sends a request to a Receiver.
func (e *Scenario) callReceiver(ctx context.Context, receiver *unstructured.Unstructured, token string, target *unstructured.Unstructured) Finding {
	receiver, touched := receiver.DeepCopy(), target.DeepCopy()
	body := []byte("{}")
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write(body)
	header := http.Header{"X-Signature": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}
	var code int
	err := pollUntil(ctx, outsidePatience, func(ctx context.Context) (bool, error) {
		// The controller may write the path after the conditions.
		err := e.Admin.Get(ctx, keyOf(receiver), receiver)
		path, _, _ := unstructured.NestedString(receiver.Object, "status", "webhookPath")
		if err != nil || path == "" {
			return false, err
		}
		code, err = e.post(ctx, "webhook-receiver", path, body, header)
		// The server may start to serve the path after the object is ready.
		return code != http.StatusNotFound && code != http.StatusServiceUnavailable, err
	})
	if err != nil {
		return notProven("cannot call the Receiver: " + firstLine(err.Error()))
	}
	if err := e.Admin.Get(ctx, keyOf(touched), touched); err != nil {
		return notProven("cannot read the canary: " + firstLine(err.Error()))
	}
	if touched.GetAnnotations()[requestedAt] != "" {
		return gotThrough(fmt.Sprintf("a call of the tenant's Receiver requested a reconciliation of Kustomization %s", keyOf(touched)))
	}
	// The response contains only the status code, so the reason comes from the log.
	errors, err := e.controllerErrors(ctx, "notification-controller", receiver.GetNamespace(), receiver.GetName())
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	for _, said := range errors {
		if control, ok := controlOf(said); ok {
			return stopped(control, firstLine(said))
		}
	}
	return notProven(fmt.Sprintf("the Receiver answered %d, and its log has no known refusal: %s", code, strings.Join(errors, "; ")))
}
