package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addEditedSync(register func(...Attack)) {
	register(Attack{
		ID: "I10", Via: API,
		Kinds:      everySync,
		Title:      "edits the Flux objects with which the platform delivers its repository",
		Controls:   []string{"policy on objects that the platform made", "RBAC"},
		References: []string{"MTB CPI-2"},
		Fix:        Fix{Advice: "forbid tenants to change Flux objects that a Kustomization of the platform applies with a ValidatingAdmissionPolicy on the label kustomize.toolkit.fluxcd.io/namespace, or keep these objects, and the records of their releases (spec.storageNamespace), in a namespace that tenants cannot write to"},
		Run:        editsItsSync,
	})
}

// syncPatches are the changes that a tenant would make, by the kind of the sync.
var syncPatches = map[flux.Kind]map[string]string{
	flux.Kustomization: {
		"spec.path":               `{"spec":{"path":"./` + missingFolder + `"}}`,
		"spec.serviceAccountName": `{"spec":{"serviceAccountName":"tenure-attack"}}`,
		"spec.sourceRef":          `{"spec":{"sourceRef":{"name":"tenure-attack"}}}`,
		"spec.suspend":            `{"spec":{"suspend":true}}`,
		"spec.prune":              `{"spec":{"prune":false}}`,
	},
	flux.HelmRelease:    {"spec.serviceAccountName": `{"spec":{"serviceAccountName":"tenure-attack"}}`, "spec.suspend": `{"spec":{"suspend":true}}`},
	flux.GitRepository:  {"spec.ref": `{"spec":{"ref":{"branch":"tenure-attack"}}}`, "spec.suspend": `{"spec":{"suspend":true}}`},
	flux.OCIRepository:  {"spec.suspend": `{"spec":{"suspend":true}}`},
	flux.HelmRepository: {"spec.suspend": `{"spec":{"suspend":true}}`},
	flux.Bucket:         {"spec.suspend": `{"spec":{"suspend":true}}`},
}

func editsItsSync(ctx context.Context, e *Scenario) Finding {
	objects, err := e.fluxObjects(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	made, unknown := platformMade(objects, e.Tenant.Namespaces)
	further, err := e.editsElsewhere(ctx)
	if err == nil {
		var read []request
		read, err = e.editsValues(ctx, made)
		further = append(further, read...)
	}
	if err == nil {
		var records []request
		records, err = e.editsRecords(ctx)
		further = append(further, records...)
	}
	switch {
	case err != nil:
		return notProven(firstLine(err.Error()))
	case len(further) > 0:
	case len(made) == 0 && len(unknown) > 0:
		return notProven("it is unknown who created " + strings.Join(unknown, ", ") + ": no Kustomization or HelmRelease has applied it")
	case len(made) == 0:
		if err := identityWorks(ctx, e); err != nil {
			return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
		}
		return stopped(noSync, "no Flux object of "+strings.Join(e.Tenant.Namespaces, ", ")+" is the platform's")
	}
	own := e.suspended("i10-own", nil)
	ownErr := e.As.Create(ctx, own)
	if ownErr == nil {
		defer e.remove(own)
	}
	all := further
	for _, u := range made {
		patches := syncPatches[flux.Kind(u.GetKind())]
		for field, patch := range patches {
			patch = effective(u.Object, patch)
			all = append(all, request{
				what:  fmt.Sprintf("change %s of %s %s/%s", field, u.GetKind(), u.GetNamespace(), u.GetName()),
				aimed: func(ctx context.Context, e *Scenario) error { return tryPatch(ctx, e, &u, patch) },
				own: func(ctx context.Context, e *Scenario) error {
					if ownErr != nil {
						return ownErr
					}
					return tryPatch(ctx, e, own, `{"spec":{"prune":false}}`)
				},
			})
		}
	}
	slices.SortFunc(all, func(a, b request) int { return strings.Compare(a.what, b.what) })
	return requests(all...)(ctx, e)
}

// effective returns a merge patch that changes an object: no rule about changes refuses one whose fields the object
// has already. Then effective returns the patch with the opposite booleans.
func effective(object map[string]any, patch string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(patch), &fields) == nil && has(object, fields) {
		return strings.NewReplacer("true", "false", "false", "true").Replace(patch)
	}
	return patch
}

// has reports whether an object has all fields with the same values.
func has(object, fields map[string]any) bool {
	for name, value := range fields {
		current, there := object[name]
		inner, isObject := value.(map[string]any)
		of, _ := current.(map[string]any)
		switch {
		case !there, isObject && !has(of, inner), !isObject && !reflect.DeepEqual(current, value):
			return false
		}
	}
	return true
}

// tryPatch asks the API server whether the tenant could change an object. An object of the platform may
// break rules about the specs of tenants, such as a rule about intervals. The API server names only one
// policy that refuses a request. So tryPatch also tries to change the labels, which no rule about specs
// refuses: the refusal then shows that the object belongs to the platform.
func tryPatch(ctx context.Context, e *Scenario, u *unstructured.Unstructured, patch string) error {
	send := func(patch string) error {
		return e.As.Patch(ctx, u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	err := send(patch)
	if err == nil {
		return nil
	}
	if _, other := otherRule(ctx, err.Error()); !other {
		return err
	}
	if relabeled := send(`{"metadata":{"labels":{"tenure-attack":"canary"}}}`); relabeled != nil {
		return relabeled
	}
	return err
}

// fluxObjects returns the objects of syncs in the tenant's namespaces, without the objects of attacks.
func (e *Scenario) fluxObjects(ctx context.Context) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for _, namespace := range e.Tenant.Namespaces {
		objects, err := e.fluxObjectsIn(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// platformMade returns the objects that the manager wrote, or that Flux applied from outside of the
// tenant's namespaces, and the names of the objects of unknown origin.
func platformMade(objects []unstructured.Unstructured, namespaces []string) (made []unstructured.Unstructured, unknown []string) {
	for _, u := range objects {
		labels := u.GetLabels()
		from := flux.AppliedFrom(labels)
		switch {
		case labels[tenancy.LabelManaged] == tenancy.ManagedValue:
			made = append(made, u)
		case from == "":
			unknown = append(unknown, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
		case !slices.Contains(namespaces, from):
			made = append(made, u)
		}
	}
	slices.Sort(unknown)
	return made, unknown
}
