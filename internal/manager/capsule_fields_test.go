package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/capsule"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shownElsewhere are the fields that need another program than the API server and the manager.
var shownElsewhere = map[string]string{
	"spec.owners[].proxySettings[].kind":       "TestOwnersProxySettings of internal/capsule, and the tests of internal/proxy",
	"spec.owners[].proxySettings[].operations": "TestFieldsSpeak of internal/capsule",
	"spec.data": "TestFieldsSpeak of internal/capsule",
}

// trial is a request about a field. It is a dry run.
type trial struct {
	field, reason, who string
	// create is a manifest; patch is a merge patch for the namespace at.
	create, patch, at string
	// refused is in the refusal; without it, the request is allowed.
	refused string
	// gets are values of the object that the API server returns, by their paths.
	gets map[string]string
}

// problem makes the request, and says what is wrong with the answer.
func (r trial) problem(ctx context.Context, c client.Client) string {
	o, err := r.do(ctx, c)
	switch {
	case r.refused != "" && err == nil:
		return "it is allowed"
	case r.refused != "" && !strings.Contains(err.Error(), r.refused):
		return fmt.Sprintf("want a refusal with %q, got: %v", r.refused, err)
	case r.refused == "" && err != nil:
		return err.Error()
	}
	for path, want := range r.gets {
		if got, _, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, "/")...); fmt.Sprint(got) != want {
			return fmt.Sprintf("%s is %v, want %s", path, got, want)
		}
	}
	return ""
}

func (r trial) do(ctx context.Context, c client.Client) (*unstructured.Unstructured, error) {
	if r.patch != "" {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("v1")
		o.SetKind("Namespace")
		o.SetName(r.at)
		return o, c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(r.patch)), client.DryRunAll)
	}
	objects, err := flux.ReadObjects([]byte(r.create))
	if err != nil || len(objects) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d objects", len(objects)))
	}
	return objects[0], c.Create(ctx, objects[0], client.DryRunAll)
}

// Manifests of trials in namespace full-a.
func aPod(spec string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: full-a}, spec: {" + spec + "}}"
}

func anImage(image string) string {
	return aPod("containers: [{name: x, image: " + image + "}]")
}

func podWith(more string) string {
	return aPod("containers: [{name: x, image: registry.example.com/x}], " + more)
}

func configMap(namespace string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: " + namespace + "}}"
}

func controller(namespace string) string {
	return "{apiVersion: v1, kind: ReplicationController, metadata: {name: more, namespace: " + namespace + "}, spec: {replicas: 0, selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: registry.example.com/x}]}}}}"
}

func aService(metadata, spec string) string {
	return "{apiVersion: v1, kind: Service, metadata: {name: x, namespace: full-a" + metadata + "}, spec: {" + spec + "}}"
}

const onePort = "ports: [{port: 80}]"

func anIngress(namespace, class, host, path string) string {
	return fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: x-%s, namespace: %[1]s}, spec: {%s rules: [{host: %q, http: {paths: [{path: %s, pathType: Prefix, backend: {service: {name: x, port: {number: 80}}}}]}}]}}", namespace, class, host, path)
}

func aNamespace(name, labels string) string {
	return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + ", labels: {" + labels + "}, annotations: {contact: ann@example.com}}}"
}

// classTrials are about a field with classes: by name, by expression, by label, and the default.
func classTrials(field, path, refused string, object func(class string) string) []trial {
	all := []trial{
		{field: field, reason: "a class by its name", create: object("public")},
		{field: field, reason: "a class by the expression", create: object("edge-1")},
		{field: field, reason: "a class by its labels", create: object("pooled")},
		{field: field, reason: "a class with the label, which the expression excludes", create: object("gone"), refused: refused},
		{field: field, reason: "another class", create: object("foreign"), refused: refused},
	}
	if path != "" {
		all = append(all, trial{field: field + ".default", reason: "no class", create: object(""), gets: map[string]string{path: "chosen"}})
	}
	return all
}

// named returns a field with a class, or nothing without one.
func named(field, class string) string {
	if class == "" {
		return ""
	}
	return field + ": " + class + ","
}

