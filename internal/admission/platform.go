package admission

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
)

// status returns the rule that only Flux's controllers write the status of Flux's objects.
func status() Rule {
	r := Rule{
		Name: Prefix + "status", Rows: []string{"S4"},
		Title:       "only Flux writes the status of Flux objects",
		resources:   append(fluxKinds(updates), on(updates, groupExtensions, "artifactgenerators")),
		scope:       tenantObjects,
		conditions:  notThePlatform,
		validations: []validation{{"false", objectPhrase + " + 'has a status that only Flux writes'"}},
	}
	for i := range r.resources {
		for j, resource := range r.resources[i].Resources {
			if j == 0 {
				r.resources[i].Resources = slices.Clone(r.resources[i].Resources)
			}
			r.resources[i].Resources[j] = resource + "/status"
		}
	}
	return r
}

// externalArtifacts returns the rule that only the platform writes ExternalArtifacts: an ExternalArtifact
// of a tenant would bypass the rules for sources.
func externalArtifacts() Rule {
	return Rule{
		Name: Prefix + "external-artifacts", Rows: []string{"S3"},
		Title: "only the platform writes ExternalArtifacts",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(all, groupSource, "externalartifacts", "externalartifacts/status"),
		},
		scope:       tenantObjects,
		conditions:  notThePlatform,
		validations: []validation{{"false", "'ExternalArtifact ' + variables.name + ' can be made and changed by the platform only: use a source of your own, or ask for a grant'"}},
	}
}

// managed returns the rule that a tenant changes no object of the platform in its namespace, of any kind,
// and that no other object carries the labels of the platform's objects. Objects that a sync applied which
// the platform delegated to a tenant belong to the tenant.
//
// Flux's labels name the sync, but not the account that it applied as, so the profile lists the delegated
// syncs. Their accounts may write objects with these labels, since Flux sets them; no other account of a
// tenant may. Flux does not use labels to find the objects that it removes: it keeps a list in the status
// of the sync.
//
// The rule covers every kind, so it first checks the labels, which few objects have.
//
// Flux skips an object if a mark in the object's metadata says so, and still reports success. A tenant
// could block a network policy of the platform with an object of the same name, so the tenant's objects of
// the kinds that limit it must not have such a mark.
func managed() Rule {
	by := func(object, group string) string {
		return fmt.Sprintf("'%[2]s/namespace' in %[1]s && %[1]s['%[2]s/namespace'] in params.spec.platformNamespaces"+
			" && !(has(params.spec.delegatedSyncs) && '%[2]s/name' in %[1]s && params.spec.delegatedSyncs.exists(d, d.namespace == %[1]s['%[2]s/namespace'] && d.name == %[1]s['%[2]s/name']))",
			object, group)
	}
	made := func(object string) string {
		return fmt.Sprintf("(%[1]s != null && has(%[1]s.metadata) && has(%[1]s.metadata.labels) && [%[1]s.metadata.labels].exists(l, %[2]s || %[3]s || %[6]s || '%[4]s' in l && l['%[4]s'] == '%[5]s'))",
			object, by("l", groupKustomize), by("l", groupHelm), tenancy.LabelManaged, tenancy.ManagedValue, by("l", groupResourceSet))
	}
	// Flux sets the labels with the account that it applies as, in the sync's namespace.
	bySync := fmt.Sprintf("['%s/namespace', '%s/namespace', '%s/namespace'].exists(l, l in object.metadata.labels && object.metadata.labels[l] in params.spec.platformNamespaces"+
		" && request.userInfo.username.startsWith('system:serviceaccount:' + object.metadata.labels[l] + ':'))"+
		" && !('%s' in object.metadata.labels)", groupKustomize, groupHelm, groupResourceSet, tenancy.LabelManaged)
	// concerned returns CEL that is true if the object is the platform's or pretends to be. Few namespaces have
	// workloads of the platform, so the match condition only asks whether there are any.
	concerned := func(platformWorkload string) string {
		return "variables.platforms_before || variables.platforms_after && !(" + bySync + ") || variables.passed_over || " + platformWorkload + " || variables.forges_template"
	}
	const limiting = "request.resource.resource in ['networkpolicies', 'limitranges', 'resourcequotas', 'roles', 'rolebindings', 'serviceaccounts'] && object != null"
	passed := limiting + " && " + passedOver("object") + " && !(oldObject != null && " + passedOver("oldObject") + ")"
	return Rule{
		Name: Prefix + "managed", Rows: []string{"I10", "I23", "A5", "W1", "W8"},
		Title: "only the platform changes the objects that it applied to a tenant's namespace",
		resources: append(fluxKinds(all),
			// Kubernetes enforces a quota by its status.
			on(all, "", "serviceaccounts", "secrets", "configmaps", "resourcequotas", "resourcequotas/status", "limitranges"),
			on(all, "rbac.authorization.k8s.io", "roles", "rolebindings"),
			on(all, "networking.k8s.io", "networkpolicies"),
		),
		scope:       tenantObjects,
		compensates: true,
		everyKind:   true,
		// These expressions are long, and the condition and the messages read them.
		variables: []admissionregistrationv1.Variable{
			{Name: "platforms_before", Expression: made("oldObject")},
			{Name: "platforms_after", Expression: made("object")},
			{Name: "passed_over", Expression: passed},
			{Name: "takes_place", Expression: takesPlace},
			{Name: "on_platform_workload", Expression: onPlatformWorkload},
			{Name: "forges_template", Expression: forgesTemplate(platformLabels)},
		},
		conditions: append([]string{
			concerned(hasPlatformWorkloads),
			// The manager has its rights in every namespace, and a rule of its own: see
			// [managerRequests].
			notAdmin[0],
			notANode,
			// The platform's controllers work on objects of every namespace.
			notEverywhere,
		}, notThePlatform...),
		late: []string{
			concerned("variables.on_platform_workload"),
			// A request for a reconciliation is allowed. Other annotations of Flux make Flux skip an
			// object; finalizers and owner references delete an object or prevent its deletion.
			"oldObject == null || object == null || has(request.subResource) && request.subResource == 'status' || !has(oldObject.spec) || !has(object.spec) || object.spec != oldObject.spec" +
				" || " + changed("labels") + " || " + changed("finalizers") + " || " + changed("ownerReferences") +
				" || " + annotationsBeyond("object", "oldObject") + " || " + annotationsBeyond("oldObject", "object") + " || " + ownersChanged("fieldsV1", "f:spec") + " || " + losesFields,
		},
		validations: []validation{{"false", "request.kind.kind + ' ' + variables.name + (variables.takes_place ? ' must not have labels by which a workload of the platform takes it or its Pods for its own: choose others than those in spec.platformSelectors of the TenantParameters of the namespace, and leave out " + batchv1.ControllerUidLabel + "' : variables.passed_over && !variables.platforms_before" +
			" ? ' must not tell Flux to pass over it, since the platform may apply an object of this name: leave out ssa: Ignore and reconcile: disabled of kustomize.toolkit.fluxcd.io' : variables.platforms_before || variables.on_platform_workload" +
			" ? ' belongs to the platform, or acts on an object of the platform: ask the platform team to change it in its repository, or to list the sync that applied it in spec.delegatedSyncs of the TenancyProfile if that sync is the tenant\\'s'" +
			" : ' must not say in ' + (variables.platforms_after ? 'its labels' : 'the labels of its templates') + ' that a Kustomization, HelmRelease or ResourceSet of the platform applied it: leave them out')"}},
	}
}

