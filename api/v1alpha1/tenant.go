package v1alpha1

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tenant is a team on the cluster: its owners, its namespaces, their content, and the
// repositories from which it delivers. A platform admin writes it; the team may read it.
//
// A namespace belongs to the tenant that its label tenure.dev/tenant names.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=tenure
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Synced",type=string,JSONPath=`.status.conditions[?(@.type=="Synced")].status`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Quota",type=integer,JSONPath=`.spec.namespaces.quota`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordoned`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || oldSelf.hasValue() && !has(oldSelf.value().spec)",optionalOldSelf=true,message="a Tenant says what the tenant gets: write spec: {} for a name alone that namespaces can belong to",fieldPath=".spec"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a tenant's name is the name of an account and a label's value: at most 63 of a-z, 0-9 and -, with neither end a -"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'default' || oldSelf.hasValue()",optionalOldSelf=true,message="a tenant's name is the name of the account that Flux applies as, and default is the account of all Pods: choose another name"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired state of the tenant. It is required, and may be empty.
	// +optional
	Spec TenantSpec `json:"spec"`
	// status is the state that the manager observed.
	// +optional
	Status TenantStatus `json:"status,omitempty,omitzero"`
}

// TenantSpec is the desired state of a tenant. All fields are optional: a Tenant with an
// empty spec is a name that namespaces can belong to.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sync) || self.sync.all(s, has(s.__namespace__)) || has(self.namespaces) && has(self.namespaces.create) && size(self.namespaces.create) > 0",message="a sync needs a namespace: name it in the sync, or list one in spec.namespaces.create",fieldPath=".sync"
type TenantSpec struct {
	// owners are the people and programs of the team. They may create namespaces, up to
	// the quota, and have their roles in each namespace of the tenant.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Owners []Owner `json:"owners,omitempty"`

	// namespaces defines the tenant's namespaces, and their labels and annotations.
	// +optional
	// +kubebuilder:default={}
	Namespaces TenantNamespaces `json:"namespaces,omitempty,omitzero"`

	// sync are the repositories from which the tenant delivers. For each entry, the
	// manager creates a source and a Kustomization, which the tenant can read and cannot
	// change.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Sync []Sync `json:"sync,omitempty"`

	// roleBindings give other users roles in all of the tenant's namespaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	RoleBindings []TenantRoleBinding `json:"roleBindings,omitempty"`

	// clusterRoles are ClusterRoles that the owners and the tenant's accounts have in the
	// whole cluster, for cluster-scoped kinds that a platform admin shares with the
	// tenant. The manager must be allowed to bind each of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^/%]*[^./%][^/%]*$`
	ClusterRoles []string `json:"clusterRoles,omitempty"`

	// clusterResources select, by labels, objects of cluster-scoped kinds that the tenant
	// may read through the proxy. RBAC cannot select objects by labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	ClusterResources []ClusterResource `json:"clusterResources,omitempty"`

	// quotas limit the resources that the tenant may use.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Quotas []TenantQuota `json:"quotas,omitempty"`

	// limitRanges are the LimitRanges that the manager creates in each of the tenant's
	// namespaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	LimitRanges []LimitRange `json:"limitRanges,omitempty"`

	// networkPolicies are the NetworkPolicies that the manager creates in each of the
	// tenant's namespaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NetworkPolicies []networkingv1.NetworkPolicySpec `json:"networkPolicies,omitempty"`

	// objects are objects that the manager creates in all, or some, of the tenant's
	// namespaces, and restores when they change. The condition Replicated reports their
	// state.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Objects []ReplicatedObjects `json:"objects,omitempty"`

	// policy replaces parts of the TenancyProfile's limits for this tenant.
	// +optional
	Policy TenantPolicy `json:"policy,omitempty,omitzero"`

	// workloads limits the tenant's Pods. Each field that is set replaces the same field of
	// the TenancyProfile.
	// +optional
	Workloads Workloads `json:"workloads,omitempty,omitzero"`

	// network limits the tenant's Services, the routes that lead to them and the
	// connections of other tenants. Each field that is set replaces the same field of the
	// TenancyProfile.
	// +optional
	Network Network `json:"network,omitempty,omitzero"`

	// storage limits the tenant's volumes. Each field that is set replaces the same field
	// of the TenancyProfile.
	// +optional
	Storage Storage `json:"storage,omitempty,omitzero"`

	// cordoned stops the tenant from making changes: only the platform may create, change
	// or delete objects in its namespaces, and create namespaces for it. Running
	// workloads are not affected.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`

	// protected prevents the deletion of the Tenant, and thus of the tenant's namespaces
	// and their content, until a platform admin sets it to false.
	// +optional
	Protected bool `json:"protected,omitempty"`
}

