package verify

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// page writes the report as text.
type page struct {
	strings.Builder
	screen *ui.Screen
	// all lists each stopped attack.
	all bool
}

// indent is the indentation of lines below a heading.
const indent = 2

// writeText writes the report as text: first the reasons why it could not reach a
// verdict, then the findings, worst first. With all, each stopped attack has a line of its own. The
// commands that repeat an attack are printed with all, and if only some attacks were chosen: they
// are longer than the rest of the report.
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
		p.heading("! stale", ui.Yellow, s.String())
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
	p.causes(c)
	p.gotThrough(c)
	p.notProven(c)
	p.patch(c)
	p.warnings(c)
	p.accepted(c)
	p.stopped(c)
	p.notInstalled(c)
	p.read(c)
	p.tenants(c)
	p.platform(c)
	p.pointer(c)
	p.WriteString("\n")
	p.verdict(c.Verdict, c.summary())
	for _, hint := range c.hints {
		p.detail("", hint)
	}
}

// summary returns the numbers of attacks by outcome, as text.
func (c clusterReport) summary() string {
	n := c.Coverage
	counts := fmt.Sprintf("%s, %s: %d stopped, %d got through, %d not proven, %d not installed",
		ui.Number(len(c.Tenants), "tenant"), ui.Number(n.Tried, "attack"), n.Stopped, n.GotThrough, n.NotProven, n.NotInstalled)
	if n.Accepted > 0 {
		counts += fmt.Sprintf(", %d accepted", n.Accepted)
	}
	if percent, any := n.proven(); any {
		counts += fmt.Sprintf(" (%d%% proven)", percent)
	}
	if len(c.Chosen) > 0 {
		counts = fmt.Sprintf("only %s of %d attacks tried; %s", strings.Join(c.Chosen, ", "), len(catalog.Catalogue()), counts)
	}
	switch {
	case c.Error != "" && n.Tried == 0:
		counts = c.Error
	case c.Error != "":
		counts = c.Error + "; so far " + counts
	}
	return counts + "; " + seconds(c.Seconds)
}

func (p *page) heading(mark string, colour ui.Colour, text string) {
	p.WriteString(p.screen.Wrap(p.screen.Paint(colour, mark+":")+" ", indent, text))
}

// detail writes a line below a heading.
func (p *page) detail(name, text string) {
	if name != "" {
		name += ": "
	}
	p.WriteString(p.screen.Wrap(strings.Repeat(" ", indent)+name, indent, text))
}

func (p *page) verdict(verdict, text string) {
	colours := map[string]ui.Colour{verdictSafe: ui.Green, verdictUnsafe: ui.Red, verdictUnjudged: ui.Yellow}
	p.WriteString(p.screen.Wrap(p.screen.Paint(colours[verdict], verdictMarks[verdict]+" "+verdict+":")+" ", indent, text))
}

// causes lists the reasons why the fleet could not be judged: an error that ended the
// run, no tenants, requested addresses that are not mapped, and objects that did not
// become ready. It also lists what does not change the verdict.
func (p *page) causes(c clusterReport) {
	if c.Error != "" && c.Coverage.Tried > 0 {
		p.WriteString("\n")
		p.heading("? broke off", ui.Yellow, c.Error)
	}
	for _, address := range c.Unmapped {
		p.WriteString("\n")
		p.heading("! requested", ui.Yellow, address)
	}
	for _, missing := range c.Lacking {
		p.WriteString("\n")
		p.heading("! missing", ui.Yellow, missing)
	}
	for _, dependency := range c.Dependencies {
		p.WriteString("\n")
		p.heading("! depends", ui.Yellow, dependency+": a tenant that breaks its object blocks the platform")
	}
	for _, text := range c.notTried() {
		p.WriteString("\n")
		p.heading("? not tried", ui.Yellow, text)
	}
	for _, assumed := range c.Assumed {
		p.WriteString("\n")
		p.heading("? assumed", ui.Yellow, assumed)
	}
	for _, faked := range c.Faked {
		p.WriteString("\n")
		p.heading("? invented", ui.Yellow, faked)
	}
	for _, simulated := range c.Simulated {
		p.WriteString("\n")
		p.heading("? simulated", ui.Yellow, simulated)
	}
	for _, n := range c.causesFirst() {
		p.WriteString("\n")
		p.heading("? not ready", ui.Yellow, n.Reason+" ("+n.Object+")")
	}
	if c.Error == "" && len(c.Tenants) == 0 {
		p.WriteString("\n")
		p.heading("? no tenants", ui.Yellow, noTenants)
	}
}