// passedOver returns CEL that is true if an object has a label or an annotation that makes Flux skip it.
func passedOver(object string) string {
	return fmt.Sprintf("[%[1]s.metadata.?labels.orValue({}), %[1]s.metadata.?annotations.orValue({})].exists(m, m[?'%[2]s/ssa'].orValue('').lowerAscii() == 'ignore' || m[?'%[2]s/reconcile'].orValue('').lowerAscii() == 'disabled')",
		object, groupKustomize)
}

// onPlatformWorkload is CEL that is true if a request acts on a workload of the platform and no label of
// the object in the request shows it. A Scale has no labels, an autoscaler and a Canary name their targets,
// ReplicaSets and Pods have the labels of a template, and a request to evict or enter a Pod has only its
// name. The manager keeps the names of the workloads in the parameters, and Kubernetes derives the names of
// ReplicaSets and Pods from them: it adds letters of an alphabet without vowels, and shortens long names.
//
// So the rule also refuses changes of the tenant's own Pod if another kind of controller, with the name of
// a workload of the platform, gave the Pod a name that a Pod of this workload could have.
//
// A CronJob names its Jobs by their time, and does not run if another Job has the name. It deletes its
// oldest Jobs, which it finds by their owner reference, so a tenant's Job must not have this reference.
//
// A StatefulSet adopts a Pod by the name and the labels, and a claim by the name alone, so a tenant must
// not create Pods or claims with such a name. The claims hold the data of the StatefulSet, and have no
// labels of the platform. A StatefulSet and a DaemonSet roll back to the template of a ControllerRevision
// with a name that is derived from theirs. Other controllers adopt Pods by the labels: see [takesPlace].
var onPlatformWorkload = func() string {
	const (
		letters = "[bcdfghjklmnpqrstvwxz2456789]"
		hash    = "-" + letters + "{1,10}"
		suffix  = "-" + letters + "{5}"
		// Kubernetes cuts the name of a Pod to 58 characters, before the suffix.
		whole = 46
	)
	named := func(name, kind, ending string) string {
		begins := len(kind) + 1
		return fmt.Sprintf("params.spec.platformWorkloads.exists(w, w.startsWith('%[1]s/') && %[2]s.startsWith(w.substring(%[3]d, size(w) > %[4]d ? %[4]d : size(w)))"+
			" && (size(w) > %[4]d || %[2]s.matches('^' + w.substring(%[3]d) + '%[5]s$')))", kind, name, begins, begins+whole, ending)
	}
	derived := func(kind, ending string) string { return named("name", kind, ending) }
	target := func(field string) string {
		return fmt.Sprintf("(object.?spec.?%[1]s.?kind.orValue('') + '/' + object.?spec.?%[1]s.?name.orValue('')) in params.spec.platformWorkloads", field)
	}
	// Flagger copies the target of a Canary, and its autoscaler, into objects with this ending, and overwrites those
	// that exist.
	primary := func(field string) string {
		return fmt.Sprintf("(object.?spec.?%[1]s.?kind.orValue('') + '/' + object.?spec.?%[1]s.?name.orValue('') + '-primary') in params.spec.platformWorkloads", field)
	}
	scaled := func(resource, kind string) string {
		return fmt.Sprintf("request.resource.resource == '%s' && has(request.subResource) && request.subResource == 'scale' && ('%s/' + request.name) in params.spec.platformWorkloads", resource, kind)
	}
	const history = "object != null && object.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false) && (r.kind + '/' + r.name) in params.spec.platformWorkloads)"
	return hasPlatformWorkloads + " && [" + objectName + "].exists(name, " + join([]string{
		scaled("deployments", "Deployment"), scaled("statefulsets", "StatefulSet"),
		"request.resource.resource == 'replicasets' && " + derived("Deployment", hash),
		"request.resource.resource == 'controllerrevisions' && (" + derived("StatefulSet", hash) + " || " + derived("DaemonSet", hash) + ")",
		"request.resource.resource == 'pods' && " + derived("StatefulSet", "-[0-9]{1,10}"),
		// Kubernetes names a claim TEMPLATE-STATEFULSET-NUMBER, and the claim of an ephemeral volume POD-VOLUME.
		// Templates and StatefulSets may have hyphens in their names. So two StatefulSets can share a claim, and
		// either deletes it if its retention policy says so.
		"request.resource.resource == 'persistentvolumeclaims' && params.spec.platformWorkloads.exists(w, w.startsWith('StatefulSet/') && name.matches('^(.+-' + w.substring(12) + '-[0-9]{1,10}|' + w.substring(12) + '-[0-9]{1,10}-.+)$'))",
		"request.resource.resource == 'statefulsets' && request.operation == 'CREATE' && object.?spec.?volumeClaimTemplates.orValue([]).exists(c, params.spec.platformWorkloads.exists(w, w.startsWith('StatefulSet/') && w.endsWith('-' + name) && c.?metadata.?name.orValue('').endsWith('-' + w.substring(12, size(w) - size(name) - 1))))",
		"request.resource.resource == 'pods' && (request.operation != 'CREATE' || has(request.subResource)) && (" + join([]string{
			derived("Deployment", hash+suffix), derived("DaemonSet", suffix),
			// The Pods of an indexed Job have the index before the suffix.
			derived("Job", "(-[0-9]{1,10})?"+suffix), derived("CronJob", "-[0-9-]{1,22}"+suffix),
		}, " || ") + ")",
		"request.resource.resource == 'jobs' && (" + derived("CronJob", "-[0-9]{1,11}") + " || " + history + ")",
		"variables.takes_place",
		"request.resource.resource == 'horizontalpodautoscalers' && object != null && (" + target("scaleTargetRef") +
			" || object.?spec.?scaleTargetRef.?kind.orValue('') == 'ReplicaSet' && " + named("object.spec.scaleTargetRef.name", "Deployment", hash) + ")",
		"request.resource.resource == 'canaries' && object != null && (" + join([]string{target("targetRef"), target("autoscalerRef"), primary("targetRef"), primary("autoscalerRef")}, " || ") + ")",
	}, " || ") + ")"
}()

