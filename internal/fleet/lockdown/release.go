package lockdown

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ReleaseFlag lets the manager remove its finalizers, and do nothing else.
const ReleaseFlag = "--release"

// releasePatch is the patch of the manager's Kustomization. The old Pod ends before the new
// one starts, and the new one is ready only after it has released all objects.
const releasePatch = `    # The first step to single-tenant: the manager removes its finalizers.
    - target:
        kind: Deployment
        name: ` + managerName + `
      patch: |
        - op: add
          path: /spec/template/spec/containers/0/args/-
          value: ` + ReleaseFlag + `
        - op: replace
          path: /spec/replicas
          value: 1
        - op: add
          path: /spec/strategy
          value: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
`

// patchesField begins the patches of a Kustomization, which the manager's has in warn mode.
const patchesField = "  patches:\n"

// release plans the first step of the way back: the cluster's manager removes its finalizers,
// while it has the rights to. It returns nil if the fleet has done this step, or has no
// manager.
func (t *tree) release() (*Plan, error) {
	file := t.component("sync.yaml")
	before, ok := t.before[file]
	if !ok || strings.Contains(before, ReleaseFlag) {
		return nil, nil
	}
	if there, _, err := managerSync(before); err != nil || !there {
		return nil, err
	}
	after := strings.TrimRight(before, "\n") + "\n"
	if manager := before[strings.LastIndex(before, "\n---\n")+1:]; !strings.Contains(manager, "\n"+patchesField) {
		after += patchesField
	}
	after += releasePatch
	if _, patched, err := managerSync(after); err != nil || !patched {
		return nil, fmt.Errorf("cannot edit %s: it is not as `tenure profile multi-tenant` wrote it: run that first", file)
	}
	t.now[file] = after
	in := t.fleet.Sync.Namespace
	return &Plan{Changes: t.changes(), Notes: []string{fmt.Sprintf(
		"this is the first of two steps: the manager removes its finalizers, so that Tenants and tenants' namespaces can be deleted without it; until the second step, owners create no namespaces. Once this is applied, wait for the manager: kubectl -n %[1]s wait deployment/%[2]s --for=jsonpath='{.spec.strategy.rollingUpdate.maxSurge}'=0 --timeout=10m && kubectl -n %[1]s rollout status deployment/%[2]s; then run the command again, which removes the profile",
		in, managerName)}}, nil
}

// managerSync reports whether manifests have the manager's Kustomization, and whether it
// lets the manager release its objects.
func managerSync(manifests string) (there, releases bool, err error) {
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		return false, false, fmt.Errorf("cannot read the component: %w", err)
	}
	for _, o := range objects {
		if o.GetKind() != string(flux.Kustomization) || o.GetName() != managerName {
			continue
		}
		patches, _, _ := unstructured.NestedSlice(o.Object, "spec", "patches")
		return true, strings.Contains(fmt.Sprint(patches), ReleaseFlag), nil
	}
	return false, false, nil
}
