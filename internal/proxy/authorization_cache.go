package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta1"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	bySubject   = "subject"
	byNamespace = "namespace and subject"
	inNamespace = cache.NamespaceIndex
	byRole      = "role"
	byTenant    = "tenant"
	byKind      = "shared kind"
)

// authorizationCache is the proxy's cache of namespaces, Tenants and RBAC, reduced to the
// fields that the proxy needs.
type authorizationCache struct {
	namespaces, tenants cache.SharedIndexInformer
	clusterBound, bound cache.SharedIndexInformer
	clusterRoles, roles cache.SharedIndexInformer
	// profiles holds the TenancyProfile, which names the platform's namespaces.
	profiles cache.SharedIndexInformer
	// globals and settings hold Capsule's GlobalProxySettings and ProxySettings; nil unless
	// [Options.Capsule] is set.
	globals, settings cache.SharedIndexInformer
	change            *changeSignal
	history           *history
	// limit counts the RoleBindings and Roles that tenants can write.
	limit *namespaceLimit
	// begun is true once all informers have synced.
	begun atomic.Bool
}

// informerKind is a kind that the authorizationCache watches.
type informerKind struct {
	informer *cache.SharedIndexInformer
	version  schema.GroupVersion
	resource string
	object   runtime.Object
	indexers cache.Indexers
}

func newAuthorizationCache(config *rest.Config, withCapsule bool) (*authorizationCache, error) {
	v := &authorizationCache{change: newSignal(), history: newHistory(), limit: newNamespaceLimit(maxNamespaceSize)}
	kinds := []informerKind{
		{&v.namespaces, corev1.SchemeGroupVersion, "namespaces", &corev1.Namespace{}, cache.Indexers{byTenant: indexTenant}},
		{&v.tenants, v1alpha1.GroupVersion, "tenants", &v1alpha1.Tenant{}, cache.Indexers{bySubject: indexOwners, byKind: indexShared}},
		{&v.clusterBound, rbacv1.SchemeGroupVersion, "clusterrolebindings", &rbacv1.ClusterRoleBinding{}, cache.Indexers{bySubject: indexSubjects, byRole: indexRole}},
		{&v.bound, rbacv1.SchemeGroupVersion, "rolebindings", &rbacv1.RoleBinding{}, cache.Indexers{bySubject: indexSubjects, byNamespace: indexBoth, inNamespace: cache.MetaNamespaceIndexFunc, byRole: indexRole}},
		{&v.clusterRoles, rbacv1.SchemeGroupVersion, "clusterroles", &rbacv1.ClusterRole{}, nil},
		{&v.roles, rbacv1.SchemeGroupVersion, "roles", &rbacv1.Role{}, nil},
		{&v.profiles, v1alpha1.GroupVersion, "tenancyprofiles", &v1alpha1.TenancyProfile{}, nil},
	}
	if withCapsule {
		kinds = append(kinds,
			informerKind{&v.globals, v1beta1.GroupVersion, "globalproxysettings", &v1beta1.GlobalProxySettings{}, cache.Indexers{byKind: indexShared}},
			informerKind{&v.settings, v1beta1.GroupVersion, "proxysettings", &v1beta1.ProxySetting{}, cache.Indexers{byKind: indexShared, inNamespace: cache.MetaNamespaceIndexFunc}})
	}
	for _, k := range kinds {
		informer, err := v.newInformer(config, k.version, k.resource, k.object, k.indexers)
		if err != nil {
			return nil, fmt.Errorf("cannot watch %s: %w", k.resource, err)
		}
		*k.informer = informer
	}
	return v, nil
}

