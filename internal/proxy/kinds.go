package proxy

import (
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// namespacedKinds reports which kinds are namespaced. It reads the API server's discovery
// again for each unknown kind, so that it knows a new kind at once.
type namespacedKinds struct {
	client discovery.DiscoveryInterface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newKinds(config *rest.Config) (namespacedKinds, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return namespacedKinds{}, err
	}
	return namespacedKinds{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))}, nil
}

// find returns the mapping of the preferred version of a kind, or nil if the kind does not
// exist.
func (k namespacedKinds) find(group, resource string) *apimeta.RESTMapping {
	kind, err := k.mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: resource})
	if err != nil {
		return nil
	}
	mapping, err := k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil
	}
	return mapping
}

func (k namespacedKinds) namespaced(group, resource string) bool {
	mapping := k.find(group, resource)
	return mapping != nil && mapping.Scope.Name() == apimeta.RESTScopeNameNamespace
}

// inCluster returns the resource of a cluster-scoped kind, and false for all other kinds.
func (k namespacedKinds) inCluster(group, resource string) (schema.GroupVersionResource, bool) {
	mapping := k.find(group, resource)
	if mapping == nil || mapping.Scope.Name() != apimeta.RESTScopeNameRoot || mapping.Resource.Group != group || mapping.Resource.Resource != resource {
		return schema.GroupVersionResource{}, false
	}
	return mapping.Resource, true
}

// scopeAge is how long scopes caches that a kind exists and is cluster-scoped. This can change
// only by deleting the kind with all its objects.
const scopeAge = 5 * time.Second

// scopes caches the cluster-scoped kinds of the API server. It looks a kind up when a client
// requests it, so that new kinds need no restart. [namespacedKinds] cannot replace it, because the
// discovery that it caches does not expire: if a kind became namespaced, the proxy would show the
// objects of all tenants.
type scopes struct {
	client discovery.ServerResourcesInterface
	mu     sync.Mutex
	known  map[schema.GroupVersion]scope
}

// scope holds the cluster-scoped kinds of a group version.
type scope struct {
	resources []string
	read      time.Time
}

// inCluster reports whether a kind is served and cluster-scoped.
func (s *scopes) inCluster(group, version, resource string) (bool, error) {
	gv := schema.GroupVersion{Group: group, Version: version}
	s.mu.Lock()
	known, ok := s.known[gv]
	s.mu.Unlock()
	if ok && time.Since(known.read) < scopeAge && slices.Contains(known.resources, resource) {
		return true, nil
	}
	began := time.Now()
	list, err := s.client.ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the kinds of %s: %w", gv, err)
	}
	known = scope{read: began}
	for _, r := range list.APIResources {
		if !r.Namespaced {
			known.resources = append(known.resources, r.Name)
		}
	}
	s.mu.Lock()
	s.known[gv] = known
	s.mu.Unlock()
	return slices.Contains(known.resources, resource), nil
}
