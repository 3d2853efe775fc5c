// Package autofix makes patches for a fleet out of what attacks on it showed:
// where the control that is missing has one of the known places in the fleet's
// manifests, the change is written as a unified diff that `git apply` and
// `patch -p1` take, in the fleet's folder. Those places are
//
//   - the flags of Flux's controllers, in the kustomization file beside
//     gotk-components.yaml;
//   - the RoleBindings and ClusterRoleBindings of the tenant's accounts, and the
//     roles of the fleet that these refer to;
//   - the labels of the tenant's Namespaces.
//
// All other findings have advice in words. The package reads the folder, never writes to it, and
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

// Annotate puts into each result that got through the patch that closes it
// alone, if there is one, and returns the patch for all of them together: patches
// for the same file cannot be applied one after the other. It is empty when
// nothing can be patched. An error means that the fleet cannot be read; the
// report is then as it was.
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
	// A tenant that was not attacked with all that another one of its shape
	// was needs what that one needs.
	like := map[string][]discovery.Tenant{}
	for name, first := range report.Like {
		like[first] = append(like[first], byName[name])
	}
	patches := map[int]string{}
	for i, r := range report.Results {
		if !gotThrough(r) {
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

// Patch returns the patch that puts a fix into a fleet for a tenant; empty if no
// place for it is known, or if the fleet says it already.
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

// apply makes the edits that a fix needs for tenants.
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
