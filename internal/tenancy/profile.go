package tenancy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ErrInvalid means that a TenancyProfile is not valid, and must not be put in force.
var ErrInvalid = errors.New("the TenancyProfile is not valid")

// everybody are the groups to which every tenant belongs. spec.breakGlass must not contain them,
// because then the rules would apply to no tenant.
var everybody = []string{"system:authenticated", "system:unauthenticated", "system:serviceaccounts"}

// ReadProfile decodes a TenancyProfile, which may be older than the schema, and makes the checks
// that a schema cannot make. rules are the names that exemptions may name; home is Tenure's
// namespace. The error wraps [ErrInvalid] and names the field.
func ReadProfile(content *unstructured.Unstructured, rules []string, home string) (*v1alpha1.TenancyProfile, error) {
	profile := &v1alpha1.TenancyProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content.Object, profile); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	spec := profile.Spec
	if !slices.Contains(spec.PlatformNamespaces, home) {
		return nil, fmt.Errorf("%w: spec.platformNamespaces does not contain %s, where Tenure runs", ErrInvalid, home)
	}
	manager := v1alpha1.PlatformAccount(home + "/" + ManagerAccount)
	if !slices.Contains(spec.PlatformAccounts, manager) {
		return nil, fmt.Errorf("%w: spec.platformAccounts does not contain %s, the account of Tenure's manager: add it, beside the accounts of Flux's controllers", ErrInvalid, manager)
	}
	for i, account := range spec.PlatformAccounts {
		namespace, _, _ := strings.Cut(string(account), "/")
		if !OfPlatform(namespace, profile) {
			return nil, fmt.Errorf("%w: spec.platformAccounts[%d] is %s, and %s is none of spec.platformNamespaces: whoever may create accounts there would have the rights of the platform", ErrInvalid, i, account, namespace)
		}
	}
	for _, group := range spec.BreakGlass {
		if slices.Contains(everybody, group) || strings.HasPrefix(group, "system:serviceaccounts:") {
			return nil, fmt.Errorf("%w: spec.breakGlass contains %s, to which every tenant belongs", ErrInvalid, group)
		}
	}
	for i, e := range spec.Exemptions {
		if !slices.Contains(rules, e.Rule) && e.Rule != PodSecurityExemption {
			return nil, fmt.Errorf("%w: spec.exemptions[%d].rule is %q, and there is no such rule (rules: %s)", ErrInvalid, i, e.Rule, strings.Join(rules, ", "))
		}
	}
	bounds := spec.Tenants.Bounds
	if bounds.MinInterval.Duration <= 0 || bounds.MaxTimeout.Duration <= 0 {
		return nil, fmt.Errorf("%w: spec.tenants.bounds needs a minInterval and a maxTimeout above zero", ErrInvalid)
	}
	if err := checkSelectors("spec.tenants", &spec.Tenants); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return profile, nil
}