// noTenants describes what verify looked for if it found no tenant.
const noTenants = "the fleet has no Tenant, no namespace of a team with a tenant's label (tenure.dev/tenant, toolkit.fluxcd.io/tenant, capsule.clastix.io/tenant), and no namespace in which Flux delivers a team's repository with rights that are not those of a cluster admin; name the namespaces of tenants with --tenants"

// causesFirst returns the objects that are not ready: sources first, then Kustomizations
// and HelmReleases, and last those that only wait for others.
func (c clusterReport) causesFirst() []notReady {
	rank := func(n notReady) int {
		kind, _, _ := strings.Cut(n.Object, "/")
		switch {
		case strings.Contains(n.Reason, "dependency '"):
			return 2
		case kind == "Kustomization" || kind == "HelmRelease":
			return 1
		}
		return 0
	}
	sorted := slices.Clone(c.NotReady)
	slices.SortStableFunc(sorted, func(a, b notReady) int { return rank(a) - rank(b) })
	return sorted
}

// gotThrough lists the attacks that got through, each once for all its tenants and ways.
func (p *page) gotThrough(c clusterReport) {
	for _, groups := range c.through() {
		a := groups[0].first
		p.WriteString("\n")
		p.heading("✗ got through", ui.Red, "a tenant "+a.Title+" ("+keys(groups)+")")
		for _, alike := range byFix(groups) {
			for _, g := range alike {
				p.detail("", g.as(g.first.Evidence))
			}
			p.detail("fix", alike[0].first.Fix)
		}
		for _, alike := range collect(groups, func(g *group) string { return g.first.Expired.String() }) {
			p.expired(alike[0].first)
		}
		if len(a.References) > 0 {
			p.detail("see", strings.Join(a.References, "; "))
		}
		for _, g := range groups {
			if p.showsCommands(c) {
				p.repeat(g.first)
			}
		}
	}
}

// showsCommands reports whether the report has the commands that repeat an attack.
func (p *page) showsCommands(c clusterReport) bool { return p.all || len(c.Chosen) > 0 }

// pointer says how to get the commands that repeat the attacks that got through, if the report has
// left them out.
func (p *page) pointer(c clusterReport) {
	i := slices.IndexFunc(c.Attacks, func(a attackMade) bool { return isThrough(a) && a.Repeat != "" })
	if i >= 0 && !p.showsCommands(c) {
		p.WriteString("\n")
		p.heading("→ repeat", ui.Green, "--attack "+c.Attacks[i].Key+" tries this attack alone, and prints the commands that repeat it by hand; --all and -o html=FILE have those of all attacks")
	}
}

// repeat prints the commands that repeat an attack, ready to paste: neither wrapped nor
// indented.
func (p *page) repeat(a attackMade) {
	if a.Repeat != "" {
		p.detail("", "try it yourself:")
		p.WriteString(ui.CleanLines(a.Repeat) + "\n")
	}
}

func (p *page) expired(a attackMade) {
	if a.Expired != nil {
		p.detail("accepted, which has expired", a.Expired.String())
	}
}

// patch prints one patch for all findings, without wrapping: several patches of one file could
// not be applied one after the other.
func (p *page) patch(c clusterReport) {
	if c.Patch == "" {
		return
	}
	p.WriteString("\n")
	p.heading("→ patch", ui.Green, "a change of the fleet's manifests against these attacks; run git apply in the fleet's folder")
	p.WriteString("\n" + c.Patch)
}

