package localcluster

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/node"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// operatorNamespace is the namespace in which flux-operator's manifests install it. It
// reconciles a FluxInstance in its own namespace only.
const operatorNamespace = "flux-system"

// operatorArtifact is the address at which flux-operator's authors publish the manifests of
// new releases of Flux. The cluster serves the manifests that the built version embeds.
const operatorArtifact = "oci://ghcr.io/controlplaneio-fluxcd/flux-operator-manifests"

// operatorPatience limits the wait until flux-operator has installed Flux, on a slow and busy
// machine.
const operatorPatience = 5 * time.Minute

// hasOperator reports whether flux-operator runs in this cluster.
func (c *Cluster) hasOperator() bool { return c.Fleet != nil && c.Fleet.UsesOperator() }

// hasInstance reports whether flux-operator installs Flux in this cluster.
func (c *Cluster) hasInstance() bool { return c.Fleet != nil && c.Fleet.Instance != nil }

// programs returns the programs that may run as host processes.
func (c *Cluster) programs() []node.Program {
	programs := append(node.FluxPrograms(c.opts.BinDir), node.TenureServer(c.opts.BinDir)...)
	if c.hasOperator() {
		programs = append(programs, node.FluxOperator(c.opts.BinDir, filepath.Join(c.operatorConfig(), "data")))
	}
	if c.kyverno != nil {
		programs = append(programs, node.Kyverno(c.opts.BinDir)...)
	}
	return programs
}

// operatorConfig returns the folder config of flux-operator's module.
func (c *Cluster) operatorConfig() string { return filepath.Join(c.opts.BinDir, fluxOperatorConfig) }

// mapOperatorFleet maps the addresses that a FluxInstance names: of the fleet, and of the
// manifests of Flux.
func (c *Cluster) mapOperatorFleet(dir string) error {
	if ns := c.Fleet.Instance.GetNamespace(); ns != operatorNamespace {
		return fmt.Errorf("cannot use the FluxInstance in %s: it is in namespace %s, and the local cluster runs flux-operator in %s", c.Fleet.InstanceFile, ns, operatorNamespace)
	}
	artifact, _, _ := unstructured.NestedString(c.Fleet.Instance.Object, "spec", "distribution", "artifact")
	if repository, _, _ := strings.Cut(strings.TrimPrefix(artifact, "oci://"), ":"); "oci://"+repository == operatorArtifact {
		c.opts.Maps = append(c.opts.Maps, network.Map{Kind: network.KindOCI, URL: artifact, Dir: filepath.Join(c.operatorConfig(), "data")})
	}
	if c.Fleet.Sync.Kind == string(flux.GitRepository) {
		return c.mapFleet(dir)
	}
	return c.mapArtifact(dir)
}

// readOperator reads flux-operator's manifests. Fleets seldom have them: the admin installs the
// operator by hand.
func (c *Cluster) readOperator() error {
	dir := c.operatorConfig()
	objects, err := flux.Build(dir, filepath.Join(dir, "default"))
	if err != nil {
		return fmt.Errorf("cannot read flux-operator's manifests in %s: %w; build them with `make flux-operator`", dir, err)
	}
	for _, u := range objects {
		if u.GetKind() == "CustomResourceDefinition" {
			c.objects.kinds = append(c.objects.kinds, u)
			continue
		}
		// In a fleet with Flux's manifests, these have the namespace.
		if c.hasInstance() || u.GetKind() != "Namespace" {
			c.objects.system = append(c.objects.system, u)
		}
	}
	return nil
}

// readInstance adds the FluxInstance to the objects. The first FluxInstance that is applied has
// no sync: the fleet is synced after the objects that the admin applies by hand, as with a
// bootstrap.
func (c *Cluster) readInstance() error {
	if err := checkServed(c.objects.kinds, []*unstructured.Unstructured{c.Fleet.Instance}, c.Fleet.Dir, ""); err != nil {
		return err
	}
	first := c.Fleet.Instance.DeepCopy()
	unstructured.RemoveNestedField(first.Object, "spec", "sync")
	c.objects.system = append(c.objects.system, first)
	c.objects.root = []*unstructured.Unstructured{c.Fleet.Instance}
	c.addRoots()
	c.setPlatform(c.objects.system)
	secret, err := c.rootSecret(nil)
	c.objects.manual = append(c.objects.manual, secret...)
	return err
}

// awaitOperator waits until flux-operator has installed Flux. It returns an error if the
// FluxInstance selects a minor version of Flux other than the programs'.
func (c *Cluster) awaitOperator(ctx context.Context) error {
	kube, err := flux.NewClient(c.REST)
	if err != nil {
		return err
	}
	ref := flux.Ref{Kind: flux.FluxInstance, Namespace: c.Fleet.Instance.GetNamespace(), Name: c.Fleet.Instance.GetName()}
	said := "it has not been reconciled"
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, operatorPatience, true, func(ctx context.Context) (bool, error) {
		rows, err := flux.List(ctx, kube, flux.Selection{Kinds: []flux.Kind{ref.Kind}, Namespace: ref.Namespace, Name: ref.Name})
		if err != nil || len(rows) == 0 {
			return false, nil //nolint:nilerr // the next look may find it
		}
		said = rows[0].Message
		if err := c.checkRevision(ctx, kube, ref); err != nil {
			return false, err
		}
		if rows[0].State == flux.Failed && strings.HasPrefix(said, "build failed") {
			return false, errors.New(said)
		}
		return rows[0].State == flux.Ready, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		err = fmt.Errorf("%s is not ready after %s: %s", ref, operatorPatience, said)
	}
	if err != nil {
		return fmt.Errorf("flux-operator cannot install Flux from %s: %w", c.Fleet.InstanceFile, err)
	}
	return nil
}

// checkRevision returns an error if flux-operator installs a minor version of Flux that the
// local cluster does not run.
func (c *Cluster) checkRevision(ctx context.Context, kube client.Client, ref flux.Ref) error {
	instance := &unstructured.Unstructured{}
	instance.SetGroupVersionKind(ref.Kind.GroupVersionKind())
	if err := kube.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, instance); err != nil {
		return nil //nolint:nilerr // the next look may find it
	}
	revision, _, _ := unstructured.NestedString(instance.Object, "status", "lastAttemptedRevision")
	version, _, _ := strings.Cut(revision, "@")
	if runs := config.FluxVersion(); version != "" && minor(version) != minor(runs) {
		return fmt.Errorf("it selects Flux %s, and the local cluster runs %s: set spec.distribution.version to %s.x in a copy of the fleet",
			version, runs, strings.TrimPrefix(minor(runs), "v"))
	}
	return nil
}

// minor returns vMAJOR.MINOR of vMAJOR.MINOR.PATCH.
func minor(version string) string { return strings.TrimSuffix(version, path.Ext(version)) }