// hasPlatformWorkloads is CEL that is true if the platform has workloads in the namespace, and
// [onPlatformWorkload] covers the kind of the request.
const hasPlatformWorkloads = "has(params.spec.platformWorkloads) && request.resource.resource in ['deployments', 'statefulsets', 'replicasets', 'pods', 'horizontalpodautoscalers', 'canaries', 'daemonsets', 'replicationcontrollers', 'podtemplates', 'jobs', 'cronjobs', 'persistentvolumeclaims', 'controllerrevisions']"

// takesPlace is CEL that is true if an object gets labels by which a workload of the platform adopts it. A
// ReplicaSet, a DaemonSet and a Job then run one Pod of their own less. A Deployment adopts ReplicaSets,
// and StatefulSets and DaemonSets adopt ControllerRevisions, from which they create Pods. The rule also
// checks templates, since the tenant may orphan the Pods when it deletes their workload.
//
// The manager keeps the selectors in the parameters. The Pods of a Job have the UID of the Job in a label,
// which the API server sets in the template. The rule refuses every such label, because a CronJob creates
// more Jobs than a list can hold.
var takesPlace = func() string {
	template := func(object string) string {
		return fmt.Sprintf("%[1]s.?spec.?template.?metadata.or(%[1]s.?spec.?jobTemplate.?spec.?template.?metadata).or(%[1]s.?template.?metadata).?labels", object)
	}
	// labels returns CEL for the lists of labels by which a controller may adopt the object, or the Pods of
	// its template.
	labels := func(object string) string {
		return fmt.Sprintf("(request.resource.resource in ['pods', 'controllerrevisions'] ? [%[1]s.?metadata.?labels] : request.resource.resource == 'replicasets' ? [%[1]s.?metadata.?labels, %[2]s] : [%[2]s])", object, template(object))
	}
	selected := func(object string) string {
		return labels(object) + ".map(o, o.orValue({})).exists(l, s.?matchLabels.orValue({}).all(k, k in l && l[k] == s.matchLabels[k]) && s.?matchExpressions.orValue([]).all(e," +
			" e.operator == 'In' ? e.key in l && l[e.key] in e.values : e.operator == 'NotIn' ? !(e.key in l && l[e.key] in e.values) : (e.key in l) == (e.operator == 'Exists')))"
	}
	uid := func(object string) string {
		return labels(object) + ".map(o, o[?'" + batchv1.ControllerUidLabel + "'])"
	}
	return "(request.resource.resource in ['pods', 'deployments', 'statefulsets', 'replicasets', 'daemonsets', 'replicationcontrollers', 'podtemplates', 'jobs', 'cronjobs', 'controllerrevisions'] && object != null && (" +
		"params.spec.?platformSelectors.orValue([]).exists(s, " + selected("object") + " && !(oldObject != null && " + selected("oldObject") + "))" +
		" || params.spec.?platformWorkloads.orValue([]).exists(w, w.startsWith('Job/') || w.startsWith('CronJob/')) && " + uid("object") + ".exists(u, u.hasValue() && !(oldObject != null && u in " + uid("oldObject") + ") && !(request.resource.resource == 'jobs' && u == object.metadata.?uid))))"
}()

