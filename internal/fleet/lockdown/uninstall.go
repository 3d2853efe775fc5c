package lockdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// releasePoll is the interval at which Release looks at the manager.
const releasePoll = 500 * time.Millisecond

// ErrManagerMissing is returned by [Cluster.Installation] if objects have finalizers of a manager
// that is not installed, and so could never be deleted.
var ErrManagerMissing = errors.New("the manager is not installed")

// AppliedElsewhereError is returned by [Cluster.Installation] if Flux or Helm applies Tenure, and would
// apply it again after it was removed.
type AppliedElsewhereError struct {
	// Kustomization is the Flux Kustomization that applies the manager, as NAMESPACE/NAME, or
	// empty.
	Kustomization string
	// Release is the Helm release that the manager is of, as NAMESPACE/NAME, or empty.
	Release string
}

func (e *AppliedElsewhereError) Error() string {
	if e.Release != "" {
		return "Helm release " + e.Release + " has installed Tenure"
	}
	return "Kustomization " + e.Kustomization + " applies Tenure"
}

// Installation is the part of Tenure in a cluster that [Cluster.Remove] removes: rules, webhooks,
// roles, manager, proxy and check.
type Installation struct {
	// Objects are the objects, in the order of their removal.
	Objects []*unstructured.Unstructured
	// Manager reports whether the manager's Deployment is one of them.
	Manager bool
	// Tenants and Namespaces are the numbers of Tenants and of tenants' namespaces, which
	// stay.
	Tenants, Namespaces int
}

// Installation reads Tenure's objects in the cluster. The errors are [*AppliedElsewhereError],
// [ErrManagerMissing], and those of the API server.
func (c Cluster) Installation(ctx context.Context) (*Installation, error) {
	candidates, err := c.removable()
	if err != nil {
		return nil, err
	}
	found := &Installation{}
	for _, candidate := range candidates {
		is := &unstructured.Unstructured{}
		is.SetGroupVersionKind(candidate.GroupVersionKind())
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(candidate), is)
		switch {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("cannot read %s: %w", ObjectName(candidate), err)
		case is.GetLabels()[labelName] != ownName:
			continue // an object of another program, with the same name
		}
		if other := appliedElsewhere(is); other != nil {
			return nil, other
		}
		found.Objects = append(found.Objects, is)
		found.Manager = found.Manager || is.GetKind() == "Deployment" && is.GetName() == managerName
	}
	if found.Manager {
		// The manager created it, so that it has no label.
		lease := &unstructured.Unstructured{}
		lease.SetGroupVersionKind(schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"})
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: managerName}, lease)
		switch {
		case err == nil:
			found.Objects = append(found.Objects, lease)
			slices.SortStableFunc(found.Objects, func(a, b *unstructured.Unstructured) int { return removalRank(a) - removalRank(b) })
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return nil, fmt.Errorf("cannot read the manager's Lease: %w", err)
		}
	}
	held, err := c.held(ctx, found)
	if err != nil {
		return nil, err
	}
	if held != "" && !found.Manager {
		return nil, fmt.Errorf("%w, and %s has its finalizer", ErrManagerMissing, held)
	}
	return found, nil
}

const (
	// labelName is the label that all objects of Tenure have.
	labelName = "app.kubernetes.io/name"
	ownName   = "tenure"
)

// removable returns the objects of this version with all options, without the kinds and the
// TenancyProfile, which stay. Policies and webhooks come first, so that nothing refuses the rest,
// and roles come last.
func (c Cluster) removable() ([]*unstructured.Unstructured, error) {
	all := true
	manifests, err := Objects(c.Namespace, Options{Tenants: true, Warn: &all, Proxy: &all, Capsule: &all, Defaults: &all, Check: &all, Shards: []string{"any"}})
	if err != nil {
		return nil, err
	}
	// This part is applied apart from the rest.
	parts := []string{string(manifests), string(config.ProxyVolumes())}
	objects, err := flux.ReadObjects([]byte(strings.Join(parts, "\n---\n")))
	if err != nil {
		return nil, fmt.Errorf("cannot read the objects that this version installs: %w", err)
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kindCRD || o.GetKind() == "TenancyProfile"
	})
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return removalRank(a) - removalRank(b) })
	return objects, nil
}

func removalRank(o *unstructured.Unstructured) int {
	switch kind := o.GetKind(); {
	case strings.HasSuffix(kind, "WebhookConfiguration"):
		return 0
	case strings.HasSuffix(kind, "AdmissionPolicyBinding"):
		return 1
	case strings.HasSuffix(kind, "AdmissionPolicy"):
		return 2
	case kind == "Deployment", kind == "CronJob":
		return 3
	case o.GroupVersionKind().Group == "rbac.authorization.k8s.io":
		return 5
	}
	return 4
}

