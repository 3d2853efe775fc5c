package manager

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// valuePool shares equal values between the objects of the cache: the manager creates the same
// quotas, limits, parameters and labels in thousands of namespaces, and each object comes from the
// API server with its own copy. Cached objects are never changed in place, so they may share
// values.
//
// A pool keeps the latest values, at most twice its size; a dropped value is no longer shared. It
// is safe for concurrent use.
type valuePool struct {
	size int

	mu           sync.Mutex
	newer, older map[digest]any
}

// digest is the key of a value in the pool: a whole value as key would take as much memory as
// sharing saves.
type digest [sha256.Size]byte

// poolSize is the number of values in the pool: enough for the labels and parameters of some
// thousand tenants. When the manager starts, it reads one kind after the other.
const poolSize = 8192

// maxSharedLabels is the maximum size of the labels that the pool keeps, in bytes. The pool keeps them when their object is
// deleted, and a tenant can create objects with many different labels.
const maxSharedLabels = 1 << 10

// common is the pool of the manager's cache.
var common = &valuePool{size: poolSize}

// same returns the pool's value with this key, or adds the given value and returns it. Two
// values of the same type are equal if their keys are equal.
func same[T any](p *valuePool, text string, value T) T {
	key := digest(sha256.Sum256([]byte(text)))
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.newer[key]
	if !ok {
		if known, ok = p.older[key]; !ok {
			known = value
		}
		if p.newer == nil || len(p.newer) >= p.size {
			p.older, p.newer = p.newer, map[digest]any{}
		}
		p.newer[key] = known
	}
	if shared, ok := known.(T); ok {
		return shared
	}
	return value
}

// share replaces the metadata and the spec of an object by equal values of the pool.
func (p *valuePool) share(object any) {
	if o, ok := object.(metav1.Object); ok {
		p.metadata(o)
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		for i := range o.ManagedFields {
			p.fields(&o.ManagedFields[i])
		}
	case *corev1.ResourceQuota:
		o.Spec = equal(p, "quota", o.Spec)
	case *corev1.LimitRange:
		o.Spec = equal(p, "limits", o.Spec)
	case *networkingv1.NetworkPolicy:
		o.Spec = equal(p, "policy", o.Spec)
	case *v1alpha1.TenantParameters:
		o.Spec = equal(p, "parameters", o.Spec)
	case *rbacv1.RoleBinding:
		o.RoleRef = equal(p, "role", o.RoleRef)
		for i := range o.Subjects {
			s := &o.Subjects[i]
			s.Kind, s.APIGroup, s.Name, s.Namespace = intern(s.Kind), intern(s.APIGroup), intern(s.Name), intern(s.Namespace)
		}
	}
}

// metadata shares names and labels, which are equal for many objects of a tenant. [compact] does
// the same for unstructured objects.
func (p *valuePool) metadata(o metav1.Object) {
	accessor, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return
	}
	m, ok := accessor.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return
	}
	m.Name, m.Namespace = intern(m.Name), intern(m.Namespace)
	if len(m.Labels) == 0 {
		return
	}
	var key strings.Builder
	key.WriteString("labels")
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		// Neither names nor values of labels contain these separators.
		key.WriteString("\x00" + name + "\x01" + m.Labels[name])
	}
	if key.Len() > maxSharedLabels {
		return
	}
	m.Labels = same(p, key.String(), m.Labels)
}

// fields shares the values of a managed fields entry.
func (p *valuePool) fields(e *metav1.ManagedFieldsEntry) {
	if e.FieldsV1 != nil {
		e.FieldsV1 = same(p, "fields\x00"+e.FieldsV1.GetRawString(), e.FieldsV1)
	}
	e.Manager, e.APIVersion, e.FieldsType = intern(e.Manager), intern(e.APIVersion), intern(e.FieldsType)
}

// equal returns the pool's value with the same JSON encoding, or the given value.
func equal[T any](p *valuePool, kind string, value T) T {
	key, err := json.Marshal(value)
	if err != nil {
		return value
	}
	return same(p, kind+"\x00"+string(key), value)
}

// intern returns the canonical copy of a text.
func intern(text string) string { return unique.Make(text).Value() }

// compact returns the content of an unstructured object with canonical copies of its field
// names and short texts. The JSON decoder allocates new ones for each object.
func compact(value any) any {
	switch v := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name, field := range v {
			fields[intern(name)] = compact(field)
		}
		return fields
	case []any:
		for i := range v {
			v[i] = compact(v[i])
		}
	case string:
		if len(v) <= maxShared {
			return intern(v)
		}
	}
	return value
}

// maxShared is the maximum length of texts to share, in bytes. Names, kinds, reasons and
// durations are shorter and occur often; messages are longer and rarely occur twice.
const maxShared = 64
