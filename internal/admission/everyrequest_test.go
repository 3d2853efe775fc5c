package admission_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/tenancy/credentials"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// breaches are changes of ordinary objects that break a rule: by rule, the changes of each
// kind, as merge patches. A tenant that creates the changed object is refused, and so is one
// that changes the ordinary object.
var breaches = map[string]map[string]string{
	"tenure-accounts": each(`{"spec":{"serviceAccountName":"default"}}`, kustomizationKind, releaseKind),
	"tenure-bounds": join(
		each(`{"spec":{"interval":"1s"}}`, kustomizationKind, releaseKind, gitKind, chartHostKind, chartKind, ociKind, bucketKind, receiverKind, imageKind, automationKind),
		each(`{"spec":{"timeout":"600m"}}`, providerKind),
		each(`{"spec":{"digestReflectionPolicy":"Always","interval":"1s"}}`, imagePolicyKind),
		each(`{"metadata":{"annotations":{"fluxcd.controlplane.io/reconcileEvery":"1s"}}}`, "resourcesets.fluxcd.controlplane.io", "resourcesetinputproviders.fluxcd.controlplane.io"),
	),
	"tenure-charts": {
		releaseKind: `{"spec":{"chart":{"spec":{"sourceRef":{"kind":"GitRepository"}}}}}`,
		chartKind:   `{"spec":{"sourceRef":{"kind":"GitRepository"}}}`,
	},
	"tenure-claims":             each(`{"spec":{"volumeName":"foreign"}}`, "persistentvolumeclaims"),
	"tenure-decryption-secrets": each(`{"data":{"sops.gcp-kms":"e30="}}`, "secrets"),
	"tenure-endpoints": {
		"endpoints":                       `{"subsets":[{"addresses":[{"ip":"198.51.100.7"}],"ports":[{"port":80}]}]}`,
		"endpointslices.discovery.k8s.io": `{"endpoints":[{"addresses":["198.51.100.7"]}]}`,
	},
	"tenure-flagger": {
		"canaries.flagger.app":        `{"spec":{"analysis":{"webhooks":[{"name":"a","url":"http://other.example.net/"}]}}}`,
		"metrictemplates.flagger.app": `{"spec":{"provider":{"address":"http://other.example.net/"}}}`,
	},
	"tenure-hosts": join(
		each(`{"spec":{"service":{"apex":{"annotations":{"external-dns.alpha.kubernetes.io/hostname":"*.example.com"}}}}}`, "canaries.flagger.app"),
		each(`{"metadata":{"annotations":{"external-dns.alpha.kubernetes.io/hostname":"*.example.com"}}}`, "services"),
		each(`{"spec":{"hostnames":["*.example.com"]}}`, "httproutes"+gatewayGroup, "grpcroutes"+gatewayGroup, "tlsroutes"+gatewayGroup),
		each(`{"spec":{"listeners":[{"name":"a","port":443,"protocol":"HTTPS","hostname":"*.example.com"}]}}`, "gateways"+gatewayGroup),
		each(`{"spec":{"rules":[{"host":"*.example.com","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"a","port":{"number":80}}}}]}}]}}`, "ingresses.networking.k8s.io"),
	),
	"tenure-copies": each(`{"metadata":{"annotations":{"replicator.v1.mittwald.de/replicate-to":"tools"}}}`,
		"secrets", "configmaps", "serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"),
	"tenure-ingress-annotations": join(
		each(`{"spec":{"service":{"canary":{"annotations":{"haproxy.org/backend-config-snippet":"a"}}}}}`, "canaries.flagger.app"),
		each(`{"metadata":{"annotations":{"nginx.ingress.kubernetes.io/server-snippet":"a"}}}`, "ingresses.networking.k8s.io", "services"),
		each(`{"spec":{"infrastructure":{"annotations":{"haproxy.org/backend-config-snippet":"a"}}}}`, "gateways"+gatewayGroup),
	),
	"tenure-notifications": {
		receiverKind: `{"spec":{"type":"generic"}}`,
		providerKind: `{"spec":{"address":"http://source-controller.flux-system.svc/"}}`,
		// Flagger posts as itself.
		"alertproviders.flagger.app": `{"spec":{"address":"http://source-controller.flux-system.svc/"}}`,
	},
	"tenure-pod-annotations": annotatedPods(`{"iam.amazonaws.com/role":"admin"}`),
	"tenure-pods":            templates("serviceAccountName", `"kinds"`),
	"tenure-references": join(
		each(`{"spec":{"sourceRef":{"namespace":"tools"}}}`, kustomizationKind, automationKind),
		each(`{"spec":{"dependsOn":[{"name":"a","namespace":"tools"}]}}`, releaseKind),
		each(`{"spec":{"eventSources":[{"kind":"Kustomization","name":"a","namespace":"tools"}]}}`, alertKind),
		each(`{"spec":{"resources":[{"kind":"GitRepository","name":"a","namespace":"tools"}]}}`, receiverKind),
		each(`{"spec":{"imageRepositoryRef":{"namespace":"tools"}}}`, imagePolicyKind),
		each(`{"spec":{"sources":[{"alias":"app","kind":"GitRepository","name":"app","namespace":"tools"}]}}`, generatorKind),
		each(`{"spec":{"analysis":{"metrics":[{"name":"a","interval":"1m","templateRef":{"name":"a","namespace":"tools"}}]}}}`, "canaries.flagger.app"),
	),
	"tenure-resource-sets": {
		"resourcesets.fluxcd.controlplane.io":              `{"spec":{"serviceAccountName":"builder"}}`,
		"resourcesetinputproviders.fluxcd.controlplane.io": `{"spec":{"type":"ExternalService","url":"https://kubernetes.default.svc/"}}`,
	},
	"tenure-services": join(
		each(`{"spec":{"service":{"primary":{"annotations":{"metallb.io/loadBalancerIPs":"198.51.100.7"}}}}}`, "canaries.flagger.app"),
		each(`{"spec":{"type":"NodePort"}}`, "services"),
		each(`{"spec":{"addresses":[{"value":"198.51.100.7"}]}}`, "gateways"+gatewayGroup),
	),
	"tenure-sources": {
		gitKind:       `{"spec":{"url":"https://git.example.com/other/app"}}`,
		chartHostKind: `{"spec":{"url":"https://charts.example.net"}}`,
		ociKind:       `{"spec":{"url":"oci://registry.example.com/other/app"}}`,
		bucketKind:    `{"spec":{"endpoint":"s3.example.net"}}`,
		imageKind:     `{"spec":{"image":"registry.example.com/other/app"}}`,
	},
	"tenure-workloads": templates("tolerations", `[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]`),
}