// fieldTrials are about the fields of the Tenants in testdata, in the order of the reference.
func fieldTrials() []trial {
	const ns, svc, annotated, labelled = "spec.namespaceOptions", "spec.serviceOptions", ", annotations: {%s: x}", ", labels: {%s: x}"
	patch := func(kind, key, value string) string {
		return fmt.Sprintf(`{"metadata":{"%s":{"%s":%s}}}`, kind, key, value)
	}
	all := []trial{
		{field: "spec.owners[].kind", reason: "a member of the group", who: "gil", create: configMap("full-a")},
		{field: "spec.owners[].kind", reason: "the account", who: "system:serviceaccount:full-ci:robot", create: configMap("full-a")},
		{field: "spec.owners[].name", reason: "somebody else", who: "Ann", create: configMap("full-a"), refused: "forbidden"},
		{field: "spec.owners[].name", reason: "in another tenant", create: configMap("strict-a"), refused: "forbidden"},
		{field: "spec.owners[].clusterRoles", reason: "the role admin", create: "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x, namespace: full-a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: User, name: pal}]}"},
		{field: "spec.owners[].clusterRoles", reason: "the role edit", who: "gil", create: "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: x, namespace: full-a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: User, name: pal}]}", refused: "forbidden"},
		{field: "spec.permissions.matchOwners", reason: "a TenantOwner", who: "tom", create: configMap("full-b")},
		{field: "spec.additionalRoleBindings[].subjects", reason: "views only", who: "vic", create: configMap("full-a"), refused: "forbidden"},

		{field: ns + ".quota", reason: "a third namespace", create: aNamespace("full-c", "env: dev"), refused: "2 of 2 namespaces"},
		{field: ns + ".quota", reason: "a Tenant without a quota", who: "sam", create: "{apiVersion: v1, kind: Namespace, metadata: {name: strict-c}}"},
		{field: ns + ".forbiddenLabels.denied", reason: "a label", at: "full-a", patch: patch("labels", "bad", `"x"`), refused: "forbidden"},
		{field: ns + ".forbiddenLabels.deniedRegex", reason: "a label", at: "full-a", patch: patch("labels", "worse-1", `"x"`), refused: "forbidden"},
		{field: ns + ".forbiddenLabels.deniedRegex", reason: "another label", at: "full-a", patch: patch("labels", "worse-x", `"x"`)},
		{field: ns + ".forbiddenAnnotations.denied", reason: "an annotation", at: "full-a", patch: patch("annotations", "bad", `"x"`), refused: "forbidden"},
		{field: ns + ".forbiddenAnnotations.deniedRegex", reason: "an annotation", at: "full-a", patch: patch("annotations", "worse-1", `"x"`), refused: "forbidden"},
		{field: ns + ".forbiddenAnnotations.deniedRegex", reason: "another annotation", at: "full-a", patch: patch("annotations", "worse-x", `"x"`)},
		{field: ns + ".requiredMetadata", reason: "without the label", at: "full-a", patch: patch("labels", "env", `null`), refused: "needs the label env"},
		{field: ns + ".requiredMetadata", reason: "another value", at: "full-a", patch: patch("labels", "env", `"test"`), refused: "has to match"},
		{field: ns + ".requiredMetadata", reason: "the other value", at: "full-a", patch: patch("labels", "env", `"dev"`)},
		{field: ns + ".requiredMetadata", reason: "an annotation", at: "full-a", patch: patch("annotations", "contact", `"ann"`), refused: "has to match"},
		{field: ns + ".managedMetadataOnly", reason: "any label", who: "sam", at: "strict-a", patch: patch("labels", "x", `"y"`), refused: "forbidden"},
		{field: "spec.forceTenantPrefix", reason: "off", who: "sam", create: "{apiVersion: v1, kind: Namespace, metadata: {name: loose-b}}"},

		{field: "spec.resourceQuotas", reason: "the rest of the whole", create: controller("full-b"), refused: "quota"},
		{field: "spec.resourceQuotas", reason: "in each namespace", who: "sam", create: controller("strict-a")},
		{field: "spec.resourceQuotas", reason: "the rest of a namespace", who: "sam", create: controller("strict-b"), refused: "quota"},
		{field: "spec.limitRanges", reason: "too much", create: aPod("containers: [{name: x, image: registry.example.com/x, resources: {limits: {cpu: 2}}}]"), refused: "maximum cpu usage"},
		{field: "spec.nodeSelector", reason: "the tenant's nodes", create: podWith("nodeSelector: {a: b}"), gets: map[string]string{"spec/nodeSelector/pool": "full", "spec/nodeSelector/a": "b"}},
		{field: "spec.nodeSelector", reason: "other nodes", create: podWith("nodeSelector: {pool: gas}"), refused: "nodes of others"},
		{field: "spec.containerRegistries", reason: "by name", create: anImage("registry.example.com/x")},
		{field: "spec.containerRegistries", reason: "by the expression", create: anImage("mirror1.example.com/x")},
		{field: "spec.containerRegistries", reason: "another one", create: anImage("docker.io/library/x"), refused: "docker.io/library/x"},
		{field: "spec.containerRegistries", reason: "none", create: anImage("x"), refused: "must not"},
		{field: "spec.containerRegistries", reason: "of a template", create: strings.ReplaceAll(controller("full-a"), "registry.example.com", "docker.io"), refused: "docker.io/x"},
		{field: "spec.imagePullPolicies", reason: "in the list", create: aPod("containers: [{name: x, image: registry.example.com/x, imagePullPolicy: Always}]")},
		{field: "spec.imagePullPolicies", reason: "another one", create: aPod("containers: [{name: x, image: registry.example.com/x, imagePullPolicy: Never}]"), refused: "imagePullPolicy Never"},
		{field: "spec.ingressOptions.allowedHostnames", reason: "by name", create: anIngress("full-a", "", "app.example.com", "/")},
		{field: "spec.ingressOptions.allowedHostnames", reason: "by the expression", create: anIngress("full-a", "", "x.full.example.com", "/")},
		{field: "spec.ingressOptions.allowedHostnames", reason: "another one", create: anIngress("full-a", "", "gas.example.com", "/"), refused: "host gas.example.com"},
		{field: "spec.ingressOptions.allowWildcardHostnames", reason: "off", create: anIngress("full-a", "", "*.full.example.com", "/"), refused: "host *.full.example.com"},
		{field: "spec.ingressOptions.allowWildcardHostnames", reason: "on", who: "sam", create: anIngress("strict-a", "", "*.example.com", "/")},
		{field: "spec.ingressOptions.hostnameCollisionScope", reason: "another namespace of the tenant", create: anIngress("full-b", "", "taken.full.example.com", "/"), refused: "taken"},
		{field: "spec.ingressOptions.hostnameCollisionScope", reason: "another path", create: anIngress("full-b", "", "taken.full.example.com", "/b")},

		{field: svc + ".additionalMetadata", reason: "over the tenant's", create: aService(", labels: {cost: none}", onePort), gets: map[string]string{"metadata/labels/cost": "full", "metadata/annotations/mail": "full@example.com"}},
		{field: svc + ".allowedServices", reason: "a node port", create: aService("", "type: NodePort, "+onePort), refused: "type NodePort"},
		{field: svc + ".allowedServices", reason: "an external name", create: aService("", "type: ExternalName, externalName: example.com"), refused: "type ExternalName"},
		{field: svc + ".allowedServices", reason: "a load balancer", create: aService("", "type: LoadBalancer, allocateLoadBalancerNodePorts: false, "+onePort)},
		{field: svc + ".allowedServices", reason: "the other Tenant's external name", who: "sam", create: strings.ReplaceAll(aService("", "type: ExternalName, externalName: example.com"), "full-a", "strict-a")},
		{field: svc + ".allowedServices", reason: "the other Tenant's load balancer", who: "sam", create: strings.ReplaceAll(aService("", "type: LoadBalancer, "+onePort), "full-a", "strict-a"), refused: "type LoadBalancer"},
		{field: svc + ".externalIPs", reason: "of the network", create: aService("", "externalIPs: [10.20.3.4], "+onePort)},
		{field: svc + ".externalIPs", reason: "the address", create: aService("", "externalIPs: [192.0.2.1], "+onePort)},
		{field: svc + ".externalIPs", reason: "another one", create: aService("", "externalIPs: [192.0.2.2], "+onePort), refused: "192.0.2.2"},
		{field: svc + ".forbiddenLabels.denied", reason: "a label", create: aService(fmt.Sprintf(labelled, "bad"), onePort), refused: "denies"},
		{field: svc + ".forbiddenLabels.deniedRegex", reason: "a label", create: aService(fmt.Sprintf(labelled, "worse-1"), onePort), refused: "denies"},
		{field: svc + ".forbiddenLabels.deniedRegex", reason: "another label", create: aService(fmt.Sprintf(labelled, "worse-x"), onePort)},
		{field: svc + ".forbiddenAnnotations.denied", reason: "an annotation", create: aService(fmt.Sprintf(annotated, "bad"), onePort), refused: "denies"},
		{field: svc + ".forbiddenAnnotations.deniedRegex", reason: "an annotation", create: aService(fmt.Sprintf(annotated, "worse-1"), onePort), refused: "denies"},
		{field: svc + ".forbiddenAnnotations.deniedRegex", reason: "another annotation", create: aService(fmt.Sprintf(annotated, "worse-x"), onePort)},
		{field: "spec.podOptions.additionalMetadata", reason: "on Pods", create: podWith("nodeSelector: {pool: full}"), gets: map[string]string{"metadata/labels/cost": "full", "metadata/annotations/mail": "full@example.com"}},
		{field: "spec.rules", reason: "a scheduler that a rule denies", create: podWith("schedulerName: slow"), refused: "slow"},
		{field: "spec.rules", reason: "a managed label", create: "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: full-a, labels: {payer: other}}}", gets: map[string]string{"metadata/labels/payer": "full"}},
		{field: "spec.rules", reason: "a managed annotation of namespaces", at: "full-b", patch: `{"metadata":{"annotations":{"payer":"other"}}}`, gets: map[string]string{"metadata/annotations/payer": "full team"}},
		{field: "spec.rules", reason: "in a namespace that the rule does not select", create: strings.ReplaceAll(podWith("schedulerName: slow"), "full-a", "full-b")},
	}
	for _, more := range [][]trial{
		classTrials("spec.ingressOptions.allowedClasses", "spec/ingressClassName", "ingress class", func(class string) string {
			return anIngress("full-a", named("ingressClassName", class), "app.example.com", "/")
		}),
		classTrials("spec.gatewayOptions.allowedClasses", "spec/gatewayClassName", "gateway class", func(class string) string {
			return "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: x, namespace: full-a}, spec: {" + named("gatewayClassName", class) + " listeners: [{name: x, port: 80, protocol: HTTP, hostname: app.example.com}]}}"
		}),
		classTrials("spec.storageClasses", "spec/storageClassName", "storage class", func(class string) string {
			return "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: x, namespace: full-a}, spec: {" + named("storageClassName", class) + " accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
		}),
		classTrials("spec.priorityClasses", "spec/priorityClassName", "priority class", func(class string) string { return podWith(named("priorityClassName", class) + " nodeSelector: {a: b}") }),
		classTrials("spec.runtimeClasses", "spec/runtimeClassName", "runtime class", func(class string) string { return podWith(named("runtimeClassName", class) + " nodeSelector: {a: b}") }),
		classTrials("spec.deviceClasses", "", "device class", func(class string) string {
			return "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: x, namespace: full-a}, spec: {devices: {requests: [{name: x, exactly: {deviceClassName: " + class + "}}]}}}"
		}),
	} {
		all = append(all, more...)
	}
	return all
}