// appliedElsewhere returns an [*AppliedElsewhereError] for an object that Flux or Helm applies, and nil
// for any other object.
func appliedElsewhere(o *unstructured.Unstructured) error {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if name := annotations["meta.helm.sh/release-name"]; name != "" {
		return &AppliedElsewhereError{Release: annotations["meta.helm.sh/release-namespace"] + "/" + name}
	}
	if name := labels["kustomize.toolkit.fluxcd.io/name"]; name != "" {
		return &AppliedElsewhereError{Kustomization: labels["kustomize.toolkit.fluxcd.io/namespace"] + "/" + name}
	}
	return nil
}

// HelmRelease returns the Helm release that has installed the manager, as NAMESPACE/NAME, or "". It
// returns an error if the manager's Deployment cannot be read.
func (c Cluster) HelmRelease(ctx context.Context) (string, error) {
	manager := &unstructured.Unstructured{}
	manager.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: managerName}, manager)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("cannot read Tenure's manager: %w", err)
	}
	var other *AppliedElsewhereError
	if errors.As(appliedElsewhere(manager), &other) {
		return other.Release, nil
	}
	return "", nil
}

// held counts the Tenants and the tenants' namespaces of an installation, and returns an object
// that has a finalizer of the manager, or "".
func (c Cluster) held(ctx context.Context, found *Installation) (string, error) {
	var held string
	for _, kind := range []schema.GroupVersionKind{
		{Group: "tenure.dev", Version: "v1alpha1", Kind: "Tenant"},
		{Group: "capsule.clastix.io", Version: "v1beta2", Kind: "Tenant"},
		{Group: "capsule.clastix.io", Version: "v1beta2", Kind: "TenantResource"},
		{Group: "capsule.clastix.io", Version: "v1beta2", Kind: "GlobalTenantResource"},
		{Group: "tenure.dev", Version: "v1alpha1", Kind: "TenantParameters"},
		{Version: "v1", Kind: "ResourceQuota"},
		{Version: "v1", Kind: "Namespace"},
	} {
		objects, err := c.list(ctx, kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		for _, o := range objects {
			switch {
			case kind.Kind == "Namespace" && o.GetLabels()["tenure.dev/tenant"] != "":
				found.Namespaces++
			case kind.Kind == "Tenant" && kind.Group == "tenure.dev":
				found.Tenants++
			}
			if held == "" && slices.ContainsFunc(o.GetFinalizers(), ownFinalizer) {
				held = ObjectName(o)
			}
		}
	}
	return held, nil
}

func ownFinalizer(name string) bool { return strings.HasPrefix(name, "tenure.dev/") }

// Release lets the manager remove its finalizers, and waits until no object has one: the
// manager is ready then. It changes the manager's Deployment, and reports what it waits for. It
// returns an error if the Deployment cannot be changed, or if the context ends before the
// manager is ready.
func (c Cluster) Release(ctx context.Context, kube client.Client, progress func(string)) error {
	key := client.ObjectKey{Namespace: c.Namespace, Name: managerName}
	manager := &appsv1.Deployment{}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := kube.Get(ctx, key, manager); err != nil {
			return err
		}
		containers := manager.Spec.Template.Spec.Containers
		if len(containers) == 0 {
			return errors.New("it has no container")
		}
		if !slices.Contains(containers[0].Args, ReleaseFlag) {
			containers[0].Args = append(containers[0].Args, ReleaseFlag)
		}
		// The old Pod ends before the new one starts, so that no manager sets finalizers again.
		none, one := intstr.FromInt32(0), intstr.FromInt32(1)
		manager.Spec.Replicas = new(int32(1))
		manager.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &none, MaxUnavailable: &one},
		}
		return kube.Update(ctx, manager)
	})
	if err != nil {
		return fmt.Errorf("cannot let Deployment %s release its objects: %w", key, err)
	}
	want, waitsFor := manager.Generation, "nothing was read yet"
	err = wait.PollUntilContextCancel(ctx, releasePoll, true, func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, key, manager); err != nil {
			waitsFor = err.Error()
			return false, nil
		}
		s := manager.Status
		switch {
		case s.ObservedGeneration < want || s.UpdatedReplicas < 1 || s.Replicas > s.UpdatedReplicas:
			waitsFor = "its Pod is being replaced"
		case s.ReadyReplicas < 1:
			waitsFor = "its Pod is not ready: objects still have finalizers, or it does not start"
		default:
			return true, nil
		}
		progress(waitsFor)
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("the manager has not released its objects: %s", waitsFor)
	}
	return nil
}

// Remove deletes the objects of an installation. It ignores objects that do not exist, and
// continues after an error. It returns all errors.
func (i *Installation) Remove(ctx context.Context, kube client.Client, progress func(string)) error {
	var failures []error
	for _, o := range i.Objects {
		progress(ObjectName(o))
		uid := o.GetUID()
		err := kube.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) {
			failures = append(failures, fmt.Errorf("cannot delete %s: %w", ObjectName(o), err))
		}
	}
	return errors.Join(failures...)
}
