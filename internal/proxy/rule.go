package proxy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Rule selects the objects of a cluster-scoped kind that a user may see. The proxy calls
// Select for users who may not list the kind by RBAC: once for a list or get, and again
// while a watch is open. Select must not block.
type Rule interface {
	// Resource returns the kind.
	Resource() schema.GroupResource
	// Select returns the objects that a user may see; the zero Selection selects none.
	Select(who user.Info) Selection
}

// Selection selects the objects that match all its fields. The zero value selects none.
type Selection struct {
	// Labels and Fields are selectors; nil matches all objects. At least one of them
	// must be set.
	Labels labels.Selector
	Fields fields.Selector
	// Names are the objects for which the proxy answers a get by name. They are empty if
	// RBAC alone decides about a get.
	Names []string
	// Refusal is the message to the client if no request can select the objects, and ""
	// otherwise.
	Refusal string
	// reach is set if no selector selects the visible namespaces: the proxy then selects
	// them by name and labels.
	reach *visibleNamespaces
}

// emptySelector selects no object: it requires that a label exists and does not exist.
var emptySelector = labels.NewSelector().Add(
	requirement(corev1.LabelMetadataName, selection.Exists), requirement(corev1.LabelMetadataName, selection.DoesNotExist))

func requirement(key string, op selection.Operator, values ...string) labels.Requirement {
	r, err := labels.NewRequirement(key, op, values)
	if err != nil {
		panic(err) // keys and operators are constants, values come from names
	}
	return *r
}

// oneOf selects objects by the value of a label. It drops values that Kubernetes does not
// allow as label values, since no object can have them.
func oneOf(label string, values []string) labels.Selector {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		_, err := labels.NewRequirement(label, selection.In, []string{v})
		return err != nil || v == ""
	})
	if len(values) == 0 {
		return emptySelector
	}
	return labels.NewSelector().Add(requirement(label, selection.In, values...))
}

// namespaces selects the namespaces of the tenants that a user owns, and the tenants'
// namespaces that RBAC lets the user get.
type namespaces struct{ *authorizationCache }

func (namespaces) Resource() schema.GroupResource { return corev1.Resource("namespaces") }

func (n namespaces) Select(who user.Info) Selection {
	r := n.visibleNamespacesOf(who)
	if n.seesMore(r) {
		return Selection{reach: r}
	}
	// The API server knows a new namespace before the cache does.
	return Selection{Labels: oneOf(v1alpha1.LabelTenant, r.owned)}
}

// tenants selects the Tenants that a user owns.
type tenants struct{ *authorizationCache }

func (tenants) Resource() schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "tenants"}
}

func (t tenants) Select(who user.Info) Selection {
	owned := t.owned(who)
	if len(owned) == 1 {
		// A field selector works without the label that the manager sets.
		return Selection{Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, owned[0]), Names: owned}
	}
	return Selection{Labels: oneOf(v1alpha1.LabelTenant, owned), Names: owned}
}