// Kinds of Flux, as [admission.Request] names them.
const (
	sourceGroup       = ".source.toolkit.fluxcd.io"
	gatewayGroup      = ".gateway.networking.k8s.io"
	kustomizationKind = "kustomizations.kustomize.toolkit.fluxcd.io"
	releaseKind       = "helmreleases.helm.toolkit.fluxcd.io"
	gitKind           = "gitrepositories" + sourceGroup
	chartHostKind     = "helmrepositories" + sourceGroup
	chartKind         = "helmcharts" + sourceGroup
	ociKind           = "ocirepositories" + sourceGroup
	bucketKind        = "buckets" + sourceGroup
	artifactKind      = "externalartifacts" + sourceGroup
	alertKind         = "alerts.notification.toolkit.fluxcd.io"
	providerKind      = "providers.notification.toolkit.fluxcd.io"
	receiverKind      = "receivers.notification.toolkit.fluxcd.io"
	imageKind         = "imagerepositories.image.toolkit.fluxcd.io"
	imagePolicyKind   = "imagepolicies.image.toolkit.fluxcd.io"
	automationKind    = "imageupdateautomations.image.toolkit.fluxcd.io"
	generatorKind     = "artifactgenerators.source.extensions.fluxcd.io"
)

// fluxResources are all kinds of Flux that tenants write.
var fluxResources = []string{
	kustomizationKind, releaseKind, gitKind, chartHostKind, chartKind, ociKind, bucketKind,
	alertKind, providerKind, receiverKind, imageKind, imagePolicyKind, automationKind,
}

func each(change string, kinds ...string) map[string]string {
	all := map[string]string{}
	for _, kind := range kinds {
		all[kind] = change
	}
	return all
}

func join(all ...map[string]string) map[string]string {
	joined := map[string]string{}
	for _, m := range all {
		for k, v := range m {
			joined[k] = v
		}
	}
	return joined
}

// templates sets a field of the Pods of every kind of workloads.
func templates(field, value string) map[string]string {
	pod := fmt.Sprintf(`{"spec":{%q:%s}}`, field, value)
	template := `{"spec":{"template":` + pod + `}}`
	return join(
		each(pod, "pods"),
		each(`{"template":`+pod+`}`, "podtemplates"),
		each(template, "replicationcontrollers", "daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"),
		each(`{"spec":{"jobTemplate":`+template+`}}`, "cronjobs.batch"),
	)
}

