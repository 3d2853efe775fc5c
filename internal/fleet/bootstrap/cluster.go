package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
)

// ErrCluster is returned if the cluster cannot be bootstrapped in its current state, or not by
// this user.
var ErrCluster = errors.New("the cluster cannot be bootstrapped")

// root has the objects that connect Flux with a repository; nil for missing objects.
type root struct{ source, kustomization *unstructured.Unstructured }

func text(o *unstructured.Unstructured, fields ...string) string {
	if o == nil {
		return ""
	}
	s, _, _ := unstructured.NestedString(o.Object, fields...)
	return s
}

// other returns the repository that the root follows if it is another one, and otherwise "".
func (r root) other(url, branch, folder string) string {
	address, at := text(r.source, "spec", "url"), text(r.kustomization, "spec", "path")
	if address == "" && at == "" {
		return ""
	}
	same := (address == "" || flux.NormalizeURL(address) == flux.NormalizeURL(url) && text(r.source, "spec", "ref", "branch") == branch) &&
		(at == "" || path.Clean(at) == path.Clean(folder))
	if same {
		return ""
	}
	return fmt.Sprintf("%s of branch %s of %s", at, text(r.source, "spec", "ref", "branch"), address)
}

// applied reports whether Flux has applied the repository, and so its own manifests.
func (r root) applied() bool { return text(r.kustomization, "status", "lastAppliedRevision") != "" }

// checkCluster returns an error for a cluster in which the later steps would fail or overwrite
// existing objects.
func (b *bootstrapper) checkCluster(ctx context.Context) error {
	// This is the first check: a user without the right to install must not learn the
	// results of the others.
	if err := b.checkRights(ctx); err != nil {
		return err
	}
	checks := lockdown.Cluster{Client: b.kube, Discovery: b.disco, Namespace: Namespace}
	results, err := checks.Prerequisites(ctx)
	if err != nil {
		return err
	}
	for _, r := range results {
		if !r.OK {
			return fmt.Errorf("%w: %s: %s", ErrCluster, r.Name, r.Message)
		}
	}
	release, err := checks.HelmRelease(ctx)
	if err != nil {
		return err
	}
	if release != "" {
		return fmt.Errorf("%w: Helm release %s has installed Tenure there, and two installations would overwrite each other: uninstall it first (docs/how-to/install.md, section Uninstall)", ErrCluster, release)
	}
	if b.live.source, err = b.get(ctx, "GitRepository"); err != nil {
		return err
	}
	if b.live.kustomization, err = b.get(ctx, "Kustomization"); err != nil {
		return err
	}
	if other := b.live.other(b.URL, b.Remote.Branch, b.Path); other != "" {
		return fmt.Errorf("%w: it follows %s", ErrFollows, other)
	}
	return b.checkFlux(ctx)
}

// get returns a root object, or nil if the object or its kind is missing.
func (b *bootstrapper) get(ctx context.Context, kind flux.Kind) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind.GroupVersionKind())
	err := b.kube.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: Namespace}, o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the cluster's root: %w", err)
	}
	return o, nil
}

// checkRights checks that the user is an admin: only an admin may give Flux's accounts their
// rights.
func (b *bootstrapper) checkRights(ctx context.Context) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"},
	}}
	if err := b.kube.Create(ctx, review); err != nil {
		return fmt.Errorf("cannot read the user's rights in the cluster: %w", err)
	}
	if review.Status.Allowed {
		return nil
	}
	self, name := &authenticationv1.SelfSubjectReview{}, "this user"
	if err := b.kube.Create(ctx, self); err == nil {
		name = self.Status.UserInfo.Username
	}
	return fmt.Errorf("%w by %s, who does not have all rights in it: use a kubeconfig of a cluster admin", ErrCluster, name)
}

// checkFlux refuses another installation of Flux.
func (b *bootstrapper) checkFlux(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := b.kube.List(ctx, &deployments, client.MatchingLabels{"app.kubernetes.io/part-of": "flux"}); err != nil {
		return fmt.Errorf("cannot look for Flux in the cluster: %w", err)
	}
	for _, d := range deployments.Items {
		if d.Namespace != Namespace {
			return fmt.Errorf("%w: Flux already runs in namespace %s, and two installations would undo each other's changes", ErrFollows, d.Namespace)
		}
	}
	if b.live.applied() || len(deployments.Items) == 0 {
		return nil
	}
	var namespace corev1.Namespace
	if err := b.kube.Get(ctx, client.ObjectKey{Name: Namespace}, &namespace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot look for Flux in the cluster: %w", err)
	}
	if version := namespace.Labels["app.kubernetes.io/version"]; version != "" && version != Version() {
		return fmt.Errorf("%w: Flux %s is in namespace %s, and this program has %s", ErrFollows, version, Namespace, Version())
	}
	return nil
}

// install applies Flux's manifests, unless Flux applies them itself already.
func (b *bootstrapper) install(ctx context.Context) error {
	if b.live.applied() {
		return nil
	}
	if err := flux.ApplyManifests(ctx, b.config, b.objects.flux); err != nil {
		return fmt.Errorf("cannot install Flux: %w", err)
	}
	return nil
}

// applySync applies the root objects and the other objects that connect Flux with the
// repository, if any is missing or differs.
func (b *bootstrapper) applySync(ctx context.Context) error {
	differs := !b.live.applied()
	for _, o := range b.objects.sync {
		if o.GetName() == Namespace && o.GetKind() == "GitRepository" && !covers(b.live.source, o) {
			differs = true
		}
	}
	if !differs {
		return nil
	}
	if err := flux.ApplyManifests(ctx, b.config, b.objects.sync); err != nil {
		return fmt.Errorf("cannot apply the sync: %w", err)
	}
	return nil
}

// covers reports whether a live object has the wanted spec.
func covers(live, wanted *unstructured.Unstructured) bool {
	return live != nil && within(wanted.Object["spec"], live.Object["spec"])
}

// within reports whether whole has every field of part, with the same value.
func within(part, whole any) bool {
	fields, ok := part.(map[string]any)
	if !ok {
		return fmt.Sprint(part) == fmt.Sprint(whole)
	}
	all, _ := whole.(map[string]any)
	for name, value := range fields {
		if !within(value, all[name]) {
			return false
		}
	}
	return true
}

// notAvailable lists Flux's controllers that do not run.
func (b *bootstrapper) notAvailable(ctx context.Context) string {
	var deployments appsv1.DeploymentList
	if err := b.kube.List(ctx, &deployments, client.InNamespace(Namespace)); err != nil {
		return ""
	}
	var names []string
	for _, d := range deployments.Items {
		if !slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
			return c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue
		}) {
			names = append(names, d.Name)
		}
	}
	return strings.Join(names, ", ")
}
