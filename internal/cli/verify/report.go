package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/attack"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/cli/ui"
	"github.com/tenure-dev/tenure/internal/flux"
)

// The verdicts.
const (
	verdictSafe     = "safe"
	verdictUnsafe   = "unsafe"
	verdictUnjudged = "not judged"
)

// result is the report as it is written, also for machines.
type result struct {
	Path     string       `json:"path"`
	Verdict  string       `json:"verdict"`
	Seconds  float64      `json:"seconds"`
	Tenants  []tenant     `json:"tenants"`
	NotReady []notReady   `json:"notReady,omitempty"`
	Attacks  []attackMade `json:"attacks"`
	Coverage coverage     `json:"coverage"`
	// Patch is for the fleet's manifests and closes, together, all of what got
	// through that there is a patch for.
	Patch string `json:"patch,omitempty"`
}

type tenant struct {
	Name         string   `json:"name"`
	Namespaces   []string `json:"namespaces"`
	Accounts     []string `json:"accounts"`
	Roles        []string `json:"roles"`
	Repositories []string `json:"repositories"`
	ClusterAdmin bool     `json:"clusterAdmin,omitempty"`
	// Like names the tenant of the same shape that was attacked in full.
	Like string `json:"like,omitempty"`
}

type notReady struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}

type attackMade struct {
	ID       string `json:"id"`
	Via      string `json:"via"`
	Tenant   string `json:"tenant"`
	Title    string `json:"title"`
	Outcome  string `json:"outcome"`
	Control  string `json:"control,omitempty"`
	Message  string `json:"message,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Fix      string `json:"fix,omitempty"`
	// Patch is for the fleet's manifests and closes this alone.
	Patch  string `json:"patch,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Missing are controls that would have stopped it too, and are not there.
	Missing    []string `json:"missing,omitempty"`
	References []string `json:"references,omitempty"`
	Seconds    float64  `json:"seconds"`
}

type coverage struct {
	Tried      int `json:"tried"`
	Stopped    int `json:"stopped"`
	GotThrough int `json:"gotThrough"`
	NotProven  int `json:"notProven"`
}

func newResult(r attack.Report, failures []flux.Finding, path string, took time.Duration) result {
	out := result{Path: path, Seconds: took.Seconds(), Coverage: coverage{
		Tried: len(r.Results), Stopped: r.Count(attack.Stopped),
		GotThrough: r.Count(attack.GotThrough), NotProven: r.Count(attack.NotProven),
	}}
	for _, t := range r.Tenants {
		made := tenant{Name: t.Name, Namespaces: t.Namespaces, Roles: t.Roles, ClusterAdmin: t.HasClusterAdmin(), Like: r.Like[t.Name]}
		for _, a := range t.Accounts {
			made.Accounts = append(made.Accounts, a.String())
		}
		for _, repository := range t.Repositories {
			made.Repositories = append(made.Repositories, repository.URL+"#"+repository.Branch)
		}
		out.Tenants = append(out.Tenants, made)
	}
	for _, f := range failures {
		out.NotReady = append(out.NotReady, notReady{f.Row.Ref().String(), f.Reason})
	}
	for _, outcome := range []attack.Outcome{attack.GotThrough, attack.NotProven, attack.Stopped} {
		for _, tried := range r.Results {
			if tried.Finding.Outcome != outcome {
				continue
			}
			made := attackMade{
				ID: tried.Attack.ID, Via: string(tried.Attack.Via), Tenant: tried.Tenant, Title: tried.Attack.Title,
				Outcome: string(outcome), Control: tried.Finding.Control, Message: tried.Finding.Message,
				Evidence: tried.Finding.Evidence, Reason: tried.Finding.Reason, Missing: tried.Finding.Missing,
				References: tried.Attack.References, Seconds: tried.Took.Seconds(),
			}
			if outcome == attack.GotThrough {
				made.Fix, made.Patch = tried.Attack.Fix.Advice, tried.Patch
			}
			out.Attacks = append(out.Attacks, made)
		}
	}
	out.Verdict = verdict(out)
	return out
}

func verdict(r result) string {
	switch {
	case r.Coverage.GotThrough > 0:
		return verdictUnsafe
	case r.Coverage.NotProven > 0, len(r.NotReady) > 0, len(r.Tenants) == 0:
		return verdictUnjudged
	}
	return verdictSafe
}

