// Package autofix computes patches for a fleet from the results of attacks. If a missing
// control belongs to one of the known places in the fleet's manifests, the package returns the
// change as a unified diff for `git apply` or `patch -p1` in the fleet's folder. The known
// places are
//
//   - the flags of Flux's controllers, in the kustomization file next to
//     gotk-components.yaml;
//   - the RoleBindings and ClusterRoleBindings of the tenant's accounts, and the
//     roles of the fleet that these refer to;
//   - the labels of the tenant's Namespaces.
//
// For all other findings, the report has advice as text. The package only reads the folder, and
// reads no file outside of it. Patches keep the comments, order and layout of the files. The
// package does not edit a file whose style it cannot edit safely.
package autofix

import (
	"errors"
	"slices"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// Annotate adds to each result that got through the patch that fixes this result, if there
// is one. It returns one patch for all of these results, since several patches for the same
// file cannot be applied one after the other; the patch is empty if no result can be fixed
// by a patch. Annotate returns an error, and leaves the report unchanged, if it cannot read
// or copy the fleet.
func Annotate(report *catalog.Report, f *layout.Fleet) (_ string, err error) {
	if !slices.ContainsFunc(report.Results, gotThrough) {
		return "", nil
	}
	all, err := load(f)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, all.bench.close()) }()
	byName := map[string]discovery.Tenant{}
	for _, t := range report.Tenants {
		byName[t.Name] = t
	}
	// verify skips some attacks on a tenant of the same shape as another tenant, so the
	// fixes of the first tenant apply to both.
	like := map[string][]discovery.Tenant{}
	for name, first := range report.Like {
		like[first] = append(like[first], byName[name])
	}
	patches := map[int]string{}
	for i, r := range report.Results {
		// A patch changes the role of the tenant's account only.
		if !gotThrough(r) || len(r.Finding.Further) > 0 {
			continue
		}
		one := all.untouched()
		for _, t := range []*tree{one, all} {
			if err := t.apply(r.Attack.Fix, append([]discovery.Tenant{byName[r.Tenant]}, like[r.Tenant]...)...); err != nil {
				return "", err
			}
		}
		patches[i] = one.patch()
	}
	for i, patch := range patches {
		report.Results[i].Patch = patch
	}
	return all.patch(), nil
}

func gotThrough(r catalog.Result) bool { return r.Finding.Outcome == catalog.GotThrough }

// Patch returns the patch that adds a fix for a tenant to a fleet. The patch is empty if the
// fix has no known place, or if the fleet already contains it. Patch returns an error if it
// cannot read or copy the fleet.
func Patch(f *layout.Fleet, fix catalog.Fix, t discovery.Tenant) (_ string, err error) {
	tree, err := load(f)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tree.bench.close()) }()
	if err := tree.apply(fix, t); err != nil {
		return "", err
	}
	return tree.patch(), nil
}

// apply makes the edits of a fix for tenants.
func (t *tree) apply(fix catalog.Fix, all ...discovery.Tenant) error {
	if len(fix.Flags) > 0 {
		if err := t.setFlags(fix.Flags); err != nil {
			return err
		}
	}
	var edits []func()
	for _, tenant := range all {
		if fix.Rights || len(fix.Denied) > 0 {
			edits = append(edits, func() { t.narrow(tenant, fix.Denied) })
		}
		if len(fix.Labels) > 0 {
			edits = append(edits, func() { t.setLabels(tenant, fix.Labels) })
		}
	}
	if len(edits) == 0 {
		return nil
	}
	return t.attempt(edits...)
}