func (v *authorizationCache) newInformer(config *rest.Config, version schema.GroupVersion, resource string, object runtime.Object, indexers cache.Indexers) (cache.SharedIndexInformer, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath, config.NegotiatedSerializer = &version, "/apis", codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	if version.Group == "" {
		config.APIPath = "/api"
	}
	if version.Group == "" || version.Group == rbacv1.GroupName {
		config.ContentType = runtime.ContentTypeProtobuf
	}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	informer := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything()), object, 0, indexers)
	if err := informer.SetTransform(v.transform); err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, initial bool) {
			if !initial {
				v.recordChange(nil, o)
			}
		},
		DeleteFunc: func(o any) {
			v.recordChange(o, nil)
			v.release(o, nil)
		},
		UpdateFunc: func(old, now any) {
			v.release(old, now)
			if !sameForCache(old, now) {
				v.recordChange(old, now)
			}
		},
	})
	return informer, err
}

// sameForCache reports whether an update changed no field that the cache keeps.
func sameForCache(old, now any) bool {
	a, okA := old.(runtime.Object)
	b, okB := now.(runtime.Object)
	if !okA || !okB {
		return false
	}
	a, b = a.DeepCopyObject(), b.DeepCopyObject()
	a.(metav1.Object).SetResourceVersion("")
	b.(metav1.Object).SetResourceVersion("")
	return equality.Semantic.DeepEqual(a, b)
}

// transform removes what the cache does not need of an object. It drops the last subjects and rules of the
// RoleBindings and Roles of a namespace that reach [maxNamespaceSize].
func (v *authorizationCache) transform(o any) (any, error) {
	kept, err := trim(o)
	if err != nil {
		return nil, err
	}
	switch kept := kept.(type) {
	case *rbacv1.RoleBinding:
		if !v.ofPlatform(kept.Labels) {
			kept.Subjects = slices.Clone(kept.Subjects[:v.limit.reserve(kept, sizesOfSubjects(kept))])
		}
	case *rbacv1.Role:
		if r, ok := o.(*rbacv1.Role); ok && !v.ofPlatform(r.Labels) {
			kept.Rules = slices.Clone(kept.Rules[:v.limit.reserve(kept, sizesOfRules(kept))])
		}
	}
	return kept, nil
}

// release releases the memory of an object that the cache dropped, or replaced by another object of its name.
func (v *authorizationCache) release(old, now any) {
	if unknown, ok := old.(cache.DeletedFinalStateUnknown); ok {
		old = unknown.Obj
	}
	before, ok := old.(metav1.Object)
	if !ok {
		return
	}
	if after, ok := now.(metav1.Object); !ok || after.GetUID() != before.GetUID() {
		v.limit.release(before)
	}
}

// trim removes the fields that the cache does not need.
func trim(o any) (any, error) {
	meta := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion, UID: m.UID}
	}
	switch o := o.(type) {
	case *corev1.Namespace:
		kept := &corev1.Namespace{ObjectMeta: meta(o.ObjectMeta)}
		onlyLabels(&kept.ObjectMeta, o.Labels, tenantLabels)
		return kept, nil
	case *v1alpha1.TenancyProfile:
		return &v1alpha1.TenancyProfile{ObjectMeta: meta(o.ObjectMeta), Spec: v1alpha1.TenancyProfileSpec{PlatformNamespaces: o.Spec.PlatformNamespaces}}, nil
	case *v1alpha1.Tenant:
		return &v1alpha1.Tenant{ObjectMeta: meta(o.ObjectMeta), Spec: v1alpha1.TenantSpec{Owners: o.Spec.Owners, ClusterResources: o.Spec.ClusterResources}}, nil
	case *v1beta1.GlobalProxySettings:
		return &v1beta1.GlobalProxySettings{ObjectMeta: meta(o.ObjectMeta), Spec: o.Spec}, nil
	case *v1beta1.ProxySetting:
		return &v1beta1.ProxySetting{ObjectMeta: meta(o.ObjectMeta), Spec: o.Spec}, nil
	case *rbacv1.ClusterRoleBinding:
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta(o.ObjectMeta), RoleRef: o.RoleRef, Subjects: o.Subjects}, nil
	case *rbacv1.RoleBinding:
		kept := &rbacv1.RoleBinding{ObjectMeta: meta(o.ObjectMeta), RoleRef: o.RoleRef, Subjects: first(o.Subjects)}
		onlyLabels(&kept.ObjectMeta, o.Labels, platformLabels)
		return kept, nil
	case *rbacv1.ClusterRole:
		return &rbacv1.ClusterRole{ObjectMeta: meta(o.ObjectMeta), Rules: o.Rules}, nil
	case *rbacv1.Role:
		return &rbacv1.Role{ObjectMeta: meta(o.ObjectMeta), Rules: first(o.Rules)}, nil
	}
	return o, nil
}