// Owner is a user, group or service account that owns a tenant.
//
// +kubebuilder:validation:XValidation:rule="(self.kind == 'ServiceAccount') == has(self.__namespace__)",message="a ServiceAccount needs a namespace, and a User or a Group has none"
// +kubebuilder:validation:XValidation:rule="!self.name.startsWith('system:')",message="names that begin with system: are Kubernetes' own; a service account is given with kind ServiceAccount, its namespace and its name"
// +kubebuilder:validation:XValidation:rule="self.kind != 'ServiceAccount' || self.name.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="the name of a ServiceAccount has only a-z, 0-9, hyphens and dots, and begins and ends with a letter or digit",fieldPath=".name"
type Owner struct {
	// kind is User, Group or ServiceAccount.
	// +required
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind"`
	// name is the exact name of the owner; it is case-sensitive.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace is the namespace of a ServiceAccount.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
	// roles are the ClusterRoles that the owner has in each of the tenant's
	// namespaces. The manager must be allowed to bind each of them.
	// +optional
	// +listType=set
	// +kubebuilder:default={tenure-tenant,tenure-namespace-deleter}
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[^/%]*[^./%][^/%]*$`
	Roles []string `json:"roles,omitempty"`
}

// TenantRoleBinding gives other users a role in a tenant's namespaces.
type TenantRoleBinding struct {
	// role is a ClusterRole. The manager must be allowed to bind it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^/%]*[^./%][^/%]*$`
	Role string `json:"role"`
	// subjects are the subjects that get the role.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	Subjects []Subject `json:"subjects"`
	// namespaceSelector selects the namespaces by their labels; without it, the subjects get the
	// role in all namespaces of the tenant. If owners may choose a label that it reads, they
	// decide which of their namespaces it matches.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// labels are labels of the RoleBindings.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are annotations of the RoleBindings.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Subject is a user, group or service account that gets rights. Unlike an [Owner] it may be
// a system subject, such as the group system:serviceaccounts:monitoring.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'ServiceAccount' || !has(self.__namespace__)",message="only a ServiceAccount has a namespace"
type Subject struct {
	// kind is User, Group or ServiceAccount.
	// +required
	// +kubebuilder:validation:Enum=User;Group;ServiceAccount
	Kind string `json:"kind"`
	// name is the name of the subject.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// namespace is the namespace of a ServiceAccount. Without it, the subject is the
	// ServiceAccount of this name in each of the tenant's namespaces, and has the role in
	// its own namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
}

// TenantPolicy limits the Flux objects of a tenant. Each field that is set replaces the whole
// field of the TenancyProfile.
type TenantPolicy struct {
	// accounts are the service accounts that may apply the tenant's manifests.
	// +optional
	Accounts *Accounts `json:"accounts,omitempty"`
	// sources are the addresses that the tenant may fetch from, in addition to the
	// addresses of its sync.
	// +optional
	Sources *Sources `json:"sources,omitempty"`
	// signatures are the signatures that the tenant's sources must have, its sync included:
	// the manager writes them into it.
	// +optional
	Signatures *Signatures `json:"signatures,omitempty"`
	// bounds limit the time that Flux spends on the tenant.
	// +optional
	Bounds *Bounds `json:"bounds,omitempty"`
	// notifications limit the tenant's Receivers and Providers.
	// +optional
	Notifications *Notifications `json:"notifications,omitempty"`
	// flagger allows Flagger's kinds, within its lists.
	// +optional
	Flagger *Flagger `json:"flagger,omitempty"`
	// kubeConfigs are the names of Secrets that a Kustomization or HelmRelease may
	// name in spec.kubeConfig.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	KubeConfigs []string `json:"kubeConfigs,omitempty"`
}

// TenantStatus is the state of a Tenant that the manager observed.
type TenantStatus struct {
	// conditions: Provisioned is true if the tenant has its namespaces, roles and quotas,
	// Synced if Flux has applied its repositories, Replicated if its replicated objects
	// exist, and Ready if all of these are true. WithinQuota is true if the tenant uses
	// no more than its quotas allow, and HostsSeparate if no other tenant may have the hosts
	// of network.hosts.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// size is the number of namespaces.
	// +optional
	Size int32 `json:"size,omitempty"`
	// namespaces are the names of the tenant's namespaces.
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
	// objects are the objects that the manager replicated into the namespaces.
	// +optional
	// +listType=atomic
	Objects []ReplicatedObject `json:"objects,omitempty"`
}

// TenantList is a list of Tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}
