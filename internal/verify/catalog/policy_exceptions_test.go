package catalog

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// TestExceptsItself checks that I17 tries to make and to change the exceptions that count for Kyverno, and no others.
func TestExceptsItself(t *testing.T) {
	t.Parallel()
	var policies []client.Object
	for _, text := range []string{
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: accounts}, spec: {validationFailureAction: Enforce}}`,
		`{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: audits}, spec: {validationFailureAction: Audit}}`,
		`{apiVersion: policies.kyverno.io/v1, kind: ValidatingPolicy, metadata: {name: expressed}, spec: {validationActions: [Deny]}}`,
		`{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: old, namespace: team}, spec: {}}`,
		`{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: other, namespace: other}, spec: {}}`,
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		policies = append(policies, u)
	}
	const classic, expressed, changed = "make an exception from Kyverno policy accounts in namespace ", "make an exception from Kyverno policy expressed in namespace ", "change PolicyException team/old of Kyverno"
	for _, tc := range []struct {
		reason   string
		image    string
		args     []string
		policies []client.Object
		want     []string
	}{
		{"exceptions of all namespaces count", "ghcr.io/kyverno/kyverno:v1.19.1", []string{"--enablePolicyException=true", "--exceptionNamespace=*"}, policies, []string{classic + "team", changed, expressed + "team"}},
		{"exceptions of a namespace of the platform count", "ghcr.io/kyverno/kyverno:v1.19.1", []string{"--enablePolicyException", "--exceptionNamespace=kyverno"}, policies, []string{classic + "kyverno", expressed + "kyverno"}},
		{"without a namespace, exceptions from policies with expressions count everywhere", "kyverno", []string{"--enablePolicyException=true", "--exceptionNamespace="}, policies, []string{expressed + "team"}},
		{"a value of its own", "kyverno", []string{"--enablePolicyException=1", "--exceptionNamespace", "*"}, policies[:1], []string{classic + "team"}},
		{"no exceptions count", "kyverno", []string{"--enablePolicyException=false", "--exceptionNamespace=*"}, policies, nil},
		{"the default", "kyverno", nil, policies, nil},
		{"another controller", "ghcr.io/kyverno/background-controller:v1.19.1", []string{"--enablePolicyException=true", "--exceptionNamespace=*"}, policies, nil},
		{"only policies that report", "kyverno", []string{"--enablePolicyException=true", "--exceptionNamespace=*"}, policies[1:2], nil},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kyverno", Name: "kyverno-admission-controller"}}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "kyverno", Image: tc.image, Args: tc.args}}
		e := newFakeEnv(interceptor.Funcs{}, append(slices.Clone(tc.policies), d)...)
		all, err := e.exceptsItself(t.Context())
		var got []string
		for _, r := range all {
			got = append(got, r.what)
		}
		if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tc.reason, err, diff)
		}
	}
}