// maxEntries is the maximum number of subjects of a RoleBinding, and of rules of a Role, that the
// cache keeps. A tenant can create objects with 25,000, which take 20 MB each.
const maxEntries = 1000

// first returns a copy of the first maxEntries entries.
func first[T any](all []T) []T { return slices.Clone(all[:min(len(all), maxEntries)]) }

// tenantLabels are the labels that assign a namespace to a tenant.
var tenantLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant}

// indexTenant returns the name of a namespace's Tenant.
func indexTenant(o any) ([]string, error) {
	if ns, ok := o.(*corev1.Namespace); ok && ns.Labels[v1alpha1.LabelTenant] != "" {
		return []string{ns.Labels[v1alpha1.LabelTenant]}, nil
	}
	return nil, nil
}

func indexOwners(o any) ([]string, error) {
	t, ok := o.(*v1alpha1.Tenant)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, owner := range t.Spec.Owners {
		switch owner.Kind {
		case rbacv1.UserKind:
			keys = append(keys, userKey(owner.Name))
		case rbacv1.GroupKind:
			keys = append(keys, groupKey(owner.Name))
		case rbacv1.ServiceAccountKind:
			keys = append(keys, userKey(serviceaccount.MakeUsername(owner.Namespace, owner.Name)))
		}
	}
	return keys, nil
}

func indexSubjects(o any) ([]string, error) {
	switch b := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		return subjectKeys(b.Subjects, ""), nil
	case *rbacv1.RoleBinding:
		return subjectKeys(b.Subjects, b.Namespace), nil
	}
	return nil, nil
}

// indexBoth returns the keys of a RoleBinding's subjects with the namespace before each
// key. The name of a namespace has no slash.
func indexBoth(o any) ([]string, error) {
	keys, err := indexSubjects(o)
	b, ok := o.(*rbacv1.RoleBinding)
	if !ok || err != nil {
		return nil, err
	}
	for i := range keys {
		keys[i] = b.Namespace + "/" + keys[i]
	}
	return keys, nil
}

// indexRole returns the kind and the name of a binding's role.
func indexRole(o any) ([]string, error) {
	switch b := o.(type) {
	case *rbacv1.ClusterRoleBinding:
		return []string{"ClusterRole " + b.RoleRef.Name}, nil
	case *rbacv1.RoleBinding:
		if b.RoleRef.Kind == "ClusterRole" {
			return []string{"ClusterRole " + b.RoleRef.Name}, nil
		}
		return []string{"Role " + b.Namespace + "/" + b.RoleRef.Name}, nil
	}
	return nil, nil
}

func (v *authorizationCache) all() []cache.SharedIndexInformer {
	all := []cache.SharedIndexInformer{v.namespaces, v.tenants, v.clusterBound, v.bound, v.clusterRoles, v.roles, v.profiles}
	if v.globals != nil {
		all = append(all, v.globals, v.settings)
	}
	return all
}