// forgesTemplate returns CEL that is true if a template of an object gets the labels of the platform's
// objects: platforms returns CEL that is true if a map of labels has them.
// A controller copies these labels to the objects that it makes, and the rules do not limit the controller:
// the tenant would have objects that count as the platform's, such as the Jobs of a CronJob in the
// parameters. The field chart.metadata of a HelmRelease is the template of a HelmChart, and the
// commonMetadata of an ArtifactGenerator that of its ExternalArtifacts. A Canary has three templates for
// its Services.
func forgesTemplate(platforms func(labels string) string) string {
	labels := func(l string) string {
		return fmt.Sprintf("(%[1]s.hasValue() && [%[1]s.value()].exists(l, %[2]s))", l, platforms("l"))
	}
	ephemeral := "v, has(v.ephemeral) && " + labels("v.ephemeral.?volumeClaimTemplate.?metadata.?labels")
	forged := func(object string) string {
		return fmt.Sprintf("(request.resource.resource == 'pods' ? has(%[1]s.spec.volumes) && %[1]s.spec.volumes.exists(%[3]s) : "+
			"%[2]s.?volumes.orValue([]).exists(%[3]s) || ([%[1]s.?spec.?template.?metadata.?labels, %[1]s.?spec.?jobTemplate.?metadata.?labels, %[1]s.?spec.?jobTemplate.?spec.?template.?metadata.?labels, %[1]s.?template.?metadata.?labels"+
			", %[1]s.?spec.?chart.?metadata.?labels, %[1]s.?spec.?commonMetadata.?labels, %[1]s.?spec.?infrastructure.?labels, request.resource.resource == 'resourceclaimtemplates' ? %[1]s.?spec.?metadata.?labels : optional.none()]"+
			" + (request.resource.resource == 'canaries' ? ['apex', 'primary', 'canary'].map(f, %[1]s.?spec.?service[?f].?labels) : [])"+
			" + %[1]s.?spec.?volumeClaimTemplates.orValue([]).map(c, c.?metadata.?labels)).exists(l, %[4]s))",
			object, podSpec(object), ephemeral, labels("l"))
	}
	return "(request.resource.resource in ['pods', 'deployments', 'statefulsets', 'replicasets', 'daemonsets', 'replicationcontrollers', 'podtemplates', 'jobs', 'cronjobs', 'helmreleases', 'artifactgenerators', 'gateways', 'canaries', 'resourceclaimtemplates']" +
		" && object != null && !has(request.subResource) && " + forged("object") + " && !(oldObject != null && " + forged("oldObject") + "))"
}

