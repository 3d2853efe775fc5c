package e2e

import (
	"bytes"
	"cmp"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/jsonpath"
)

// reader reads the objects of a cluster by the names that kubectl takes. Tests that wait read often,
// and each start of kubectl takes 0.3 s of processor time.
type reader struct {
	mapper apimeta.RESTMapper
	client dynamic.Interface
}

// readers has the reader of each cluster, by its *localcluster.Cluster.
var readers sync.Map

func (r run) reader() reader {
	r.t.Helper()
	if known, ok := readers.Load(r.Cluster); ok {
		return known.(reader)
	}
	served, err := discovery.NewDiscoveryClientForConfig(r.REST)
	if err != nil {
		r.t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(r.REST)
	if err != nil {
		r.t.Fatal(err)
	}
	cached := memory.NewMemCacheClient(served)
	made := reader{restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, func(string) {}), client}
	readers.Store(r.Cluster, made)
	return made
}

// mapping returns the resource of a kind by any of its names, such as deploy, deployment or
// deployments.apps. It asks the API server again if the kind was unknown, since CRDs come later.
func (r reader) mapping(kind string) (*apimeta.RESTMapping, error) {
	resource := schema.ParseGroupResource(kind).WithVersion("")
	found, err := r.mapper.KindFor(resource)
	if apimeta.IsNoMatchError(err) {
		apimeta.MaybeResetRESTMapper(r.mapper)
		found, err = r.mapper.KindFor(resource)
	}
	if err != nil {
		return nil, err
	}
	return r.mapper.RESTMapping(found.GroupKind(), found.Version)
}

// field returns the result of a JSONPath on an object, written KIND/NAME, or on the list of a kind,
// written KIND. It returns "" if the object does not exist.
func (r run) field(namespace, object, path string) string {
	r.t.Helper()
	kind, name, single := strings.Cut(object, "/")
	reader := r.reader()
	mapping, err := reader.mapping(kind)
	if err != nil {
		r.t.Fatalf("%s: %v", object, err)
	}
	var objects dynamic.ResourceInterface = reader.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace {
		objects = reader.client.Resource(mapping.Resource).Namespace(cmp.Or(namespace, metav1.NamespaceDefault))
	}
	var found runtime.Unstructured
	if single {
		found, err = objects.Get(r.t.Context(), name, metav1.GetOptions{})
	} else {
		found, err = objects.List(r.t.Context(), metav1.ListOptions{})
	}
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		r.t.Fatalf("%s: %v", object, err)
	}
	query := jsonpath.New(path).AllowMissingKeys(true)
	if err := query.Parse("{" + path + "}"); err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := query.Execute(&out, found.UnstructuredContent()); err != nil {
		r.t.Fatalf("%s of %s: %v", path, object, err)
	}
	return out.String()
}