// classFixtures are the classes of each kind.
func classFixtures() string {
	var all strings.Builder
	for name, labels := range map[string]string{"public": "", "edge-1": "", "pooled": "pool: full", "gone": `pool: full, gone: ""`, "chosen": "", "foreign": ""} {
		for _, kind := range []string{
			"apiVersion: storage.k8s.io/v1, kind: StorageClass, provisioner: example.com/x",
			"apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, value: 1",
			"apiVersion: node.k8s.io/v1, kind: RuntimeClass, handler: x",
			"apiVersion: networking.k8s.io/v1, kind: IngressClass, spec: {controller: example.com/x}",
			"apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, spec: {controllerName: example.com/x}",
			"apiVersion: resource.k8s.io/v1, kind: DeviceClass, spec: {}",
		} {
			fmt.Fprintf(&all, "---\n{%s, metadata: {name: %s, labels: {%s}}}\n", kind, name, labels)
		}
	}
	return all.String()
}

// TestCapsuleEveryField applies Tenants with every field of Capsule's API, and shows for each field
// that it holds.
func TestCapsuleEveryField(t *testing.T) {
	t.Parallel()
	tenants := testdata(t, "capsule-tenants.yaml")
	for _, path := range unsetFields(t, tenants) {
		t.Errorf("no Tenant in testdata has %s", path)
	}
	l := startLayer(t)
	profile := &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}
	merge(t, l.admin, profile, `{"spec":{"namespaceMetadata":{"labels":["*"],"annotations":["*"]}}}`)
	l.start(t, true)
	l.apply(t, testdata(t, "capsule-platform.yaml")+classFixtures())
	l.apply(t, tenants)
	l.theirs(t, "full", "Succeeded", 0)
	l.theirs(t, "strict", "Succeeded", 0)
	shown := l.makeNamespaces(t)
	left := fieldTrials()
	for _, r := range left {
		shown[r.field] = true
	}
	clients := map[string]client.Client{"": l.as(t, "ann"), "gil": l.as(t, "gil", "full-team")}
	// The API server learns of rules and rights some time later.
	for deadline := time.Now().Add(patience / 4); len(left) > 0 && time.Now().Before(deadline); {
		left = slices.DeleteFunc(left, func(r trial) bool {
			if clients[r.who] == nil {
				clients[r.who] = l.as(t, r.who)
			}
			return r.problem(t.Context(), clients[r.who]) == ""
		})
	}
	for _, r := range left {
		t.Errorf("%s: %s: %s", r.field, r.reason, r.problem(t.Context(), clients[r.who]))
	}
	maps.Copy(shown, l.fieldObjects(t))
	maps.Copy(shown, l.switchFields(t))
	for _, f := range capsule.Fields("Tenant") {
		if !shown[f.Path] && shownElsewhere[f.Path] == "" {
			t.Errorf("nothing shows that %s holds", f.Path)
		}
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// unsetFields returns the fields of the CRD that none of the Tenants has.
func unsetFields(t *testing.T, tenants string) []string {
	t.Helper()
	has := map[string]bool{}
	objects, err := flux.ReadObjects([]byte(tenants))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		setFields("spec", o.Object["spec"], has)
	}
	crds, err := flux.ReadObjects(config.CapsuleCRDs())
	if err != nil {
		t.Fatal(err)
	}
	var unset []string
	for _, crd := range crds {
		if crd.GetName() != "tenants.capsule.clastix.io" {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, version := range versions {
			schema, _, _ := unstructured.NestedMap(version.(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
			unset = append(unset, unsetBelow("spec", schema, has)...)
		}
	}
	return unset
}

// setFields adds the paths of a value's fields to a set.
func setFields(path string, value any, has map[string]bool) {
	has[path] = true
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			setFields(path+"."+key, v, has)
		}
	case []any:
		for _, v := range value {
			setFields(path+"[]", v, has)
		}
	}
}

// unsetBelow returns the fields of a schema that are not in a set. What is in LimitRanges and
// NetworkPolicies is Kubernetes' own.
func unsetBelow(path string, schema map[string]any, has map[string]bool) []string {
	if path == "spec.limitRanges.items[]" || path == "spec.networkPolicies.items[]" {
		return nil
	}
	if !has[path] {
		return []string{path}
	}
	var unset []string
	properties, _, _ := unstructured.NestedMap(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		// An expression with the operator Exists has no values.
		if name != "values" {
			unset = append(unset, unsetBelow(path+"."+name, properties[name].(map[string]any), has)...)
		}
	}
	if items, ok, _ := unstructured.NestedMap(schema, "items"); ok {
		unset = append(unset, unsetBelow(path+"[]", items, has)...)
	}
	return unset
}

// makeNamespaces makes the namespaces as the owners, and what they have before the trials. It
// returns the fields that it shows.
func (l *layer) makeNamespaces(t *testing.T) map[string]bool {
	t.Helper()
	ann, sam := l.as(t, "ann"), l.as(t, "sam")
	for _, step := range []struct {
		c                 client.Client
		manifest, refused string
	}{
		{ann, aNamespace("other-a", "env: prod"), "begins with full-"},
		{ann, aNamespace("full-a", ""), "needs the label env"},
		{ann, aNamespace("full-a", "env: prod, bad: x"), "forbidden"},
		{ann, aNamespace("full-a", "env: prod"), ""},
		{ann, aNamespace("full-b", "env: dev"), ""},
		{sam, "{apiVersion: v1, kind: Namespace, metadata: {name: strict-a}}", ""},
		{ann, controller("full-a"), ""},
		{sam, "{apiVersion: v1, kind: Namespace, metadata: {name: strict-b}}", ""},
		{sam, strings.ReplaceAll(controller("strict-b"), "name: more", "name: held"), ""},
		{ann, strings.ReplaceAll(anIngress("full-a", "", "taken.full.example.com", "/"), "x-full-a", "taken"), ""},
	} {
		testwait.For(t, "the answer to "+step.manifest, patience, func() (bool, string) {
			objects, err := flux.ReadObjects([]byte(step.manifest))
			if err != nil {
				t.Fatal(err)
			}
			err = step.c.Create(t.Context(), objects[0])
			return step.refused == "" && err == nil || step.refused != "" && err != nil && strings.Contains(err.Error(), step.refused), fmt.Sprint(err)
		})
	}
	return map[string]bool{"spec.forceTenantPrefix": true}
}

// fieldObjects looks at the objects that the manager made for the Tenants, and returns the fields that
// it shows.
func (l *layer) fieldObjects(t *testing.T) map[string]bool {
	t.Helper()
	shown := map[string]bool{}
	check := func(field string, ok bool, got any) {
		t.Helper()
		if shown[field] = true; !ok {
			t.Errorf("%s: got %v", field, got)
		}
	}
	first, second := l.namespace(t, "full-a"), l.namespace(t, "full-b")
	check("spec.namespaceOptions.additionalMetadata", second.Labels["cost"] == "full" && second.Annotations["mail"] == "full@example.com", second)
	const list = "spec.namespaceOptions.additionalMetadataList[]."
	check(list+"labels", second.Labels["all"] == "yes", second.Labels)
	check(list+"annotations", second.Annotations["all"] == "full", second.Annotations)
	check("spec.rules", second.Annotations["payer"] == "full team", second.Annotations)
	// An owner's update does not change what a rule manages.
	paid := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "full-a", Name: "paid"}}
	owner := l.as(t, "ann")
	err := owner.Create(t.Context(), paid)
	for _, patch := range []string{`{"metadata":{"labels":{"payer":"other"}}}`, `{"metadata":{"labels":{"payer":null}}}`} {
		if err == nil {
			err = owner.Patch(t.Context(), paid, client.RawPatch(types.MergePatchType, []byte(patch)))
		}
		check("spec.rules", err == nil && paid.Labels["payer"] == "full", fmt.Sprint(err, paid.Labels))
	}
	check(list+"namespaceSelector", first.Labels["tier"] == "high" && first.Annotations["tier"] == "high" && second.Labels["tier"] == "", first)

	var bindings rbacv1.RoleBindingList
	var quotas corev1.ResourceQuotaList
	var networks networkingv1.NetworkPolicyList
	for _, list := range []client.ObjectList{&bindings, &quotas, &networks} {
		if err := l.admin.List(t.Context(), list, client.InNamespace("full-a")); err != nil {
			t.Fatal(err)
		}
	}
	bound := func(user string, has func(rbacv1.RoleBinding) bool) bool {
		return slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
			return has(b) && slices.ContainsFunc(b.Subjects, func(s rbacv1.Subject) bool { return s.Name == user })
		})
	}
	check("spec.owners[].labels", bound("ann", func(b rbacv1.RoleBinding) bool { return b.Labels["who"] == "ann" }), bindings.Items)
	check("spec.owners[].annotations", bound("ann", func(b rbacv1.RoleBinding) bool { return b.Annotations["why"] == "she asked" }), bindings.Items)
	check("spec.additionalRoleBindings[].clusterRoleName", bound("vic", func(b rbacv1.RoleBinding) bool { return b.RoleRef.Name == "view" }), bindings.Items)
	check("spec.additionalRoleBindings[].labels", bound("vic", func(b rbacv1.RoleBinding) bool { return b.Labels["what"] == "views" }), bindings.Items)
	check("spec.additionalRoleBindings[].annotations", bound("vic", func(b rbacv1.RoleBinding) bool { return b.Annotations["why"] == "audit" }), bindings.Items)
	for _, viewer := range []string{"vic", "system:serviceaccount:full-ci:deployer", "system:serviceaccount:full-a:viewer"} {
		err := l.as(t, viewer).List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("full-a"))
		check("spec.additionalRoleBindings[].subjects", err == nil, err)
	}
	check("spec.resourceQuotas", slices.ContainsFunc(quotas.Items, func(q corev1.ResourceQuota) bool {
		return slices.Equal(q.Spec.Scopes, []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotBestEffort})
	}) && slices.ContainsFunc(quotas.Items, func(q corev1.ResourceQuota) bool {
		return q.Spec.ScopeSelector != nil && q.Spec.ScopeSelector.MatchExpressions[0].Values[0] == "public"
	}), quotas.Items)
	check("spec.networkPolicies", slices.ContainsFunc(networks.Items, func(p networkingv1.NetworkPolicy) bool { return p.Spec.PodSelector.MatchLabels["app"] == "web" }), networks.Items)
	return shown
}

