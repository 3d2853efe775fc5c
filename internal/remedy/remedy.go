// Package remedy makes patches for a fleet out of what attacks on it showed:
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
// Everything else has the advice in words. The folder is read and never written
// to, and nothing outside of it is read. Comments, order and layout of the files
// stay; a file that is written in a way that cannot be edited safely is left
// alone.
package remedy

import (
	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/fleet"
	"github.com/tenure-dev/tenure/internal/tenants"
)

// Annotate puts into each result that got through the patch that closes it
// alone, if there is one, and returns the patch for all of them together: patches
// for the same file cannot be applied one after the other. It is empty when
// nothing can be patched. An error means that the fleet cannot be read; the
// report is then as it was.
func Annotate(report *attack.Report, f *fleet.Fleet) (string, error) {
	all, err := load(f)
	if err != nil {
		return "", err
	}
	byName := map[string]tenants.Tenant{}
	for _, t := range report.Tenants {
		byName[t.Name] = t
	}
	// A tenant that was not attacked with all that another one of its shape
	// was needs what that one needs.
	like := map[string][]tenants.Tenant{}
	for name, first := range report.Like {
		like[first] = append(like[first], byName[name])
	}
	for i, r := range report.Results {
		if r.Finding.Outcome != attack.GotThrough {
			continue
		}
		one := all.untouched()
		for _, t := range append([]tenants.Tenant{byName[r.Tenant]}, like[r.Tenant]...) {
			one.apply(r.Attack.Fix, t)
			all.apply(r.Attack.Fix, t)
		}
		report.Results[i].Patch = one.diff()
	}
	return all.diff(), nil
}

// Patch returns the patch that puts a fix into a fleet for a tenant; empty if no
// place for it is known, or if the fleet says it already.
func Patch(f *fleet.Fleet, fix attack.Fix, t tenants.Tenant) (string, error) {
	tree, err := load(f)
	if err != nil {
		return "", err
	}
	tree.apply(fix, t)
	return tree.diff(), nil
}

func (t *tree) apply(fix attack.Fix, tenant tenants.Tenant) {
	for _, f := range fix.Flags {
		t.setFlag(f)
	}
	if fix.Rights || len(fix.Denied) > 0 {
		t.narrow(tenant, fix.Denied)
	}
	t.setLabels(tenant, fix.Labels)
}
