// Package corpus holds small fleets in the shapes of public repositories, each with the verdicts of all
// attacks. Their author read the fleet and wrote the verdicts before the first run of verify;
// docs/design/verify.md lists the corrections. A folder is a fleet: platform is the platform's repository,
// the other folders are the tenants' repositories, and expected.yaml holds the verdicts. The file
// facts.yaml lists the verdicts that follow from a missing control or a missing target.
package corpus

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"sigs.k8s.io/yaml"
)

// Fleet is a fleet of the corpus.
type Fleet struct {
	// Dir is the fleet's folder, and Name the folder's name.
	Name, Dir string `json:"-"`
	// Path is the cluster's folder in the platform's repository.
	Path string `json:"path"`
	// Maps are the folders of repositories, by URL#BRANCH.
	Maps map[string]string `json:"maps"`
	// Args are more arguments of verify.
	Args []string `json:"args"`
	// Exit is the exit code of verify, and Says a part of its output; "" for any.
	Exit int    `json:"exit"`
	Says string `json:"says"`
	// NotReady are the Flux objects that do not become ready, as KIND/NAMESPACE/NAME.
	NotReady []string `json:"notReady"`
	// Platform holds the namespaces in which Flux delivers and that belong to no tenant, each with the
	// reason.
	Platform map[string]string `json:"platform"`
	// Tenants are the tenants, by name.
	Tenants map[string]Tenant `json:"tenants"`
}

// Tenant holds the expected outcomes of the attacks of a tenant.
type Tenant struct {
	// Why is the evidence in the fleet that it is a tenant.
	Why string `json:"why"`
	// Default is the outcome of the rows that no fact and no exception names, and Reason is its reason.
	Default catalog.Outcome `json:"default"`
	Reason  string          `json:"reason"`
	// Facts are names in facts.yaml.
	Facts []string `json:"facts"`
	// Exceptions have precedence over facts.
	Exceptions []Fact `json:"exceptions"`
	// Like is the tenant of the same shape that tries all attacks. The report lists an attack of this
	// tenant that waits for Flux only if it got through.
	Like string `json:"like"`
}

// Fact is an outcome of several rows.
type Fact struct {
	Outcome catalog.Outcome `json:"outcome"`
	Reason  string          `json:"reason"`
	// Rows are keys of attacks.
	Rows []string `json:"rows"`
}

// Verdict is the expected outcome of an attack, with the reason.
type Verdict struct {
	Outcome catalog.Outcome
	Reason  string
	// Optional is set if the report may omit the attack; see [Tenant.Like].
	Optional bool
}

// Load reads all fleets of the corpus in a folder, by name. It returns an error if a file names an attack
// or a fact that does not exist, or gives no reason.
func Load(dir string) ([]Fleet, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "expected.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("cannot find the corpus in %s: %d fleets, %w", dir, len(files), err)
	}
	facts := map[string]Fact{}
	if err := read(filepath.Join(dir, "facts.yaml"), &facts); err != nil {
		return nil, err
	}
	for name, fact := range facts {
		if err := fact.check(); err != nil {
			return nil, fmt.Errorf("fact %s: %w", name, err)
		}
	}
	var fleets []Fleet
	for _, file := range files {
		f := Fleet{Dir: filepath.Dir(file), Name: filepath.Base(filepath.Dir(file))}
		if err := read(file, &f); err != nil {
			return nil, err
		}
		for name, tenant := range f.Tenants {
			if err := tenant.resolve(facts); err != nil {
				return nil, fmt.Errorf("fleet %s, tenant %s: %w", f.Name, name, err)
			}
			f.Tenants[name] = tenant
		}
		fleets = append(fleets, f)
	}
	return fleets, nil
}

func read(file string, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the corpus: %w", err)
	}
	if err := yaml.UnmarshalStrict(content, into); err != nil {
		return fmt.Errorf("cannot read %s: %w", file, err)
	}
	return nil
}

// resolve puts the facts before the exceptions, and checks all of them.
func (t *Tenant) resolve(facts map[string]Fact) error {
	var all []Fact
	for _, name := range t.Facts {
		fact, ok := facts[name]
		if !ok {
			return fmt.Errorf("there is no fact %s", name)
		}
		all = append(all, fact)
	}
	for _, exception := range t.Exceptions {
		if err := exception.check(); err != nil {
			return err
		}
	}
	t.Exceptions = append(all, t.Exceptions...)
	if t.Reason == "" || t.Why == "" || !known(t.Default) {
		return fmt.Errorf("the default %q, its reason or the reason for the tenant is missing", t.Default)
	}
	return nil
}

