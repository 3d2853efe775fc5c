package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VerbPrivileged is the verb on a Tenant that lets the manager give the Tenant's namespaces the Pod
// Security level privileged. No API has this verb: a platform admin gives it to the manager, with a
// ClusterRole that is aggregated to the manager's role. A Pod of this level can take over the node, and
// with the node the cluster.
const VerbPrivileged = "privileged"

const (
	groupRBAC     = "rbac.authorization.k8s.io"
	groupWebhooks = "admissionregistration.k8s.io"
)

// CEL of [managerRequests].
const (
	// madeBy is true if an object has the label of objects that the manager created.
	madeBy = "(has(%[1]s.metadata.labels) && '" + tenancy.LabelManaged + "' in %[1]s.metadata.labels)"
	// broadGroups are groups that include users of more than one tenant.
	broadGroups = "['system:authenticated', 'system:unauthenticated', 'system:serviceaccounts', 'system:masters', 'system:nodes']"
)

// managerRequests returns the rule about the manager's own requests. RBAC limits which roles the manager
// may bind and which kinds it may write, but not in which namespaces; this rule does. An attacker with the
// manager's token reaches only the namespaces of tenants, and has no more rights there than the tenants.
//
// The rule matches the kinds that the manager may write, so it does not match Pods.
func managerRequests() Rule {
	validations := slices.Concat(managedNamespaces(), managedObjects(), managedRights(), managedClusterPolicies())
	return Rule{
		Name: Prefix + "manager", Rows: []string{"I25"},
		Title: "the manager writes only in namespaces of tenants, to its own objects, and to roles for tenants",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, "", "namespaces", "serviceaccounts", "resourcequotas", "limitranges", "secrets"),
			on(all, "networking.k8s.io", "networkpolicies"),
			on(all, tenancy.ClusterPolicyGroup, tenancy.ClusterPolicyResource),
			on(all, groupRBAC, "roles", "rolebindings", "clusterroles", "clusterrolebindings"),
			on(all, v1alpha1.GroupVersion.Group, "tenants", "tenantparameters"),
			on(all, groupKustomize, kustomizations...),
			on(all, groupHelm, helmReleases...),
			on(all, groupSource, "gitrepositories", "ocirepositories", "externalartifacts", "externalartifacts/status"),
			on(all, groupWebhooks, "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
			on(all, "", "persistentvolumes"),
		},
		// The rule tenure-accounts checks, for all users, the account that Flux impersonates for these
		// objects.
		ungoverned: []admissionregistrationv1.NamedRuleWithOperations{
			on(creates, groupKustomize, kustomizations...), on(creates, groupHelm, helmReleases...), on(creates, groupSource, "gitrepositories", "ocirepositories"),
		},
		conditions: []string{isManager},
		variables: []admissionregistrationv1.Variable{
			{Name: "place", Expression: "request.resource.resource == 'namespaces' ? variables.name : has(request.namespace) ? request.namespace : ''"},
			{Name: "now", Expression: "request.operation == 'DELETE' ? oldObject : object"},
			{Name: "kind", Expression: "request.resource.resource"},
			{Name: "tenant", Expression: tenantOf("namespaceObject")},
			{Name: "reserved", Expression: "variables.place.startsWith('kube-') || variables.place in ['" + strings.Join(reservedNamespaces, "', '") + "']"},
			{Name: "made", Expression: "request.operation == 'CREATE' ? " + fmt.Sprintf(madeBy, "object") + " : " + fmt.Sprintf(madeBy, "oldObject")},
			{Name: "requested", Expression: "request.operation == 'UPDATE' && variables.kind in ['kustomizations', 'helmreleases'] && !(" + beyondAnnotations + ")"},
			// givenUp is true if the manager releases an object, as it does in a namespace that no longer
			// belongs to a tenant.
			{Name: "givenUp", Expression: "variables.made && (request.operation == 'DELETE' || request.operation == 'UPDATE' &&" +
				" (has(object.spec) ? has(oldObject.spec) && object.spec == oldObject.spec : variables.kind != 'roles'" +
				" && (!has(object.subjects) || has(oldObject.subjects) && object.subjects == oldObject.subjects)))"},
		},
		scope: allNamespaces, asksRBAC: true,
		frequent: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, "", "serviceaccounts", "resourcequotas", "limitranges"),
			on(all, "networking.k8s.io", "networkpolicies"),
			on(all, groupRBAC, "rolebindings"),
		},
		validations: validationsFor(validations),
	}
}

