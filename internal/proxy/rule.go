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

// Rule says which objects of a cluster-scoped kind an identity may see. It is asked
// for identities that may not list the kind by themselves, once for a list and
// again while a watch is open. It must not block.
type Rule interface {
	// Resource is the kind.
	Resource() schema.GroupResource
	// Select selects what the identity may see; the zero Selection is nothing.
	Select(who user.Info) Selection
}

// Selection selects objects by all of what it has. The zero value selects nothing.
type Selection struct {
	// Labels and Fields are what the objects have; nil is no condition, but at
	// least one of them has to be there.
	Labels labels.Selector
	Fields fields.Selector
	// Names are the objects that a get of one by name is answered for. They are
	// left out where RBAC decides about a get by itself.
	Names []string
	// Refusal is why the objects cannot be asked for, said to the client; "" when
	// they can.
	Refusal string
	// reach is set for namespaces that no selector selects: they are put together.
	reach *reach
}

// nothing selects no object: a label cannot be there and not be there.
var nothing = labels.NewSelector().Add(
	requirement(corev1.LabelMetadataName, selection.Exists), requirement(corev1.LabelMetadataName, selection.DoesNotExist))

func requirement(key string, op selection.Operator, values ...string) labels.Requirement {
	r, err := labels.NewRequirement(key, op, values)
	if err != nil {
		panic(err) // keys and operators are constants, values come from names
	}
	return *r
}

// oneOf selects by a label's value. Names that are no value of a label are nobody's:
// Kubernetes does not let them be given.
func oneOf(label string, values []string) labels.Selector {
	values = slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		_, err := labels.NewRequirement(label, selection.In, []string{v})
		return err != nil || v == ""
	})
	if len(values) == 0 {
		return nothing
	}
	return labels.NewSelector().Add(requirement(label, selection.In, values...))
}

// namespaces shows owners the namespaces of their tenants, and everybody those of
// tenants' namespaces that RBAC lets them get.
type namespaces struct{ *view }

func (namespaces) Resource() schema.GroupResource { return corev1.Resource("namespaces") }

func (n namespaces) Select(who user.Info) Selection {
	r := n.reach(who)
	if n.beyond(r) {
		return Selection{reach: r}
	}
	// The API server knows of a namespace before this program does.
	return Selection{Labels: oneOf(v1alpha1.LabelTenant, r.owned)}
}

// tenants shows owners their Tenants.
type tenants struct{ *view }

func (tenants) Resource() schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "tenants"}
}

func (t tenants) Select(who user.Info) Selection {
	owned := t.owned(who)
	if len(owned) == 1 {
		// One can be selected without the label that the manager gives it.
		return Selection{Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, owned[0]), Names: owned}
	}
	return Selection{Labels: oneOf(v1alpha1.LabelTenant, owned), Names: owned}
}
