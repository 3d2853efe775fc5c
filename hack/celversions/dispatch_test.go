package main

import (
	"context"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// Namespaces of the benchmark: a tenant's, a tenant's whose workloads have limits, and another.
const governed, limited, unlabeled = "governed", "limited", "unlabeled"

// newest is the newest minor version of Kubernetes that Tenure supports.
const newest = 36

const manager = "system:serviceaccount:flux-system:tenure-manager"

var tenure = schema.GroupVersion{Group: "tenure.dev", Version: "v1alpha1"}

// managersRights allows the manager everything but to change the profile.
type managersRights struct{}

// Authorize implements [authorizer.Authorizer].
func (managersRights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == manager && a.GetResource() != "tenancyprofiles" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// BenchmarkDispatch measures the API server's own policy dispatcher, with all policies, for
// the creation of an object that the rules allow. The number of allocations does not depend
// on the load of the machine.
func BenchmarkDispatch(b *testing.B) {
	plugin := dispatcher(b)
	interfaces := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	for _, tc := range []struct {
		name, user, namespace string
		resource              schema.GroupVersionResource
		kind                  string
		object                runtime.Object
	}{
		{"pod", "dora", governed, corev1.SchemeGroupVersion.WithResource("pods"), "Pod", ordinaryPod()},
		{"pod-with-limits", "dora", limited, corev1.SchemeGroupVersion.WithResource("pods"), "Pod", limitedPod()},
		{"pod-of-nobody", "dora", unlabeled, corev1.SchemeGroupVersion.WithResource("pods"), "Pod", ordinaryPod()},
		{"configmap", "dora", governed, corev1.SchemeGroupVersion.WithResource("configmaps"), "ConfigMap", &corev1.ConfigMap{Data: map[string]string{"a": "b"}}},
		{"kustomization", "dora", governed, schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}, "Kustomization", ordinaryKustomization()},
		{"rolebinding-by-manager", manager, governed, rbacv1.SchemeGroupVersion.WithResource("rolebindings"), "RoleBinding", ordinaryBinding()},
	} {
		b.Run(tc.name, func(b *testing.B) {
			request := func(object runtime.Object) error {
				attributes := admission.NewAttributesRecord(object, nil, tc.resource.GroupVersion().WithKind(tc.kind), tc.namespace, "app",
					tc.resource, "", admission.Create, &metav1.CreateOptions{}, true, &user.DefaultInfo{Name: tc.user, Groups: []string{user.AllAuthenticated}})
				return plugin.Validate(b.Context(), attributes, interfaces)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := request(tc.object); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompile measures the compilation of all policies of config/admission, which an API server
// repeats for each write of a policy and for each dry run of Flux.
func BenchmarkCompile(b *testing.B) {
	var policies []admissionregistrationv1.ValidatingAdmissionPolicy
	for _, object := range readPolicies(b) {
		if policy, ok := object.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
			policies = append(policies, *policy)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, policy := range policies {
			if refused, err := refusedOfPolicy(newest, policy); err != nil || len(refused) > 0 {
				b.Fatal(refused, err)
			}
		}
	}
}

// dispatcher returns the API server's plugin with the policies of config/admission, a profile,
// a tenant's namespace with parameters, and a namespace without a tenant.
func dispatcher(b *testing.B) *validating.Plugin {
	b.Helper()
	ofTenant := map[string]string{"tenure.dev/tenant": "dev", "tenure.dev/parameters": "true"}
	objects := append(readPolicies(b),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: governed, Labels: ofTenant}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: limited, Labels: ofTenant}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: unlabeled}})
	mapper := meta.NewDefaultRESTMapper(nil)
	lists := map[schema.GroupVersionResource]string{}
	for kind, scope := range map[string]meta.RESTScope{"TenancyProfile": meta.RESTScopeRoot, "TenantParameters": meta.RESTScopeNamespace} {
		mapper.Add(tenure.WithKind(kind), scope)
		plural, _ := meta.UnsafeGuessKindToResource(tenure.WithKind(kind))
		lists[plural] = kind + "List"
	}
	params := map[string]any{
		"tenants": map[string]any{
			"sources": map[string]any{"git": []any{"https://git.example.com/acme/*"}},
			"bounds":  map[string]any{"minInterval": "1m", "maxTimeout": "15m", "maxObjects": int64(100)},
		},
		"tenant": "dev", "platformNamespaces": []any{"flux-system"},
	}
	withLimits := runtime.DeepCopyJSON(params)
	withLimits["tenants"].(map[string]any)["workloads"] = map[string]any{
		"images":          map[string]any{"registries": []any{"registry.example.com/dev/*", "registry.example.com/shared/**"}, "pullPolicies": []any{"Always"}},
		"priorityClasses": map[string]any{"allowed": []any{"standard"}},
		"runtimeClasses":  map[string]any{"allowed": []any{"sandbox"}},
		"nodes":           map[string]any{"selector": map[string]any{"pool": "dev"}},
		"tolerations":     []any{"dedicated"},
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": tenure.String(), "kind": "TenancyProfile", "metadata": map[string]any{"name": "default"}, "spec": params}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": tenure.String(), "kind": "TenantParameters", "metadata": map[string]any{"name": "tenure", "namespace": governed}, "spec": params}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": tenure.String(), "kind": "TenantParameters", "metadata": map[string]any{"name": "tenure", "namespace": limited}, "spec": withLimits}})
	kube := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(kube, 0)
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		b.Fatal(err)
	}
	initializer.New(kube, dynamic, factory, managersRights{}, feature.DefaultFeatureGate, compatibility.DefaultBuildEffectiveVersion(), b.Context().Done(), mapper).Initialize(plugin)
	if err := plugin.ValidateInitialization(); err != nil {
		b.Fatal(err)
	}
	factory.Start(b.Context().Done())
	factory.WaitForCacheSync(b.Context().Done())
	for range 6 { // each wait takes ten seconds at most
		if plugin.WaitForReady() {
			return plugin
		}
	}
	b.Fatal("the policies are not compiled")
	return nil
}

// ordinaryPod returns a Pod that breaks no rule.
func ordinaryPod() *corev1.Pod {
	some := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{
			Name: "app", Image: "registry.example.com/app:1", Resources: corev1.ResourceRequirements{Requests: some, Limits: some},
		}}},
	}
}

