package flux

import (
	"fmt"
	"slices"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	automationv1 "github.com/fluxcd/image-automation-controller/api/v1"
	reflectorv1 "github.com/fluxcd/image-reflector-controller/api/v1"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	notificationv1 "github.com/fluxcd/notification-controller/api/v1"
	notificationv1b3 "github.com/fluxcd/notification-controller/api/v1beta3"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewScheme returns a scheme with Flux's types and those that this package
// needs of Kubernetes.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionv1.AddToScheme,
		sourcev1.AddToScheme, kustomizev1.AddToScheme, helmv2.AddToScheme,
		notificationv1.AddToScheme, notificationv1b3.AddToScheme,
		reflectorv1.AddToScheme, automationv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme)) // fails only for types that contradict each other
	}
	return scheme
}

// NewClient returns a client for Flux's objects. It asks the server nothing before it is used,
// so that it can be created before the server runs or Flux's CRDs exist: a kind whose CRD is
// missing answers with "not found" and works as soon as the CRD is. It reads from the server,
// not from a cache, and has no rate limit of its own. It returns an error if the configuration
// is not valid.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(clientConfig(config), client.Options{Scheme: NewScheme(), Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for flux's objects: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(clientConfig(config))
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for flux's objects: %w", err)
	}
	return discovering{c, d}, nil
}

// discovering is a client that distinguishes a kind that is not served from a kind that the user
// may not list: the API server answers both with Forbidden to a user without rights in all
// namespaces.
type discovering struct {
	client.WithWatch
	discovery discovery.ServerResourcesInterface
}

// missing reports whether the server does not serve a resource.
func (d discovering) missing(version schema.GroupVersion, plural string) bool {
	served, err := d.discovery.ServerResourcesForGroupVersion(version.String())
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
}

// clientConfig has no rate limit and no warnings: the latter go to a log that
// programs on a terminal do not have.
func clientConfig(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config
}

// newMapper knows the kinds of this package without discovery.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, info := range kinds {
		gvk := info.version.WithKind(string(info.kind))
		resource := info.version.WithResource(info.plural)
		mapper.AddSpecific(gvk, resource, resource, meta.RESTScopeNamespace)
	}
	for kind, plural := range map[string]string{
		"MutatingAdmissionPolicy":        "mutatingadmissionpolicies",
		"MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
		"ValidatingAdmissionPolicy":      "validatingadmissionpolicies",
	} {
		resource := admissionv1.SchemeGroupVersion.WithResource(plural)
		mapper.AddSpecific(admissionv1.SchemeGroupVersion.WithKind(kind), resource, resource, meta.RESTScopeRoot)
	}
	return mapper
}

// GroupVersionKind is the kind as Kubernetes names it; zero for a kind that
// this package does not know.
func (k Kind) GroupVersionKind() schema.GroupVersionKind {
	info, ok := infoOf(k)
	if !ok {
		return schema.GroupVersionKind{}
	}
	return info.version.WithKind(string(k))
}
