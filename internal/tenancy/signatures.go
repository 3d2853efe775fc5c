package tenancy

import (
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// KeySecretPrefix begins the names of the Secrets with the platform's public keys in the namespaces
// of tenants. The rest of the name is the program that verifies signatures with the keys.
const KeySecretPrefix = "tenure-keys-"

// The programs that verify with the keys of a Secret.
const (
	VerifierGit      = "git"
	VerifierCosign   = "cosign"
	VerifierNotation = "notation"
)

// KeySecrets returns the names of all Secrets with public keys that a tenant's namespace may have.
// Only the platform may write Secrets with these names, even in a namespace without keys: otherwise
// a tenant could create such a Secret before the manager does.
func KeySecrets() []string {
	return []string{KeySecretPrefix + VerifierGit, KeySecretPrefix + VerifierCosign, KeySecretPrefix + VerifierNotation}
}

// signatures returns the demands on a tenant's sources, and the keys. The Tenant may be nil.
func signatures(t *v1alpha1.Tenant, profile *v1alpha1.TenancyProfile) v1alpha1.Signatures {
	if t != nil && t.Spec.Policy.Signatures != nil {
		return *t.Spec.Policy.Signatures
	}
	return profile.Spec.Tenants.Signatures
}

// verifierKeys are the public keys for a program.
type verifierKeys struct {
	verifier string
	keys     map[string]v1alpha1.PublicKey
}

// byVerifier returns the programs for which there are keys, with these keys.
func byVerifier(keys v1alpha1.SignatureKeys) []verifierKeys {
	all := []verifierKeys{{VerifierGit, keys.Git}, {VerifierCosign, keys.Cosign}, {VerifierNotation, keys.Notation}}
	return slices.DeleteFunc(all, func(k verifierKeys) bool { return len(k.keys) == 0 })
}

// namesOfKeySecrets returns the names of the Secrets with the keys.
func namesOfKeySecrets(keys v1alpha1.SignatureKeys) []string {
	var names []string
	for _, k := range byVerifier(keys) {
		names = append(names, KeySecretPrefix+k.verifier)
	}
	return names
}

// keySecrets returns the Secrets with the platform's public keys for a namespace.
func keySecrets(ns Namespace, tenant string, keys v1alpha1.SignatureKeys) []*corev1.Secret {
	var secrets []*corev1.Secret
	for _, k := range byVerifier(keys) {
		data := map[string][]byte{}
		for name, text := range k.keys {
			data[name] = []byte(text)
		}
		secrets = append(secrets, &corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: meta(ns.Name, KeySecretPrefix+k.verifier, tenant),
			Type:       corev1.SecretTypeOpaque,
			Data:       data,
		})
	}
	return secrets
}

// SameKeys reports whether a Secret has the keys of another one and nothing else.
func SameKeys(have, want *corev1.Secret) bool {
	return have.Type == want.Type && have.Labels[LabelManaged] == ManagedValue && maps.EqualFunc(have.Data, want.Data, slices.Equal)
}

// addVerification tells Flux to verify the signatures that a sync's source must have.
func addVerification(spec map[string]any, kind string, demand v1alpha1.Signatures) {
	if kind == GitRepositoryKind.Kind {
		if demand.Git != nil {
			spec["verify"] = map[string]any{"mode": gitMode(demand.Git), "secretRef": map[string]any{"name": KeySecretPrefix + VerifierGit}}
		}
		return
	}
	artifacts := ofOCIRepositories(demand)
	switch {
	case artifacts == nil:
	case len(artifacts.Providers) > 0:
		verifier := artifacts.Providers[0]
		spec["verify"] = map[string]any{"provider": verifier, "secretRef": map[string]any{"name": KeySecretPrefix + verifier}}
	default:
		var identities []any
		for _, i := range artifacts.Identities {
			identities = append(identities, map[string]any{"issuer": i.Issuer, "subject": i.Subject})
		}
		spec["verify"] = map[string]any{"provider": VerifierCosign, "matchOIDCIdentity": identities}
	}
}

// ofOCIRepositories returns the demand on OCIRepositories, or nil.
func ofOCIRepositories(demand v1alpha1.Signatures) *v1alpha1.ArtifactSignatures {
	if demand.OCI != nil {
		return demand.OCI
	}
	return demand.Charts
}

func gitMode(g *v1alpha1.GitSignatures) string {
	if g.Mode == "" {
		return "HEAD"
	}
	return g.Mode
}

// verifies reports whether a source of a sync is verified as the demand requires, as in the rule
// tenure-signatures: internal/admission has the same function in CEL.
func verifies(demand v1alpha1.Signatures, o *unstructured.Unstructured) bool {
	wanted := map[string]any{}
	addVerification(wanted, o.GetKind(), demand)
	if wanted["verify"] == nil {
		return true
	}
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(o.Object, append([]string{"spec", "verify"}, fields...)...)
		return value
	}
	if o.GetKind() == GitRepositoryKind.Kind {
		mode, demanded := text("mode"), gitMode(demand.Git)
		return text("secretRef", "name") == KeySecretPrefix+VerifierGit && (mode == demanded || mode == "TagAndHEAD")
	}
	artifacts := ofOCIRepositories(demand)
	if secret := text("secretRef", "name"); secret != "" {
		return slices.Contains(artifacts.Providers, text("provider")) && secret == KeySecretPrefix+text("provider")
	}
	identities, _, _ := unstructured.NestedSlice(o.Object, "spec", "verify", "matchOIDCIdentity")
	return len(identities) > 0 && !slices.ContainsFunc(identities, func(identity any) bool {
		fields, _ := identity.(map[string]any)
		return !slices.ContainsFunc(artifacts.Identities, func(i v1alpha1.SignerIdentity) bool {
			return fields["issuer"] == i.Issuer && fields["subject"] == i.Subject
		})
	})
}
