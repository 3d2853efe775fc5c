package verify

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/cli/ui"
)

// page is the report for people while it is written, worst first.
type page struct {
	strings.Builder
	screen *ui.Screen
	all    bool
}

// indent is what lines below a heading are moved by.
const indent = 2

// writeText writes the report for people. With all, each attack that was stopped
// has a line of its own.
func (r report) writeText(screen *ui.Screen, all bool) error {
	p := &page{screen: screen, all: all}
	for i, c := range r.Clusters {
		if i > 0 {
			p.WriteString("\n")
		}
		if len(r.Clusters) > 1 {
			fmt.Fprintf(p, "── %s ──\n", ui.Clean(c.Path))
		}
		p.cluster(c)
	}
	for _, s := range r.Stale {
		p.WriteString("\n")
		p.heading("! stale", ui.Yellow, fmt.Sprintf("the baseline accepts %s for tenant %s until %s, and it does not get through: remove the entry", s.ID, s.Tenant, s.Expires))
	}
	if len(r.Clusters) > 1 {
		var verdicts []string
		for _, c := range r.Clusters {
			verdicts = append(verdicts, c.Path+" "+c.Verdict)
		}
		p.WriteString("\n")
		p.verdict(r.Verdict, fmt.Sprintf("%s; %s", strings.Join(verdicts, ", "), seconds(r.Seconds)))
	}
	_, err := io.WriteString(screen, strings.TrimPrefix(p.String(), "\n"))
	return err
}

func (p *page) cluster(c clusterReport) {
	p.gotThrough(c)
	p.notProven(c)
	for _, n := range c.NotReady {
		p.WriteString("\n")
		p.heading("? not ready", ui.Yellow, n.Object)
		p.detail("", n.Reason)
	}
	for _, address := range c.Unmapped {
		p.WriteString("\n")
		p.heading("! asked for", ui.Yellow, address)
	}
	p.patch(c)
	p.warnings(c)
	p.accepted(c)
	p.stopped(c)
	p.tenants(c)
	p.WriteString("\n")
	n := c.Coverage
	counts := fmt.Sprintf("%s, %s: %d stopped, %d got through, %d not proven", number(len(c.Tenants), "tenant"), number(n.Tried, "attack"), n.Stopped, n.GotThrough, n.NotProven)
	if n.Accepted > 0 {
		counts += fmt.Sprintf(", %d accepted", n.Accepted)
	}
	if n.Tried > 0 {
		counts += fmt.Sprintf(" (%d%% proven)", (n.Tried-n.NotProven)*100/n.Tried)
	}
	switch {
	case c.Error != "" && n.Tried == 0:
		counts = c.Error
	case c.Error != "":
		counts = c.Error + "; so far " + counts
	}
	p.verdict(c.Verdict, counts+"; "+seconds(c.Seconds))
}

func (p *page) heading(mark string, colour ui.Colour, text string) {
	p.WriteString(p.screen.Wrap(p.screen.Paint(colour, mark)+" ", indent, text))
}

// detail is a line below a heading.
func (p *page) detail(name, text string) {
	if name != "" {
		name += ": "
	}
	p.WriteString(p.screen.Wrap(strings.Repeat(" ", indent)+name, indent, text))
}

func (p *page) verdict(verdict, text string) {
	marks := map[string]string{verdictSafe: "✓", verdictUnsafe: "✗", verdictUnjudged: "?"}
	colours := map[string]ui.Colour{verdictSafe: ui.Green, verdictUnsafe: ui.Red, verdictUnjudged: ui.Yellow}
	p.WriteString(p.screen.Wrap(p.screen.Paint(colours[verdict], marks[verdict]+" "+verdict+":")+" ", indent, text))
}

// gotThrough lists what got through once for all tenants it got through for.
func (p *page) gotThrough(c clusterReport) {
	for _, g := range c.grouped(func(a attackMade) bool { return a.Outcome == string(attack.GotThrough) && a.Accepted == nil }) {
		a := g.first
		p.WriteString("\n")
		p.heading("✗ got through", ui.Red, a.ID+" "+a.Title)
		p.detail("", "as "+g.tenants()+", "+via(a.Via)+": "+a.Evidence)
		p.detail("fix", a.Fix)
		if a.Expired != nil {
			p.detail("accepted until "+a.Expired.Expires+", which has expired", a.Expired.Reason)
		}
		if len(a.References) > 0 {
			p.detail("see", strings.Join(a.References, "; "))
		}
	}
}

// patch prints one patch for everything, as it is applied and so not wrapped:
// several for the same file could not be applied one after the other.
func (p *page) patch(c clusterReport) {
	if c.Patch == "" {
		return
	}
	p.WriteString("\n")
	p.heading("→ patch", ui.Green, "what of this the fleet's manifests fix, for git apply in the fleet's folder:")
	p.WriteString("\n" + c.Patch)
}

// notProven lists what was not proven, once for each reason: one that is not
// mapped can be the reason for half of the catalogue.
func (p *page) notProven(c clusterReport) {
	byReason := map[string][]*group{}
	var reasons []string
	for _, g := range c.grouped(func(a attackMade) bool { return a.Outcome == string(attack.NotProven) }) {
		reason := g.tenants() + "\x00" + g.first.Reason
		if byReason[reason] == nil {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], g)
	}
	for _, reason := range reasons {
		groups := byReason[reason]
		a := groups[0].first
		p.WriteString("\n")
		if len(groups) == 1 {
			p.heading("? not proven", ui.Yellow, a.ID+" "+a.Title)
			p.detail("", "as "+groups[0].tenants()+", "+via(a.Via)+": "+a.Reason)
			continue
		}
		var keys []string
		for _, g := range groups {
			keys = append(keys, g.first.Key)
		}
		p.heading("? not proven", ui.Yellow, a.Reason)
		p.detail("", "as "+groups[0].tenants()+": "+strings.Join(keys, ", "))
	}
}

