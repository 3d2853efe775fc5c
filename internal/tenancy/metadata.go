package tenancy

import (
	"regexp"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// ProtectedKeys matches the labels and annotations of a namespace by which Kubernetes,
// Flux, Capsule and Tenure decide what the namespace may have and to whom it belongs. Subdomains
// of projectcapsule.dev and capsule.clastix.io that Capsule does not use belong to the people who
// use Capsule. No list lets owners choose these keys, except those that FreeKeys matches; the
// TenancyProfile and the Tenant list the other keys that owners may choose. Both are
// regular expressions of RE2, the syntax of CEL and Go.
const (
	ProtectedKeys = `^(([a-z0-9-]+[.])*(kubernetes[.]io|k8s[.]io|x-k8s[.]io|tenure[.]dev|(toolkit|sharding)[.]fluxcd[.]io)|(([a-z0-9-]+|(clusterrolenames|quota|(quota|used)[.]resources)[.]capsule)[.])?clastix[.]io|((audit|controller|owner|reconcile)[.])?projectcapsule[.]dev)/.*$`
	FreeKeys      = `^((app|kubectl)[.]kubernetes[.]io/.*|(kustomize|helm)[.]toolkit[.]fluxcd[.]io/.*|kubernetes[.]io/metadata[.]name)$`
)

var protectedRegexp, freeRegexp = regexp.MustCompile(ProtectedKeys), regexp.MustCompile(FreeKeys)

// ProtectedKey reports whether owners can never choose a label or annotation of a
// namespace, whatever the lists contain.
func ProtectedKey(key string) bool {
	return protectedRegexp.MatchString(key) && !freeRegexp.MatchString(key)
}

// TrustedLabels returns the labels of a namespace that the platform or its Tenant set;
// selectors may use only these. In a namespace that an owner created, they are the labels
// that no owner can set, and the labels of the Tenant, which may be nil. In any other
// namespace, they are all labels.
func TrustedLabels(labels map[string]string, tenant *v1alpha1.Tenant) map[string]string {
	if labels[v1alpha1.LabelMadeBy] != v1alpha1.MadeByOwner {
		return labels
	}
	trusted := map[string]string{}
	for key, value := range labels {
		if ProtectedKey(key) {
			trusted[key] = value
		}
	}
	if tenant != nil {
		for key, value := range tenant.Spec.Namespaces.Labels {
			if have, there := labels[key]; there && have == value {
				trusted[key] = value
			}
		}
	}
	return trusted
}
