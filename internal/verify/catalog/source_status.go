package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addSourceStatus(register func(...Attack)) {
	register(Attack{
		ID: "S4", Via: API,
		Kinds:      everyStatus,
		Title:      "writes the status of its Flux objects of any kind, such as the address of a source's artifact",
		Controls:   []string{"RBAC", "policy that leaves status to Flux"},
		References: []string{"RFC-0003"},
		Fix: Fix{
			Advice: "give the tenant's role no verb on the status of Flux objects: list resources by name instead of *, and do not aggregate flux-edit into the role",
			Rights: true,
			Denied: []rbacv1.PolicyRule{
				denied("source.toolkit.fluxcd.io", writing, "*/status"),
				denied("kustomize.toolkit.fluxcd.io", writing, "*/status"),
				denied("helm.toolkit.fluxcd.io", writing, "*/status"),
			},
		},
		Run: func(ctx context.Context, e *Scenario) Finding {
			var all []request
			if e.deliversArtifacts() && e.ownsSource() {
				// The object already exists, so no policy about addresses prevents an admin from creating
				// it.
				all = append(all, request{what: "write the status of its OCIRepository", aimed: writeOwnStatus})
			}
			all = append(all, request{what: "write the status of its GitRepository", aimed: writeGitStatus})
			for _, k := range statusKinds {
				all = append(all, request{what: "write the status of its " + k.kind, aimed: func(ctx context.Context, e *Scenario) error { return e.writeStatus(ctx, k.apiVersion, k.kind) }})
			}
			return requests(all...)(ctx, e)
		},
	})
}

// statusKinds are the kinds of Flux with a status that Flux reads, apart from GitRepository.
var statusKinds = []struct{ apiVersion, kind string }{
	{"kustomize.toolkit.fluxcd.io/v1", "Kustomization"}, {"helm.toolkit.fluxcd.io/v2", "HelmRelease"},
	{sourceAPI, "HelmRepository"}, {sourceAPI, "OCIRepository"}, {sourceAPI, "Bucket"}, {sourceAPI, "HelmChart"},
	{"notification.toolkit.fluxcd.io/v1", "Receiver"},
	{imageAPI, "ImageRepository"}, {imageAPI, "ImagePolicy"}, {imageAPI, "ImageUpdateAutomation"},
	{"source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator"},
}

// writeStatus writes the status of an object of a kind, in a dry run. An admin creates the object, but only
// if the tenant has the right to write such a status.
func (e *Scenario) writeStatus(ctx context.Context, apiVersion, kind string) error {
	if err := e.patchStatus(ctx, object(apiVersion, kind, e.Namespace, name("s4"), nil)); !apierrors.IsNotFound(err) {
		return err
	}
	objects := e.ofEveryKind(ctx, "s4")
	u := objects[slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == kind })]
	if err := e.Admin.Create(ctx, u); err != nil {
		control, _ := controlOf(firstLine(err.Error()))
		if strings.HasPrefix(control, "policy ") && e.tryCreate(ctx, u.DeepCopy()) != nil {
			return &absentError{kind: kind, namespace: e.Namespace}
		}
		// The error is not wrapped, since the caller would count a wrapped refusal as a control of the attack.
		return fmt.Errorf("cannot make a %s for the tenant: %s", kind, firstLine(err.Error()))
	}
	defer e.remove(u)
	return e.patchStatus(ctx, u.DeepCopy())
}

// absentError says that no object of a kind can be in the tenant's namespace, since a policy refuses it to admins and to
// the tenant, as one on addresses does if it allows none.
type absentError struct{ kind, namespace string }

func (e *absentError) Error() string {
	return fmt.Sprintf("no %s is in namespace %s, and a policy lets nobody make one", e.kind, e.namespace)
}

// ownsSource reports whether the source of the tenant's repository is in the tenant's namespace.
func (e *Scenario) ownsSource() bool {
	return e.Repository != nil && e.Repository.Source.Namespace == e.Namespace
}

// writeGitStatus writes the status of the tenant's GitRepository, or of a GitRepository that an admin
// creates.
func writeGitStatus(ctx context.Context, e *Scenario) error {
	if !e.ownsSource() || !inGit(*e.Repository) {
		return e.writeStatus(ctx, sourceAPI, string(flux.GitRepository))
	}
	return writeOwnStatus(ctx, e)
}

// writeOwnStatus writes the status of the source of the tenant's repository.
func writeOwnStatus(ctx context.Context, e *Scenario) error {
	return e.patchStatus(ctx, object(sourceAPI, string(e.Repository.Source.Kind), e.Namespace, e.Repository.Source.Name, nil))
}

// patchStatus patches the status of an object as the tenant, in a dry run.
func (e *Scenario) patchStatus(ctx context.Context, u *unstructured.Unstructured) error {
	return e.patchStatusWith(ctx, u, `{"status":{"observedGeneration":1}}`)
}

// patchStatusWith is [Scenario.patchStatus] with the given patch.
func (e *Scenario) patchStatusWith(ctx context.Context, u *unstructured.Unstructured, patch string) error {
	return e.As.SubResource("status").Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
}