func known(o catalog.Outcome) bool {
	return slices.Contains([]catalog.Outcome{catalog.Stopped, catalog.GotThrough, catalog.NotProven, catalog.NotInstalled}, o)
}

func (f Fact) check() error {
	if !known(f.Outcome) || f.Reason == "" || len(f.Rows) == 0 {
		return fmt.Errorf("outcome %q, reason %q or rows are missing", f.Outcome, f.Reason)
	}
	for _, row := range f.Rows {
		if !slices.ContainsFunc(catalog.Catalogue(), func(a catalog.Attack) bool { return a.Key() == row }) {
			return fmt.Errorf("there is no attack %s", row)
		}
	}
	return nil
}

// Verdicts returns the verdict of each attack of the catalogue, by key.
func (t Tenant) Verdicts() map[string]Verdict {
	all := map[string]Verdict{}
	for _, a := range catalog.Catalogue() {
		v := Verdict{Outcome: t.Default, Reason: t.Reason}
		for _, e := range t.Exceptions {
			if slices.Contains(e.Rows, a.Key()) {
				v = Verdict{Outcome: e.Outcome, Reason: e.Reason}
			}
		}
		v.Optional = t.Like != "" && a.Deep && v.Outcome != catalog.GotThrough
		all[a.Key()] = v
	}
	return all
}

// Found is the outcome of an attack in the report of verify.
type Found struct {
	Tenant, Key string
	Outcome     catalog.Outcome
	// Said is the message in the report.
	Said string
}

// Compare returns a table of the expected and the found outcomes, a line for each tenant
// and pair of outcomes with the number of attacks, and the differences, sorted.
func (f Fleet) Compare(found []Found) (table string, differences []string) {
	type pair struct {
		tenant          string
		expected, found catalog.Outcome
	}
	const absent catalog.Outcome = "absent"
	got := map[string]map[string]Found{}
	for _, a := range found {
		if got[a.Tenant] == nil {
			got[a.Tenant] = map[string]Found{}
			if _, ok := f.Tenants[a.Tenant]; !ok {
				differences = append(differences, "verify attacked as "+a.Tenant+", which is not a tenant")
			}
		}
		got[a.Tenant][a.Key] = a
	}
	count := map[pair]int{}
	for name, tenant := range f.Tenants {
		for key, want := range tenant.Verdicts() {
			a, tried := got[name][key]
			if !tried {
				a.Outcome = absent
			}
			if !tried && want.Optional {
				continue
			}
			count[pair{name, want.Outcome, a.Outcome}]++
			if a.Outcome != want.Outcome {
				differences = append(differences, fmt.Sprintf("%s of %s: expected %q, since: %s\n    found %q: %s", key, name, want.Outcome, want.Reason, a.Outcome, a.Said))
			}
		}
	}
	slices.Sort(differences)
	var b strings.Builder
	fmt.Fprintf(&b, "%-22s %-12s %-14s %-14s %s\n", "FLEET", "TENANT", "EXPECTED", "FOUND", "ATTACKS")
	for _, p := range slices.SortedFunc(maps.Keys(count), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.expected, b.expected), cmp.Compare(a.found, b.found))
	}) {
		mark := ""
		if p.expected != p.found {
			mark = "  ✗"
		}
		fmt.Fprintf(&b, "%-22s %-12s %-14s %-14s %d%s\n", f.Name, p.tenant, p.expected, p.found, count[p], mark)
	}
	return b.String(), differences
}

// Command returns the arguments of verify for the fleet, without the output.
func (f Fleet) Command() []string {
	args := []string{"verify", "--fleet", filepath.Join(f.Dir, "platform"), "--path", f.Path}
	for _, address := range slices.Sorted(maps.Keys(f.Maps)) {
		args = append(args, "--map", address+"="+filepath.Join(f.Dir, f.Maps[address]))
	}
	return append(args, f.Args...)
}

// Assumed returns the Flux objects that the arguments tell verify to assume.
func (f Fleet) Assumed() []string {
	var all []string
	for i, arg := range f.Args {
		if i > 0 && f.Args[i-1] == "--assume" {
			all = append(all, arg)
		}
	}
	return all
}