// notProven lists the attacks that are not proven, grouped by reason: one missing map can be the
// reason for half of the catalogue.
func (p *page) notProven(c clusterReport) {
	for _, groups := range c.unproven() {
		a := groups[0].first
		p.WriteString("\n")
		if len(groups) == 1 {
			p.heading("? not proven", ui.Yellow, "whether a tenant "+a.Title+" ("+a.Key+")")
			p.detail("", groups[0].as(a.Reason))
			p.expired(a)
			continue
		}
		p.heading("? not proven", ui.Yellow, a.Reason)
		p.detail("", fmt.Sprintf("%s, as %s: %s", ui.Number(len(groups), "attack"), groups[0].tenants(), keys(groups)))
		for _, g := range groups {
			p.expired(g.first)
		}
	}
}

// notInstalled lists the parts that are not installed. They could not be attacked, so nothing
// is proven about them.
func (p *page) notInstalled(c clusterReport) {
	groups := c.absent()
	if len(groups) == 0 {
		return
	}
	p.WriteString("\n")
	p.heading("· not installed", ui.Faint, "the fleet lacks the target of these attacks: they were not tried")
	for _, g := range groups {
		p.detail("", g[0].first.Message+" ("+keys(g)+")")
	}
}

// read writes the numbers of files and objects of the cluster's folder, and lists the
// files that were not applied.
func (p *page) read(c clusterReport) {
	if c.Read == nil {
		return
	}
	if len(c.Read.NotApplied) > 0 {
		p.WriteString("\n")
		p.heading("! not applied", ui.Yellow, fmt.Sprintf("%d of %s of %s", len(c.Read.NotApplied), ui.Number(c.Read.Files, "file"), c.Path))
		for _, r := range c.Read.ByReason() {
			p.detail("", r.Reason+": "+strings.Join(r.Files, ", "))
		}
	}
	p.WriteString("\n" + p.screen.Wrap("read: ", indent, c.Read.Summary(c.Path)))
}

// keys returns the keys of groups without duplicates, as text.
func keys(groups []*group) string {
	var all []string
	for _, g := range groups {
		if !slices.Contains(all, g.first.Key) {
			all = append(all, g.first.Key)
		}
	}
	return strings.Join(all, ", ")
}

// names returns the names of the tenants of groups.
func names(groups []*group) []string {
	var all []string
	for _, g := range groups {
		all = append(all, g.names...)
	}
	return all
}

// adminEverywhere is the role of a tenant that a ClusterRoleBinding binds to cluster-admin.
const adminEverywhere = "ClusterRole/cluster-admin (everywhere)"

// warnings do not change the verdict.
func (p *page) warnings(c clusterReport) {
	missing := c.grouped(func(a attackMade) bool { return len(a.Missing) > 0 })
	if len(missing) > 0 {
		p.WriteString("\n")
		p.heading("! one layer is missing", ui.Yellow, "another control still stops these attacks")
	}
	for _, g := range missing {
		p.detail("", fmt.Sprintf("a tenant %s (%s): as %s, stopped only by: %s; missing: %s", g.first.Title, g.first.Key, g.tenants(), g.first.Control, strings.Join(g.first.Missing, ", ")))
	}
	var admins, unlimited, flags []string
	for _, t := range c.Tenants {
		switch {
		case slices.Contains(t.Roles, adminEverywhere):
			unlimited = append(unlimited, t.Name)
			for _, namespace := range t.Namespaces {
				flags = append(flags, "--platform namespace="+namespace)
			}
		case t.ClusterAdmin:
			admins = append(admins, t.Name)
		}
	}
	if len(unlimited) > 0 {
		p.WriteString("\n")
		p.heading("! cluster-admin", ui.Yellow, "tenants with this role in the whole cluster: "+listSome(unlimited)+"; bind a narrower role in their namespaces, or say that their namespaces are the platform's own: "+strings.Join(flags, " "))
	}
	if len(admins) > 0 {
		p.WriteString("\n")
		p.heading("! cluster-admin", ui.Yellow, "tenants with this role in their namespaces: "+listSome(admins)+"; bind a narrower role")
	}
}

