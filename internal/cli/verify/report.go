package verify

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// The verdicts.
const (
	verdictSafe     = "safe"
	verdictUnsafe   = "unsafe"
	verdictUnjudged = "not judged"
)

// report is the content of a report in every form. Its JSON encoding is the form json.
type report struct {
	// Verdict is the worst of the clusters': unsafe, then not judged.
	Verdict  string          `json:"verdict"`
	Seconds  float64         `json:"seconds"`
	Clusters []clusterReport `json:"clusters"`
	// Stale are entries of the baseline that match no outcome.
	Stale []staleEntry `json:"stale,omitempty"`

	// before is the report to compare with; nil without one.
	before *report
}

type staleEntry struct {
	ID      string `json:"id"`
	Tenant  string `json:"tenant"`
	Reason  string `json:"reason"`
	Expires string `json:"expires"`
	// NotProven is set for an entry that accepts an unproven attack.
	NotProven bool `json:"notProven,omitempty"`
}

// String returns the stale entry and how to remove it, as text.
func (s staleEntry) String() string {
	what := "it does not get through"
	if s.NotProven {
		what = "it is proven"
	}
	return "the baseline accepts something for tenant " + s.Tenant + " until " + s.Expires + ", and " + what + ": remove the entry (" + s.ID + ")"
}

// clusterReport is the report on one cluster.
type clusterReport struct {
	Path    string  `json:"path"`
	Verdict string  `json:"verdict"`
	Seconds float64 `json:"seconds"`
	// Error is the reason why the run broke off; the earlier results are kept.
	Error   string   `json:"error,omitempty"`
	hints   []string // of Error
	Tenants []tenant `json:"tenants"`
	// Platform are the namespaces with deliveries of Flux that belong to no tenant.
	Platform []platform `json:"platform,omitempty"`
	NotReady []notReady `json:"notReady,omitempty"`
	// Read reports which manifests in the cluster's folder were applied; nil if the fleet
	// did not start.
	Read     *local.FolderRead `json:"read,omitempty"`
	Unmapped []string          `json:"unmapped,omitempty"`
	// Lacking names API groups, Secrets and other parts that objects need and the cluster does not have.
	Lacking []string `json:"lacking,omitempty"`
	// Dependencies are the objects of the platform that a tenant can hold up: they wait for an object
	// of the tenant or copy one. They do not change the verdict.
	Dependencies []string `json:"dependencies,omitempty"`
	// OtherKinds are the custom kinds that tenants may write and that no attack tries. They do not change
	// the verdict.
	OtherKinds []otherKinds `json:"otherKinds,omitempty"`
	// Assumed describes the assumptions about objects that the user has not named: signatures that
	// were not verified, and objects that count as ready. A set of objects makes the verdict
	// "not judged".
	Assumed []string `json:"assumed,omitempty"`
	// Faked describes the Secrets and the values of SOPS files that --fake-secrets has invented.
	Faked []string `json:"faked,omitempty"`
	// Simulated are the controllers that do not run.
	Simulated []string     `json:"simulated,omitempty"`
	Attacks   []attackMade `json:"attacks"`
	Coverage  coverage     `json:"coverage"`
	// Chosen are the IDs or keys of the attacks that --attack chose. The others were not tried, so
	// the verdict is never "safe".
	Chosen []string `json:"chosen,omitempty"`
	// Patch is a patch for the fleet's manifests that closes all attacks that got through and have
	// a patch.
	Patch string `json:"patch,omitempty"`

	// doubtful reports that invented content gets into objects of the fleet.
	doubtful bool
	// location is the location of findings that have no file of their own.
	location location
}

type tenant struct {
	Name         string   `json:"name"`
	Namespaces   []string `json:"namespaces"`
	Accounts     []string `json:"accounts"`
	Owners       []string `json:"owners,omitempty"`
	Roles        []string `json:"roles"`
	Repositories []string `json:"repositories"`
	ClusterAdmin bool     `json:"clusterAdmin,omitempty"`
	// PlatformRepository is set if the tenant delivers from the platform's own repository.
	PlatformRepository bool `json:"platformRepository,omitempty"`
	// UnlimitedReleases are the HelmReleases of the platform in the tenant's namespaces whose charts no account limits.
	UnlimitedReleases []string `json:"unlimitedReleases,omitempty"`
	// Like names the tenant of the same shape that was attacked in full.
	Like string `json:"like,omitempty"`
	// Why is the evidence for the tenant.
	Why []string `json:"why,omitempty"`
}