// annotatedPods sets annotations of the Pods of every kind of workloads.
func annotatedPods(annotations string) map[string]string {
	pod := `{"metadata":{"annotations":` + annotations + `}}`
	template := `{"spec":{"template":` + pod + `}}`
	return join(
		each(pod, "pods"),
		each(`{"template":`+pod+`}`, "podtemplates"),
		each(template, "replicationcontrollers", "daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps", "jobs.batch"),
		each(`{"spec":{"jobTemplate":`+template+`}}`, "cronjobs.batch"),
	)
}

// extraordinary are manifests of kinds that the role of tenants does not allow, for tenants
// with more rights, and of kinds with other names than in [ordinaries].
var extraordinary = map[string]string{
	olderListenerKind:                                              "{apiVersion: gateway.networking.x-k8s.io/v1, kind: XListenerSet, spec: {parentRef: {name: shared, namespace: gateways}, listeners: [{name: a, port: 80, protocol: HTTP, hostname: shop.acme.example.com}]}}",
	"listenersets" + gatewayGroup:                                  "{apiVersion: gateway.networking.k8s.io/v1, kind: ListenerSet, spec: {parentRef: {name: shared, namespace: gateways}, listeners: [{name: a, port: 80, protocol: HTTP, hostname: shop.acme.example.com}]}}",
	"tcproutes" + gatewayGroup:                                     "{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, spec: {" + parent + ", rules: [{backendRefs: [{name: app, port: 80}]}]}}",
	"udproutes" + gatewayGroup:                                     "{apiVersion: gateway.networking.k8s.io/v1, kind: UDPRoute, spec: {" + parent + ", rules: [{backendRefs: [{name: app, port: 80}]}]}}",
	"gateways" + gatewayGroup:                                      "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, spec: {gatewayClassName: shared, listeners: [{name: a, port: 80, protocol: HTTP, hostname: app.example.com}]}}",
	"resourcesets.fluxcd.controlplane.io":                          "{apiVersion: fluxcd.controlplane.io/v1, kind: ResourceSet, spec: {serviceAccountName: kinds, resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]}}",
	"resourcesetinputproviders.fluxcd.controlplane.io":             "{apiVersion: fluxcd.controlplane.io/v1, kind: ResourceSetInputProvider, spec: {type: Static, defaultValues: {a: b}}}",
	"fluxinstances.fluxcd.controlplane.io":                         "{apiVersion: fluxcd.controlplane.io/v1, kind: FluxInstance, spec: {distribution: {version: 2.x, registry: registry.example.com/fluxcd}}}",
	"fluxreports.fluxcd.controlplane.io":                           "{apiVersion: fluxcd.controlplane.io/v1, kind: FluxReport, spec: {distribution: {entitlement: none, status: none}}}",
	"endpoints":                                                    "{apiVersion: v1, kind: Endpoints}",
	"endpointslices.discovery.k8s.io":                              "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: []}",
	"resourcequotas":                                               "{apiVersion: v1, kind: ResourceQuota, spec: {hard: {count/configmaps: 100}}}",
	"limitranges":                                                  "{apiVersion: v1, kind: LimitRange, spec: {limits: [{type: Container, max: {cpu: 1}}]}}",
	"tenantparameters.tenure.dev":                                  "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, spec: {tenant: other, platformNamespaces: [flux-system, platform-two, monitoring], breakGlass: [firefighters]}}",
	artifactKind:                                                   "{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, spec: {}}",
	"clusterroles.rbac.authorization.k8s.io":                       "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, rules: []}",
	"clusterrolebindings.rbac.authorization.k8s.io":                "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}",
	"tenants.tenure.dev":                                           "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, spec: {}}",
	"namespaces":                                                   "{apiVersion: v1, kind: Namespace}",
	"clusternetworkpolicies.policy.networking.k8s.io":              "{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, spec: {tier: Admin, priority: 1000, subject: {namespaces: {}}, ingress: [{action: Accept, from: [{namespaces: {}}]}]}}",
	"persistentvolumes":                                            "{apiVersion: v1, kind: PersistentVolume, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: nobody, persistentVolumeReclaimPolicy: Retain, hostPath: {path: /tmp/nobody}}}",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":   "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: []}",
	"validatingwebhookconfigurations.admissionregistration.k8s.io": "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: []}",
}