// run starts the informers, which run until the context ends. It returns when all informers
// have synced, or an error if the context ends before.
func (v *authorizationCache) run(ctx context.Context) error {
	// The profile comes first: it names the platform's namespaces, whose objects have no limit.
	others := slices.DeleteFunc(v.all(), func(i cache.SharedIndexInformer) bool { return i == v.profiles })
	for _, informers := range [][]cache.SharedIndexInformer{{v.profiles}, others} {
		for _, informer := range informers {
			go informer.RunWithContext(ctx)
		}
		for _, informer := range informers {
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
				return fmt.Errorf("cannot read namespaces, tenants and RBAC: %w", context.Cause(ctx))
			}
		}
	}
	v.history.begin(v.version())
	v.begun.Store(true)
	v.change.fire()
	return nil
}

var errNotSynced = errors.New("the proxy has not read the cluster yet")

func (v *authorizationCache) ready() error {
	if !v.begun.Load() {
		return errNotSynced
	}
	return nil
}

// indexed returns the objects that an index has under a key. It panics if the index does
// not exist, which is a mistake of this file.
func indexed[T any](informer cache.SharedIndexInformer, index, key string) []T {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		panic(err)
	}
	all := make([]T, 0, len(objects))
	for _, o := range objects {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	return all
}

func get[T any](informer cache.SharedIndexInformer, key string) (T, bool) {
	o, _, err := informer.GetIndexer().GetByKey(key)
	t, ok := o.(T)
	return t, ok && err == nil
}

func (v *authorizationCache) clusterBindings(key string) []*rbacv1.ClusterRoleBinding {
	return indexed[*rbacv1.ClusterRoleBinding](v.clusterBound, bySubject, key)
}

func (v *authorizationCache) bindings(key, namespace string) []*rbacv1.RoleBinding {
	if namespace == "" {
		return indexed[*rbacv1.RoleBinding](v.bound, bySubject, key)
	}
	return indexed[*rbacv1.RoleBinding](v.bound, byNamespace, namespace+"/"+key)
}

func (v *authorizationCache) rules(namespace string, ref rbacv1.RoleRef) []rbacv1.PolicyRule {
	switch {
	case ref.Kind == "ClusterRole":
		if r, ok := get[*rbacv1.ClusterRole](v.clusterRoles, ref.Name); ok {
			return r.Rules
		}
	case ref.Kind == "Role" && namespace != "":
		if r, ok := get[*rbacv1.Role](v.roles, namespace+"/"+ref.Name); ok {
			return r.Rules
		}
	}
	return nil
}

// namespace returns a namespace from the cache.
func (v *authorizationCache) namespace(name string) (*corev1.Namespace, bool) {
	return get[*corev1.Namespace](v.namespaces, name)
}

// coalesceDelay is the delay after a change during which further changes are collected
// before the waiting goroutines wake up: the objects of a tenant change together.
const coalesceDelay = 10 * time.Millisecond

// changeSignal wakes all goroutines that wait for a change.
type changeSignal struct {
	mu      sync.Mutex
	next    chan struct{}
	pending bool
}

func newSignal() *changeSignal { return &changeSignal{next: make(chan struct{})} }

// changed returns a channel that is closed after the next change. Call it before reading the
// state that may change.
func (s *changeSignal) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// fire announces a change. The waiting goroutines wake up within 10 ms.
func (s *changeSignal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending {
		return
	}
	s.pending = true
	time.AfterFunc(coalesceDelay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		close(s.next)
		s.next, s.pending = make(chan struct{}), false
	})
}

// isShared reports whether objects of a kind are shared with any user.
func (v *authorizationCache) isShared(kind schema.GroupResource) bool {
	for _, informer := range v.sharing() {
		if keys, err := informer.GetIndexer().IndexKeys(byKind, kind.String()); err == nil && len(keys) > 0 {
			return true
		}
	}
	return false
}

// sharing returns the informers of the kinds that share objects.
func (v *authorizationCache) sharing() []cache.SharedIndexInformer {
	if v.globals == nil {
		return []cache.SharedIndexInformer{v.tenants}
	}
	return []cache.SharedIndexInformer{v.tenants, v.globals, v.settings}
}
