package proxy

import (
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxNamespaceSize is the maximum size of the subjects and rules that the cache keeps of the RoleBindings and
// Roles of one namespace, without those of the platform. A tenant can create any number of them, and a single
// Role can have 400,000 strings, which take 13 MB. The size has room for 1,600 subjects.
const maxNamespaceSize = 2 << 20

// namespaceLimit limits the memory that the objects of each namespace take in the cache. It counts what the
// cache keeps of each object, by the UID.
type namespaceLimit struct {
	max  int // bytes for each namespace
	mu   sync.Mutex
	used map[string]int // bytes, by namespace
	kept map[namespacedUID]int
}

// namespacedUID identifies an object. An object that is created again under a name has another UID, so the
// deletion of the first one, which the informer reports later, does not release the memory of the second one.
type namespacedUID struct {
	types.NamespacedName
	uid types.UID
}

func uidOf(o metav1.Object) namespacedUID {
	return namespacedUID{types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}, o.GetUID()}
}

func newNamespaceLimit(size int) *namespaceLimit {
	return &namespaceLimit{max: size, used: map[string]int{}, kept: map[namespacedUID]int{}}
}

// reserve reserves memory for the entries of an object that have the given sizes, in their order, and returns
// how many of them fit. It replaces an earlier reservation for the object.
func (l *namespaceLimit) reserve(o metav1.Object, sizes []int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(uidOf(o))
	left, entries, total := l.max-l.used[o.GetNamespace()], 0, 0
	for _, size := range sizes {
		if total+size > left {
			break
		}
		entries, total = entries+1, total+size
	}
	if total > 0 {
		l.used[o.GetNamespace()] += total
		l.kept[uidOf(o)] = total
	}
	return entries
}

// release releases the memory of an object that the cache no longer has.
func (l *namespaceLimit) release(o metav1.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(uidOf(o))
}

func (l *namespaceLimit) drop(id namespacedUID) {
	size, ok := l.kept[id]
	if !ok {
		return
	}
	delete(l.kept, id)
	if l.used[id.Namespace] -= size; l.used[id.Namespace] == 0 {
		delete(l.used, id.Namespace)
	}
}

// sizesOfSubjects returns the memory that each subject of a RoleBinding takes in the cache and its indexes, in
// bytes. The indexes have a set of objects for each subject.
func sizesOfSubjects(b *rbacv1.RoleBinding) []int {
	sizes := make([]int, 0, len(b.Subjects))
	for _, s := range b.Subjects {
		sizes = append(sizes, 1024+4*(len(s.Name)+len(s.Namespace)+len(b.Namespace)))
	}
	return sizes
}

// sizesOfRules returns the memory that each rule of a Role takes in the cache, in bytes.
func sizesOfRules(r *rbacv1.Role) []int {
	sizes := make([]int, 0, len(r.Rules))
	for _, rule := range r.Rules {
		size := 128
		for _, list := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs} {
			for _, s := range list {
				size += 32 + len(s)
			}
		}
		sizes = append(sizes, size)
	}
	return sizes
}