// clusterScoped are the kinds without a namespace.
var clusterScoped = map[string]bool{
	"ClusterRole": true, "ClusterRoleBinding": true, "Tenant": true, "Namespace": true, "PersistentVolume": true,
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true,
}

// requester makes the requests of one account in a namespace.
type requester struct {
	admin, account client.Client
	namespace      string
	config         *rest.Config
	// reconciler is the account that Flux applies as.
	reconciler string
	// labels are the labels of all objects.
	labels map[string]string
}

// refusesEveryRequest makes the requests that the rules cover, for all kinds: it creates
// objects that break a rule, and changes ordinary objects so that they do.
func refusesEveryRequest(t *testing.T, restConfig *rest.Config, namespace string) {
	t.Helper()
	admin := newClient(t, restConfig, rest.ImpersonationConfig{})
	if err := admin.Create(t.Context(), parse(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: kinds, namespace: "+namespace+"}}")); err != nil {
		t.Fatal(err)
	}
	binding := parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: everything, namespace: "+namespace+", labels: {tenure.dev/managed-by: manager}}, "+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: breaker, namespace: "+namespace+"}]}")
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	r := requester{admin: admin, account: inNamespace(t, restConfig, namespace, "breaker"), namespace: namespace, config: restConfig, reconciler: "kinds"}
	testwait.For(t, "the account to have its rights", patience, func() (bool, string) {
		err := r.account.Create(t.Context(), r.object(t, "configmaps", "rights"), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	for rule, changes := range breaches {
		for kind, change := range changes {
			t.Run(rule+" "+kind, func(t *testing.T) { r.breaks(t, rule, kind, change) })
		}
	}
	for _, kind := range append(slices.Clone(fluxResources), "serviceaccounts", "secrets", "configmaps", "resourcequotas", "limitranges",
		"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io", "networkpolicies.networking.k8s.io") {
		t.Run("tenure-managed "+kind, func(t *testing.T) { r.meetsThePlatforms(t, kind) })
	}
	r.platformOnly(t)
	for kind, tc := range map[string]struct{ rule, change string }{
		"services": {"tenure-services", `{"status":{"loadBalancer":{"ingress":[{"ip":"198.51.100.7"}]}}}`},
		"pods":     {"tenure-endpoints", `{"status":{"podIP":"198.51.100.7","podIPs":[{"ip":"198.51.100.7"}]}}`},
	} {
		t.Run(tc.rule+" the status of "+kind, func(t *testing.T) {
			object := r.object(t, kind, nameOf(t))
			if kind == "services" {
				merge(object.Object, map[string]any{"spec": map[string]any{"type": "LoadBalancer"}})
			}
			refused(t, tc.rule, r.patchStatus(t, r.makes(t, r.account, object), tc.change))
		})
	}
	for _, kind := range append(slices.Clone(fluxResources), generatorKind) {
		if kind == alertKind || kind == providerKind {
			continue // their API has no status
		}
		t.Run("tenure-status "+kind, func(t *testing.T) {
			object := r.made(t, kind)
			refused(t, "tenure-status", r.patchStatus(t, object, `{"status":{"observedGeneration":1}}`))
		})
	}
}

// object returns an ordinary object of a kind.
func (r requester) object(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	manifest := extraordinary[kind]
	if manifest == "" {
		manifest = ordinaries[kind].manifest
	}
	if manifest == "" {
		t.Fatalf("%s has no manifest", kind)
	}
	u := parse(t, strings.NewReplacer("NAMESPACE", r.namespace, "NAME", name, "serviceAccountName: kinds", "serviceAccountName: "+r.reconciler).Replace(manifest))
	u.SetName(name)
	u.SetNamespace(r.namespace)
	u.SetLabels(r.labels)
	if clusterScoped[u.GetKind()] {
		u.SetNamespace("")
	}
	return u
}

// made creates an ordinary object, as the account.
func (r requester) made(t *testing.T, kind string) *unstructured.Unstructured {
	t.Helper()
	object := r.object(t, kind, nameOf(t))
	if kind == "jobs.batch" {
		merge(object.Object, map[string]any{"spec": map[string]any{"suspend": true}})
	}
	return r.makes(t, r.account, object)
}

func (r requester) makes(t *testing.T, by client.Client, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if err := by.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.admin.Delete(context.WithoutCancel(t.Context()), object) })
	return object
}

