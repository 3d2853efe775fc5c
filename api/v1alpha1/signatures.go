package v1alpha1

// Signatures are the signatures that a tenant's sources must have. Flux verifies them; the
// rules see to it that each source tells Flux to, with keys of the platform.
type Signatures struct {
	// keys are the public keys of the people and programs that may sign. The manager
	// writes them to Secrets in each of the tenant's namespaces, which the tenant cannot
	// change: tenure-keys-git, tenure-keys-cosign and tenure-keys-notation. Give the keys
	// first, let the tenants name them in their sources, and then demand signatures.
	// +optional
	Keys SignatureKeys `json:"keys,omitempty,omitzero"`

	// git demands that GitRepositories have signed commits or tags.
	// +optional
	Git *GitSignatures `json:"git,omitempty"`

	// oci demands that OCIRepositories have signed artifacts.
	// +optional
	OCI *ArtifactSignatures `json:"oci,omitempty"`

	// charts demands that HelmReleases and HelmCharts have signed charts, which only OCI
	// registries can have. It is also a demand on OCIRepositories, unless there is one in
	// oci: a HelmRelease takes charts out of these.
	// +optional
	Charts *ArtifactSignatures `json:"charts,omitempty"`
}

// SignatureKeys are public keys by the program that verifies with them. The names and values
// are those that Flux reads from a Secret in spec.verify.secretRef.
type SignatureKeys struct {
	// git are OpenPGP keys in armor, with names that end in .asc, and SSH keys with names
	// that end in .sshpub.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[-._a-zA-Z0-9]+[.](asc|sshpub)$'))",message="a Git key has a name that ends in .asc (OpenPGP) or .sshpub (SSH)"
	Git map[string]PublicKey `json:"git,omitempty"`
	// cosign are public keys in PEM, with names that end in .pub.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(name, name.matches('^[-._a-zA-Z0-9]+[.]pub$'))",message="a key of cosign has a name that ends in .pub"
	Cosign map[string]PublicKey `json:"cosign,omitempty"`
	// notation is a trust policy in trustpolicy.json, and certificates with names that end
	// in .crt or .pem.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="'trustpolicy.json' in self && self.all(name, name == 'trustpolicy.json' || name.matches('^[-._a-zA-Z0-9]+[.](crt|pem)$'))",message="notation needs trustpolicy.json, and certificates with names that end in .crt or .pem"
	Notation map[string]PublicKey `json:"notation,omitempty"`
}

// PublicKey is the text of a public key, of a certificate or of a trust policy.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=16384
// +kubebuilder:validation:XValidation:rule="!self.contains('PRIVATE KEY')",message="a key here is public: tenants may read it"
type PublicKey string

// GitSignatures are the signatures that GitRepositories must have.
type GitSignatures struct {
	// mode selects the Git objects that must have a signature: the commit that Flux applies (HEAD), the tag that it
	// comes from (Tag), or both (TagAndHEAD). TagAndHEAD satisfies a demand for either.
	// +optional
	// +kubebuilder:default=HEAD
	// +kubebuilder:validation:Enum=HEAD;Tag;TagAndHEAD
	Mode string `json:"mode,omitempty"`
}

// ArtifactSignatures are the signatures that artifacts in OCI registries must have: by a key of
// the platform, or by one of the identities.
//
// +kubebuilder:validation:XValidation:rule="has(self.providers) && size(self.providers) > 0 || has(self.identities) && size(self.identities) > 0",message="signatures are made with keys or by identities: list providers, identities or both"
type ArtifactSignatures struct {
	// providers are the programs whose keys may have signed: each of them has its keys in
	// signatures.keys.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=cosign;notation
	Providers []string `json:"providers,omitempty"`
	// identities are the identities that may have signed with cosign without a key. A source
	// must name one or more of them, exactly as here. The spec.chart of a HelmRelease cannot
	// name any: it needs a key, or spec.chartRef.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Identities []SignerIdentity `json:"identities,omitempty"`
}

// SignerIdentity matches identities in the certificates of Sigstore, as an entry of
// spec.verify.matchOIDCIdentity of Flux does.
type SignerIdentity struct {
	// issuer is a regular expression for the issuer of the identity, with ^ and $ at its ends.
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^\^[^|]+\$$`
	Issuer string `json:"issuer"`
	// subject is a regular expression for the identity, with ^ and $ at its ends.
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^\^[^|]+\$$`
	Subject string `json:"subject"`
}