// inTenants returns the rule for its frequent requests in the namespaces of Tenants. The label of such a
// namespace names a tenant, so the match condition can find out whether the rule refuses the request,
// although a match condition cannot read the namespace: see [allowed]. The match condition excludes almost
// all requests, so the API server evaluates one expression instead of 20.
func (r Rule) inTenants() Rule {
	var names []string
	for _, on := range r.frequent {
		names = append(names, on.Resources...)
	}
	frequent := r
	frequent.Name, frequent.resources, frequent.ungoverned = r.Name+fromParameters, r.frequent, nil
	frequent.validations = validationsFor(append(managedObjects(), managedRights()...), names...)
	holds := strings.ReplaceAll(holding(frequent.validations), tenantNamed, "true")
	frequent.conditions = append(slices.Clone(r.conditions), "!("+inline(holds, r.variables)+")")
	return frequent
}

// tenantNamed is CEL that is true in the namespaces of tenants.
const tenantNamed = "variables.tenant != ''"

// ofKinds is a validation for some kinds of objects.
type ofKinds struct {
	kinds []string
	validation
}

// validationsFor returns the validations for any of the kinds, or all validations if there are no kinds.
func validationsFor(all []ofKinds, kinds ...string) []validation {
	var validations []validation
	for _, v := range all {
		if len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(v.kinds, kind) }) {
			validations = append(validations, v.validation)
		}
	}
	return validations
}

// beyondAnnotations is CEL that is true if an update changes more than the annotation that requests a
// reconcile.
var beyondAnnotations = "!has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec" +
	" || " + changed("labels") + " || " + changed("finalizers") + " || " + changed("ownerReferences") +
	" || " + annotationsBeyond("object", "oldObject") + " || " + annotationsBeyond("oldObject", "object") + " || " + losesFields

// theManager is CEL for the start of the message when the rule denies a request of the
// manager.
const theManager = "'the manager must not ' + request.operation.lowerAscii() + ' ' + request.kind.kind + ' ' + (variables.place != '' && variables.kind != 'namespaces' ? variables.place + '/' : '') + variables.name + ': '"

// of limits a validation to kinds.
func of(expression, reason string, kinds ...string) ofKinds {
	return ofKinds{kinds, validation{
		fmt.Sprintf("!(variables.kind in ['%s']) || (%s)", strings.Join(kinds, "', '"), expression),
		theManager + " + " + quote(reason),
	}}
}

// managedNamespaces returns the validations for Namespaces: the manager creates and
// changes only namespaces of tenants, and never gives a namespace to another tenant. It
// sets no Pod Security level that lets Pods control the node.
func managedNamespaces() []ofKinds {
	const level, version = PodSecurityLabel, PodSecurityLabel + "-version"
	label := func(object, key string) string {
		return fmt.Sprintf("(%[1]s != null && has(%[1]s.metadata.labels) && '%[2]s' in %[1]s.metadata.labels ? %[1]s.metadata.labels['%[2]s'] : '')", object, key)
	}
	return []ofKinds{
		of("!variables.reserved", "the namespace is the platform's", "namespaces"),
		of("request.operation == 'CREATE' ? "+tenantOf("object")+" != '' : ("+tenantOf("oldObject")+" != '' || "+label("oldObject", v1alpha1.LabelParameters)+" != '')",
			"the namespace is no tenant's", "namespaces"),
		of("request.operation != 'UPDATE' || "+tenantOf("object")+" == "+tenantOf("oldObject"),
			"the namespace would become another tenant's", "namespaces"),
		of("request.operation == 'DELETE' || "+label("object", level)+" in ['baseline', 'restricted'] || request.operation == 'UPDATE' && "+label("object", level)+" == "+label("oldObject", level)+
			" || authorizer.group('"+v1alpha1.GroupVersion.Group+"').resource('tenants').name("+tenantOf("object")+").check('"+VerbPrivileged+"').allowed()",
			"only the platform allows a Pod Security level below baseline: it gives the manager the verb "+VerbPrivileged+" on the Tenant", "namespaces"),
		of("request.operation == 'DELETE' || "+label("object", version)+" in ['', 'latest'] || "+label("object", version)+" == "+label("oldObject", version),
			"the Pod Security version must be latest", "namespaces"),
	}
}

