package capsule

//go:generate go run ../../hack/capsule ../../docs/reference/capsule.md

// State describes how Tenure treats a field of Capsule.
type State string

// States of fields.
const (
	// Honoured fields have the same effect as in Capsule.
	Honoured State = "honoured"
	// Different fields have a different effect, which [Field.How] describes.
	Different State = "honoured differently"
	// Unused fields configure parts of Capsule that Tenure does not have.
	Unused State = "not needed"
	// Reported fields have no effect, and no restriction is lost. The condition Honoured names them.
	Reported State = "reported"
	// Unenforced fields restrict tenants, and Tenure does not enforce them: Tenure refuses the Tenant
	// unless the platform admin accepts the field.
	Unenforced State = "refused unless accepted"
	// Refused fields have an unsupported value.
	Refused State = "refused"
)

// Field is a field of Capsule's API.
type Field struct {
	// Path is the path of the field, with [] for each item of a list. The entry covers all fields
	// below it that have no entry of their own.
	Path string
	// State is the state of the field when it is set.
	State State
	// How explains the state in plain words.
	How string
}

// Fields returns all fields of the spec of a kind: Tenant, CapsuleConfiguration,
// TenantOwner, TenantResource, GlobalTenantResource, ProxySetting or GlobalProxySettings. It
// returns nil for other kinds.
func Fields(kind string) []Field {
	switch kind {
	case "Tenant":
		return append(tenantFields(), workloadFields()...)
	case "CapsuleConfiguration":
		return configurationFields()
	case "TenantResource":
		return append(replicationFields(),
			Field{"spec.serviceAccount", Different, "an account of the same namespace as which Flux may apply the tenant: the account with the tenant's name, which is the default, a reconciler of the TenancyProfile, or an owner. It needs rights in each namespace that gets the objects. Other accounts are refused"})
	case "TenantOwner":
		return []Field{
			{"spec.kind", Honoured, "may be left out for a service account"},
			{"spec.name", Honoured, "as in `spec.owners` of a Tenant"},
			{"spec.clusterRoles", Different, "as in `spec.owners` of a Tenant"},
			{"spec.aggregate", Different, "lists the owner in the status of the CapsuleConfiguration, which gives no rights"},
		}
	case "ProxySetting":
		return []Field{
			{"spec.subjects[].kind", Honoured, ""},
			{"spec.subjects[].name", Different, "service accounts must be in the tenant's namespaces; names that begin with `system:` are ignored"},
			{"spec.subjects[].proxySettings[].kind", Different, boundedByOwners},
			{"spec.subjects[].proxySettings[].operations", Reported, "`List` is honoured, as get, list and watch; the proxy changes nothing"},
			{"spec.subjects[].clusterResources", Different, boundedByOwners + ". Name the kinds; the proxy does not show RBAC objects"},
		}
	case "GlobalProxySettings":
		return []Field{
			{"spec.rules[].subjects", Honoured, "also groups of Kubernetes' own, such as `system:authenticated`"},
			{"spec.rules[].clusterResources", Different, "name the kinds; this field does not show RBAC objects, namespaces and Tenants. The proxy needs the right to read other kinds: see docs/how-to/proxy.md. If a kind has several selectors for one person, one selector must express all of them; otherwise the list is refused"},
		}
	case "RuleStatus":
		return []Field{{"spec", Unused, "the manager writes the status"}}
	case "GlobalTenantResource":
		return append(replicationFields(),
			Field{"spec.scope", Different, "`Tenant` and `None` need `spec.serviceAccount`; the rights of this account decide. They support only `rawItems` with `{{tenant.name}}`: templates, copies and contexts could read values that owners write, and are refused. An object names its namespace, or is cluster-scoped. An object that two tenants would get is refused. The account that applied a cluster-scoped object deletes it with its tenant or with the declaration"},
			Field{"spec.serviceAccount", Different, "the default is the account with the tenant's name in each namespace. For an account in a namespace without a tenant, give the manager the ClusterRole `tenure-replicator` with a RoleBinding there"},
			Field{"spec.tenantSelector", Honoured, "by the labels of Capsule's Tenants"})
	}
	return nil
}

