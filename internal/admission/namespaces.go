package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AppliedBy are the labels that hold the namespace of the Kustomization, HelmRelease or ResourceSet that
// applied an object.
var AppliedBy = []string{groupKustomize + "/namespace", groupHelm + "/namespace", groupResourceSet + "/namespace"}

// PodSecurityLabel is the label of a namespace with its Pod Security level. With the suffix -version, it is
// the label with the version of the level.
const PodSecurityLabel = "pod-security.kubernetes.io/enforce"

// CapsuleReference is the annotation of a namespace with the UID of the Capsule Tenant that the manager
// made an owner of the namespace.
const CapsuleReference = "tenure.dev/capsule-tenant"

// AdmissionMark is the annotation that marks the namespaces which the webhook has admitted. It gives no
// rights, so a new namespace of an owner may have it.
const AdmissionMark = "tenure.dev/admission"

// ProtectedKey reports whether owners can never choose a label or annotation of a
// namespace, whatever the lists contain: see [tenancy.ProtectedKey].
func ProtectedKey(key string) bool { return tenancy.ProtectedKey(key) }

// ReservedNamespace reports whether no owner may create a namespace with this name, independent of
// the profile.
func ReservedNamespace(name string) bool {
	return strings.HasPrefix(name, "kube-") || slices.Contains(reservedNamespaces, name) || name == serviceDomain
}

// serviceDomain is the last label of an address such as NAME.NAMESPACE.svc. In a namespace with this name, a Pod has the
// address HOSTNAME.SUBDOMAIN.svc.svc.cluster.local, so the resolvers of all Pods would find it under the address of a Service
// of others.
const serviceDomain = "svc"

// DomainName reports whether a name could be the last label of an internet address. The resolver of a Pod
// appends the names of namespaces to a name, so Pods would find Services of such a namespace under internet
// addresses of other hosts.
func DomainName(name string) bool {
	return !strings.Contains(name, "-") || strings.HasPrefix(name, "xn--")
}

var reservedNamespaces = []string{metav1.NamespaceDefault, "flux-system"}

// isOwner is CEL that is true if the user owns a tenant.
var isOwner = fmt.Sprintf("authorizer.group('%s').resource('%s').check('create').allowed()", v1alpha1.GroupVersion.Group, v1alpha1.OwnersResource)

// owns returns CEL that is true if the user owns the tenant with a name.
func owns(tenant string) string {
	return fmt.Sprintf("(%[1]s != '' && authorizer.group('%[2]s').resource('tenants').name(%[1]s).check('%[3]s').allowed())", tenant, v1alpha1.GroupVersion.Group, v1alpha1.VerbOwn)
}

// mayAssign is CEL that is true if the user is an administrator who assigns namespaces to the tenants that
// the administrator owns.
var mayAssign = fmt.Sprintf("authorizer.group('%s').resource('tenants').check('%s').allowed()", v1alpha1.GroupVersion.Group, v1alpha1.VerbAssign)

// mayCordon is CEL that is true if the user owns the namespace's tenant and may cordon its namespaces.
var mayCordon = fmt.Sprintf("authorizer.group('%s').resource('tenants').name(%s).check('%s').allowed()", v1alpha1.GroupVersion.Group, tenantOf("oldObject"), v1alpha1.VerbCordon)

// tenantOf returns CEL for the tenant of a namespace, or an empty string if it has none. The namespace may
// be null or have no labels.
func tenantOf(namespace string) string {
	return fmt.Sprintf("(%[1]s != null && has(%[1]s.metadata.labels) ? (%[2]s) : '')", namespace, tenantName(namespace, "''"))
}

