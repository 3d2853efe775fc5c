package capsule

//go:generate go run ../../hack/capsule ../../docs/reference/capsule.md

// State says how Tenure treats a field of Capsule.
type State string

// States of fields.
const (
	// Honoured fields have the same effect as in Capsule.
	Honoured State = "honoured"
	// Different fields have a different effect, which [Field.How] describes.
	Different State = "honoured differently"
	// Unused fields configure parts of Capsule that Tenure does not have.
	Unused State = "not needed"
	// Reported fields have no effect, which loosens no restriction. The condition Honoured names
	// them.
	Reported State = "reported"
	// Unenforced fields restrict tenants, and Tenure does not enforce them: the Tenant is refused
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
			Field{"spec.serviceAccount", Different, "an account of the same namespace that the tenant may be applied as: the one with the tenant's name, which is the default, one of the TenancyProfile's reconcilers, or an owner. It needs rights in each namespace that gets the objects; others are refused"})
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
			{"spec.subjects[].name", Different, "of service accounts those of the tenant's namespaces; names that begin with `system:` are nobody's"},
			{"spec.subjects[].proxySettings[].kind", Different, boundedByOwners},
			{"spec.subjects[].proxySettings[].operations", Reported, "`List` is honoured, as get, list and watch; the proxy changes nothing"},
			{"spec.subjects[].clusterResources", Different, boundedByOwners + ". Kinds have to be named, and RBAC's are not shown"},
		}
	case "GlobalProxySettings":
		return []Field{
			{"spec.rules[].subjects", Honoured, "also groups of Kubernetes' own, such as `system:authenticated`"},
			{"spec.rules[].clusterResources", Different, "kinds have to be named; RBAC's, namespaces and Tenants are not shown so. The proxy needs the right to read other kinds: see docs/how-to/proxy.md. Several selectors for one kind and person have to be one together, or a list is refused"},
		}
	case "RuleStatus":
		return []Field{{"spec", Unused, "the manager writes the status"}}
	case "GlobalTenantResource":
		return append(replicationFields(),
			Field{"spec.scope", Different, "`Tenant` and `None` need `spec.serviceAccount`, whose rights decide, and have `rawItems` with `{{tenant.name}}` only: templates, copies and contexts read what owners write, and are refused. An object names its namespace, or is in the cluster. An object that two tenants get is refused. What is in the cluster is deleted with its tenant or the declaration, by the account that applied it"},
			Field{"spec.serviceAccount", Different, "without it, the account with the tenant's name in each namespace. In a namespace that is no tenant's, the manager has to be given ClusterRole `tenure-replicator` with a RoleBinding"},
			Field{"spec.tenantSelector", Honoured, "by the labels of Capsule's Tenants"})
	}
	return nil
}