// managedObjects returns the validations for namespaced objects: the manager writes in
// namespaces of tenants, and to objects that it created.
func managedObjects() []ofKinds {
	namespaced := []string{"serviceaccounts", "resourcequotas", "limitranges", "networkpolicies", "roles", "rolebindings", "tenantparameters", "kustomizations", "helmreleases", "gitrepositories", "ocirepositories"}
	// Capsule's controller created these objects; the manager replaces them.
	capsule := "request.operation == 'DELETE' && has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, o.kind == 'Tenant' && o.apiVersion.startsWith('capsule.clastix.io/'))"
	// A tenant cannot block the policy with a policy of the same name.
	isolation := "request.operation == 'UPDATE' && variables.kind == 'networkpolicies' && variables.name == '" + tenancy.IsolationName + "'"
	return []ofKinds{
		of("variables.requested || variables.givenUp || !variables.reserved && "+tenantNamed, "the namespace is no tenant's", namespaced...),
		of("variables.givenUp || !variables.reserved", "the namespace is the platform's", "externalartifacts"),
		// RBAC limits the names of Secrets. The Secret of the manager's webhook belongs to the platform.
		of("!variables.name.startsWith('"+tenancy.KeySecretPrefix+"') || !variables.reserved && variables.tenant != '' || variables.made && request.operation == 'DELETE'",
			"only the platform writes keys into a namespace without a tenant", "secrets"),
		of("variables.requested || variables.made || "+isolation+" || variables.kind != 'helmreleases' && "+capsule, "the manager did not create the object, and may only request its reconciliation", append(namespaced, "externalartifacts")...),
		of("request.operation == 'DELETE' || variables.requested || variables.givenUp || has(object.spec.serviceAccountName) && object.spec.serviceAccountName == variables.tenant && !has(object.spec.kubeConfig)"+
			" && !has(object.spec.sourceRef.namespace) && (!has(object.spec.decryption) || !has(object.spec.decryption.serviceAccountName))",
			"Flux must apply it as the account with the tenant's name, on this cluster, from the namespace itself", "kustomizations"),
		of("request.operation == 'DELETE' || variables.givenUp || object.spec.tenant == variables.tenant", "the namespace is another tenant's", "tenantparameters"),
		of("variables.made || request.operation == 'UPDATE' && object.spec == oldObject.spec && !"+fmt.Sprintf(madeBy, "object"), "only the platform changes the spec of a Tenant", "tenants"),
		of(onlyTenantLabel, "the manager changes only the label with the tenant of a volume", "persistentvolumes"),
		of(sameWebhooks, "the manager changes only the CA bundle and the path of webhooks", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
	}
}

// onlyTenantLabel is CEL that is true if an update changes only the label of Capsule Tenants.
var onlyTenantLabel = "request.operation == 'UPDATE' && object.spec == oldObject.spec && !(" + changed("annotations") + " || " + changed("finalizers") + " || " + changed("ownerReferences") +
	" || " + labelsBeyond("object", "oldObject") + " || " + labelsBeyond("oldObject", "object") + ")"

// labelsBeyond returns CEL that is true if an object has a label that the other object does not have, apart
// from the label of Capsule Tenants.
func labelsBeyond(object, other string) string {
	return fmt.Sprintf("(has(%[1]s.metadata.labels) && !%[1]s.metadata.labels.all(l, l == '"+v1alpha1.LabelCapsuleTenant+"'"+
		" || (has(%[2]s.metadata.labels) && l in %[2]s.metadata.labels && %[2]s.metadata.labels[l] == %[1]s.metadata.labels[l])))", object, other)
}

// sameWebhooks is CEL that is true if an update of a webhook configuration leaves the Services that it
// calls and the requests that it matches unchanged.
var sameWebhooks = "request.operation == 'UPDATE' && object.webhooks.size() == oldObject.webhooks.size() && object.webhooks.all(w, oldObject.webhooks.exists(o, o.name == w.name" +
	" && has(w.clientConfig.service) && has(o.clientConfig.service) && w.clientConfig.service.name == o.clientConfig.service.name && w.clientConfig.service.namespace == o.clientConfig.service.namespace" +
	func() string {
		var same strings.Builder
		for _, field := range []string{"rules", "matchConditions", "failurePolicy", "matchPolicy", "namespaceSelector", "objectSelector", "reinvocationPolicy", "timeoutSeconds", "sideEffects"} {
			fmt.Fprintf(&same, " && has(o.%[1]s) == has(w.%[1]s) && (!has(o.%[1]s) || o.%[1]s == w.%[1]s)", field)
		}
		return same.String()
	}() + "))"

// managedRights returns the validations for roles and bindings: the manager binds only the roles that the
// platform allows it to bind, and gives itself only the roles in forItself.
func managedRights() []ofKinds {
	const manager = "s.kind == 'ServiceAccount' && 'system:serviceaccount:' + (has(s.namespace) ? s.namespace : '') + ':' + s.name == '" + ManagerUser + "'"
	inNamespaces := "['" + strings.Join([]string{
		tenancy.Role, tenancy.DeleterRole, tenancy.ReplicatorRole, credentials.HomeRole, credentials.CopyRole, "admin", "edit", "view",
	}, "', '") + "']"
	forItself := "['" + strings.Join([]string{tenancy.DeleterRole, tenancy.ReplicatorRole, credentials.HomeRole, credentials.CopyRole}, "', '") + "']"
	mayBind := "authorizer.group('" + groupRBAC + "').resource('clusterroles').name(object.roleRef.name).check('bind').allowed()"
	kept := "request.operation == 'DELETE' || "
	tenants := "r.apiGroups == ['" + v1alpha1.GroupVersion.Group + "'] && "
	owners := "object.metadata.name.startsWith('" + tenancy.OwnersPrefix + "')"
	return []ofKinds{
		of("variables.made && (request.operation == 'CREATE' || "+fmt.Sprintf(madeBy, "variables.now")+")", "the manager did not create the object", "clusterroles", "clusterrolebindings"),
		of(kept+owners+" && !has(object.aggregationRule) && object.metadata.labels.all(l, l in ['"+tenancy.LabelManaged+"', '"+v1alpha1.LabelTenant+"'])"+
			" && object.rules.exists(r, "+tenants+"r.resources == ['"+v1alpha1.OwnersResource+"'] && r.verbs == ['create'])"+
			" && object.rules.all(r, "+tenants+"(r.resources == ['"+v1alpha1.OwnersResource+"'] && r.verbs == ['create']"+
			" || r.resources == ['tenants'] && r.verbs.all(v, v in ['get', '"+strings.Join([]string{v1alpha1.VerbOwn, v1alpha1.VerbName, v1alpha1.VerbLabel, v1alpha1.VerbCordon}, "', '")+"']) && has(r.resourceNames) && r.resourceNames == [object.metadata.name.substring("+fmt.Sprint(len(tenancy.OwnersPrefix))+")])"+
			" || r.apiGroups == [''] && r.resources == ['namespaces'] && r.verbs.all(v, v in ['create', 'patch']))",
			"the manager writes only the ClusterRoles of owners", "clusterroles"),
		of(kept+"object.roleRef.kind == 'ClusterRole' && (object.roleRef.name == object.metadata.name && "+owners+" || !(object.roleRef.name in "+inNamespaces+" + ['capsule-namespace-deleter']) && "+mayBind+")",
			"the manager may bind this role only in namespaces of tenants", "clusterrolebindings"),
		of("request.operation == 'DELETE' || variables.givenUp || has(object.metadata.labels) && '"+credentials.Label+"' in object.metadata.labels && object.roleRef.kind == 'Role'"+
			" || object.roleRef.kind == 'ClusterRole' && (object.roleRef.name in "+inNamespaces+" || "+mayBind+")",
			"the manager may not give this role", "rolebindings"),
		of("request.operation == 'DELETE' || !has(object.subjects) || object.subjects.all(s, !("+manager+") || object.roleRef.name in "+forItself+")",
			"the manager may not give itself this role", "rolebindings"),
		of("request.operation == 'DELETE' || !has(object.subjects) || object.subjects.all(s, s.kind != 'Group' || !(s.name in "+broadGroups+"))",
			"this group includes users of more than one tenant", "rolebindings", "clusterrolebindings"),
		of("request.operation == 'DELETE' || object.rules.all(r, r.apiGroups == [''] && r.resources == ['serviceaccounts'] && r.verbs == ['impersonate'] && has(r.resourceNames))",
			"the manager writes only Roles with which an account may impersonate named accounts", "roles"),
	}
}

// managedClusterPolicies returns the validations for ClusterNetworkPolicies, which precede the
// NetworkPolicies of tenants: the manager's policies close namespaces of tenants, and open nothing that
// other policies close.
func managedClusterPolicies() []ofKinds {
	const subject = "object.spec.subject.namespaces"
	return []ofKinds{
		of("variables.made && (request.operation == 'CREATE' || "+fmt.Sprintf(madeBy, "variables.now")+")", "the manager did not create the object", tenancy.ClusterPolicyResource),
		of("request.operation == 'DELETE' || object.spec.priority == "+fmt.Sprint(tenancy.ClusterPolicyPriority)+
			" && (!has(object.spec.egress) || object.spec.egress.size() == 0) && (!has(object.spec.ingress) || object.spec.ingress.all(r, r.action in ['Deny', 'Pass']))",
			"the manager's policies come after those of the platform, and let nobody in", tenancy.ClusterPolicyResource),
		of("request.operation == 'DELETE' || has("+subject+") && has("+subject+".matchLabels) && "+subject+".matchLabels.exists(l, l in ['"+strings.Join(tenantLabels, "', '")+"'])",
			"the manager's policies are about namespaces of tenants", tenancy.ClusterPolicyResource),
	}
}

// managerParameters returns the rule that the manager cannot change which accounts belong to the platform,
// or which objects are exempt from rules: the profile decides both.
func managerParameters() Rule {
	same := func(field string) string {
		return fmt.Sprintf("has(object.spec.%[1]s) == has(params.spec.%[1]s) && (!has(object.spec.%[1]s) || object.spec.%[1]s == params.spec.%[1]s)", field)
	}
	return Rule{
		Name: Prefix + "manager-parameters", Rows: []string{"I25"},
		Title:      "the manager copies the platform's accounts and the exemptions unchanged from the profile to the parameters",
		resources:  []admissionregistrationv1.NamedRuleWithOperations{on(writes, v1alpha1.GroupVersion.Group, "tenantparameters")},
		conditions: []string{isManager, specChanged},
		scope:      allNamespacesProfiled,
		validations: []validation{
			{same("platformNamespaces") + " && " + same("platformAccounts") + " && " + same("breakGlass"),
				"'the manager must not write TenantParameters ' + request.namespace + '/' + variables.name + ' with other platform namespaces, platform accounts or break-glass groups than the TenancyProfile'"},
			{"!has(object.spec.exemptions) || object.spec.exemptions.all(e, e.namespace == request.namespace && has(params.spec.exemptions) && params.spec.exemptions.exists(p, p.rule == e.rule && p.namespace == e.namespace && p.kind == e.kind && p.name == e.name))",
				"'the manager must not write TenantParameters ' + request.namespace + '/' + variables.name + ' with exemptions that the TenancyProfile does not have there'"},
		},
	}
}

// everywhere returns the bindings of a rule of scope allNamespaces.
func (r Rule) everywhere() []admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	b := r.binding(r.Name, r.Name, nil, nil)
	if excluded := append(slices.Clone(r.ungoverned), r.frequent...); len(excluded) > 0 {
		b.Spec.MatchResources = &admissionregistrationv1.MatchResources{ExcludeResourceRules: excluded}
	}
	if r.marked != "" {
		b.Spec.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: where(metav1.LabelSelectorOpExists, r.marked)}
	}
	bindings := []admissionregistrationv1.ValidatingAdmissionPolicyBinding{b}
	add := func(suffix string, resources []admissionregistrationv1.NamedRuleWithOperations, namespaces *metav1.LabelSelector) {
		if len(resources) > 0 {
			more := r.binding(r.Name, r.Name+suffix, nil, namespaces)
			more.Spec.MatchResources.ResourceRules = resources
			bindings = append(bindings, more)
		}
	}
	add("-ungoverned", r.ungoverned, where(metav1.LabelSelectorOpDoesNotExist, v1alpha1.LabelParameters))
	// These are the namespaces that [Rule.inTenants] excludes: namespaces without the label, and with an
	// empty label.
	add("-without-tenant", r.frequent, where(metav1.LabelSelectorOpDoesNotExist, v1alpha1.LabelTenant))
	add("-without-name", r.frequent, labelled(metav1.LabelSelectorOpIn, v1alpha1.LabelTenant, ""))
	return bindings
}

// named returns the binding of [Rule.inTenants].
func (r Rule) named() admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	namespaces := where(metav1.LabelSelectorOpExists, v1alpha1.LabelTenant)
	namespaces.MatchExpressions = append(namespaces.MatchExpressions, labelled(metav1.LabelSelectorOpNotIn, v1alpha1.LabelTenant, "").MatchExpressions...)
	return r.binding(r.Name, r.Name, nil, namespaces)
}
