package catalog

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhookCallers is the control that only the API server can call the webhooks.
const webhookCallers = "webhook " + admission.NamespaceWebhook + ", which only the API server can call"

func addForgedWebhookCall(register func(...Attack)) {
	register(Attack{
		ID: "A7", Via: API,
		Kinds:    []string{"Namespace"},
		Title:    "calls the namespace webhook directly, as an owner of another tenant, to use up that tenant's quota of namespaces",
		Controls: []string{webhookCallers},
		Fix:      Fix{Advice: "let the manager set the secret paths of its webhooks, or give the API server a client certificate: see --webhook-client-ca of the manager"},
		Deep:     true,
		Run:      callsTheWebhook,
	})
}

// webhook is a webhook, with the data for calling it.
type webhook struct {
	// address is the webhook's host and port, and path is the path with the secret.
	address, path string
	http          *http.Client
}

// WebhookAddress returns the host and port of the webhook for owners' namespaces, and the path
// that the API server calls. Both are empty if there is no webhook or no Service. It returns an
// error if the webhook configuration or the Service cannot be read.
func WebhookAddress(ctx context.Context, c client.Reader) (address, path string, err error) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err = c.Get(ctx, client.ObjectKey{Name: admission.WebhookName}, configuration)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot read how the API server calls the webhook: %w", err)
	}
	for _, w := range configuration.Webhooks {
		if s := w.ClientConfig.Service; s != nil && s.Port != nil && s.Path != nil {
			return fmt.Sprintf("%s.%s.svc:%d", s.Name, s.Namespace, *s.Port), *s.Path, nil
		}
	}
	return "", "", nil
}

// callsTheWebhook sends requests to the webhook's Service, as a Pod of the tenant can. They are dry runs,
// which reserve no name. There are few of them: requests that fill the rate limit of a tenant would block
// its real owners. TestLimits of internal/admission/webhook tests the limit.
func callsTheWebhook(ctx context.Context, e *Scenario) Finding {
	address, secret, err := WebhookAddress(ctx, e.Admin)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if address == "" {
		return e.nothingThere(ctx, notInstalled, "the cluster has no webhook for owners' namespaces")
	}
	if e.outside == nil {
		return notProven(errNoOutside.Error())
	}
	caller := e.outside.Client()
	way, ok := caller.Transport.(*http.Transport)
	if !ok {
		return notProven(errNoOutside.Error())
	}
	way = way.Clone()
	way.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // an attacker does not care who answers
	caller.Transport = way
	defer caller.CloseIdleConnections()
	w := webhook{address: address, path: secret, http: caller}
	// These are paths that a tenant can know or guess.
	for _, path := range []string{admission.WebhookPath + "/", admission.WebhookPath + "/" + strings.Repeat("a", 26), admission.QuotaWebhookPath + "/"} {
		answered, err := w.ask(ctx, path)
		switch {
		case err != nil && strings.Contains(err.Error(), "remote error: tls: "):
			return stopped(webhookCallers, firstLine(err.Error()))
		case err != nil:
			return notProven("the webhook cannot be reached: " + firstLine(err.Error()))
		case answered:
			return gotThrough("the webhook answered a request to " + path + " that did not come from the API server")
		}
	}
	if answered, err := w.ask(ctx, secret); err != nil || !answered {
		return notProven(fmt.Sprintf("the webhook does not answer the API server either: %v", err))
	}
	return stopped(webhookCallers, "not found")
}

// ask sends a review of a namespace as a dry run, and reports whether the webhook answered it.
func (w webhook) ask(ctx context.Context, path string) (answered bool, err error) {
	ns, err := json.Marshal(object("v1", "Namespace", "", name("a7"), nil))
	if err != nil {
		return false, fmt.Errorf("cannot write the review: %w", err)
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "tenure-attack-a7", Operation: admissionv1.Create, DryRun: new(true), Name: name("a7"),
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Namespace"},
			UserInfo: authenticationv1.UserInfo{Username: name("a7")}, Object: runtime.RawExtension{Raw: ns},
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return false, fmt.Errorf("cannot write the review: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+w.address+path, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("cannot call the webhook: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.http.Do(request)
	if err != nil {
		return false, fmt.Errorf("cannot call the webhook: %w", err)
	}
	defer response.Body.Close()
	content, err := readRawResponse(response.Body)
	if err != nil {
		return false, fmt.Errorf("cannot read the webhook's answer: %w", err)
	}
	switch response.StatusCode {
	case http.StatusNotFound:
		return false, nil
	case http.StatusOK:
		var answer admissionv1.AdmissionReview
		if err := json.Unmarshal(content, &answer); err != nil || answer.Response == nil {
			return false, errors.New("the webhook's answer is no AdmissionReview")
		}
		return true, nil
	}
	return false, fmt.Errorf("the webhook answered with %s", response.Status)
}
