package get

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
)

// tenant is the output for a tenant. The fields stay as they are in later versions.
type tenant struct {
	Name string `json:"name"`
	// Object reports whether the tenant has a Tenant object. Ready is the status of its condition
	// Ready, and empty without a Tenant object.
	Object  bool   `json:"object"`
	Ready   string `json:"ready,omitempty"`
	Message string `json:"message"`
	// Namespaces, Owners, Accounts, Roles and Repositories are as [discovery.Discover] finds them, and
	// Evidence are its reasons.
	Namespaces   []string `json:"namespaces"`
	Owners       []string `json:"owners"`
	Accounts     []string `json:"accounts"`
	Roles        []string `json:"roles"`
	Repositories []string `json:"repositories"`
	Evidence     []string `json:"evidence"`

	labels map[string]string
}

// describeTenants returns the tenants, sorted by name: those that were found, and those that only have
// a Tenant object yet. objects are the Tenant objects by name.
func describeTenants(found []discovery.Tenant, objects map[string]*v1alpha1.Tenant) []tenant {
	var all []tenant
	for _, t := range found {
		described := describe(t.Name, t.Namespaces, objects[t.Name])
		described.Roles, described.Evidence = list(t.Roles), list(t.Why)
		for _, a := range t.Accounts {
			described.Accounts = append(described.Accounts, a.String())
		}
		for _, owner := range t.Owners {
			described.Owners = append(described.Owners, owner.String())
		}
		for _, r := range t.Repositories {
			// A tenant may have sources for the same repository in several namespaces.
			if !slices.Contains(described.Repositories, r.Address()) {
				described.Repositories = append(described.Repositories, r.Address())
			}
		}
		all = append(all, described)
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if !slices.ContainsFunc(found, func(t discovery.Tenant) bool { return t.Name == name }) {
			all = append(all, describe(name, objects[name].Status.Namespaces, objects[name]))
		}
	}
	slices.SortFunc(all, func(a, b tenant) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// describe returns a tenant with the status of its object, which may be nil.
func describe(name string, namespaces []string, object *v1alpha1.Tenant) tenant {
	t := tenant{Name: name, Object: object != nil, Namespaces: list(namespaces), Owners: []string{}, Accounts: []string{}, Roles: []string{}, Repositories: []string{}, Evidence: []string{}}
	t.Ready, t.Message = tenantState(object)
	if object != nil {
		t.labels = object.Labels
	}
	return t
}

// list returns a list that JSON shows as [] if it is empty.
func list(values []string) []string { return append([]string{}, values...) }

// The maximum numbers of namespaces and repositories of a tenant that the table lists without -o wide.
const (
	maxNamespaces   = 3
	maxRepositories = 1
)

// tenantTable returns the columns and a row for each tenant. -o wide adds columns, and lists all values.
func tenantTable(tenants []tenant, wide bool) (header []string, rows [][]string) {
	header = []string{"NAME", "READY", "NAMESPACES", "REPOSITORIES", "MESSAGE"}
	if wide {
		header = []string{"NAME", "READY", "NAMESPACES", "ACCOUNTS", "ROLES", "REPOSITORIES", "OWNERS", "MESSAGE"}
	}
	for _, t := range tenants {
		row := []string{t.Name, t.Ready, firstValues(t.Namespaces, maxNamespaces), firstValues(t.Repositories, maxRepositories), t.Message}
		if wide {
			row = []string{t.Name, t.Ready}
			for _, values := range [][]string{t.Namespaces, t.Accounts, t.Roles, t.Repositories, t.Owners} {
				row = append(row, strings.Join(values, ","))
			}
			row = append(row, t.Message)
		}
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}
		rows = append(rows, row)
	}
	return header, rows
}

// firstValues joins the first values, and counts the others as kubectl does.
func firstValues(values []string, limit int) string {
	text := strings.Join(values[:min(len(values), limit)], ",")
	if more := len(values) - limit; more > 0 {
		text += fmt.Sprintf(" + %d more...", more)
	}
	return text
}

// tenantSelection selects tenants. A field without a value selects all.
type tenantSelection struct {
	names     []string
	namespace string
	labels    labels.Selector
	status    func(flux.Row) bool
}

// of returns the selected tenants.
func (s tenantSelection) of(all []tenant) []tenant {
	selected := []tenant{}
	for _, t := range all {
		if (len(s.names) == 0 || slices.Contains(s.names, t.Name)) &&
			(s.namespace == "" || slices.Contains(t.Namespaces, s.namespace)) &&
			s.labels.Matches(labels.Set(t.labels)) && s.status(flux.Row{Ready: t.Ready}) {
			selected = append(selected, t)
		}
	}
	return selected
}

// maxListed is the maximum number of tenants that a hint lists.
const maxListed = 10

// missing returns an error that lists the names that no tenant has, or says that no tenant has the
// namespace.
func (s tenantSelection) missing(all []tenant) error {
	var known []string
	for _, t := range all {
		known = append(known, t.Name)
	}
	var missing []error
	for _, name := range s.names {
		if !slices.Contains(known, name) {
			missing = append(missing, fmt.Errorf("tenant %s not found", name))
		}
	}
	hint := "the cluster has no tenants"
	switch n := len(known); {
	case n > maxListed:
		hint = fmt.Sprintf("`tenure get tenants` lists all %d", n)
	case n > 0:
		hint = "the tenants of this cluster: " + strings.Join(known, ", ")
	}
	if len(missing) > 0 {
		return ui.WithHint(errors.Join(missing...), hint)
	}
	if s.namespace != "" && len(s.names) == 0 && !slices.ContainsFunc(all, func(t tenant) bool { return slices.Contains(t.Namespaces, s.namespace) }) {
		return ui.WithHint(fmt.Errorf("no tenant has the namespace %s", s.namespace), hint)
	}
	return nil
}
