// Package v1beta1 is an older version of the API of Capsule: the Tenant of older
// fleets, which is served and not stored, and the kinds for the proxy, which have no
// newer version.
//
// Both versions of the Tenant have the schema of the newer one, of which the older one's fields
// are a part with the same shapes. So an object can be read and written at either
// without a conversion webhook, and writing it at the older one loses nothing.
//
// +kubebuilder:object:generate=true
// +groupName=capsule.clastix.io
package v1beta1