// platform is a namespace of the platform.
type platform struct {
	Namespace string `json:"namespace"`
	Why       string `json:"why"`
}

// otherKinds are kinds of an API group that tenants may write, see [catalog.OtherKinds].
type otherKinds struct {
	Group     string   `json:"group"`
	Resources []string `json:"resources"`
	Tenants   []string `json:"tenants"`
}

type notReady struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// attackMade is an attack as a tenant, with its outcome.
type attackMade struct {
	Key    string `json:"key"`
	ID     string `json:"id"`
	Via    string `json:"via"`
	Kind   string `json:"kind,omitempty"`
	Tenant string `json:"tenant"`
	// Like names the attacked tenant with the same shape, if the attack was not tried as
	// this tenant.
	Like     string `json:"like,omitempty"`
	Title    string `json:"title"`
	Outcome  string `json:"outcome"`
	Control  string `json:"control,omitempty"`
	Message  string `json:"message,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Fix      string `json:"fix,omitempty"`
	// Patch is a patch for the fleet's manifests that closes this attack alone.
	Patch  string `json:"patch,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Repeat are the commands to repeat the attack with an admin's kubeconfig.
	Repeat string `json:"repeat,omitempty"`
	// Missing are the missing controls that would have stopped the attack, too.
	Missing    []string `json:"missing,omitempty"`
	References []string `json:"references,omitempty"`
	Seconds    float64  `json:"seconds"`
	// Accepted is the baseline's entry for this outcome, which then does not change the
	// verdict. Expired is an entry that no longer accepts it.
	Accepted *acceptance `json:"accepted,omitempty"`
	Expired  *acceptance `json:"expired,omitempty"`

	// location is the fleet's file where the fix belongs, as far as known.
	location location
}

// acceptance is an entry of the baseline.
type acceptance struct {
	Reason string `json:"reason"`
	// By is the name of the person who accepts the risk, if the entry has one.
	By      string `json:"by,omitempty"`
	Expires string `json:"expires"`
}

// String returns the person who accepts the risk, the last day and the reason, or "" for nil.
func (a *acceptance) String() string {
	if a == nil {
		return ""
	}
	by := ""
	if a.By != "" {
		by = "by " + a.By + " "
	}
	return by + "until " + a.Expires + ": " + a.Reason
}

// coverage holds the number of attacks by outcome. Accepted attacks count neither as got
// through nor as not proven. Tried is the sum.
type coverage struct {
	Tried      int `json:"tried"`
	Stopped    int `json:"stopped"`
	GotThrough int `json:"gotThrough"`
	Accepted   int `json:"accepted"`
	NotProven  int `json:"notProven"`
	// NotInstalled are attacks on parts that are not installed: none was tried.
	NotInstalled int `json:"notInstalled"`
	// AcceptedNotProven is the number of accepted attacks that are not proven.
	AcceptedNotProven int `json:"acceptedNotProven,omitempty"`
}

// proven returns the percentage of attacks with a proven outcome, without attacks on
// parts that are not installed. It returns false if there are none.
func (c coverage) proven() (int, bool) {
	tried := c.Tried - c.NotInstalled
	if tried == 0 {
		return 0, false
	}
	return (tried - c.NotProven - c.AcceptedNotProven) * 100 / tried, true
}

func (c *coverage) add(a attackMade) {
	c.Tried++
	switch {
	case a.Accepted != nil && a.Outcome == string(catalog.NotProven):
		c.AcceptedNotProven++
		c.Accepted++
	case a.Accepted != nil:
		c.Accepted++
	case a.Outcome == string(catalog.GotThrough):
		c.GotThrough++
	case a.Outcome == string(catalog.NotProven):
		c.NotProven++
	case a.Outcome == string(catalog.NotInstalled):
		c.NotInstalled++
	default:
		c.Stopped++
	}
}

