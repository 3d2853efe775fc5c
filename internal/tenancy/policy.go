package tenancy

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxPatterns is the maximum number of patterns for a kind of source, by the schema.
const maxPatterns = 64

// maxAddress is the maximum length of an address that a rule compares, in bytes.
const maxAddress = 256

// plainAddress matches the addresses that a rule compares with patterns; a rule refuses all others.
var plainAddress = regexp.MustCompile(`^(https?|ssh|oci)://([a-z0-9_-]+@)?[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`)

// cleanAddress matches the addresses that, as a pattern, match themselves and nothing else: see the
// schema of a Tenant's sync.
var cleanAddress = regexp.MustCompile(`^(https?|ssh|oci)://([a-z0-9_-]+@)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`)

// Parameters returns the parameters for the namespaces of a tenant: the profile, in which
// each part of the Tenant's policy replaces the same part, and with the addresses of its
// sync in the list of allowed sources. The Tenant may be nil.
//
// Tenants may read their parameters, so they contain only fields that a rule reads there,
// and no exemptions: [Exemptions] returns those of a namespace.
func Parameters(name string, t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile) v1alpha1.TenantParametersSpec {
	spec := v1alpha1.TenantParametersSpec{Tenant: name, TenancyProfileSpec: *profile.Spec.DeepCopy()}
	spec.Exemptions, spec.ProtectedNamespaces, spec.PlatformImages, spec.DomainNames = nil, nil, nil, ""
	spec.DelegatedSyncs = slices.DeleteFunc(spec.DelegatedSyncs, func(d v1alpha1.DelegatedSync) bool { return d.Tenant != name })
	if len(spec.DelegatedSyncs) == 0 {
		spec.DelegatedSyncs = nil
	}
	// Rules compare names of Secrets, and not keys.
	demand := signatures(t, profile)
	spec.Tenants.Signatures = *demand.DeepCopy()
	spec.Tenants.Signatures.Keys = v1alpha1.SignatureKeys{}
	spec.KeySecrets = namesOfKeySecrets(demand.Keys)
	if t == nil {
		spec.DefaultClasses = takeDefaults(&spec.Tenants)
		return spec
	}
	spec.Cordoned = t.Spec.Cordoned
	policy := t.Spec.Policy.DeepCopy()
	own := &spec.Tenants
	if policy.Accounts != nil {
		own.Accounts = *policy.Accounts
	}
	if policy.Sources != nil {
		own.Sources = *policy.Sources
	}
	if policy.Bounds != nil {
		own.Bounds = *policy.Bounds
	}
	if policy.Notifications != nil {
		own.Notifications = *policy.Notifications
	}
	if policy.Flagger != nil {
		own.Flagger = policy.Flagger
	}
	if policy.KubeConfigs != nil {
		own.KubeConfigs = policy.KubeConfigs
	}
	own.Workloads = workloads(t.Spec.Workloads, own.Workloads)
	own.Network = network(t.Spec.Network, own.Network)
	own.Storage = storage(t.Spec.Storage, own.Storage)
	spec.DefaultClasses = takeDefaults(own)
	for _, s := range t.Spec.Sync {
		switch {
		case s.Git != nil:
			own.Sources.Git = withAddress(own.Sources.Git, s.Git.URL)
		case s.OCI != nil:
			own.Sources.OCI = withAddress(own.Sources.OCI, s.OCI.URL)
		}
	}
	return spec
}

// Exemptions returns the exemptions of objects in a namespace.
func Exemptions(namespace string, profile *v1alpha1.TenancyProfile) []v1alpha1.Exemption {
	var own []v1alpha1.Exemption
	for _, e := range profile.Spec.Exemptions {
		if e.Namespace == namespace {
			own = append(own, e)
		}
	}
	return own
}

// withAddress adds an address to patterns, if it is a valid pattern: the schema would refuse
// parameters with an invalid one, and the profile alone would apply to the namespace. The policy
// then refuses the source, which the Tenant's condition reports.
func withAddress(patterns []v1alpha1.AddressPattern, address string) []v1alpha1.AddressPattern {
	pattern := v1alpha1.AddressPattern(address)
	if len(patterns) >= maxPatterns || slices.Contains(patterns, pattern) || strings.Contains(address, "..") || !cleanAddress.MatchString(address) {
		return patterns
	}
	return append(patterns, pattern)
}

// refused returns the sources and Kustomizations of a Tenant that the rules refuse under a posture,
// and the Kustomizations of refused sources: without its source, a Kustomization only fails. It
// checks the objects of [syncs]. It ignores exemptions, so it also returns objects that an
// exemption allows.
func refused(objects []client.Object, posture v1alpha1.Posture) []client.Object {
	var found []client.Object
	type source struct{ kind, name string }
	sources := map[source]bool{}
	// A source is before its Kustomization.
	for _, o := range objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "sourceRef", "kind")
		name, _, _ := unstructured.NestedString(u.Object, "spec", "sourceRef", "name")
		if allows(posture, u) && !sources[source{kind, name}] {
			continue
		}
		found = append(found, o)
		sources[source{u.GetKind(), u.GetName()}] = true
	}
	return found
}

// allows reports whether the rules tenure-sources, tenure-signatures and tenure-bounds allow a
// sync's object.
func allows(posture v1alpha1.Posture, o *unstructured.Unstructured) bool {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(o.Object, "spec", field)
		return value
	}
	for _, field := range []string{"interval", "retryInterval"} {
		if d, err := time.ParseDuration(text(field)); err == nil && d < posture.Bounds.MinInterval.Duration {
			return false
		}
	}
	if d, err := time.ParseDuration(text("timeout")); err == nil && d > posture.Bounds.MaxTimeout.Duration {
		return false
	}
	switch o.GetKind() {
	case GitRepositoryKind.Kind:
		return MatchesAddress(posture.Sources.Git, text("url")) && verifies(posture.Signatures, o)
	case OCIRepositoryKind.Kind:
		return MatchesAddress(posture.Sources.OCI, text("url")) && verifies(posture.Signatures, o)
	}
	return true
}

// MatchesAddress reports whether one of the patterns matches an address, as in the rule
// tenure-sources: internal/admission has the same function in CEL.
func MatchesAddress(patterns []v1alpha1.AddressPattern, address string) bool {
	if len(address) > maxAddress || strings.Contains(address, "..") || !plainAddress.MatchString(address) {
		return false
	}
	return slices.ContainsFunc(patterns, func(p v1alpha1.AddressPattern) bool {
		expression := strings.NewReplacer(`/\*\*`, `/.+`, `\*`, `[^/]*`).Replace(regexp.QuoteMeta(string(p)))
		whole, err := regexp.Compile(`^` + expression + `/?$`)
		return err == nil && whole.MatchString(address)
	})
}
