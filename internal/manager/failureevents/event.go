package failureevents

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Controller is the reporting controller of the events.
	Controller = "tenure.dev/manager"
	// maxNote is the maximum length of a note that the API server accepts, in bytes.
	maxNote = 1024
	// maxName is the maximum length of the object's name within an event's name, in bytes.
	maxName = 200
	// maxReason is the maximum length of a reason that the API server accepts, in bytes.
	maxReason = 128
)

// event writes a failure into the tenant's namespace, and reports whether it created a new
// event. The name of the event depends on the failure alone, so another replica, or the
// manager after a restart, increments the count of the existing event.
func (r *Reconciler) event(ctx context.Context, namespace string, f Failure) (made bool, err error) {
	now := metav1.NewMicroTime(r.Now())
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(f)},
		EventTime:           now,
		ReportingController: Controller,
		ReportingInstance:   cut(r.Instance, maxReason),
		Action:              "Reconcile",
		Reason:              cut(f.Reason, maxReason),
		Type:                corev1.EventTypeWarning,
		// An event must be in the namespace of the object that it regards, so it regards
		// an object in the tenant's namespace.
		Regarding: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "TenantParameters",
			Namespace: namespace, Name: v1alpha1.ParametersName,
		},
		Related: &corev1.ObjectReference{
			APIVersion: f.Kind.GroupVersion().String(), Kind: f.Kind.Kind,
			Namespace: f.Namespace, Name: f.Name, UID: types.UID(f.UID),
		},
		Note: note(f),
	}
	err = r.Client.Create(ctx, e)
	if err == nil {
		return true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("cannot write an event in namespace %s: %w", namespace, err)
	}
	return false, r.refreshEvent(ctx, client.ObjectKeyFromObject(e), now)
}

// refreshEvent increments the count of an event.
func (r *Reconciler) refreshEvent(ctx context.Context, name client.ObjectKey, now metav1.MicroTime) error {
	e := &eventsv1.Event{}
	if err := r.Client.Get(ctx, name, e); err != nil {
		return fmt.Errorf("cannot read the event %s: %w", name, err)
	}
	before := e.DeepCopy()
	series := eventsv1.EventSeries{Count: 1}
	if e.Series != nil {
		series = *e.Series
	}
	series.Count++
	series.LastObservedTime = now
	e.Series = &series
	if err := r.Client.Patch(ctx, e, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("cannot write the event %s: %w", name, err)
	}
	return nil
}

// eventName returns the name of a failure's event. Equal failures have equal names.
func eventName(f Failure) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{f.UID, f.Reason, f.Message, f.Revision}, "\x00")))
	return strings.TrimRight(cut(f.Name, maxName), ".-") + "." + hex.EncodeToString(sum[:8])
}

// note returns the text for the tenant: the failed object and the reason.
func note(f Failure) string {
	what := fmt.Sprintf("%s %s/%s", f.Kind.Kind, f.Namespace, f.Name)
	if f.Revision != "" {
		what += " at " + f.Revision
	}
	return cut(what+": "+f.Message, maxNote)
}

// cut shortens a text to at most size bytes, at the end of a character.
func cut(s string, size int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= size {
		return s
	}
	const dots = "…"
	end := size - len(dots)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + dots
}

// Notifier posts failures to notification-controller, as Flux's controllers do, and the
// tenant's Alerts forward them. A posted failure names the kind and name of the failed object
// and the tenant's namespace, since an Alert only receives events of its own namespace.
type Notifier struct {
	// Address is notification-controller's event endpoint.
	Address string
	// HTTP is the client; it has a timeout.
	HTTP *http.Client
	// Instance is the name of this process.
	Instance string
	// Now returns the current time.
	Now func() time.Time
}

// notification has the fields of Flux's event API, version v1beta1 of
// event.toolkit.fluxcd.io, that a failure needs.
type notification struct {
	InvolvedObject      corev1.ObjectReference `json:"involvedObject"`
	Severity            string                 `json:"severity"`
	Timestamp           metav1.Time            `json:"timestamp"`
	Message             string                 `json:"message"`
	Reason              string                 `json:"reason"`
	Metadata            map[string]string      `json:"metadata,omitempty"`
	ReportingController string                 `json:"reportingController"`
	ReportingInstance   string                 `json:"reportingInstance,omitempty"`
}

// Post implements [Alerts]. It does not retry. It returns an error if it cannot connect to
// notification-controller, or if notification-controller answers with a status of 300 or
// higher.
func (n *Notifier) Post(ctx context.Context, namespace string, f Failure) error {
	metadata := map[string]string{}
	if f.Revision != "" {
		metadata[f.Kind.Group+"/revision"] = f.Revision
	}
	body, err := json.Marshal(notification{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: f.Kind.GroupVersion().String(), Kind: f.Kind.Kind,
			Namespace: namespace, Name: f.Name, UID: types.UID(f.UID),
		},
		Severity: "error", Timestamp: metav1.NewTime(n.Now()), Message: note(f), Reason: f.Reason,
		Metadata: metadata, ReportingController: Controller, ReportingInstance: n.Instance,
	})
	if err != nil {
		return fmt.Errorf("cannot encode a notification: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("cannot post to %s: %w", n.Address, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := n.HTTP.Do(request)
	if err != nil {
		return fmt.Errorf("cannot post to notification-controller: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("cannot post to %s: it answers %s", n.Address, response.Status)
	}
	return nil
}
