package localcluster

import (
	"cmp"
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Ahead lists addresses and Secrets that Flux will need for parts of a fleet that still wait for
// others.
type Ahead struct {
	// Addresses are those of sources without a folder, as --map takes them.
	Addresses []string
	// Secrets are the names of Secrets, as NAMESPACE/NAME, without those that an operator or
	// [Options.FakeSecrets] creates.
	Secrets []string
}

// Ahead reads the folders that the failed Kustomizations apply, and the folders of the
// Kustomizations in these, from the folders at their addresses. It leaves out what the failures
// name. It skips a folder that does not build, because its Kustomization fails anyway.
func (c *Cluster) Ahead(ctx context.Context, kube client.Reader, failures []flux.Finding) Ahead {
	var ahead Ahead
	objects := c.waiting(ctx, kube, failures)
	named := flux.Addresses(ctx, kube, failures, "is not mapped")
	for _, address := range flux.DeclaredAddresses(objects) {
		if !c.servesSource(address) && !slices.Contains(named, address) {
			ahead.Addresses = append(ahead.Addresses, address)
		}
	}
	if c.opts.FakeSecrets {
		return ahead
	}
	for _, u := range objects {
		for _, use := range flux.SecretUses(u) {
			secret := use.Namespace + "/" + use.Name
			if !slices.Contains(ahead.Secrets, secret) && !strings.Contains(use.Name, "$") && !isNamed(failures, use) && !makes(objects, use) && c.lacks(ctx, use) {
				ahead.Secrets = append(ahead.Secrets, secret)
			}
		}
	}
	slices.Sort(ahead.Secrets)
	return ahead
}

// waiting returns the failed Kustomizations, and what they and the Kustomizations in their folders apply.
func (c *Cluster) waiting(ctx context.Context, kube client.Reader, failures []flux.Finding) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	seen := map[string]bool{}
	var read func(u *unstructured.Unstructured, dir string)
	read = func(u *unstructured.Unstructured, dir string) {
		at, _, _ := unstructured.NestedString(u.Object, "spec", "path")
		target, _, _ := unstructured.NestedString(u.Object, "spec", "targetNamespace")
		folder := filepath.Join(dir, filepath.FromSlash(path.Join("/", at)))
		if seen[folder+"\n"+target] || strings.Contains(at, "$") {
			return
		}
		seen[folder+"\n"+target] = true
		built, err := flux.BuildFolder(dir, folder, target)
		if err != nil {
			return
		}
		objects = append(objects, built...)
		source, _, _ := unstructured.NestedString(u.Object, "spec", "sourceRef", "name")
		for _, o := range built {
			name, _, _ := unstructured.NestedString(o.Object, "spec", "sourceRef", "name")
			if o.GroupVersionKind().GroupKind() == flux.Kustomization.GroupVersionKind().GroupKind() && name == source {
				read(o, dir)
			}
		}
	}
	for _, f := range failures {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(flux.Kustomization.GroupVersionKind())
		if f.Row.Kind != flux.Kustomization || kube.Get(ctx, client.ObjectKey{Namespace: f.Row.Namespace, Name: f.Row.Name}, u) != nil {
			continue
		}
		objects = append(objects, u)
		address, _, err := flux.AppliedFolder(ctx, kube, f.Row.Ref())
		if from, ok := c.mapOf(address); err == nil && ok {
			read(u, from.Dir)
		}
	}
	return objects
}

// servesSource reports whether a folder is served at an address, or any address from the network.
func (c *Cluster) servesSource(address string) bool {
	if c.opts.Online || c.opts.AssumeUnmapped {
		return true
	}
	url, _, _ := strings.Cut(address, "#")
	if _, mapped := c.mapOf(url); mapped {
		return true
	}
	return slices.ContainsFunc(c.opts.Maps, func(m network.Map) bool {
		if m.Kind == network.KindHelm {
			return strings.HasPrefix(url+"/", strings.TrimSuffix(m.URL, "/")+"/")
		}
		mapped, err := ocihost.ParseAddress(m.Source())
		asked, askedErr := ocihost.ParseAddress(url)
		return m.Kind == network.KindOCI && err == nil && askedErr == nil && mapped.Host == asked.Host && mapped.Repository == asked.Repository
	})
}

// isNamed reports whether a failure is about the Secret.
func isNamed(failures []flux.Finding, use flux.SecretUse) bool {
	return slices.ContainsFunc(failures, func(f flux.Finding) bool {
		return f.Row.Namespace == use.Namespace && strings.Contains(f.Reason, `"`+use.Name+`"`)
	})
}

// makes reports whether one of the objects is the Secret, or may make it, as an ExternalSecret, a
// Certificate or a SealedSecret does: it has the Secret's name or refers to it as its target.
func makes(objects []*unstructured.Unstructured, use flux.SecretUse) bool {
	return slices.ContainsFunc(objects, func(u *unstructured.Unstructured) bool {
		if strings.HasSuffix(u.GroupVersionKind().Group, ".toolkit.fluxcd.io") {
			return false
		}
		target, _, _ := unstructured.NestedString(u.Object, "spec", "target", "name")
		secret, _, _ := unstructured.NestedString(u.Object, "spec", "secretName")
		return cmp.Or(u.GetNamespace(), use.Namespace) == use.Namespace &&
			slices.Contains([]string{u.GetName(), target, secret}, use.Name)
	})
}

// lacks reports whether the Secret is not in the cluster.
func (c *Cluster) lacks(ctx context.Context, use flux.SecretUse) bool {
	_, err := c.client.CoreV1().Secrets(use.Namespace).Get(ctx, use.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}
