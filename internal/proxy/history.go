package proxy

import (
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
	// lag bounds how much later than the API server this program hears of a right.
	lag = time.Second
	// maxMarks bounds how many subjects are remembered.
	maxMarks = 100_000
)

// history remembers when what somebody may see has changed last. A client that goes
// on with a watch where a list or another watch has ended has what it was allowed to
// see then; of something that was allowed in between, the API server would not tell
// it, as the object itself has not changed. Such a client has to list again.
type history struct {
	mu sync.Mutex
	// start is the resource version before which nothing is known.
	start uint64
	// rights are changes by subject, spaces those of namespaces that a subject may
	// see: they concern who sees namespaces by name.
	rights, spaces map[string]mark
}

// mark is a change: its resource version and when it was heard of.
type mark struct {
	version uint64
	heard   time.Time
}

func newHistory() *history { return &history{rights: map[string]mark{}, spaces: map[string]mark{}} }

// begin forgets everything: nothing is known about before the version.
func (h *history) begin(version uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.start = version
}

// note remembers a change of rights, or of a namespace, for the subjects.
func (h *history) note(version uint64, keys []string, space bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := mark{version, time.Now()}
	marks := h.rights
	if space {
		marks = h.spaces
	}
	for _, key := range keys {
		marks[key] = now
	}
	if len(marks) > maxMarks {
		// Tenants can name as many subjects as they want.
		clear(marks)
		h.start = max(h.start, version)
	}
}

// since says whether a watch that began at a time, from a resource version, may
// have missed a change. One that is heard of long after it began is in what is compared
// while it is open.
func (h *history) since(who user.Info, version uint64, began time.Time, byName bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	missed := func(m mark) bool {
		if m.heard.IsZero() {
			return false
		}
		return began.Sub(m.heard).Abs() < lag || m.heard.Before(began) && m.version > version
	}
	if h.start > version {
		return true
	}
	for _, key := range keysOf(who) {
		if missed(h.rights[key]) || (byName && missed(h.spaces[key])) {
			return true
		}
	}
	return false
}

// continued is the resource version from which a watch goes on; false for one that
// begins with what there is.
func continued(version string, initial bool) (uint64, bool) {
	n, err := strconv.ParseUint(version, 10, 64)
	return n, err == nil && n > 0 && !initial
}

// noted remembers a change of an object that the view has.
func (v *view) noted(old, now any) {
	var version uint64
	var keys []string
	space := false
	for _, o := range []any{old, now} {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			// When it went is not known.
			o, version = gone.Obj, max(version, v.version())
		}
		if meta, ok := o.(metav1.Object); ok {
			n, _ := strconv.ParseUint(meta.GetResourceVersion(), 10, 64)
			version = max(version, n)
		}
		var found []string
		switch o := o.(type) {
		case *v1alpha1.Tenant:
			found = append(v.audience(o), v.told()...)
		case *v1beta1.GlobalProxySettings, *v1beta1.ProxySetting:
			found = append(subjectsOf(o), v.told()...)
		case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
			found, _ = indexSubjects(o)
		case *rbacv1.Role:
			found = v.holders("Role " + o.Namespace + "/" + o.Name)
		case *rbacv1.ClusterRole:
			found = v.holders("ClusterRole " + o.Name)
		case *corev1.Namespace:
			found, space = v.concerned(o), true
		}
		keys = append(keys, found...)
	}
	if len(keys) > 0 {
		v.history.note(version, keys, space)
	}
	v.change.fire()
}

// holders are the subjects that have a role, wherever.
func (v *view) holders(role string) []string {
	var keys []string
	for _, b := range found[*rbacv1.RoleBinding](v.bound, byRole, role) {
		keys = append(keys, subjectKeys(b.Subjects, b.Namespace)...)
	}
	for _, b := range found[*rbacv1.ClusterRoleBinding](v.clusterBound, byRole, role) {
		keys = append(keys, subjectKeys(b.Subjects, "")...)
	}
	return keys
}

// concerned are the subjects that may see a namespace by its name: those of its
// bindings, and the owners of its tenant.
func (v *view) concerned(ns *corev1.Namespace) []string {
	var keys []string
	for _, b := range found[*rbacv1.RoleBinding](v.bound, inNamespace, ns.Name) {
		keys = append(keys, subjectKeys(b.Subjects, b.Namespace)...)
	}
	if t, ok := get[*v1alpha1.Tenant](v.tenants, ns.Labels[v1alpha1.LabelTenant]); ok {
		keys = append(append(keys, v.audience(t)...), v.told()...)
		keys = append(keys, userKey(serviceaccount.MakeUsername(ns.Name, t.Name)))
	}
	return keys
}

// audience are the subjects who see something because of a Tenant.
func (v *view) audience(t *v1alpha1.Tenant) []string {
	keys, _ := indexOwners(t)
	if len(t.Spec.ClusterResources) == 0 {
		return keys
	}
	for _, ns := range found[*corev1.Namespace](v.namespaces, byTenant, t.Name) {
		keys = append(keys, userKey(serviceaccount.MakeUsername(ns.Name, t.Name)))
	}
	return append(keys, subjectsOf(t)...)
}

// subjectsOf are those whom an object names that shares something.
func subjectsOf(o any) []string {
	var keys []string
	for _, r := range resourcesOf(o) {
		keys = append(keys, sharers(r.Subjects)...)
	}
	return keys
}

// told are the subjects to whom tenants show something: how much depends on more than
// one object.
func (v *view) told() []string {
	if v.settings == nil {
		return nil
	}
	var keys []string
	for _, o := range v.settings.GetIndexer().List() {
		keys = append(keys, subjectsOf(o)...)
	}
	return keys
}

// version is the newest resource version that the view has heard of.
func (v *view) version() uint64 {
	newest := uint64(0)
	for _, informer := range v.all() {
		n, _ := strconv.ParseUint(informer.LastSyncResourceVersion(), 10, 64)
		newest = max(newest, n)
	}
	return newest
}