func tenantFields() []Field {
	return []Field{
		{"spec.owners[].kind", Honoured, "optional for a service account. Kubernetes' own groups, such as `system:serviceaccounts:NAMESPACE`, are refused: name the accounts"},
		{"spec.owners[].name", Honoured, "exact match, case matters. `system:serviceaccount:NAMESPACE:NAME` is a service account"},
		{"spec.owners[].clusterRoles", Different, "as given, but `tenure-tenant` replaces `cluster-admin`. An empty list is refused. The manager must be allowed to bind each role"},
		{"spec.owners[].labels", Different, "on RoleBindings of their own with the same roles"},
		{"spec.owners[].annotations", Different, "on RoleBindings of their own with the same roles"},
		{"spec.owners[].proxySettings[].kind", Different, "through the proxy: the nodes that nodeSelector selects; the classes that the Tenant allows by `matchLabels` and `matchExpressions`, or by name if the class has the label `name`, but not by a regular expression; the volumes that are bound to claims of the tenant. If a list allows classes in several ways, one selector must express all of them; otherwise the list is refused"},
		{"spec.owners[].proxySettings[].operations", Reported, "`List` is honoured, as get, list and watch. Other operations have no effect, because the proxy changes nothing: give the rights with a ClusterRole"},
		{"spec.permissions.allowOwnerPromotion", Different, "with `false`, the label has no effect in the tenant; owners can still set it"},
		{"spec.permissions.matchOwners", Honoured, "an owner that the Tenant also names has the roles of both. A TenantOwner with the label `projectcapsule.dev/tenant: NAME` is an owner of the Tenant with this name, even if the Tenant does not select it"},
		{"spec.additionalRoleBindings[].clusterRoleName", Different, "as given, but `tenure-tenant` replaces `cluster-admin`: all rights in the namespace, except for the status of Flux objects, impersonation, tokens and quotas"},
		{"spec.additionalRoleBindings[].subjects", Honoured, "User, Group and ServiceAccount. A ServiceAccount without a namespace is the account in each of the tenant's namespaces"},
		{"spec.additionalRoleBindings[].labels", Honoured, "on the RoleBindings"},
		{"spec.additionalRoleBindings[].annotations", Honoured, "on the RoleBindings"},
		{"spec.namespaceOptions.quota", Honoured, "also if owners create namespaces at the same time. Without it, the tenant has at most 100 namespaces"},
		{"spec.namespaceOptions.additionalMetadata", Different, "the label `pod-security.kubernetes.io/enforce` sets the Pod Security level; the default is `baseline`, and the version is always latest. Labels with the name of Capsule's tenant or of the namespace keep their values. Other labels that name a tenant are refused, and so are templates other than `{{ tenant.name }}` and `{{ namespace }}`"},
		{"spec.namespaceOptions.additionalMetadataList[].labels", Honoured, "as additionalMetadata"},
		{"spec.namespaceOptions.additionalMetadataList[].annotations", Honoured, "as additionalMetadata"},
		{"spec.namespaceOptions.additionalMetadataList[].namespaceSelector", Different, "as `spec.namespaces.selected` of the Tenant of Tenure. An entry with a selector can raise the Pod Security level to `restricted`. A level below the level of all namespaces has no effect, since owners may choose the labels that the selector reads"},
		{"spec.namespaceOptions.forbiddenLabels.denied", Honoured, "exactly, case matters"},
		{"spec.namespaceOptions.forbiddenLabels.deniedRegex", Honoured, anyMetadataExpression},
		{"spec.namespaceOptions.forbiddenAnnotations.denied", Honoured, "exactly, case matters"},
		{"spec.namespaceOptions.forbiddenAnnotations.deniedRegex", Honoured, anyMetadataExpression},
		{"spec.namespaceOptions.requiredMetadata", Honoured, anyMetadataExpression},
		{"spec.namespaceOptions.managedMetadataOnly", Honoured, "also for the labels that Flux and kubectl add to objects that they apply"},
		{"spec.forceTenantPrefix", Honoured, "overrides the CapsuleConfiguration"},
		{"spec.cordoned", Honoured, "at once, also while other fields are refused. The label `projectcapsule.dev/cordoned=true` cordons a single namespace. The platform sets it; with `capsule: {cordon: Owners}` in the TenancyProfile, owners also set it, on the namespaces that they created"},
		{"spec.preventDeletion", Honoured, "as spec.protected of the Tenant of Tenure"},
		{"spec.data", Reported, "Tenure does not run templates"},
		{"spec.resourceQuotas", Honoured, "with scope Tenant, all namespaces together never exceed the quota. The objects have other names than Capsule's, unless the TenancyProfile has `capsule: {names: Capsule}`"},
		{"spec.limitRanges", Honoured, "named as resourceQuotas"},
		{"spec.networkPolicies", Honoured, "named as resourceQuotas. The TenancyProfile may add tenure-isolation"},
		{"spec.nodeSelector", Different, "a Pod for other nodes is refused. The policy tenure-defaults, which needs Kubernetes 1.36, adds the labels to new Pods, or, as with Capsule, the API server's plugin PodNodeSelector does. Without both, the templates must contain the labels"},
	}
}

const anyMetadataExpression = "any expression, at most 256 bytes"