func (l *layer) namespace(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	ns := &corev1.Namespace{}
	if err := l.admin.Get(t.Context(), client.ObjectKey{Name: name}, ns); err != nil {
		t.Fatal(err)
	}
	return ns
}

// switchFields promotes a service account, tries to delete a Tenant and cordons the other. It
// returns the fields that it shows.
func (l *layer) switchFields(t *testing.T) map[string]bool {
	t.Helper()
	for owner, namespace := range map[string]string{"ann": "full-a", "sam": "strict-a"} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "promoted", Namespace: namespace, Labels: map[string]string{"owner.projectcapsule.dev/promote": "true"}}}
		if err := l.as(t, owner).Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
	}
	testwait.For(t, "the promoted account to be an owner", patience, func() (bool, string) {
		owners := l.theirs(t, "full", "Succeeded", 2).Status.Owners
		return slices.ContainsFunc(owners, func(o v1beta2.StatusOwner) bool { return o.Name == "system:serviceaccount:full-a:promoted" }), fmt.Sprint(owners)
	})
	strict := l.theirs(t, "strict", "Succeeded", 2)
	if len(strict.Status.Owners) != 1 {
		t.Errorf("spec.permissions.allowOwnerPromotion: the owners are %v", strict.Status.Owners)
	}
	if err := l.admin.Delete(t.Context(), strict, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "preventDeletion") {
		t.Errorf("spec.preventDeletion: got %v", err)
	}
	merge(t, l.admin, &v1beta2.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, `{"spec":{"cordoned":true}}`)
	ann := l.as(t, "ann")
	testwait.For(t, "the owner of the cordoned Tenant to be refused", patience, func() (bool, string) {
		err := ann.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late", Namespace: "full-a"}}, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "cordoned"), fmt.Sprint(err)
	})
	if full := l.theirs(t, "full", "Succeeded", 2); full.Status.State != v1beta2.StateCordoned {
		t.Errorf("the state of a cordoned Tenant is %s", full.Status.State)
	}
	return map[string]bool{"spec.permissions.allowOwnerPromotion": true, "spec.preventDeletion": true, "spec.cordoned": true}
}