// changed returns CEL that is true if an update changes a field of the metadata.
func changed(field string) string {
	return fmt.Sprintf("object.metadata.?%[1]s != oldObject.metadata.?%[1]s", field)
}

// ownersChanged returns CEL that is true if an update changes the field managers of a part of an object. An
// apply with the current values of the part changes only the field managers. But the part then remains when
// its first manager removes it, and the manager does not delete an object that another field manager
// applies.
func ownersChanged(part ...string) string {
	field := func(m string) string { return m + ".?" + part[0] + "[?'" + strings.Join(part[1:], "'][?'") + "']" }
	beyond := func(object, other string) string {
		return fmt.Sprintf("%[1]s.metadata.?managedFields.orValue([]).exists(m, %[3]s.hasValue() && !%[2]s.metadata.?managedFields.orValue([]).exists(n,"+
			" n.?manager == m.?manager && n.?operation == m.?operation && %[4]s == %[3]s))", object, other, field("m"), field("n"))
	}
	return beyond("object", "oldObject") + " || " + beyond("oldObject", "object")
}

// losesFields is CEL that is true if an update may remove fields of the spec that neither object nor
// oldObject shows. The API server shows both in the version of the request, without the fields that only
// other versions have, and stores the object without them. The field managers show in which versions
// the fields were written.
const losesFields = "object.metadata.?managedFields.orValue([]).exists(m, m.?fieldsV1[?'f:spec'].hasValue() && m.?apiVersion.orValue('') != object.apiVersion" +
	" && (request.resource.version.matches('alpha|beta') || !m.?apiVersion.orValue('').matches('/v[0-9]+(alpha|beta)')))"

// annotationsBeyond returns CEL that is true if an object has an annotation that the other object does not
// have, or has with another value, apart from requests to reconcile.
func annotationsBeyond(object, other string) string {
	return fmt.Sprintf("(has(%[1]s.metadata.annotations) && !%[1]s.metadata.annotations.all(a, a.startsWith('reconcile.fluxcd.io/')"+
		" || (has(%[2]s.metadata.annotations) && a in %[2]s.metadata.annotations && %[2]s.metadata.annotations[a] == %[1]s.metadata.annotations[a])))", object, other)
}

// kubeConfigs returns the rule that only the platform writes the Secrets that name the cluster to which
// Flux applies a tenant.
func kubeConfigs() Rule {
	return Rule{
		Name: Prefix + "kubeconfigs", Rows: []string{"I13"},
		Title:       "only the platform writes the kubeconfigs that Flux may use",
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(all, "", "secrets")},
		scope:       tenantObjects,
		compensates: true,
		conditions: append([]string{
			fmt.Sprintf("has(%[1]s.kubeConfigs) && %[2]s in %[1]s.kubeConfigs", posture, objectName),
		}, notThePlatform...),
		validations: []validation{{"false", "'Secret ' + variables.name + ' names the cluster that Flux applies to, and only the platform writes it: use another name'"}},
	}
}

// parameters returns the rule that only the platform writes TenantParameters, so that a tenant with all
// rights in its namespace cannot choose the rules there. No RoleBinding can exempt a user from this rule:
// see [isAdmin].
func parameters() Rule {
	return Rule{
		Name: Prefix + "parameters", Rows: []string{"I17"},
		Title:       "only the platform writes TenantParameters",
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(all, v1alpha1.GroupVersion.Group, "tenantparameters")},
		conditions:  append([]string{notKubernetes}, notAdmin...),
		scope:       allNamespaces,
		validations: []validation{{"false", "'TenantParameters ' + variables.name + ' sets the limits of the namespace, and only the platform writes it: ask the platform team'"}},
	}
}