// limitedPod returns a Pod that keeps all limits.
func limitedPod() *corev1.Pod {
	pod := ordinaryPod()
	pod.Spec.NodeSelector = map[string]string{"pool": "dev"}
	pod.Spec.PriorityClassName = "standard"
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	app := pod.Spec.Containers[0]
	app.Image, app.ImagePullPolicy = "registry.example.com/dev/app:1", corev1.PullAlways
	sidecar := app
	sidecar.Name, sidecar.Image = "sidecar", "registry.example.com/shared/tools/sidecar:1"
	pod.Spec.Containers = []corev1.Container{app, sidecar}
	return pod
}

// ordinaryBinding returns a RoleBinding that the manager creates.
func ordinaryBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: governed, Labels: map[string]string{"tenure.dev/managed-by": "manager"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "dora"}},
	}
}

// ordinaryKustomization returns a Kustomization that breaks no rule.
func ordinaryKustomization() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": map[string]any{"name": "app", "namespace": governed},
		"spec": map[string]any{
			"interval": "10m", "timeout": "2m", "path": "./", "prune": true, "wait": true, "serviceAccountName": "dev",
			"sourceRef": map[string]any{"kind": "GitRepository", "name": "app"},
		},
	}}
}

// readPolicies returns the policies and bindings, with the defaults of the API server.
func readPolicies(b *testing.B) (objects []runtime.Object) {
	b.Helper()
	content, err := os.ReadFile("../../config/admission/policies.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		policy, binding := &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		if err := yaml.Unmarshal([]byte(document), policy); err != nil {
			b.Fatal(err)
		}
		switch policy.Kind {
		case "ValidatingAdmissionPolicy":
			withDefaults(policy.Spec.MatchConstraints)
			objects = append(objects, policy)
		case "ValidatingAdmissionPolicyBinding":
			if err := yaml.Unmarshal([]byte(document), binding); err != nil {
				b.Fatal(err)
			}
			withDefaults(binding.Spec.MatchResources)
			objects = append(objects, binding)
		}
	}
	return objects
}

// withDefaults sets the defaults of match constraints.
func withDefaults(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	m.MatchPolicy = new(admissionregistrationv1.Equivalent)
}
