package admission_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server admits what a new policy forbids, until it has read the policy. After AwaitPolicies it
// does not.
func TestAwaitPolicies(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	for i := range 3 {
		name := fmt.Sprintf("late-%d", i)
		for _, manifest := range []string{
			"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: %[1]s}, spec: {matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}, validations: [{expression: \"object.metadata.name != '%[1]s'\"}]}}",
			"{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %[1]s}, spec: {policyName: %[1]s, validationActions: [Deny]}}",
		} {
			o := parse(t, fmt.Sprintf(manifest, name))
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := admin.Delete(context.WithoutCancel(t.Context()), o); err != nil {
					t.Error(err)
				}
			})
		}
		if err := catalog.AwaitPolicies(t.Context(), admin, "late"); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: default}}"), client.DryRunAll); err == nil {
			t.Errorf("policy %s is not in force", name)
		}
	}
	if err := catalog.RemovePolicy(t.Context(), admin, "late"); err != nil {
		t.Error(err)
	}
}
