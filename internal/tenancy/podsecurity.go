package tenancy

import (
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

// PodSecurityExemption is the rule name for an exemption of the TenancyProfile, of kind
// Namespace, that lets a namespace without a Tenant object have no Pod Security level, or
// the level privileged. For the namespaces of a Tenant, set spec.namespaces.podSecurity
// instead.
const PodSecurityExemption = "tenure-pod-security"

// defaultLevel is the Pod Security level of a tenant's namespace if no Tenant sets one.
const defaultLevel = "baseline"

// levels are the Pod Security levels, the weakest first.
var levels = []string{"privileged", "baseline", "restricted"}

// keepLevel drops the wanted Pod Security level if the namespace's own level is stricter, unless
// the manager set that one for a Tenant that now asks for a less strict level. It also drops the
// wanted level if an exemption of the profile allows any level. In both cases the namespace keeps
// its own level.
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