// cluster returns the report on a cluster.
func (j judgement) cluster(f findings) clusterReport {
	files := readFiles(f.fleet)
	c := clusterReport{Path: f.path, Chosen: j.attacks, Seconds: f.took.Seconds(), Unmapped: f.unmapped, Faked: f.faked, Assumed: f.assumed, Simulated: f.simulated, Dependencies: f.attacks.Dependencies, doubtful: f.doubtful, Read: f.read, Patch: f.patch, Tenants: []tenant{}, Attacks: []attackMade{}, location: files.root(f.path)}
	if f.err != nil {
		c.Error, c.hints = ui.Clean(f.err.Error()), ui.Hints(f.err)
	}
	for _, t := range f.attacks.Tenants {
		c.Tenants = append(c.Tenants, newTenant(t, f.attacks.Like[t.Name]))
	}
	for _, p := range f.attacks.Platform {
		c.Platform = append(c.Platform, platform{p.Namespace, p.Why})
	}
	for _, failure := range f.failures {
		c.NotReady = append(c.NotReady, notReady{failure.Row.Ref().String(), strings.TrimSpace(failure.Reason)})
	}
	for _, kinds := range f.attacks.OtherKinds {
		c.OtherKinds = append(c.OtherKinds, otherKinds(kinds))
	}
	c.Lacking = flux.Lacking(f.failures)
	if f.ahead != "" {
		c.Lacking = append(c.Lacking, f.ahead)
	}
	if left := f.attacks.Ungoverned; len(left) > 0 {
		c.Lacking = append(c.Lacking, fmt.Sprintf("a tenant's label on %s: without it, Tenure's rules do not apply in these namespaces of tenants; set %s or %s to the tenant's name, in the manifest of each Namespace",
			strings.Join(left, ", "), v1alpha1.LabelFluxTenant, v1alpha1.LabelTenant))
	}
	for _, tried := range f.attacks.Results {
		made := newAttackMade(tried)
		if made.Fix != "" && len(tried.Attack.Fix.Flags) > 0 && f.fleet != nil && f.fleet.Instance != nil {
			made.Fix += fixOfInstance
		}
		made.location = files.of(tried, f.attacks.Tenants)
		c.Attacks = append(c.Attacks, made)
		if tried.Attack.Deep && tried.Finding.Outcome == catalog.GotThrough {
			c.Attacks = append(c.Attacks, alike(made, f.attacks)...)
		}
	}
	for i := range c.Attacks {
		j.accept(&c.Attacks[i])
		c.Coverage.add(c.Attacks[i])
	}
	slices.SortStableFunc(c.Attacks, func(a, b attackMade) int { return badness(b) - badness(a) })
	c.Verdict = c.judge()
	return c
}

// stoppedAttacks returns the Kustomizations of the platform that did not apply and may hold
// more tenants.
func (c clusterReport) stoppedAttacks() []string {
	var all []string
	for _, n := range c.NotReady {
		object := strings.Split(n.Object, "/")
		ofTenant := slices.ContainsFunc(c.Tenants, func(t tenant) bool { return slices.Contains(t.Namespaces, object[1]) })
		if object[0] == string(flux.Kustomization) && !ofTenant {
			all = append(all, n.Object)
		}
	}
	return all
}

// notTried describes what no attack tries: changes of the platform's files in a repository that a tenant shares with the
// platform, changes of a chart that no account limits, and writes of kinds that the catalogue does not know, those of the same tenants in one text.
func (c clusterReport) notTried() []string {
	var sharing []string
	for _, t := range c.Tenants {
		if t.PlatformRepository {
			sharing = append(sharing, t.Name)
		}
	}
	all := c.kindsNotTried()
	for _, t := range c.Tenants {
		if len(t.UnlimitedReleases) > 0 {
			all = append(all, t.Name+": no account limits what the charts of the platform's HelmReleases "+someOf(t.UnlimitedReleases)+" install, so that whoever may publish these charts may do everything in the cluster; if the tenant may publish them, set spec.serviceAccountName to an account with rights in its namespace only")
		}
	}
	if len(sharing) > 0 {
		all = append(all, someOf(sharing)+": Flux delivers from the platform's own repository, so that whoever may change the platform's files there is the platform; use a repository for each tenant, or let the Git host demand a review of the platform for its files and its branch")
	}
	return all
}

// kindsNotTried describes the kinds that no attack tries, those of the same tenants in one text.
func (c clusterReport) kindsNotTried() []string {
	var tenants, texts []string
	for _, kinds := range c.OtherKinds {
		of, text := someOf(kinds.Tenants), someOf(kinds.Resources)+" of "+kinds.Group
		if i := slices.Index(tenants, of); i >= 0 {
			texts[i] += "; " + text
			continue
		}
		tenants, texts = append(tenants, of), append(texts, text)
	}
	for i, of := range tenants {
		texts[i] = of + " may write kinds of controllers that verify does not know, and no attack tries them: " + texts[i]
	}
	return texts
}

