package capsule

import (
	"context"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/capsule"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// reasonAudit and actionAudit are Capsule's reason and action of the events for rules with
	// the action audit.
	reasonAudit, actionAudit = "NamespaceRuleAudit", "RuleAudit"
	// maxNote is the maximum length of an event's note, in bytes.
	maxNote = 1000
)

// AuditHandler writes an event for each object that rules with the action audit match. It gives objects the
// managed metadata of rules, new objects the default metadata, and new Pods their requests and limits. It
// allows every request: the API server's policies decide, after the handler has seen the request, so that refused objects have events too.
type AuditHandler struct {
	// Client reads from a cache.
	Client client.Reader
	Events events.EventRecorder
}

// Handle implements [admission.Handler].
func (h *AuditHandler) Handle(ctx context.Context, request admission.Request) admission.Response {
	status := &v1beta2.RuleStatus{}
	if err := h.Client.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: v1beta2.RulesName}, status); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot read the rules of a namespace", "namespace", request.Namespace)
		return admission.Allowed("")
	}
	r := capsule.Request{User: request.UserInfo.Username, Groups: request.UserInfo.Groups, Object: &unstructured.Unstructured{}}
	if err := r.Object.UnmarshalJSON(request.Object.Raw); err != nil {
		return admission.Allowed("")
	}
	if len(request.OldObject.Raw) > 0 {
		r.Old = &unstructured.Unstructured{}
		if err := r.Old.UnmarshalJSON(request.OldObject.Raw); err != nil {
			return admission.Allowed("")
		}
	}
	response := admission.Allowed("")
	if request.SubResource == "" {
		changed := capsule.SetMetadata(&status.Status, r)
		if request.Operation == admissionv1.Create {
			changed = capsule.SetResources(&status.Status, r) || changed
		}
		if content, err := r.Object.MarshalJSON(); err == nil && changed {
			response = admission.PatchResponseFromRaw(request.Object.Raw, content)
		}
	}
	if request.DryRun == nil || !*request.DryRun {
		h.report(request.Namespace, status, r)
	}
	return response
}

// report writes the event about an object, if there is anything to report.
func (h *AuditHandler) report(namespace string, status *v1beta2.RuleStatus, r capsule.Request) {
	messages := capsule.Audit(&status.Status, r)
	if len(messages) == 0 {
		return
	}
	if r.Object.GetName() == "" {
		// The API server makes the name after the webhooks.
		r.Object.SetName(strings.TrimSuffix(r.Object.GetGenerateName(), "-"))
	}
	r.Object.SetNamespace(namespace)
	note := strings.Join(messages, "; ")
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote], "") + " …"
	}
	tenant := &unstructured.Unstructured{}
	tenant.SetGroupVersionKind(v1beta2.GroupVersion.WithKind("Tenant"))
	tenant.SetName(status.Labels[v1alpha1.LabelCapsuleTenant])
	h.Events.Eventf(r.Object, tenant, corev1.EventTypeNormal, reasonAudit, actionAudit, "%s", note)
}
