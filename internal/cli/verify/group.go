package verify

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// isThrough, isUnproven and isAbsent report whether an attack had this outcome, and the
// baseline does not accept it.
func isThrough(a attackMade) bool {
	return a.Outcome == string(catalog.GotThrough) && a.Accepted == nil
}

func isUnproven(a attackMade) bool {
	return a.Outcome == string(catalog.NotProven) && a.Accepted == nil
}

func isAbsent(a attackMade) bool { return a.Outcome == string(catalog.NotInstalled) }

// group is an attack that had the same outcome for several tenants.
type group struct {
	first attackMade
	names []string
}

func (g group) tenants() string { return listSome(g.names) }

// as returns text about the finding, the tenants and the way of the attack. The finding
// has the words about the first tenant.
func (g group) as(found string) string {
	return "as " + g.tenants() + ", " + via(g.first.Via) + ": " + found
}

// grouped returns the chosen attacks in groups. Attacks in a group differ only in the
// tenant, and in the tenant's names within their texts.
func (c clusterReport) grouped(chosen func(attackMade) bool) []*group {
	var groups []*group
	byKey := map[string]*group{}
	for _, a := range c.Attacks {
		if !chosen(a) {
			continue
		}
		// An attack that was not tried as this tenant has texts about the tenant that was attacked.
		anonymous := c.anonymous(cmp.Or(a.Like, a.Tenant))
		key := fmt.Sprintf("%q", []any{a.Key, a.Control, anonymous(a.Evidence), anonymous(a.Reason), a.Missing, a.Accepted.String(), a.Expired.String()})
		if byKey[key] == nil {
			byKey[key] = &group{first: a}
			groups = append(groups, byKey[key])
		}
		byKey[key].names = append(byKey[key].names, a.Tenant)
	}
	return groups
}

// word matches a complete name.
var word = regexp.MustCompile(`[A-Za-z0-9-]+`)

// anonymous returns a function that removes the names of a tenant, and of its namespaces,
// accounts and repositories, from a text, so that texts about two tenants become equal.
func (c clusterReport) anonymous(name string) func(string) string {
	names := map[string]bool{name: true}
	if i := slices.IndexFunc(c.Tenants, func(t tenant) bool { return t.Name == name }); i >= 0 {
		t := c.Tenants[i]
		for _, text := range slices.Concat(t.Namespaces, t.Accounts, t.Owners) {
			for _, part := range word.FindAllString(text, -1) {
				names[part] = true
			}
		}
		for _, repository := range t.Repositories {
			address, _, _ := strings.Cut(repository, "#")
			names[path.Base(address)] = true
		}
	}
	return func(text string) string {
		return word.ReplaceAllStringFunc(text, func(w string) string {
			if names[w] {
				return "\x00"
			}
			return w
		})
	}
}

// unproven returns the unproven attacks that the baseline does not accept, grouped by
// tenants and reason.
func (c clusterReport) unproven() [][]*group {
	return collect(c.grouped(isUnproven), func(g *group) string { return g.tenants() + "\x00" + g.first.Reason })
}

// through returns the attacks that got through and that the baseline does not accept: an attack is one
// entry, with the groups of its ways and tenants. byFix divides an entry.
func (c clusterReport) through() [][]*group {
	return collect(c.grouped(isThrough), func(g *group) string { return g.first.ID + "\x00" + g.first.Title })
}

// byFix divides the groups of an attack by the fix, which may differ between tenants.
func byFix(groups []*group) [][]*group {
	return collect(groups, func(g *group) string { return g.first.Fix })
}

// accepted returns the attacks that the baseline accepts, each with all tenants for which one entry of the
// baseline accepts the same result.
func (c clusterReport) accepted() [][]*group {
	return collect(c.grouped(func(a attackMade) bool { return a.Accepted != nil }), func(g *group) string {
		return strings.Join([]string{g.first.Key, g.first.Outcome, g.first.Reason, g.first.Accepted.String()}, "\x00")
	})
}

// absent returns the attacks on parts that are not installed, grouped by reason.
func (c clusterReport) absent() [][]*group {
	return collect(c.grouped(isAbsent), func(g *group) string { return g.first.Message })
}

// collect combines groups by a key, in the order of the first of each key.
func collect(groups []*group, keyOf func(*group) string) [][]*group {
	at := map[string]int{}
	var all [][]*group
	for _, g := range groups {
		key := keyOf(g)
		if _, known := at[key]; !known {
			at[key] = len(all)
			all = append(all, nil)
		}
		all[at[key]] = append(all[at[key]], g)
	}
	return all
}

// alike returns the tenants with the same rights as a tenant that was attacked in full.
func (c clusterReport) alike(t tenant) []string {
	var alike []string
	for _, other := range c.Tenants {
		if other.Like == t.Name {
			alike = append(alike, other.Name)
		}
	}
	return alike
}

// listSome returns the first names of a list, and the number of the others, as text.
func listSome(names []string) string {
	const most = 6
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func via(v string) string {
	switch catalog.Via(v) {
	case catalog.Git:
		return "through Git"
	case catalog.Proxy:
		return "through the proxy"
	}
	return "through the API"
}

func seconds(s float64) string { return local.Seconds(time.Duration(s * float64(time.Second))) }
