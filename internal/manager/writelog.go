package manager

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
)

// logWrites logs every object that the manager creates, changes or deletes, with the logger of
// the request's context: it names the reconciler, the reconciled object and, under the
// key tenant, the tenant. Requests of status, and requests that the API server refuses, are
// logged at level debug; the reconciler reports the error.
func logWrites(next http.RoundTripper) http.RoundTripper { return writeLog{next} }

type writeLog struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (w writeLog) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(r)
	action := actions[r.Method]
	if err != nil || action == "" {
		return resp, err
	}
	object, subresource := objectOf(r.URL.Path)
	if object == "" || r.URL.Query().Has("dryRun") {
		return resp, nil
	}
	if r.Method == http.MethodPost && subresource == "" {
		object = strings.TrimSuffix(withName(object, nameInBody(r)), "/")
	}
	if resp.StatusCode == http.StatusCreated {
		action = actions[http.MethodPost] // also by server-side apply
	}
	log := ctrl.LoggerFrom(r.Context())
	if subresource != "" || resp.StatusCode >= http.StatusBadRequest {
		log = log.V(1).WithValues("subresource", subresource, "code", resp.StatusCode)
	}
	log.Info(action, "object", object)
	return resp, nil
}

// actions are the messages for the methods that write.
var actions = map[string]string{
	http.MethodPost: "created", http.MethodPut: "changed", http.MethodPatch: "changed", http.MethodDelete: "deleted",
}

// unloggedKinds are written often and tell nothing about a tenant: leases, events, and reviews,
// which write nothing.
var unloggedKinds = []string{"leases.", "events.", "events", "tokenreviews.", "subjectaccessreviews.", "selfsubjectreviews.", "selfsubjectaccessreviews."}

// objectOf returns the object of a path of the API server, as RESOURCE.GROUP NAMESPACE/NAME, and
// its subresource. The name is empty for an object that is created by POST, whose path has none. It
// returns "" for paths that are no objects, and for kinds that are not logged.
func objectOf(path string) (object, subresource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = "."+parts[1], parts[3:]
	default:
		return "", ""
	}
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		namespace, parts = parts[1]+"/", parts[2:]
	}
	resource := parts[0] + group
	for _, prefix := range unloggedKinds {
		if resource == prefix || strings.HasSuffix(prefix, ".") && strings.HasPrefix(resource, prefix) {
			return "", ""
		}
	}
	name := ""
	if len(parts) > 1 {
		name = parts[1]
	}
	return strings.TrimSpace(resource + " " + namespace + name), strings.Join(parts[min(2, len(parts)):], "/")
}

// withName adds the name to an object of [objectOf] without one.
func withName(object, name string) string {
	if name == "" || strings.HasSuffix(object, "/") {
		return object + name
	}
	return object + " " + name
}

// protobufPrefix begins the body of a request in Kubernetes' protobuf encoding.
var protobufPrefix = []byte("k8s\x00")

// nameInBody returns the name of the object in a request's body, or its generateName, to which the
// API server adds a suffix. It returns "" for a body that it cannot read again or decode.
func nameInBody(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	content, err := io.ReadAll(body)
	_ = body.Close()
	if err != nil {
		return ""
	}
	var object metav1.PartialObjectMetadata
	if encoded, isProtobuf := bytes.CutPrefix(content, protobufPrefix); isProtobuf {
		var envelope runtime.Unknown
		if err = envelope.Unmarshal(encoded); err == nil {
			err = object.Unmarshal(envelope.Raw)
		}
	} else {
		err = json.Unmarshal(content, &object)
	}
	switch {
	case err != nil:
		return ""
	case object.Name == "" && object.GenerateName != "":
		return object.GenerateName + "*"
	}
	return object.Name
}
