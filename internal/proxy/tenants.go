package proxy

import (
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

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