func (p *page) accepted(c clusterReport) {
	for _, groups := range c.accepted() {
		a, all := groups[0].first, group{first: groups[0].first, names: names(groups)}
		p.WriteString("\n")
		if a.Outcome == string(catalog.NotProven) {
			p.heading("! accepted, not proven", ui.Yellow, "whether a tenant "+a.Title+" ("+a.Key+")")
			p.detail("", all.as(a.Reason))
			p.detail("", "accepted "+a.Accepted.String())
			continue
		}
		p.heading("! accepted", ui.Yellow, "a tenant "+a.Title+" ("+a.Key+")")
		p.detail("", "as "+all.tenants()+", "+via(a.Via)+"; "+a.Accepted.String())
	}
}

// stopped lists the controls with the attacks that each stopped.
func (p *page) stopped(c clusterReport) {
	groups := c.grouped(func(a attackMade) bool { return a.Outcome == string(catalog.Stopped) })
	if len(groups) == 0 {
		return
	}
	p.WriteString("\n")
	if p.all {
		table := ui.Table{Header: []string{"STOPPED BY", "VIA", "ATTACK"}}
		for _, g := range groups {
			table.Rows = append(table.Rows, []string{g.first.Control, g.first.Via, g.first.Title + " (" + g.first.Key + ")"})
		}
		_ = table.Print(&ui.Screen{Writer: p, Interactive: p.screen.Interactive, Colour: p.screen.Colour, Size: p.screen.Size})
		for _, g := range groups {
			if g.first.Repeat != "" {
				p.WriteString("\n" + g.first.Key + "\n")
				p.repeat(g.first)
			}
		}
		return
	}
	byControl := map[string][]string{}
	var controls []string
	width := len("STOPPED BY")
	for _, g := range groups {
		control := ui.Clean(g.first.Control)
		if byControl[control] == nil {
			controls = append(controls, control)
			width = max(width, min(ansi.StringWidth(control), 50))
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

// tenants lists the tenants that were attacked in full, each with the tenants of the same
// rights. If the run was aborted, it lists all tenants.
func (p *page) tenants(c clusterReport) {
	if len(c.Tenants) == 0 {
		return
	}
	p.WriteString("\n")
	if c.Error != "" {
		var names []string
		for _, t := range c.Tenants {
			names = append(names, t.Name)
		}
		p.WriteString(p.screen.Wrap("attacked in part or not at all: ", indent, strings.Join(names, ", ")))
		return
	}
	for _, t := range c.Tenants {
		if t.Like != "" {
			continue
		}
		p.WriteString(p.screen.Wrap("attacked in full: ", indent, fmt.Sprintf("%s (%s %s; %s)", t.Name,
			ui.Plural(len(t.Namespaces), "namespace"), strings.Join(t.Namespaces, ", "), strings.Join(t.Roles, ", "))))
		if alike := c.alike(t); len(alike) > 0 {
			p.detail("same rights, so attacked without the attacks that wait for Flux", strings.Join(alike, ", "))
		}
	}
}

// platform lists the namespaces that were not attacked, and the Kustomizations that may hold
// more tenants.
func (p *page) platform(c clusterReport) {
	if len(c.Platform) > 0 {
		p.WriteString("\n")
		p.heading("· not attacked", ui.Faint, "namespaces of the platform, with the evidence; to attack one of them, name it with --tenants")
	}
	for _, ns := range c.Platform {
		p.detail("", "namespace "+ns.Namespace+": "+ns.Why)
	}
	if held := c.stoppedAttacks(); len(held) > 0 {
		p.WriteString("\n")
		p.heading("! not applied", ui.Yellow, "more tenants may be in "+strings.Join(held, ", "))
	}
}
