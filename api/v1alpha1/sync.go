package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Sync is a repository that a tenant delivers from.
//
// +kubebuilder:validation:XValidation:rule="has(self.git) != has(self.oci)",message="a sync comes from git or from oci, from one of them"
type Sync struct {
	// name is the name of the source and of the Kustomization.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// namespace is the tenant's namespace in which the sync is and to which it delivers.
	// The default is the first namespace of spec.namespaces.create. Flux applies all
	// manifests of the repository there and overrides their namespaces, unless
	// anyNamespace is true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// anyNamespace lets each manifest choose one of the tenant's namespaces, so that one
	// repository can deliver to several namespaces, and can create them if its account is
	// an owner. A manifest without a namespace is then refused.
	// +optional
	AnyNamespace bool `json:"anyNamespace,omitempty"`

	// git is a Git repository.
	// +optional
	Git *GitSource `json:"git,omitempty"`
	// oci is an OCI repository with manifests.
	// +optional
	OCI *OCISource `json:"oci,omitempty"`

	// path is the folder of the repository to deliver, such as ./staging.
	// +optional
	// +kubebuilder:default="./"
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`

	// interval is the interval of the source and of the Kustomization.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('8760h')",message="an interval is between 1s and 8760h"
	Interval metav1.Duration `json:"interval,omitempty,omitzero"`

	// decryptionSecret is the name of a Secret in the namespace with the keys that
	// decrypt the tenant's secrets: see Flux's spec.decryption.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DecryptionSecret string `json:"decryptionSecret,omitempty"`

	// substitute are the values of variables in the tenant's manifests, such as
	// the environment: see Flux's spec.postBuild.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Substitute map[string]string `json:"substitute,omitempty"`
}

// GitSource is a Git repository.
//
// +kubebuilder:validation:XValidation:rule="!has(self.branch) || !has(self.tag)",message="give a branch or a tag"
type GitSource struct {
	// url is the https or ssh address of the repository, without password, query,
	// percent-encoding and dot segments such as ../. The tenant may fetch from it in
	// addition to the sources that its policy allows.
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^(https?|ssh)://([a-z0-9_-]+@)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="an address has no .."
	URL string `json:"url"`
	// branch is main if there is neither a branch nor a tag.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Branch string `json:"branch,omitempty"`
	// tag is a tag. If it is set, branch must not be set.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Tag string `json:"tag,omitempty"`
	// secret is the name of a Secret in the namespace with credentials: see Flux's
	// spec.secretRef of a GitRepository.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
}

// OCISource is an OCI repository.
type OCISource struct {
	// url is the address of the repository. It begins with oci://.
	// +required
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^oci://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`
	// +kubebuilder:validation:XValidation:rule="!self.contains('..')",message="an address has no .."
	URL string `json:"url"`
	// tag is latest if there is none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Tag string `json:"tag,omitempty"`
	// secret is the name of a Secret in the namespace with credentials: see Flux's
	// spec.secretRef of an OCIRepository.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret,omitempty"`
}