func tenantFields() []Field {
	return []Field{
		{"spec.owners[].kind", Honoured, "may be left out for a service account. A group of Kubernetes' own, such as `system:serviceaccounts:NAMESPACE`, is refused: name the accounts"},
		{"spec.owners[].name", Honoured, "exactly, case matters. `system:serviceaccount:NAMESPACE:NAME` is a service account"},
		{"spec.owners[].clusterRoles", Different, "as given, but for `cluster-admin`, for which `tenure-tenant` is given. An empty list is refused. The manager must be allowed to bind each role"},
		{"spec.owners[].labels", Different, "on RoleBindings of their own with the same roles"},
		{"spec.owners[].annotations", Different, "on RoleBindings of their own with the same roles"},
		{"spec.owners[].proxySettings[].kind", Different, "through the proxy: nodes that nodeSelector selects; classes that the Tenant allows, by `matchLabels` and `matchExpressions` or, for names, by their label `name`, and none for an expression; volumes that are bound to claims of the tenant. Several ways have to be one selector together, or a list is refused"},
		{"spec.owners[].proxySettings[].operations", Reported, "`List` is honoured, as get, list and watch; the proxy changes nothing, whatever else is given: give that right with a ClusterRole"},
		{"spec.permissions.allowOwnerPromotion", Different, "if it is false, the label has no effect in the tenant; owners can still set it"},
		{"spec.permissions.matchOwners", Honoured, "an owner that the Tenant names too has the roles of both. A TenantOwner with the label `projectcapsule.dev/tenant: NAME` is an owner of the Tenant of this name, selected or not"},
		{"spec.additionalRoleBindings[].clusterRoleName", Different, "as given, but for `cluster-admin`, for which `tenure-tenant` is given: everything namespaced, without status of Flux objects, impersonation, tokens, quotas"},
		{"spec.additionalRoleBindings[].subjects", Honoured, "User, Group and ServiceAccount. A ServiceAccount without a namespace is the account in each of the tenant's namespaces"},
		{"spec.additionalRoleBindings[].labels", Honoured, "on the RoleBindings"},
		{"spec.additionalRoleBindings[].annotations", Honoured, "on the RoleBindings"},
		{"spec.namespaceOptions.quota", Honoured, "also when owners race"},
		{"spec.namespaceOptions.additionalMetadata", Different, "label `pod-security.kubernetes.io/enforce` sets the Pod Security level, which is `baseline` without it; its version is always latest. Labels that name Capsule's tenant or the namespace keep their values; other labels that name a tenant are refused, and templates other than `{{ tenant.name }}` and `{{ namespace }}`"},
		{"spec.namespaceOptions.additionalMetadataList[].labels", Honoured, "as additionalMetadata"},
		{"spec.namespaceOptions.additionalMetadataList[].annotations", Honoured, "as additionalMetadata"},
		{"spec.namespaceOptions.additionalMetadataList[].namespaceSelector", Different, "as `spec.namespaces.selected` of the Tenant of Tenure. An entry with a selector can raise the Pod Security level to `restricted`. A lower level than that of all namespaces has no effect, since owners may choose the labels that the selector reads"},
		{"spec.namespaceOptions.forbiddenLabels.denied", Honoured, "exactly, case matters"},
		{"spec.namespaceOptions.forbiddenLabels.deniedRegex", Honoured, anyMetadataExpression},
		{"spec.namespaceOptions.forbiddenAnnotations.denied", Honoured, "exactly, case matters"},
		{"spec.namespaceOptions.forbiddenAnnotations.deniedRegex", Honoured, anyMetadataExpression},
		{"spec.namespaceOptions.requiredMetadata", Honoured, anyMetadataExpression},
		{"spec.namespaceOptions.managedMetadataOnly", Honoured, "also for the labels that Flux and kubectl put on what they apply"},
		{"spec.forceTenantPrefix", Honoured, "in the place of the CapsuleConfiguration's"},
		{"spec.cordoned", Honoured, "at once, also while other fields are refused. A single namespace is cordoned by its label `projectcapsule.dev/cordoned=true`, which the platform sets, and with `capsule: {cordon: Owners}` in the TenancyProfile also owners, for the namespaces that they made"},
		{"spec.preventDeletion", Honoured, "as spec.protected of the Tenant of Tenure"},
		{"spec.data", Reported, "templates are not run"},
		{"spec.resourceQuotas", Honoured, "scope Tenant is a bound that all namespaces together never exceed. The objects have other names, or Capsule's with `capsule: {names: Capsule}` in the TenancyProfile"},
		{"spec.limitRanges", Honoured, "named as resourceQuotas"},
		{"spec.networkPolicies", Honoured, "named as resourceQuotas, and tenure-isolation comes in addition, as the TenancyProfile says"},
		{"spec.nodeSelector", Different, "a Pod for other nodes is refused. New Pods get the labels from the policy tenure-defaults, which needs Kubernetes 1.36, or from the API server's plugin PodNodeSelector, as with Capsule; without both, the templates need them"},
	}
}

const anyMetadataExpression = "any expression, of 256 bytes at most"