// nameOf returns a name for an object of a test.
func nameOf(t *testing.T) string {
	t.Helper()
	name := []byte(strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:]))
	for i, c := range name {
		if c < 'a' || c > 'z' {
			name[i] = '-'
		}
	}
	return strings.Trim(string(name[:min(len(name), 50)]), "-")
}

// breaks creates and changes an object against a rule.
func (r requester) breaks(t *testing.T, rule, kind, change string) {
	t.Helper()
	object := r.object(t, kind, "broken")
	merge(object.Object, parse(t, change).Object)
	refused(t, rule, r.account.Create(t.Context(), object, client.DryRunAll))
	update := admission.Request{Rule: rule, Resource: kind, Operation: "update"}
	if !slices.Contains(admission.Requests(), update) || admission.Unrefused(update) != "" {
		return
	}
	refused(t, rule, r.change(t, r.made(t, kind), change))
}

// meetsThePlatforms creates an object that pretends to be the platform's, and changes and
// deletes one of the platform's.
func (r requester) meetsThePlatforms(t *testing.T, kind string) {
	t.Helper()
	labels := map[string]string{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}
	object := r.object(t, kind, "pretended")
	object.SetLabels(labels)
	refused(t, "tenure-managed", r.account.Create(t.Context(), object, client.DryRunAll))
	object = r.object(t, kind, nameOf(t))
	object.SetLabels(labels)
	object = r.makes(t, r.admin, object)
	refused(t, "tenure-managed", r.patch(t, object, `{"metadata":{"annotations":{"a":"b"}}}`))
	refused(t, "tenure-managed", r.account.Delete(t.Context(), object.DeepCopy(), client.DryRunAll))
}

// change patches an object. Kubernetes lets Pods get further tolerations only, and templates of
// Jobs get them only while the Job is suspended.
func (r requester) change(t *testing.T, object *unstructured.Unstructured, change string) error {
	t.Helper()
	if object.GetKind() == "Pod" && strings.Contains(change, "tolerations") {
		added := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/tolerations/-","value":{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}}]`))
		return r.account.Patch(t.Context(), object.DeepCopy(), added, client.DryRunAll)
	}
	return r.patch(t, object, change)
}

// platformOnly writes what only the platform writes.
func (r requester) platformOnly(t *testing.T) {
	t.Helper()
	firefighter := newClient(t, r.config, rest.ImpersonationConfig{UserName: "jane", Groups: []string{"firefighters", "system:masters"}})
	for _, tc := range []struct {
		rule, kind, name string
		labels           map[string]string
	}{
		{"tenure-kubeconfigs", "secrets", "generated", nil},
		{"tenure-signature-keys", "secrets", "tenure-keys-git", nil},
		{"tenure-external-artifacts", artifactKind, "artifact", nil},
		{"tenure-credential-secrets", "secrets", "kept", map[string]string{credentials.Label: credentials.Home}},
		{"tenure-credential-secrets", "roles.rbac.authorization.k8s.io", "kept", map[string]string{credentials.Label: credentials.Home}},
		{"tenure-credential-secrets", "rolebindings.rbac.authorization.k8s.io", "kept", map[string]string{credentials.Label: credentials.Home}},
		{"tenure-resource-sets", "fluxinstances.fluxcd.controlplane.io", "flux", nil},
		{"tenure-resource-sets", "fluxreports.fluxcd.controlplane.io", "flux", nil},
	} {
		t.Run(tc.rule+" "+tc.kind, func(t *testing.T) {
			object := r.object(t, tc.kind, tc.name)
			object.SetLabels(tc.labels)
			refused(t, tc.rule, r.account.Create(t.Context(), object.DeepCopy(), client.DryRunAll))
			r.writes(t, tc.rule, tc.kind, r.makes(t, firefighter, object))
		})
	}
	parameters := r.object(t, "tenantparameters.tenure.dev", "tenure")
	r.writes(t, "tenure-parameters", "tenantparameters.tenure.dev", parameters)
}

// writes changes and deletes an object, where a rule covers that.
func (r requester) writes(t *testing.T, rule, kind string, object *unstructured.Unstructured) {
	t.Helper()
	for _, request := range admission.Requests() {
		switch request {
		case admission.Request{Rule: rule, Resource: kind, Operation: "update"}:
			refused(t, rule, r.patch(t, object, `{"metadata":{"annotations":{"a":"b"}},"spec":{"tenant":"other","protected":true,"distribution":{"version":"2.8.x"}}}`))
		case admission.Request{Rule: rule, Resource: kind, Operation: "delete"}:
			refused(t, rule, r.account.Delete(t.Context(), object.DeepCopy(), client.DryRunAll))
		}
	}
	if kind == artifactKind {
		refused(t, rule, r.patchStatus(t, object, `{"status":{"artifact":null}}`))
	}
}