// warnings do not change the verdict.
func (p *page) warnings(c clusterReport) {
	missing := c.grouped(func(a attackMade) bool { return len(a.Missing) > 0 })
	if len(missing) > 0 {
		p.WriteString("\n")
		p.heading("! one layer is missing", ui.Yellow, "")
	}
	for _, g := range missing {
		p.detail("", fmt.Sprintf("%s as %s: stopped by %s, but there is no %s", g.first.Key, g.tenants(), g.first.Control, strings.Join(g.first.Missing, ", no ")))
	}
	var admins []string
	for _, t := range c.Tenants {
		if t.ClusterAdmin {
			admins = append(admins, t.Name)
		}
	}
	if len(admins) > 0 {
		p.WriteString("\n")
		p.heading("! cluster-admin", ui.Yellow, "in the namespaces of "+some(admins)+": bind a narrower role")
	}
}

func (p *page) accepted(c clusterReport) {
	for _, g := range c.grouped(func(a attackMade) bool { return a.Accepted != nil }) {
		p.WriteString("\n")
		p.heading("! accepted", ui.Yellow, g.first.ID+" "+g.first.Title)
		p.detail("", fmt.Sprintf("as %s, %s, until %s: %s", g.tenants(), via(g.first.Via), g.first.Accepted.Expires, g.first.Accepted.Reason))
	}
}

// stopped says which control stopped which attacks.
func (p *page) stopped(c clusterReport) {
	groups := c.grouped(func(a attackMade) bool { return a.Outcome == string(attack.Stopped) })
	if len(groups) == 0 {
		return
	}
	p.WriteString("\n")
	if p.all {
		table := ui.Table{Header: []string{"STOPPED", "VIA", "BY", "ATTACK"}}
		for _, g := range groups {
			title := g.first.Title
			if g.first.Kind != "" {
				title += " (" + g.first.Kind + ")"
			}
			table.Rows = append(table.Rows, []string{g.first.ID, g.first.Via, g.first.Control, title})
		}
		_ = table.Print(&ui.Screen{Writer: p, Interactive: p.screen.Interactive, Colour: p.screen.Colour, Size: p.screen.Size})
		return
	}
	byControl := map[string][]string{}
	var controls []string
	width := len("STOPPED BY")
	for _, g := range groups {
		control := ui.Clean(g.first.Control)
		if byControl[control] == nil {
			controls = append(controls, control)
			width = max(width, min(ansi.StringWidth(control), 40))
		}
		if !slices.Contains(byControl[control], g.first.ID) {
			byControl[control] = append(byControl[control], g.first.ID)
		}
	}
	slices.SortStableFunc(controls, func(a, b string) int { return len(byControl[b]) - len(byControl[a]) })
	p.WriteString(ui.Pad("STOPPED BY", width) + "   ATTACKS\n")
	for _, control := range controls {
		p.WriteString(p.screen.Wrap(ui.Pad(control, width)+"   ", width+3, strings.Join(byControl[control], " ")))
	}
}

// tenants says who was attacked, and which of them were in full.
func (p *page) tenants(c clusterReport) {
	switch {
	case c.Error != "" && len(c.Tenants) == 0:
		return
	case c.Error != "":
		var names []string
		for _, t := range c.Tenants {
			names = append(names, t.Name)
		}
		p.WriteString("\n" + p.screen.Wrap("attacked in part or not at all: ", indent, strings.Join(names, ", ")))
		return
	case len(c.Tenants) == 0:
		p.WriteString("\n")
		p.heading("? no tenants", ui.Yellow, "no namespace outside of the platform's has Flux objects or the label toolkit.fluxcd.io/tenant")
		return
	}
	p.WriteString("\n")
	for _, t := range c.Tenants {
		if t.Like != "" {
			continue
		}
		p.WriteString(p.screen.Wrap("attacked in full: ", indent, fmt.Sprintf("%s (%s %s; %s)", t.Name,
			plural(len(t.Namespaces), "namespace"), strings.Join(t.Namespaces, ", "), strings.Join(t.Roles, ", "))))
		var alike []string
		for _, other := range c.Tenants {
			if other.Like == t.Name {
				alike = append(alike, other.Name)
			}
		}
		if len(alike) > 0 {
			p.detail("same rights, so attacked without waiting for Flux", strings.Join(alike, ", "))
		}
	}
}

// group is an attack that ended in the same way for several tenants.
type group struct {
	first attackMade
	names []string
}

func (g group) tenants() string { return some(g.names) }

// grouped puts the attacks that are chosen together where only the tenants
// differ.
func (c clusterReport) grouped(chosen func(attackMade) bool) []*group {
	var groups []*group
	byKey := map[string]*group{}
	for _, a := range c.Attacks {
		if !chosen(a) {
			continue
		}
		key := fmt.Sprintf("%q", []any{a.Key, a.Control, a.Evidence, a.Reason, a.Missing, a.Accepted, a.Expired})
		if byKey[key] == nil {
			byKey[key] = &group{first: a}
			groups = append(groups, byKey[key])
		}
		byKey[key].names = append(byKey[key].names, a.Tenant)
	}
	return groups
}

// some lists names, and how many more there are.
func some(names []string) string {
	const most = 6
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func via(v string) string {
	switch attack.Via(v) {
	case attack.Git:
		return "through Git"
	case attack.Proxy:
		return "through the proxy"
	}
	return "through the API"
}

func number(n int, what string) string { return fmt.Sprintf("%d %s", n, plural(n, what)) }

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

func seconds(s float64) string { return local.Seconds(time.Duration(s * float64(time.Second))) }
