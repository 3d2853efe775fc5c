package quota

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// TestDemand says what requests take of a quota that counts a bit of everything.
func TestDemand(t *testing.T) {
	t.Parallel()
	hard := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		"pods", "count/pods", "requests.cpu", "cpu", "limits.memory", "requests.example.com/gpu", "requests.storage", "persistentvolumeclaims",
		"fast.storageclass.storage.k8s.io/requests.storage", "services", "services.nodeports", "services.loadbalancers", "configmaps", "count/deployments.apps",
	} {
		hard[name] = resource.MustParse("100")
	}
	const pod = `{spec: {%s initContainers: [{name: i, resources: {requests: {cpu: "3"}}}], containers: [
		{name: a, resources: {requests: {cpu: "1", example.com/gpu: "2"}, limits: {memory: 1Gi}}}, {name: b, resources: {requests: {cpu: 500m}}}]}}`
	all := map[string]string{"pods": "1", "count/pods": "1", "requests.cpu": "3", "cpu": "3", "limits.memory": "1Gi", "requests.example.com/gpu": "2"}
	for _, tc := range []struct {
		reason             string
		group, resource    string
		object, old, scope string
		want               map[string]string
	}{
		{"a Pod takes what its containers do, or one of those that come before", "", "pods", fmt.Sprintf(pod, ""), "", "", all},
		{"a Pod with a deadline", "", "pods", fmt.Sprintf(pod, "activeDeadlineSeconds: 5,"), "", "Terminating", all},
		{"a Pod without one is not in the scope", "", "pods", fmt.Sprintf(pod, ""), "", "Terminating", map[string]string{}},
		{"a Pod with requests is not best effort", "", "pods", fmt.Sprintf(pod, ""), "", "BestEffort", map[string]string{}},
		{"a claim", "", "persistentvolumeclaims", `{spec: {storageClassName: fast, resources: {requests: {storage: 5Gi}}}}`, "", "",
			map[string]string{"requests.storage": "5Gi", "persistentvolumeclaims": "1", "fast.storageclass.storage.k8s.io/requests.storage": "5Gi"}},
		{"a claim that grows", "", "persistentvolumeclaims", `{spec: {resources: {requests: {storage: 5Gi}}}}`, `{spec: {resources: {requests: {storage: 2Gi}}}}`, "",
			map[string]string{"requests.storage": "3Gi"}},
		{"a Service with a load balancer", "", "services", `{spec: {type: LoadBalancer, ports: [{port: 1}, {port: 2}]}}`, "", "",
			map[string]string{"services": "1", "services.loadbalancers": "1", "services.nodeports": "2"}},
		{"a Service that gets ports of nodes", "", "services", `{spec: {type: NodePort, ports: [{port: 1}]}}`, `{spec: {ports: [{port: 1}]}}`, "", map[string]string{"services.nodeports": "1"}},
		{"a ConfigMap", "", "configmaps", `{}`, "", "", map[string]string{"configmaps": "1"}},
		{"a change of one takes nothing", "", "configmaps", `{}`, `{}`, "", map[string]string{}},
		{"an object that is counted by its kind", "apps", "deployments", `{}`, "", "", map[string]string{"count/deployments.apps": "1"}},
		{"one that is not", "apps", "daemonsets", `{}`, "", "", map[string]string{}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			request := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Group: tc.group, Resource: tc.resource}, Object: raw(t, tc.object)}
			if tc.old != "" {
				request.Operation, request.OldObject = admissionv1.Update, raw(t, tc.old)
			}
			demand, err := Of(request)
			if err != nil {
				t.Fatal(err)
			}
			spec := &corev1.ResourceQuotaSpec{Hard: hard}
			if tc.scope != "" {
				spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(tc.scope)}
			}
			counted, sure := demand.In(spec)
			got := map[string]string{}
			for name, quantity := range counted {
				got[string(name)] = quantity.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || !sure {
				t.Errorf("sure is %v; -want, +got:\n%s", sure, diff)
			}
		})
	}
}

func raw(t *testing.T, manifest string) runtime.RawExtension {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil || !json.Valid(content) {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: content}
}
