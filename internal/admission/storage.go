package admission

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
)

const groupResource = "resource.k8s.io"

// claims returns the rule about PersistentVolumeClaims and ResourceClaims. Controllers of Kubernetes create
// the claims of StatefulSets and of Pods, so the rule checks their requests too.
func claims() Rule {
	const (
		isClaim    = "request.resource.resource == 'persistentvolumeclaims'"
		isStateful = "request.resource.resource == 'statefulsets'"
		isDevice   = "request.resource.resource in ['resourceclaims', 'resourceclaimtemplates']"
		existing   = "storage.existingVolumes"
		elsewhere  = "c.?dataSourceRef.?namespace.orValue(request.namespace) != request.namespace"
	)
	specs := func(object string) string {
		return fmt.Sprintf("(%[2]s ? [%[1]s.?spec.orValue({})] : %[3]s ? %[1]s.?spec.?volumeClaimTemplates.orValue([]).map(t, t.?spec.orValue({})) : [])", object, isClaim, isStateful)
	}
	// Kubernetes prefers the class in this annotation, which is older than the field.
	const older = "annotations[?'" + corev1.BetaStorageClassAnnotation + "']"
	annotated := "(" + isClaim + " ? [object] : " + isStateful + " ? object.?spec.?volumeClaimTemplates.orValue([]) : []).all(c, !c.?metadata.?" + older + ".hasValue() ||" +
		" c.metadata." + older + ".orValue('') == c.?spec.?storageClassName.orValue('unset') ||" +
		" oldObject != null && (" + isStateful + " || oldObject.?metadata.?" + older + " == object.?metadata.?" + older + "))"
	// devices returns CEL for the device classes of each request; an empty class stands for none.
	devices := func(object string) string {
		return fmt.Sprintf("(%[2]s ? %[1]s.?spec.?devices.or(%[1]s.?spec.?spec.?devices).?requests.orValue([]).map(r,"+
			" [r.?deviceClassName.orValue(''), r.?exactly.?deviceClassName.orValue('')] + r.?firstAvailable.orValue([]).map(s, s.?deviceClassName.orValue(''))) : [])", object, isDevice)
	}
	// A claim with unchanged fields is allowed, even if they exceed the limits: it may still grow.
	each := func(holds string, fields ...string) string {
		var same []string
		for _, field := range fields {
			same = append(same, fmt.Sprintf("c.?%[1]s == b.?%[1]s", field))
		}
		return fmt.Sprintf("%s.all(c, oldObject != null && %s.exists(b, %s) || %s)", specs("object"), specs("oldObject"), strings.Join(same, " && "), holds)
	}
	// A claim that names a volume gets only this volume, whatever its selector and its class are.
	chooses := "(c.?volumeName.orValue('') != '' ? !" + permitsIfSet("storage.volumes", "c.volumeName") + " : has(c.selector) || c.?storageClassName.orValue('unset') == '')"
	unlisted := optional("storage.volumes") + ".hasValue() && c.?volumeName.orValue('') != ''"
	wrongDevices := devices("object") + ".map(l, l.filter(d, d != '' && !(oldObject != null && " + devices("oldObject") + ".exists(o, d in o)) && !" + permitsClass("workloads.deviceClasses", "d") + "))"
	return Rule{
		Name: Prefix + "claims", Rows: []string{"W6", "W11"},
		Title: "claims use the classes that the tenant may use, and choose no existing volume",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, "", "persistentvolumeclaims"), on(writes, "apps", "statefulsets"), on(writes, groupResource, "resourceclaims", "resourceclaimtemplates"),
		},
		scope: tenantObjects,
		conditions: []string{
			"request.operation == 'CREATE' && !(" + isStateful + ") || (" + notKubernetes + ")",
			"!(" + isListed + ")",
			// The scheduler creates the claims of Pods that request devices as resources.
			"!(" + notKubernetes + ") || request.userInfo.username == 'system:kube-scheduler' || " + notEverywhere,
			"!" + isAdmin,
		},
		validations: []validation{
			{
				each("!"+chooses+" || "+optional(existing)+".orValue(false) && !("+unlisted+")", "volumeName", "selector", "storageClassName"),
				objectPhrase + " + 'must not choose an existing volume, by spec.volumeName, spec.selector or an empty storageClassName: name a storage class, or ask the platform team to list the volume in storage.volumes'",
			},
			{
				each("!("+elsewhere+")", "dataSourceRef"),
				objectPhrase + " + 'must not take its data from another namespace in spec.dataSourceRef'",
			},
			{
				annotated,
				objectPhrase + " + 'must not name a storage class in the annotation " + corev1.BetaStorageClassAnnotation + ": name it in spec.storageClassName'",
			},
			{
				each(permitsClass("storage.classes", "c.?storageClassName.orValue('')"), "storageClassName"),
				objectPhrase + " + 'must not have storage class \\'' + " + short(specs("object")+".map(c, c.?storageClassName.orValue('')).join(', ')") + " + '\\' (allowed: ' + " + short(namedClasses("storage.classes")) + " + ')'",
			},
			{
				each("c.?volumeAttributesClassName.orValue('') == '' || "+permits("storage.attributesClasses", "c.volumeAttributesClassName"), "volumeAttributesClassName"),
				objectPhrase + " + 'must not have attributes class ' + " + short(specs("object")+".map(c, c.?volumeAttributesClassName.orValue('')).filter(n, n != '').join(', ')") + " + ' (allowed: ' + " + short(named("storage.attributesClasses")) + " + ')'",
			},
			{
				allEmpty(wrongDevices),
				objectPhrase + " + 'must not request device class ' + " + short(joinLists(wrongDevices)) + " + ' (allowed: ' + " + short(namedClasses("workloads.deviceClasses")) + " + ')'",
			},
		},
	}
}