// maxNamed is the maximum number of tenants or kinds that a text names.
const maxNamed = 3

// someOf lists the first names, and counts the others.
func someOf(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}

// alike copies an attack that got through to the tenants of the same shape. The baseline is
// applied to each copy.
func alike(made attackMade, r catalog.Report) []attackMade {
	var all []attackMade
	for _, t := range r.Tenants {
		if r.Like[t.Name] == made.Tenant {
			other := made
			other.Tenant, other.Like, other.Seconds = t.Name, made.Tenant, 0
			all = append(all, other)
		}
	}
	return all
}

// badness orders attacks in a report.
func badness(a attackMade) int {
	switch {
	case a.Accepted != nil:
		return 2
	case a.Outcome == string(catalog.GotThrough):
		return 4
	case a.Outcome == string(catalog.NotProven):
		return 3
	case a.Outcome == string(catalog.NotInstalled):
		return 0
	}
	return 1
}

func newTenant(t discovery.Tenant, like string) tenant {
	made := tenant{Name: t.Name, Namespaces: t.Namespaces, Roles: t.Roles, ClusterAdmin: t.HasClusterAdmin(), Like: like, Why: t.Why, UnlimitedReleases: t.UnlimitedReleases}
	for _, a := range t.Accounts {
		made.Accounts = append(made.Accounts, a.String())
	}
	for _, o := range t.Owners {
		made.Owners = append(made.Owners, o.String())
	}
	for _, repository := range t.Repositories {
		made.Repositories = append(made.Repositories, repository.Address())
		made.PlatformRepository = made.PlatformRepository || repository.OfPlatform
	}
	return made
}

// fixOfInstance says where a fleet that flux-operator runs has the flags of Flux.
const fixOfInstance = ": here flux-operator sets the flags, by spec.cluster.multitenant: true of the FluxInstance, which `tenure profile multi-tenant` writes"

func newAttackMade(tried catalog.Result) attackMade {
	made := attackMade{
		Key: tried.Attack.Key(), ID: tried.Attack.ID, Via: string(tried.Attack.Via), Kind: tried.Attack.Kind,
		Tenant: tried.Tenant, Title: tried.Attack.Title,
		Outcome: string(tried.Finding.Outcome), Control: tried.Finding.Control, Message: tried.Finding.Message,
		Evidence: tried.Finding.Evidence, Reason: tried.Finding.Reason, Missing: tried.Finding.Missing, Repeat: tried.Finding.Repeat,
		References: tried.Attack.References, Seconds: tried.Took.Seconds(),
	}
	if tried.Finding.Outcome == catalog.GotThrough {
		made.Fix, made.Patch = cmp.Or(tried.Finding.Fix, tried.Attack.Fix.Advice), tried.Patch
	}
	return made
}

// err returns the error with the exit code of the verdict.
func (r report) err() error {
	switch r.Verdict {
	case verdictUnsafe:
		return ui.WithExitCode(ui.ErrReported, exitUnsafe)
	case verdictUnjudged:
		return ui.WithExitCode(ui.ErrReported, exitUnjudged)
	}
	return nil
}

func (r report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// sentence returns the finding of an attack in one line, for messages in machine formats.
func (a attackMade) sentence() string {
	parts := []string{"tenant " + a.Tenant + " " + a.Title}
	if a.Expired != nil {
		parts = append(parts, "this was accepted "+a.Expired.String())
	}
	switch {
	case a.Outcome == string(catalog.GotThrough):
		parts[0] += ": " + a.Evidence
		if a.Like != "" {
			parts = append(parts, "seen as tenant "+a.Like+", which has the same rights")
		}
		if a.Fix != "" {
			parts = append(parts, "fix: "+a.Fix)
		}
	case a.Outcome == string(catalog.NotProven):
		parts[0] += ": not proven: " + a.Reason
	case a.Outcome == string(catalog.NotInstalled):
		parts[0] += ": not installed: " + a.Message
	default:
		parts[0] += ": stopped by " + a.Control
	}
	return ui.Clean(strings.Join(parts, "; "))
}