func workloadFields() []Field {
	const (
		anyExpression = "any expression, at most 512 bytes"
		byName        = "by `allowed`, `allowedRegex`, `matchLabels` and `matchExpressions`"
		withDefaults  = "by the policy tenure-defaults, which needs Kubernetes 1.36: see docs/how-to/limit-workloads.md"
		aDefault      = withDefaults + ". It replaces the default class of the cluster, but no class that the object names. As in Capsule, a default is allowed even if `allowed` and the selector do not allow it, and alone it is the only class that is allowed"
	)
	return []Field{
		{"spec.containerRegistries", Different, "also for templates, so that a Deployment is refused at once. An image that names no registry is refused, and with an empty list every image. `allowedRegex` matches the name of the registry"},
		{"spec.imagePullPolicies", Honoured, "also for templates and image volumes"},
		{"spec.ingressOptions.allowedClasses", Different, byName},
		{"spec.ingressOptions.allowedClasses.default", Different, aDefault},
		{"spec.ingressOptions.allowedHostnames", Different, "also for HTTPRoutes, GRPCRoutes, TLSRoutes and Gateways"},
		{"spec.ingressOptions.hostnameCollisionScope", Different, "by a webhook: only one Ingress has a host with a path within the scope, also if several are created at the same time. `Cluster` includes the Ingresses of the platform. An Ingress that could not be created blocks its host for a minute"},
		{"spec.ingressOptions.allowWildcardHostnames", Different, "with `allowedHostnames`, hosts that begin with an asterisk are always refused. Without both fields, the hosts of the TenancyProfile are allowed, except for those that begin with an asterisk"},
		{"spec.gatewayOptions.allowedClasses", Different, byName},
		{"spec.gatewayOptions.allowedClasses.default", Different, aDefault},
		{"spec.serviceOptions.additionalMetadata", Different, "on Services and EndpointSlices, " + withDefaults + ". A label or annotation that the tenant gives is replaced"},
		{"spec.serviceOptions.allowedServices", Different, "without it, the TenancyProfile decides; its default is ClusterIP and LoadBalancer"},
		{"spec.serviceOptions.externalIPs", Different, "also for `spec.loadBalancerIP`. An empty list allows none. Without the field, the TenancyProfile decides; its default is none"},
		{"spec.serviceOptions.forbiddenLabels.denied", Honoured, "exactly, case matters"},
		{"spec.serviceOptions.forbiddenLabels.deniedRegex", Honoured, anyExpression},
		{"spec.serviceOptions.forbiddenAnnotations.denied", Honoured, "exactly, case matters"},
		{"spec.serviceOptions.forbiddenAnnotations.deniedRegex", Honoured, anyExpression},
		{"spec.podOptions.additionalMetadata", Different, withDefaults + ". A label or annotation that the tenant gives is replaced"},
		{"spec.storageClasses", Different, byName + ". The templates of StatefulSets are checked too"},
		{"spec.storageClasses.default", Different, aDefault},
		{"spec.priorityClasses", Different, byName + ". Labels do not select Kubernetes' own classes. Without the field, the TenancyProfile decides; its default is all classes except Kubernetes' own"},
		{"spec.priorityClasses.default", Different, aDefault},
		{"spec.runtimeClasses", Different, byName},
		{"spec.runtimeClasses.default", Different, aDefault},
		{"spec.deviceClasses", Different, byName},
		{"spec.rules", Different, "`enforce` is honoured for images, schedulers, QoS classes, resources, Services, hosts and metadata, with `namespaceSelector`, `audience` and templates. Rules about the metadata of namespaces apply if `kinds` contains Namespace; they support no templates, and only the Custom audiences TenantOwner and CapsuleUser. `quota` limits all selected namespaces together, from the time when a namespace is selected; if owners may choose a label that `namespaceSelector` reads, they choose the namespaces that the quota limits. An unknown field and an unknown Custom audience are refused unless accepted. A webhook, which may fail, sets `default` metadata in new objects, but not in namespaces and Secrets. The same webhook sets `managed` metadata in new and changed objects; the API server refuses requests that would change it, even if the webhook fails. A Tenant is refused if its rules manage a label of Secrets, a key with an expression, or the same label with two values for the same namespaces and users. The same webhook changes requests and limits of new Pods; a Pod that violates a policy is refused. Policies for the Pod itself apply to Pods with resources of their own, and to all Pods if `targets` contains `pod`. For rules with the action audit, the same webhook writes events with the reason NamespaceRuleAudit, also about refused objects. Role bindings and promotions apply in the namespaces that `namespaceSelector` selects. See docs/how-to/move-from-capsule.md"},
	}
}