func (r requester) patch(t *testing.T, object *unstructured.Unstructured, change string) error {
	t.Helper()
	return r.account.Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
}

func (r requester) patchStatus(t *testing.T, object *unstructured.Unstructured, change string) error {
	t.Helper()
	dry := client.DryRunAll
	return r.account.SubResource("status").Patch(t.Context(), object.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)), dry)
}

// refused fails unless a rule refused a request.
func refused(t *testing.T, rule string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "(rule "+rule+")") && !strings.Contains(err.Error(), "'"+rule+"'") && !strings.Contains(err.Error(), "'"+rule+"-own'") {
		t.Errorf("want a refusal by %s, got %v", rule, err)
	}
}

// merge merges a change into an object, as RFC 7396 says.
func merge(object, change map[string]any) {
	for key, value := range change {
		below, isMap := value.(map[string]any)
		was, wasMap := object[key].(map[string]any)
		switch {
		case value == nil:
			delete(object, key)
		case isMap && wasMap:
			merge(was, below)
		default:
			object[key] = value
		}
	}
}

// TestManagerRequests makes the requests that the manager's rule covers, as the manager, in a
// namespace and to objects that are not its own.
func TestManagerRequests(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	manager := newClient(t, restConfig, rest.ImpersonationConfig{UserName: admission.ManagerUser, Groups: []string{"system:masters"}})
	r := requester{admin: admin, account: manager, namespace: "tools", reconciler: "tools"}
	for _, request := range admission.Requests() {
		if request.Rule != "tenure-manager" || request.Operation != "create" || strings.Contains(request.Resource, "/") {
			continue
		}
		t.Run(request.Resource, func(t *testing.T) {
			name := "tenure-keys-manager"
			if request.Resource == "tenantparameters.tenure.dev" {
				name = "tenure"
			}
			object := r.object(t, request.Resource, name)
			refused(t, request.Rule, manager.Create(t.Context(), object.DeepCopy(), client.DryRunAll))
			r.writes(t, request.Rule, request.Resource, r.makes(t, admin, object))
		})
	}
	parameters := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: managed, labels: {tenure.dev/managed-by: manager}}, spec: {tenant: managed, breakGlass: [managed]}}")
	r.makes(t, admin, parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: managed, labels: {tenure.dev/tenant: managed}}}"))
	refused(t, "tenure-manager-parameters", manager.Create(t.Context(), parameters.DeepCopy(), client.DryRunAll))
	refused(t, "tenure-manager-parameters", r.patch(t, r.makes(t, admin, parameters), `{"spec":{"breakGlass":["other"]}}`))
}

// TestRolesOfTheManager checks that no user binds the roles with which the manager keeps
// credentials, and that none but the manager has the role of replicators.
func TestRolesOfTheManager(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	manager := newClient(t, restConfig, rest.ImpersonationConfig{UserName: admission.ManagerUser, Groups: []string{"system:masters"}})
	annotated := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`))
	for _, tc := range []struct {
		rule, kind, older string
		by                client.Client
	}{
		{"tenure-credentials", "RoleBinding", "older-credentials", admin},
		{"tenure-credentials", "ClusterRoleBinding", "older-credentials", admin},
		{"tenure-replicators", "RoleBinding", "older-replicator", manager},
		{"tenure-replicators", "ClusterRoleBinding", "older-replicator", admin},
	} {
		t.Run(tc.rule+" "+tc.kind, func(t *testing.T) {
			t.Parallel()
			binding := parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: "+tc.kind+", metadata: {name: "+tc.older+", namespace: apps}}")
			if tc.kind == "ClusterRoleBinding" {
				binding.SetNamespace("")
			}
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
				t.Fatal(err)
			}
			refused(t, tc.rule, tc.by.Patch(t.Context(), binding.DeepCopy(), annotated, client.DryRunAll))
			binding.SetName("new")
			binding.SetResourceVersion("")
			binding.SetUID("")
			refused(t, tc.rule, tc.by.Create(t.Context(), binding, client.DryRunAll))
		})
	}
}