func workloadFields() []Field {
	const (
		anyExpression = "any expression, of 512 bytes at most"
		byName        = "by `allowed`, `allowedRegex`, `matchLabels` and `matchExpressions`"
		withDefaults  = "by the policy tenure-defaults, which needs Kubernetes 1.36: see docs/how-to/limit-workloads.md"
		aDefault      = withDefaults + ". It replaces a default class of the cluster, and no class that the object names. A default is allowed, as in Capsule, whatever `allowed` and the selector say"
	)
	return []Field{
		{"spec.containerRegistries", Different, "also for templates, so that a Deployment is refused at once. An image that names no registry is refused. `allowedRegex` matches the name of the registry"},
		{"spec.imagePullPolicies", Honoured, "also for templates and image volumes"},
		{"spec.ingressOptions.allowedClasses", Different, byName},
		{"spec.ingressOptions.allowedClasses.default", Different, aDefault},
		{"spec.ingressOptions.allowedHostnames", Different, "also for HTTPRoutes, GRPCRoutes, TLSRoutes and Gateways"},
		{"spec.ingressOptions.hostnameCollisionScope", Different, "by a webhook: one Ingress has a host with a path within the scope, also if several are made at once. `Cluster` includes the Ingresses of the platform. An Ingress of which the creation failed blocks its host for a minute"},
		{"spec.ingressOptions.allowWildcardHostnames", Different, "with `allowedHostnames`, hosts that begin with an asterisk are always refused"},
		{"spec.gatewayOptions.allowedClasses", Different, byName},
		{"spec.gatewayOptions.allowedClasses.default", Different, aDefault},
		{"spec.serviceOptions.additionalMetadata", Different, "on Services and EndpointSlices, " + withDefaults + ". A label or annotation that the tenant gives is replaced"},
		{"spec.serviceOptions.allowedServices", Different, "without it, the TenancyProfile decides; its default is ClusterIP and LoadBalancer"},
		{"spec.serviceOptions.externalIPs", Different, "also for `spec.loadBalancerIP`. Without it, the TenancyProfile decides; its default is none"},
		{"spec.serviceOptions.forbiddenLabels.denied", Honoured, "exactly, case matters"},
		{"spec.serviceOptions.forbiddenLabels.deniedRegex", Honoured, anyExpression},
		{"spec.serviceOptions.forbiddenAnnotations.denied", Honoured, "exactly, case matters"},
		{"spec.serviceOptions.forbiddenAnnotations.deniedRegex", Honoured, anyExpression},
		{"spec.podOptions.additionalMetadata", Different, withDefaults + ". A label or annotation that the tenant gives is replaced"},
		{"spec.storageClasses", Different, byName + ". The templates of StatefulSets are checked too"},
		{"spec.storageClasses.default", Different, aDefault},
		{"spec.priorityClasses", Different, byName + ". The labels select no class of Kubernetes. Without the field, the TenancyProfile decides; its default is every class but those of Kubernetes"},
		{"spec.priorityClasses.default", Different, aDefault},
		{"spec.runtimeClasses", Different, byName},
		{"spec.runtimeClasses.default", Different, aDefault},
		{"spec.deviceClasses", Different, byName},
		{"spec.rules", Different, "`enforce` of images, schedulers, QoS classes, resources, Services, hosts and metadata holds, with `namespaceSelector`, `audience` and templates. Rules about the metadata of namespaces hold if `kinds` names Namespace; they have no templates, and of the audiences of kind Custom only TenantOwner and CapsuleUser. `quota` bounds all selected namespaces together, from when a namespace is selected; if the owners may choose a label that `namespaceSelector` reads, they choose which namespaces it bounds. An unknown field and an unknown audience of kind Custom are refused unless accepted. `default` metadata is set in new objects by a webhook, which may fail, and not in namespaces and Secrets. `managed` metadata is set in new and changed objects by the same webhook, and the API server refuses what would change it, so that it does not depend on the webhook; a Tenant is refused if its rules manage a label of Secrets, an expression, or one label with two values for the same namespaces and users. The same webhook changes requests and limits of new Pods; a Pod that does not keep a policy is refused. Policies for the Pod itself hold for Pods with resources of their own, and for all if `targets` names `pod`. Rules with the action audit write events with the reason NamespaceRuleAudit, of refused objects too; the same webhook writes them. Role bindings and promotions hold in the namespaces that `namespaceSelector` selects. See docs/how-to/move-from-capsule.md"},
	}
}