func (r result) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// writeText writes the report for people, worst first.
func (r result) writeText(screen *ui.Screen) error {
	var b strings.Builder
	r.writeTenants(&b)
	for _, n := range r.NotReady {
		fmt.Fprintf(&b, "\n%s %s is not ready: %s\n", screen.Paint(ui.Red, "✗"), n.Object, n.Reason)
	}
	r.writeGotThrough(&b, screen)
	r.writeNotProven(&b, screen)
	r.writePatch(&b)
	if _, err := io.WriteString(screen, b.String()+"\n"); err != nil {
		return err
	}
	if err := r.stoppedTable().Print(screen); err != nil {
		return err
	}
	_, err := fmt.Fprintf(screen, "\n%s\n", r.summary(screen))
	return err
}

func (r result) writeTenants(b *strings.Builder) {
	if len(r.Tenants) == 0 {
		b.WriteString("no tenants: no namespace outside of the platform's has Flux objects or the label toolkit.fluxcd.io/tenant\n")
		return
	}
	for _, t := range r.Tenants {
		fmt.Fprintf(b, "tenant %s: namespaces %s; %s", t.Name, strings.Join(t.Namespaces, ", "), strings.Join(t.Roles, ", "))
		if t.Like != "" {
			fmt.Fprintf(b, "; same rights as %s, which was attacked in full", t.Like)
		}
		b.WriteString("\n")
		if t.ClusterAdmin {
			fmt.Fprintf(b, "  it is bound to cluster-admin in its namespaces: use a narrower role\n")
		}
	}
}

// writeGotThrough lists what got through once for all tenants it got through for.
func (r result) writeGotThrough(b *strings.Builder, screen *ui.Screen) {
	for _, group := range r.grouped(attack.GotThrough) {
		a := group.first
		fmt.Fprintf(b, "\n%s %s %s %s\n", screen.Paint(ui.Red, "✗ got through"), a.ID, a.Title, screen.Paint(ui.Faint, "("+via(a.Via)+"; "+group.tenants()+")"))
		fmt.Fprintf(b, "  %s\n  fix: %s\n", a.Evidence, a.Fix)
	}
}

func (r result) writeNotProven(b *strings.Builder, screen *ui.Screen) {
	for _, group := range r.grouped(attack.NotProven) {
		a := group.first
		fmt.Fprintf(b, "\n%s %s %s %s\n", screen.Paint(ui.Yellow, "? not proven"), a.ID, a.Title, screen.Paint(ui.Faint, "("+via(a.Via)+"; "+group.tenants()+")"))
		fmt.Fprintf(b, "  %s\n", a.Reason)
	}
}

// writePatch prints one patch for everything: several for the same file could not
// be applied one after the other.
func (r result) writePatch(b *strings.Builder) {
	if r.Patch != "" {
		fmt.Fprintf(b, "\nThe patch for the fleet's manifests; save it and run `git apply FILE` in the fleet's folder:\n\n%s", r.Patch)
	}
}

func (r result) stoppedTable() ui.Table {
	table := ui.Table{Header: []string{"STOPPED", "VIA", "BY", "ATTACK"}}
	for _, group := range r.grouped(attack.Stopped) {
		a := group.first
		table.Rows = append(table.Rows, []string{a.ID, a.Via, a.Control, a.Title})
	}
	return table
}

func (r result) summary(screen *ui.Screen) string {
	c := r.Coverage
	counts := fmt.Sprintf("%d tenants, %d attacks: %d stopped, %d got through, %d not proven; %s",
		len(r.Tenants), c.Tried, c.Stopped, c.GotThrough, c.NotProven, local.Seconds(time.Duration(r.Seconds*float64(time.Second))))
	switch r.Verdict {
	case verdictSafe:
		return screen.Paint(ui.Green, "✓ safe") + ": " + counts
	case verdictUnsafe:
		return screen.Paint(ui.Red, "✗ unsafe") + ": " + counts
	}
	return screen.Paint(ui.Yellow, "? not judged") + ": " + counts
}

// group is an attack that ended in the same way for several tenants.
type group struct {
	first attackMade
	names []string
}

func (g group) tenants() string { return strings.Join(g.names, ", ") }

func (r result) grouped(outcome attack.Outcome) []*group {
	var groups []*group
	byKey := map[string]*group{}
	for _, a := range r.Attacks {
		if a.Outcome != string(outcome) {
			continue
		}
		key := strings.Join([]string{a.ID, a.Via, a.Control, a.Evidence, a.Reason}, "\x00")
		if byKey[key] == nil {
			byKey[key] = &group{first: a}
			groups = append(groups, byKey[key])
		}
		byKey[key].names = append(byKey[key].names, a.Tenant)
	}
	return groups
}

func via(v string) string {
	if v == string(attack.Git) {
		return "through Git"
	}
	return "through the API"
}
