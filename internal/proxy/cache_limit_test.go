package proxy

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// manySubjects returns a RoleBinding with 1,000 subjects. Two of them need more memory than a namespace has.
func manySubjects(namespace, name string) *rbacv1.RoleBinding {
	b := readers(namespace, nil)
	b.Name, b.UID = name, types.UID(namespace+name)
	for i := range maxEntries {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, Name: fmt.Sprintf("%s-%d-%s", name, i, strings.Repeat("x", 60))})
	}
	return b
}

// manyNames returns a Role with one rule, which has the given number of resourceNames.
func manyNames(name string, number int) *rbacv1.Role {
	r := &rbacv1.Role{ObjectMeta: objectMeta("a-1", name), Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	r.UID = types.UID(name)
	for i := range number {
		r.Rules[0].ResourceNames = append(r.Rules[0].ResourceNames, fmt.Sprint(i))
	}
	return r
}

// TestNamespaceLimit checks which subjects and rules the cache keeps of a namespace in which a tenant creates
// many of them.
func TestNamespaceLimit(t *testing.T) {
	t.Parallel()
	v := countedView(t)
	subjects := func(b *rbacv1.RoleBinding) int {
		t.Helper()
		kept, err := v.transform(b)
		if err != nil {
			t.Fatal(err)
		}
		return len(kept.(*rbacv1.RoleBinding).Subjects)
	}
	rules := func(r *rbacv1.Role) int {
		t.Helper()
		kept, err := v.transform(r)
		if err != nil {
			t.Fatal(err)
		}
		return len(kept.(*rbacv1.Role).Rules)
	}
	first, second, third := manySubjects("a-1", "1"), manySubjects("a-1", "2"), manySubjects("a-1", "3")
	if got := subjects(first); got != maxEntries {
		t.Errorf("the first RoleBinding of a namespace keeps %d subjects", got)
	}
	if got := subjects(first.DeepCopy()); got != maxEntries {
		t.Errorf("the first RoleBinding keeps %d subjects after an update", got)
	}
	if got := subjects(second); got == 0 || got > maxEntries/2+maxEntries/4 {
		t.Errorf("the second RoleBinding keeps %d subjects, so the namespace has no limit", got)
	}
	if got := subjects(third); got != 0 {
		t.Errorf("a RoleBinding beyond the limit keeps %d subjects", got)
	}
	if got := rules(manyNames("small", 100)); got != 0 {
		t.Errorf("a Role beyond the limit keeps %d rules", got)
	}
	if got := subjects(manySubjects("b-1", "1")); got != maxEntries {
		t.Errorf("in another namespace, a RoleBinding keeps %d subjects", got)
	}
	for reason, labels := range map[string]map[string]string{
		"the manager": {"tenure.dev/managed-by": "manager"}, "a sync of the platform": {"kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
	} {
		b := manySubjects("a-1", "platform")
		b.Labels = labels
		if got := subjects(b); got != maxEntries {
			t.Errorf("of a RoleBinding of %s, the cache keeps %d subjects", reason, got)
		}
	}
	// The informer reports the deletion after it has the object that is created under the name.
	again := first.DeepCopy()
	again.UID = "again"
	v.release(second, nil)
	if got := subjects(again); got == 0 || got == maxEntries {
		t.Errorf("a RoleBinding that replaces another one keeps %d subjects before the cache drops the other one", got)
	}
	v.release(first, again)
	if got := subjects(again); got != maxEntries {
		t.Errorf("it keeps %d subjects after that", got)
	}
	v.release(again, again.DeepCopy()) // an update
	if got := subjects(third); got == maxEntries {
		t.Error("an update releases the memory of the object")
	}
	for _, b := range []*rbacv1.RoleBinding{again, third} {
		v.release(cache.DeletedFinalStateUnknown{Obj: b}, nil)
	}
	if got := rules(manyNames("large", 100_000)); got != 0 {
		t.Errorf("a Role with 100,000 names keeps %d rules", got)
	}
	small := manyNames("small", 1000)
	if got := rules(small); got != 1 {
		t.Errorf("a Role with 1,000 names keeps %d rules", got)
	}
	v.release(small, nil)
	v.release(manySubjects("b-1", "1"), nil)
	if diff := cmp.Diff([2]int{}, [2]int{len(v.limit.used), len(v.limit.kept)}); diff != "" {
		t.Errorf("the limit remembers deleted objects (-want +got):\n%s", diff)
	}
}

// TestNamespaceMemory measures the memory that the RoleBindings and Roles of one namespace take.
func TestNamespaceMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	v := countedView(t)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 100 {
		name := fmt.Sprint(i)
		for informer, o := range map[cache.SharedIndexInformer]client.Object{v.bound: manySubjects("a-1", name), v.roles: manyNames(name, 10_000)} {
			kept, err := v.transform(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := informer.GetIndexer().Add(kept); err != nil {
				t.Fatal(err)
			}
		}
	}
	after := heap()
	if grown := int64(after) - int64(before); grown > 2*maxNamespaceSize {
		t.Errorf("100 RoleBindings and 100 Roles of one namespace take %d KB", grown>>10)
	}
	if !slices.Contains(v.bound.GetIndexer().ListKeys(), "a-1/99") {
		t.Error("the cache has not all RoleBindings")
	}
}