// namespaces returns the rule that protects the labels that assign a namespace to a tenant and choose its
// rules. The selector of a binding matches the new labels, so this rule matches every namespace and reads
// no parameters.
//
// Administrators with [v1alpha1.VerbAssign] also create namespaces without a tenant, and assign them.
//
// Owners may create namespaces of their tenants, and change and delete them if RBAC allows it. In a
// namespace that an owner created, they may change the labels and annotations that are not protected; the
// rule namespace-names and the webhook check which. Service accounts that are owners have the right to
// patch all namespaces, which Flux's apply needs, so this rule also refuses their changes of namespaces
// without a tenant.
func namespaces() Rule {
	tenant := func(object string) string {
		var any []string
		for _, label := range append(slices.Clone(tenantLabels), v1alpha1.LabelParameters) {
			any = append(any, fmt.Sprintf("'%s' in %s.metadata.labels", label, object))
		}
		return fmt.Sprintf("(%[1]s != null && has(%[1]s.metadata.labels) && (%[2]s))", object, strings.Join(any, " || "))
	}
	variables := []admissionregistrationv1.Variable{
		{Name: "labels", Expression: "object != null && has(object.metadata.labels) ? object.metadata.labels : {}"},
		{Name: "annotations", Expression: "object != null && has(object.metadata.annotations) ? object.metadata.annotations : {}"},
		{Name: "tenant", Expression: fmt.Sprintf("'%[1]s' in variables.labels ? variables.labels['%[1]s'] : ''", v1alpha1.LabelTenant)},
		{Name: "wrong", Expression: fmt.Sprintf("variables.labels.filter(l, %s && !(%s)) + variables.annotations.filter(a, %s && a != '%s')",
			isProtected("l"), allowedLabel("l"), isProtected("a"), AdmissionMark)},
	}
	return Rule{
		Name: Prefix + "namespaces", Rows: []string{"I6", "I7", "I16", "I18"},
		Title: "only the platform sets the labels that assign a namespace to a tenant or control it, and owners change only their tenants' namespaces",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, "", "namespaces"), on(writes, "", "namespaces/status", "namespaces/finalize"),
		},
		conditions: []string{
			notKubernetes,
			notAdmin[0],
			notAdmin[1],
			tenant("object") + " || " + tenant("oldObject") + " || " + isOwner,
			// The response to a patch that changes nothing contains the object.
			"request.operation == 'CREATE' || (request.operation == 'DELETE' ? " + isOwner + " : " +
				"has(request.subResource) && request.subResource in ['status', 'finalize'] || object.spec != oldObject.spec" +
				" || " + changed("labels") + " || " + changed("annotations") + " || " + changed("finalizers") + " || " + changed("ownerReferences") +
				" || " + isOwner + " && (!" + owns(tenantOf("oldObject")) + " || " + labelOwnersChanged() + "))",
			// This condition excludes a valid new namespace of an owner, as [allowed] does.
			"!(request.operation == 'CREATE' && " + isOwner + " && " + inline(holding(newNamespace()), variables) + ")",
		},
		variables: slices.Concat([]admissionregistrationv1.Variable{{Name: "owner", Expression: isOwner}}, variables, []admissionregistrationv1.Variable{
			// Variables, because the API server limits the number of RBAC checks in one expression.
			{Name: "administrator", Expression: mayAssign}, {Name: "owned", Expression: owns(tenantOf("oldObject"))}, {Name: "owns", Expression: owns("variables.tenant")},
			{Name: "free", Expression: free}, {Name: "assigns", Expression: assigns}, {Name: "protected", Expression: protectedChanges},
		}),
		scope:       allNamespaces,
		asksRBAC:    true,
		validations: namespaceValidations(),
	}
}

// labelOwnersChanged returns CEL as [ownersChanged] does, for the labels of a namespace without those that
// name the namespace and its tenant: an owner's own manifest of the namespace has these labels.
func labelOwnersChanged() string {
	const labels = ".?fieldsV1[?'f:metadata'][?'f:labels'].orValue({})"
	beyond := func(object, other string) string {
		return fmt.Sprintf("%[1]s.metadata.?managedFields.orValue([]).exists(m, m%[3]s.exists(k, !(k in ['.', 'f:%[4]s']) && !%[2]s.metadata.?managedFields.orValue([]).exists(n,"+
			" n.?manager == m.?manager && n.?operation == m.?operation && k in n%[3]s)))", object, other, labels, strings.Join(append([]string{corev1.LabelMetadataName}, tenantLabels...), "', 'f:"))
	}
	return beyond("object", "oldObject") + " || " + beyond("oldObject", "object")
}

