package proxy

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/cache"
)

const (
	// lag is the maximum delay between a change of a right at the API server and its
	// arrival in the cache.
	lag = time.Second
	// maxMarks is the maximum number of subjects in the history, and maxNamed the maximum
	// number of subjects that one tenant's objects name.
	maxMarks, maxNamed = 100_000, 1000
)

// history stores, for each subject, the resource version of the last change of its rights. A
// client that continues a watch from the resource version of a list has the objects that it
// was allowed to see then. If a right was added in between, the API server sends no event
// for the objects, because the objects have not changed. The client has to list again.
type history struct {
	mu sync.Mutex
	// start is the resource version before which changes are unknown.
	start uint64
	// rights holds the changes of rights by subject, spaces the changes of the namespaces
	// that a subject may see. spaces matters only for lists of namespaces.
	rights, spaces map[string]historyMark
	// named holds the changes of both kinds that tenants caused by naming a user. If a
	// tenant names too many users, only changes of that tenant are dropped.
	named map[namedKey]namedMark
	count map[string]int // of named, by tenant
}

// historyMark is the resource version of the newest change, and the time at which the last
// change arrived. The last change to arrive may be older than the newest one, because each
// informer receives changes separately.
type historyMark struct {
	version uint64
	heard   time.Time
}

// with returns the mark after one more change.
func (m historyMark) with(later historyMark) historyMark {
	return historyMark{max(m.version, later.version), later.heard}
}

// namedKey is a user that a tenant's object names. space marks a change of a namespace.
type namedKey struct {
	user  string
	space bool
}

// namedMark is a change that concerns a user because a tenant's object names the user.
type namedMark struct {
	historyMark
	tenant string
}

func newHistory() *history {
	return &history{rights: map[string]historyMark{}, spaces: map[string]historyMark{}, named: map[namedKey]namedMark{}, count: map[string]int{}}
}

// begin marks all changes before a resource version as unknown.
func (h *history) begin(version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.start = max(h.start, version)
}

// note stores a change of rights, or of a namespace if space is true, for the subjects.
func (h *history) note(version uint64, keys []string, space bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := historyMark{version, time.Now()}
	marks := h.rights
	if space {
		marks = h.spaces
	}
	for _, key := range keys {
		marks[key] = marks[key].with(now)
	}
	if len(marks) > maxMarks {
		for _, m := range marks {
			h.start = max(h.start, m.version)
		}
		clear(marks)
	}
}

// noteNamed stores a change for users that a tenant's object names. A tenant can name any
// number of users, so that these changes are limited for each tenant.
func (h *history) noteNamed(version uint64, tenant string, keys []string, space bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := historyMark{version, time.Now()}
	for _, key := range keys[:min(len(keys), maxNamed)] {
		old, ok := h.named[namedKey{key, space}]
		if ok {
			h.leave(old.tenant)
		}
		h.named[namedKey{key, space}] = namedMark{old.with(heard), tenant}
		h.count[tenant]++
	}
	if h.count[tenant] > maxNamed {
		maps.DeleteFunc(h.named, func(_ namedKey, m namedMark) bool { return m.tenant == tenant })
		delete(h.count, tenant)
	}
	if len(h.named) > maxMarks {
		clear(h.named)
		clear(h.count)
	}
}

// leave subtracts one user from the count of the users that a tenant's objects name.
func (h *history) leave(tenant string) {
	if h.count[tenant]--; h.count[tenant] <= 0 {
		delete(h.count, tenant)
	}
}

// since reports whether a watch that began at a time, from a resource version, may have missed a
// change that concerns a user or the members of one of the user's tenants. A comparison that runs
// while the watch is open finds the later changes.
func (h *history) since(who user.Info, mine []string, version uint64, began time.Time, byName bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	missed := func(m historyMark) bool {
		if m.heard.IsZero() {
			return false
		}
		return began.Sub(m.heard).Abs() < lag || m.heard.Before(began) && m.version > version
	}
	if h.start > version {
		return true
	}
	keys := keysOf(who)
	for _, tenant := range mine {
		keys = append(keys, memberKey(tenant))
	}
	for _, key := range keys {
		if missed(h.rights[key]) || (byName && missed(h.spaces[key])) {
			return true
		}
	}
	self := userKey(who.GetName())
	return missed(h.named[namedKey{self, false}].historyMark) || byName && missed(h.named[namedKey{self, true}].historyMark)
}

// continued returns the resource version from which a watch continues, and false for a watch
// that begins with the existing objects.
func continued(version string, initial bool) (uint64, bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil && n > 0 && !initial
}