func configurationFields() []Field {
	const governed = "only Tenants name owners, and the rules apply to every owner, whatever the owner's groups are. A group alone gives no rights"
	return []Field{
		{"spec.userGroups", Different, governed},
		{"spec.userNames", Different, governed},
		{"spec.users", Different, governed},
		{"spec.ignoreUserWithGroups", Different, "owners in these groups cannot create namespaces. Otherwise they are like every owner"},
		{"spec.administrators", Different, "administrators are owners of every Tenant, under the rules for owners, with `spec.rbac.administrationClusterRoles`. They create namespaces only with a tenant's label, and cannot move a namespace to another tenant, unless the TenancyProfile has `capsule: {administrators: Namespaces}`. Even then, they cannot change namespaces of the platform, namespaces with protected names, and namespaces of Tenants of tenure.dev. Names that begin with `system:` are ignored"},
		{"spec.forceTenantPrefix", Honoured, "for Tenants without the field"},
		{"spec.protectedNamespaceRegex", Different, "any expression, at most 512 bytes, for the owners of Capsule's Tenants. The TenancyProfile may protect further names"},
		{"spec.allowServiceAccountPromotion", Different, "an owner makes a service account of the tenant's namespaces an owner with the label `owner.projectcapsule.dev/promote: \"true\"`. Without the field, only the platform sets the label. Accounts that already have the label become owners, so look for them first. The label `projectcapsule.dev/promote: \"true\"` gives a service account the roles of the promotions in `spec.rules`, by the same rules"},
		{"spec.nodeMetadata", Honoured, "for owners with rights on nodes, which the platform gives"},
		{"spec.rbac.deleter", Reported, "Tenure creates only `capsule-namespace-deleter`"},
		{"spec.rbac.provisioner", Unused, "the API server's rules let owners create namespaces"},
		{"spec.rbac.administrationClusterRoles", Different, "as `spec.owners[].clusterRoles` of a Tenant"},
		{"spec.rbac.promotionClusterRoles", Different, "as `spec.owners[].clusterRoles` of a Tenant"},
		{"spec.overrides", Unused, "names of Capsule's own objects. The manager reads them to detect that Capsule runs"},
		{"spec.enableTLSReconciler", Unused, "Capsule's own certificates"},
		{"spec.cacheInvalidation", Unused, "Capsule's own cache"},
		{"spec.events", Unused, "Capsule's own events"},
		{"spec.admission", Unused, "Capsule's own webhooks"},
		{"spec.impersonation", Unused, "the manager impersonates only accounts of the tenants' namespaces, and reports which"},
	}
}

const boundedByOwners = "limited to objects that the proxy shows to every owner of the tenant, since tenants may be able to write the object"

func replicationFields() []Field {
	return []Field{
		{"spec.resources[].namespaceSelector", Different, "among the tenant's namespaces. In a GlobalTenantResource, labels that an owner chose for a namespace do not count"},
		{"spec.resources[].additionalMetadata", Honoured, "with `{{tenant.name}}` and `{{namespace}}`, except labels of `tenure.dev`"},
		{"spec.resources[].rawItems", Different, "with `{{tenant.name}}` and `{{namespace}}`; other double braces are refused. The namespace in an object is ignored. Cluster-scoped objects and objects of `tenure.dev` and `capsule.clastix.io` are refused, each separately. The account that applies the objects needs the rights to them"},
		{"spec.resources[].namespacedItems", Different, "the account that applies the objects reads them, or, in a tenant's own namespace, the account there; at most 64 for each selector. With `{{tenant.name}}` and `{{namespace}}` in the namespace, the name and the values of `matchLabels`. Without a namespace, a TenantResource reads its own; a GlobalTenantResource needs one. Without a name and a selector, all objects of the namespace. A selector does not select copies. Copies do not get the labels that the selector names"},
		{"spec.resources[].generators", Different, "Go templates of at most 16 KiB, with the functions of docs/design/replication.md. They read the Tenant, including its status, and the name and the labels of the namespace. Their time and their output are limited. An item and a template for the same object become one object"},
		{"spec.resources[].context", Different, "as namespacedItems, with `{{ namespace }}` for the namespace that gets the objects"},
		{"spec.resyncPeriod", Different, "from 5s to 24h"},
		{"spec.pruningOnDelete", Honoured, "with the account that applied the objects"},
		{"spec.cordoned", Honoured, "existing objects stay unchanged"},
		{"spec.dependsOn", Honoured, "waits until the current generations of the others are ready"},
		{"spec.settings.adopt", Honoured, "adopted objects are released, and not deleted"},
		{"spec.settings.force", Honoured, "without it, the manager still corrects changes of objects that it created, unless another field manager applies the object too"},
	}
}
