package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RuleStatus has the rules of a Tenant that are in force in the namespace of the RuleStatus.
// The manager writes one, with the name capsule-managed-rules, into each namespace of a Tenant
// with rules, and the API server's policies read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RuleStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has no effect.
	// +optional
	Spec []Unknown `json:"spec,omitempty"`
	// status has the rules.
	// +optional
	Status RuleStatusStatus `json:"status,omitempty,omitzero"`
}

// RuleStatusStatus has the rules that are in force in a namespace.
type RuleStatusStatus struct {
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// rules are the Tenant's rules whose selector selects the namespace, in their order, with
	// their templates filled in.
	// +optional
	// +listType=atomic
	Rules []Unknown `json:"rules,omitempty"`
	// audiences are the users of the audiences of kind Custom.
	// +optional
	// +listType=map
	// +listMapKey=name
	Audiences []RuleAudience `json:"audiences,omitempty"`
	// conditions: Ready is True if the rules are equal to the Tenant's rules.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RuleAudience are the users of an audience of kind Custom.
type RuleAudience struct {
	// name is the name of the audience.
	// +required
	Name string `json:"name"`
	// users are the names of users and service accounts.
	// +optional
	// +listType=atomic
	Users []string `json:"users,omitempty"`
	// groups are the names of groups.
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
}

// RuleStatusList is a list of RuleStatuses.
//
// +kubebuilder:object:root=true
type RuleStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RuleStatus `json:"items"`
}

const (
	// LabelCollisionScope is the label of the namespaces of a Tenant with a
	// hostnameCollisionScope other than Disabled, which is its value.
	LabelCollisionScope = "projectcapsule.dev/hostname-collision-scope"
	// CollisionCluster means that no two Ingresses of the cluster may have the same host and path.
	CollisionCluster = "Cluster"
	// CollisionTenant means that no two Ingresses of a tenant may have the same host and path.
	CollisionTenant = "Tenant"
	// CollisionNamespace means that no two Ingresses of a namespace may have the same host and path.
	CollisionNamespace = "Namespace"

	// RulesName is the name of the RuleStatus in a namespace.
	RulesName = "capsule-managed-rules"
	// LabelRules is the label of the namespaces in which the API server enforces the rules of
	// the RuleStatus. The manager puts it on all namespaces of a Tenant with rules.
	LabelRules = "projectcapsule.dev/rules"
	// RulesEnforced is the value of [LabelRules].
	RulesEnforced = "true"
	// RulesAudited is the value of [LabelRules] if there are rules with the action audit, with
	// default or managed metadata, or with policies for resources, which a webhook carries out.
	RulesAudited = "audit"
	// ReservedKeys is a regular expression for the names of the labels and annotations that have a meaning for
	// Capsule or for the manager. Rules about metadata do not apply to them, as in Capsule.
	ReservedKeys = `^(capsule[.]clastix[.]io/(tenant|resources|managed-by|limit-range|network-policy|resource-quota|role-binding|protected|((ingress|storage)-classes|allowed-registries|forbidden-namespace-(labels|annotations))(-regexp)?)` +
		`|projectcapsule[.]dev/(tenant|pool|global-resource-quota|freeze|promote|cordoned|name|created-by|custom-resources|managed-by|rule-quota|release|rules|hostname-collision-scope)` +
		`|owner[.]projectcapsule[.]dev/promote|reconcile[.]projectcapsule[.]dev/requestedAt|kubernetes[.]io/metadata[.]name)$|^(quota|used)[.]resources[.]capsule[.]clastix[.]io`
)
