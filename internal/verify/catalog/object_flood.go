package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxObjects is the largest number of objects per kind and namespace that counts as a limit. A higher quota
// does not count: each Flux object costs its controller a reconciliation per interval.
const maxObjects = 1000

// fluxKinds are the kinds that the controllers of Flux and flux-operator reconcile.
var fluxKinds = []schema.GroupKind{
	{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"},
	{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"},
	{Group: "source.toolkit.fluxcd.io", Kind: "GitRepository"},
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmRepository"},
	{Group: "source.toolkit.fluxcd.io", Kind: "HelmChart"},
	{Group: "source.toolkit.fluxcd.io", Kind: "OCIRepository"},
	{Group: "source.toolkit.fluxcd.io", Kind: "Bucket"},
	{Group: "source.extensions.fluxcd.io", Kind: "ArtifactGenerator"},
	{Group: "notification.toolkit.fluxcd.io", Kind: "Alert"},
	{Group: "notification.toolkit.fluxcd.io", Kind: "Provider"},
	{Group: "notification.toolkit.fluxcd.io", Kind: "Receiver"},
	{Group: "image.toolkit.fluxcd.io", Kind: "ImageRepository"},
	{Group: "image.toolkit.fluxcd.io", Kind: "ImagePolicy"},
	{Group: "image.toolkit.fluxcd.io", Kind: "ImageUpdateAutomation"},
	{Group: "fluxcd.controlplane.io", Kind: "ResourceSet"},
	{Group: "fluxcd.controlplane.io", Kind: "ResourceSetInputProvider"},
}

func addObjectFlood(register func(...Attack)) {
	register(Attack{
		ID: "A2", Via: API, Owners: OwnersAnywhere,
		Kinds:    []string{"Alert", "ArtifactGenerator", "Bucket", "GitRepository", "HelmChart", "HelmRelease", "HelmRepository", "ImagePolicy", "ImageRepository", "ImageUpdateAutomation", "Kustomization", "Namespace", "OCIRepository", "Provider", "Receiver", "ResourceSet", "ResourceSetInputProvider"},
		Title:    "creates an unlimited number of Flux objects or namespaces",
		Controls: []string{"ResourceQuota on count/RESOURCE.GROUP of each Flux kind", "RBAC on namespaces", "webhook that counts an owner's namespaces"},
		Fix:      Fix{Advice: "give each of the tenant's namespaces a ResourceQuota with a count/… for every Flux kind that its role may create, such as count/kustomizations.kustomize.toolkit.fluxcd.io, and its role no create on namespaces; where owners make namespaces themselves, give their Tenant spec.namespaces.quota, and install the webhook that counts them"},
		Slow:     true,
		Run:      floods,
	})
}

// floods checks that each kind that the tenant may create has a quota. A dry run uses no quota, and a full
// quota would disturb the other attacks, so floods reads the limit that quota admission enforces.
func floods(ctx context.Context, e *Scenario) Finding {
	namespaces := e.boundedNamespaces(ctx)
	if namespaces.Outcome != Stopped {
		return namespaces
	}
	var unbounded, controls []string
	message := namespaces.Message
	for _, namespace := range e.Tenant.Namespaces {
		var quotas corev1.ResourceQuotaList
		if err := e.Admin.List(ctx, &quotas, client.InNamespace(namespace)); err != nil {
			return notProven("cannot read the quotas: " + firstLine(err.Error()))
		}
		resources, err := e.creatable(ctx, namespace)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		for _, resource := range resources {
			bound, quota := boundOn(quotas.Items, resource)
			if quota == "" || bound > maxObjects {
				unbounded = append(unbounded, namespace+"/"+resource)
				continue
			}
			if control := "quota " + quota; !slices.Contains(controls, control) {
				controls = append(controls, control)
				message = fmt.Sprintf("quota %s: at most %d %s in namespace %s", quota, bound, resource, namespace)
			}
		}
	}
	if len(unbounded) > 0 {
		return gotThrough("nothing bounds the number of " + strings.Join(unbounded, ", "))
	}
	if err := identityWorks(ctx, e); err != nil {
		return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
	}
	return stopped(strings.Join(append(controls, namespaces.Control), ", "), message)
}

// boundedNamespaces returns the control that limits the number of the tenant's namespaces. If an owner may
// create namespaces, the webhook must have changed the request, and the Tenant must have a quota.
func (e *Scenario) boundedNamespaces(ctx context.Context) Finding {
	ns := object("v1", "Namespace", "", name(e.ofTenant("a2")), nil)
	tenant := object(v1alpha1.GroupVersion.String(), "Tenant", "", e.Tenant.Name, nil)
	there, err := e.exists(ctx, tenant)
	if err != nil {
		return notProven("cannot read the Tenant: " + firstLine(err.Error()))
	}
	if there {
		if err := e.Admin.Get(ctx, keyOf(tenant), tenant); err != nil {
			return notProven("cannot read the Tenant: " + firstLine(err.Error()))
		}
		ns.SetLabels(labelsOfOwners(e.Tenant.Name))
		asWanted(ns, tenant)
	}
	asked := len(ns.GetLabels())
	if err := e.As.Create(ctx, ns, client.DryRunAll); err != nil || !there {
		return judge(err, "it could create any number of namespaces")
	}
	quota, bounded, _ := unstructured.NestedInt64(tenant.Object, "spec", "namespaces", "quota")
	labels := ns.GetLabels()
	// The API server itself adds the label with the namespace's name.
	delete(labels, corev1.LabelMetadataName)
	switch {
	case !bounded || quota > maxObjects:
		return gotThrough("it could create any number of namespaces: the Tenant has no quota")
	case len(labels) <= asked:
		return gotThrough("it could create any number of namespaces: no webhook has seen the request to count it")
	}
	return stopped("webhook "+admission.NamespaceWebhook, fmt.Sprintf("Tenant %s may have %d namespaces", tenant.GetName(), quota))
}

// creatable returns the Flux resources, as RESOURCE.GROUP, that the tenant may create in a namespace.
func (e *Scenario) creatable(ctx context.Context, namespace string) ([]string, error) {
	var resources []string
	for _, kind := range fluxKinds {
		mapping, err := e.Admin.RESTMapper().RESTMapping(kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot find the resource of %s: %w", kind, err)
		}
		allowed, err := e.isAllowed(ctx, authorizationv1.ResourceAttributes{
			Verb: "create", Group: mapping.Resource.Group, Resource: mapping.Resource.Resource, Namespace: namespace,
		})
		if err != nil {
			return nil, err
		}
		if allowed {
			resources = append(resources, mapping.Resource.GroupResource().String())
		}
	}
	return resources, nil
}

// boundOn returns the lowest limit on a resource and the name of its quota, or "" if there is none. It
// reads the status of the quotas, which the API server enforces.
func boundOn(quotas []corev1.ResourceQuota, resource string) (int64, string) {
	var least int64
	var by string
	for _, quota := range quotas {
		hard, set := quota.Status.Hard[corev1.ResourceName("count/"+resource)]
		if !set || len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
			continue
		}
		if n := hard.Value(); by == "" || n < least {
			least, by = n, quota.Name
		}
	}
	return least, by
}