func configurationFields() []Field {
	const governed = "owners are those that Tenants name, and every owner is held back, whatever groups it is in. A group alone gives no rights"
	return []Field{
		{"spec.userGroups", Different, governed},
		{"spec.userNames", Different, governed},
		{"spec.users", Different, governed},
		{"spec.ignoreUserWithGroups", Different, "owners in these groups make no namespaces. Everything else holds for them as for every owner"},
		{"spec.administrators", Different, "as owners of every Tenant, by the rules for owners, with `spec.rbac.administrationClusterRoles`. They create namespaces only with a tenant's label, and move none between tenants, unless the TenancyProfile has `capsule: {administrators: Namespaces}`. Even then, they change no namespaces of the platform, none with protected names and none of Tenants of tenure.dev. Names that begin with `system:` are left out"},
		{"spec.forceTenantPrefix", Honoured, "for Tenants without their own"},
		{"spec.protectedNamespaceRegex", Different, "any expression, of 512 bytes at most, for the owners of Capsule's Tenants. The names that the TenancyProfile protects are protected, too"},
		{"spec.allowServiceAccountPromotion", Different, "an owner makes a service account of the tenant's namespaces an owner with the label `owner.projectcapsule.dev/promote: \"true\"`. Without the field, only the platform sets the label. Accounts that have the label already count, so look for them first. The label `projectcapsule.dev/promote: \"true\"` gives a service account the roles of the promotions in `spec.rules`, by the same rules"},
		{"spec.nodeMetadata", Honoured, "for owners of tenants to whom the platform gives rights on nodes"},
		{"spec.rbac.deleter", Reported, "only `capsule-namespace-deleter` is made"},
		{"spec.rbac.provisioner", Unused, "owners may make namespaces by the rules in the API server"},
		{"spec.rbac.administrationClusterRoles", Different, "as `spec.owners[].clusterRoles` of a Tenant"},
		{"spec.rbac.promotionClusterRoles", Different, "as `spec.owners[].clusterRoles` of a Tenant"},
		{"spec.overrides", Unused, "names of Capsule's own objects, by which the manager finds out that Capsule runs"},
		{"spec.enableTLSReconciler", Unused, "Capsule's own certificates"},
		{"spec.cacheInvalidation", Unused, "Capsule's own cache"},
		{"spec.events", Unused, "Capsule's own events"},
		{"spec.admission", Unused, "Capsule's own webhooks"},
		{"spec.impersonation", Unused, "the manager acts as accounts of the tenants' namespaces only, and says as which"},
	}
}

const boundedByOwners = "at most what the proxy shows to every owner of the tenant, since tenants may be able to write the object"

func replicationFields() []Field {
	return []Field{
		{"spec.resources[].namespaceSelector", Different, "among the tenant's namespaces. In a GlobalTenantResource, labels that an owner chose for a namespace do not count"},
		{"spec.resources[].additionalMetadata", Honoured, "with `{{tenant.name}}` and `{{namespace}}`, but for labels of `tenure.dev`"},
		{"spec.resources[].rawItems", Different, "with `{{tenant.name}}` and `{{namespace}}`; other double braces are refused. The namespace that an object names does not matter. What is in no namespace, or is of `tenure.dev` or `capsule.clastix.io`, is refused, each by itself; the account that applies needs the right to it"},
		{"spec.resources[].namespacedItems", Different, "read by the account that applies, or in a tenant's own namespace the account there; 64 at most for each selector. With `{{tenant.name}}` and `{{namespace}}` in the namespace, the name and the values of `matchLabels`. Without a namespace, a TenantResource reads its own; a GlobalTenantResource needs one. Without a name and a selector, all objects of the namespace. A selector finds no copies. Copies lose the labels that the selector names"},
		{"spec.resources[].generators", Different, "Go templates with the functions of docs/design/replication.md and with the Tenant, its status included, and the name and the labels of the namespace, of 16 KiB at most, and with a bound for their time and their output. An item and a template for the same object become one object"},
		{"spec.resources[].context", Different, "as namespacedItems, with `{{ namespace }}` for the namespace that gets the objects"},
		{"spec.resyncPeriod", Different, "from 5s to 24h"},
		{"spec.pruningOnDelete", Honoured, "as the account that applied"},
		{"spec.cordoned", Honoured, "what is there stays as it is"},
		{"spec.dependsOn", Honoured, "until the others are ready, in their present form"},
		{"spec.settings.adopt", Honoured, "what was adopted is not deleted, only given up"},
		{"spec.settings.force", Honoured, "without it, changes of what was made here are still corrected, unless somebody else applies the object too"},
	}
}