// recordChange stores a change of a cached object in the history, and announces the change.
func (v *authorizationCache) recordChange(old, now any) {
	defer v.change.fire()
	var version uint64
	c := affectedSubjects{named: map[string][]string{}}
	space := false
	for _, o := range []any{old, now} {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			// The resource version of the deletion is unknown.
			o, version = gone.Obj, max(version, v.version())
		}
		if meta, ok := o.(metav1.Object); ok {
			n, _ := strconv.ParseUint(meta.GetResourceVersion(), 10, 64)
			version = max(version, n)
		}
		switch o := o.(type) {
		case *v1alpha1.Tenant:
			c.add(append(v.tenantSubjects(o), v.settingsSubjects()...)...)
		case *v1beta1.GlobalProxySettings, *v1beta1.ProxySetting:
			c.add(append(subjectsOf(o), v.settingsSubjects()...)...)
		case *v1alpha1.TenancyProfile:
			// The profile decides which bindings are the platform's. This concerns all
			// users.
			v.history.begin(version)
		case *rbacv1.ClusterRoleBinding:
			c.add(subjectKeys(o.Subjects, "")...)
		case *rbacv1.RoleBinding:
			v.addSubjectsOfBinding(&c, o)
		case *rbacv1.Role:
			v.addSubjectsOfRole(&c, "Role "+o.Namespace+"/"+o.Name)
		case *rbacv1.ClusterRole:
			v.addSubjectsOfRole(&c, "ClusterRole "+o.Name)
		case *corev1.Namespace:
			v.addSubjectsOfNamespace(&c, o)
			space = true
		}
	}
	if ns, ok := now.(*corev1.Namespace); ok && old != nil {
		// The service accounts of the namespace may belong to another tenant now.
		v.history.note(version, []string{groupKey(serviceaccount.MakeNamespaceGroupName(ns.Name))}, false)
	}
	if len(c.keys) > 0 {
		v.history.note(version, c.keys, space)
	}
	for tenant, keys := range c.named {
		v.history.noteNamed(version, tenant, keys, space)
	}
}

// affectedSubjects holds the subjects that a change concerns, and the users that tenants' objects
// name, by tenant.
type affectedSubjects struct {
	keys  []string
	named map[string][]string
}

func (c *affectedSubjects) add(keys ...string) { c.keys = append(c.keys, keys...) }

// addSubjectsOfBinding adds the subjects for which a binding counts: see [effectiveBindings].
func (v *authorizationCache) addSubjectsOfBinding(c *affectedSubjects, b *rbacv1.RoleBinding) {
	keys := subjectKeys(b.Subjects, b.Namespace)
	tenant, byTenant := v.writer(b)
	if !byTenant {
		c.add(keys...)
		return
	}
	groups := false
	for _, key := range keys {
		if isUserKey(key) {
			c.named[tenant] = append(c.named[tenant], key)
		} else {
			groups = true
		}
	}
	if groups && tenant != "" {
		c.add(memberKey(tenant))
	}
}

// addSubjectsOfRole adds the subjects of all bindings of a role.
func (v *authorizationCache) addSubjectsOfRole(c *affectedSubjects, role string) {
	for _, b := range indexed[*rbacv1.RoleBinding](v.bound, byRole, role) {
		v.addSubjectsOfBinding(c, b)
	}
	for _, b := range indexed[*rbacv1.ClusterRoleBinding](v.clusterBound, byRole, role) {
		c.add(subjectKeys(b.Subjects, "")...)
	}
}

// addSubjectsOfNamespace adds the subjects that may see a namespace: the subjects of its bindings and the
// owners of its tenant.
func (v *authorizationCache) addSubjectsOfNamespace(c *affectedSubjects, ns *corev1.Namespace) {
	for _, b := range indexed[*rbacv1.RoleBinding](v.bound, inNamespace, ns.Name) {
		v.addSubjectsOfBinding(c, b)
	}
	if t, ok := get[*v1alpha1.Tenant](v.tenants, ns.Labels[v1alpha1.LabelTenant]); ok {
		c.add(append(v.tenantSubjects(t), v.settingsSubjects()...)...)
		c.add(userKey(serviceaccount.MakeUsername(ns.Name, t.Name)))
	}
}

// tenantSubjects returns the subjects to which a Tenant gives something to see.
func (v *authorizationCache) tenantSubjects(t *v1alpha1.Tenant) []string {
	keys, _ := indexOwners(t)
	if len(t.Spec.ClusterResources) == 0 {
		return keys
	}
	for _, ns := range indexed[*corev1.Namespace](v.namespaces, byTenant, t.Name) {
		keys = append(keys, userKey(serviceaccount.MakeUsername(ns.Name, t.Name)))
	}
	return append(keys, subjectsOf(t)...)
}

// subjectsOf returns the subjects with which an object shares resources.
func subjectsOf(o any) []string {
	var keys []string
	for _, r := range resourcesOf(o) {
		keys = append(keys, sharers(r.Subjects)...)
	}
	return keys
}

// settingsSubjects returns the subjects with which tenants share objects. Their visible objects
// depend on several objects.
func (v *authorizationCache) settingsSubjects() []string {
	if v.settings == nil {
		return nil
	}
	var keys []string
	for _, o := range v.settings.GetIndexer().List() {
		keys = append(keys, subjectsOf(o)...)
	}
	return keys
}

// version returns the newest resource version that an informer has received.
func (v *authorizationCache) version() uint64 {
	newest := uint64(0)
	for _, informer := range v.all() {
		n, _ := strconv.ParseUint(informer.LastSyncResourceVersion(), 10, 64)
		newest = max(newest, n)
	}
	return newest
}
