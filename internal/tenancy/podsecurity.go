package tenancy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// PodSecurityExemption is what an exemption of the TenancyProfile names as its rule to let
// a namespace that is a tenant's by label alone, of kind Namespace, have no Pod Security
// level, or the level privileged. A Tenant says so in spec.namespaces.podSecurity.
const PodSecurityExemption = "tenure-pod-security"

// defaultLevel is the Pod Security level of a tenant's namespace for which nobody says
// another one.
const defaultLevel = "baseline"

// levels are the Pod Security levels, the weakest first.
var levels = []string{"privileged", "baseline", "restricted"}

// keepLevel leaves the Pod Security level of a namespace alone that is stronger than the
// one that it is to have, unless the manager wrote it for a Tenant that asks for less now.
func (o *Objects) keepLevel(ns Namespace, profile *v1alpha1.TenancyProfile) {
	have, want := slices.Index(levels, ns.Labels[labelPodSecurity]), slices.Index(levels, o.Labels[labelPodSecurity])
	exempt := ns.Tenant == nil && slices.ContainsFunc(profile.Spec.Exemptions, func(e v1alpha1.Exemption) bool {
		return e.Rule == PodSecurityExemption && e.Kind == "Namespace" && e.Name == ns.Name && e.Namespace == ns.Name
	})
	if ns.Tenant == nil && have >= want || have > want && !ns.OwnLevel || exempt {
		delete(o.Labels, labelPodSecurity)
		delete(o.Labels, labelPodSecurityVersion)
	}
}
