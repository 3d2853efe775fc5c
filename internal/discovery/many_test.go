package discovery

import (
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestManySubjects binds more users than anybody can compare with each other: a tenant can do so, and `tenure check` must
// not take forever.
func TestManySubjects(t *testing.T) {
	t.Parallel()
	objects := []client.Object{namespace("apps", map[string]string{Label: "apps"}), account("apps", "x", map[string]string{Label: "apps"})}
	const bindings, subjects = 100, 1000
	for i := range bindings {
		b := binding("apps", "view", "x").(*rbacv1.RoleBinding)
		b.Name, b.Subjects = fmt.Sprintf("b%d", i), nil
		for j := range subjects {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: fmt.Sprintf("u%d-%d", i, j)})
		}
		objects = append(objects, b)
	}
	began := time.Now()
	tenants := discover(t, objects...)
	if len(tenants) != 1 || len(tenants[0].Holders) < maxByHand || len(tenants[0].Holders) > 2*maxByHand {
		t.Fatalf("found %d tenants, want one with some %d holders", len(tenants), maxByHand)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("%d users took %s", bindings*subjects, took)
	}
}