// isProtected returns [ProtectedKey] as CEL.
func isProtected(key string) string {
	return fmt.Sprintf("%[1]s.matches(%[2]s) && !%[1]s.matches(%[3]s)", key, quote(tenancy.ProtectedKeys), quote(tenancy.FreeKeys))
}

// allowedLabel returns CEL for the protected labels that a new namespace of an owner may have:
// the tenant's labels, and Pod Security levels of baseline or restricted. The webhook adds
// them, and they give the owner no rights.
func allowedLabel(key string) string {
	return fmt.Sprintf("%[1]s in ['%[2]s', '%[4]s'] || %[1]s == '%[3]s' && variables.labels[%[1]s] in ['baseline', 'restricted'] || %[1]s == '%[3]s-version' && variables.labels[%[1]s] == 'latest'",
		key, strings.Join(tenantLabels, "', '"), PodSecurityLabel, v1alpha1.LabelMadeBy)
}

// inline returns CEL in which the expressions of the variables replace the variables: a match condition has
// no variables.
func inline(expression string, variables []admissionregistrationv1.Variable) string {
	// An expression may contain the variables before it.
	for _, v := range slices.Backward(variables) {
		expression = strings.ReplaceAll(expression, "variables."+v.Name, "("+v.Expression+")")
	}
	return strings.ReplaceAll(expression, "variables.name", objectName)
}

// newNamespace returns the validations of a new namespace of an owner.
func newNamespace() []validation {
	const (
		subject = "'namespace ' + variables.name + ' '"
		mine    = "'tenant ' + variables.tenant + ': namespace ' + variables.name + ' '"
	)
	var aliases []string
	for _, label := range tenantLabels[1:] {
		aliases = append(aliases, fmt.Sprintf("(!('%[1]s' in variables.labels) || variables.labels['%[1]s'] == variables.tenant)", label))
	}
	return []validation{
		{"variables.tenant != ''",
			subject + " + 'needs the label " + v1alpha1.LabelTenant + " with the name of a tenant that you own: owners have namespaces in their tenants only'"},
		{"variables.tenant == '' || " + owns("variables.tenant"),
			subject + " + 'must not be made for tenant ' + " + short("variables.tenant") + " + ', which you do not own: put the name of a tenant of yours into the label " + v1alpha1.LabelTenant + "'"},
		{fmt.Sprintf("'%[1]s' in variables.labels && variables.labels['%[1]s'] == '%[2]s'", v1alpha1.LabelMadeBy, v1alpha1.MadeByOwner),
			mine + " + 'needs the label " + v1alpha1.LabelMadeBy + " with the value " + v1alpha1.MadeByOwner + ", which the webhook adds'"},
		{strings.Join(aliases, " && "),
			mine + " + 'must not name another tenant in the labels " + strings.Join(tenantLabels[1:], " and ") + ": leave them out'"},
		{"!" + reservedName,
			mine + " + 'must not have this name, which is the platform\\'s: choose another one'"},
		{"variables.wrong.size() == 0",
			mine + " + 'must not have labels and annotations that the platform decides on: leave out ' + " + short("variables.wrong.join(', ')")},
		{"!has(object.metadata.ownerReferences) && !has(object.metadata.finalizers) && (!has(object.spec.finalizers) || object.spec.finalizers.all(f, f == 'kubernetes'))",
			mine + " + 'must not have owners or finalizers: leave out metadata.ownerReferences, metadata.finalizers and spec.finalizers'"},
	}
}

// editable is CEL that is true if an update of a namespace that an owner created changes only its labels
// and annotations.
var editable = fmt.Sprintf("(!(has(request.subResource) && request.subResource != '') && object.spec == oldObject.spec && !(%s) && !(%s)"+
	" && has(oldObject.metadata.labels) && '%[3]s' in oldObject.metadata.labels && oldObject.metadata.labels['%[3]s'] == '%[4]s')",
	changed("finalizers"), changed("ownerReferences"), v1alpha1.LabelMadeBy, v1alpha1.MadeByOwner)

// reservedName is CEL that is true if the name of the namespace belongs to the platform, whatever the
// profile says.
var reservedName = "(variables.name.startsWith('kube-') || variables.name in ['" + strings.Join(append(slices.Clone(reservedNamespaces), serviceDomain), "', '") + "'])"

// namesTenant is CEL that is true if a label of the new namespace names a tenant.
var namesTenant = "['" + strings.Join(tenantLabels, "', '") + "'].exists(l, l in variables.labels)"

// free is CEL that is true if an administrator creates a namespace without a tenant. The webhook checks the
// other names of the platform.
var free = "request.operation == 'CREATE' && variables.administrator" + " && !" + namesTenant + " && variables.wrong.size() == 0 && !" + reservedName +
	" && !has(object.metadata.ownerReferences) && !has(object.metadata.finalizers)"

// assigns is CEL that is true if an administrator changes the tenant of a namespace, or changes a namespace
// without a tenant. The webhook removes references to Capsule Tenants, and the manager adds the reference
// to the new Tenant.
var assigns = func() string {
	const references = ".metadata.?ownerReferences.orValue([])"
	in := func(one, other, except string) string {
		return one + references + ".all(r, " + except + other + references + ".exists(o, o == r))"
	}
	return "request.operation == 'UPDATE' && variables.administrator" + " && !(has(request.subResource) && request.subResource != '') && object.spec == oldObject.spec && !(" + changed("finalizers") + ") && !" + reservedName +
		" && " + in("object", "oldObject", "") + " && " + in("oldObject", "object", "r.kind == 'Tenant' && r.apiVersion.startsWith('capsule.clastix.io/') || ") +
		" && (" + tenantOf("oldObject") + " == '' || variables.owned)" +
		" && (!" + namesTenant + " || variables.owns && ['" + strings.Join(tenantLabels, "', '") + "'].all(l, !(l in variables.labels) || variables.labels[l] == variables.tenant))"
}()

// protectedChanges is CEL for the protected labels and annotations that an update changes.
var protectedChanges = fmt.Sprintf("(%s + %s).filter(k, %s)", changedEntries("labels"), changedEntries("annotations"), isProtected("k"))

// mayChange is CEL that is true if the user may change the protected label or annotation k. A message must
// not contain it: it would exceed the number of RBAC checks that the API server allows in one expression.
var mayChange = fmt.Sprintf("k == '%s' && %s || k in ['%s'] && variables.assigns",
	v1alpha1.LabelCapsuleCordoned, mayCordon, strings.Join(append(slices.Clone(tenantLabels), CapsuleReference), "', '"))

// changedEntries returns CEL for the keys of the labels or annotations that a request changes: all keys of
// a new object.
func changedEntries(field string) string {
	return fmt.Sprintf("((has(object.metadata.%[1]s) ? object.metadata.%[1]s.filter(k, oldObject == null || !has(oldObject.metadata.%[1]s) || !(k in oldObject.metadata.%[1]s) || oldObject.metadata.%[1]s[k] != object.metadata.%[1]s[k]) : [])"+
		" + (oldObject != null && has(oldObject.metadata.%[1]s) ? oldObject.metadata.%[1]s.filter(k, !has(object.metadata.%[1]s) || !(k in object.metadata.%[1]s)) : []))", field)
}

func namespaceValidations() []validation {
	all := []validation{
		{"variables.owner && (request.operation != 'UPDATE' || " + editable + " || variables.assigns)",
			"'labels, annotations, finalizers and status of the namespace ' + variables.name + ' assign it to a tenant or control it: ask the platform team to change them'"},
		{"request.operation != 'UPDATE' || !variables.owner || variables.owned || variables.assigns",
			"'namespace ' + variables.name + ' must not be changed: it is not a namespace of a tenant that you own'"},
		{"request.operation != 'UPDATE' || variables.protected.all(k, " + mayChange + ")",
			"'namespace ' + variables.name + ' must keep the labels and annotations that the platform decides on: ' + " + short("variables.protected.join(', ')")},
	}
	for _, v := range newNamespace() {
		all = append(all, validation{"request.operation != 'CREATE' || !variables.owner || variables.free || (" + v.expression + ")", v.message})
	}
	return append(all, validation{"request.operation != 'DELETE' || !variables.owner || variables.owned",
		"'namespace ' + variables.name + ' must not be deleted: it is not a namespace of a tenant that you own'"})
}
