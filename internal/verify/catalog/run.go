package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options configures a run of the catalogue.
type Options struct {
	// Config is the configuration of an admin's client for a local cluster. It must be a local cluster,
	// because attacks write.
	Config *rest.Config
	// Git and OCI serve the repositories and the artifacts of the tenants; OCI may be nil.
	Git *githost.Host
	OCI *ocihost.Host
	// Network simulates the receivers of Flux's notifications, the callers of its webhooks
	// and the clients of the fleet's proxy; nil if that is not possible.
	Network Outside
	// Platform is the namespace of Flux. Root is the source that delivers the platform.
	Platform string
	Root     flux.Ref
	// Folder is the local folder with the content of Root; empty if there is none.
	Folder string
	// Only selects attacks; nil selects the whole catalogue.
	Only func(Attack) bool
	// Choice overrides the discovery of tenants.
	Choice discovery.Choice
	// Tenant is the name of the only attacking tenant; empty for all tenants.
	Tenant string
	// Keep keeps [VictimNamespace] for the next run, which saves the five seconds of its deletion. The
	// caller then waits for changed policies: see [AwaitPolicies].
	Keep bool
	// Doubts are parts of the fleet whose content is invented, so that controls in them are not proven.
	Doubts []string
	// Progress is called with each result and the number of attacks of the run, by one goroutine at a time; nil is
	// allowed.
	Progress func(r Result, of int)
}

// Result is an attack of one tenant, with its finding.
type Result struct {
	Attack  Attack
	Tenant  string
	Finding Finding
	Took    time.Duration
	// Patch is a change to the fleet's manifests that stops the attack, as a unified diff; empty if no such
	// change is known.
	Patch string
}

// Report is the result of a run: the tenants, and the finding of each attack.
type Report struct {
	Tenants []discovery.Tenant
	// Platform are the namespaces without a tenant in which Flux applies objects.
	Platform []discovery.Platform
	Results  []Result
	// Like maps a tenant that did not try all attacks to the tenant of the same shape that did: the
	// findings of that tenant apply to both.
	Like map[string]string
	// Ungoverned are the namespaces of tenants to which Tenure's rules do not apply, in a cluster with
	// these rules: no label names the tenant.
	Ungoverned []string
	// Dependencies are the objects of the platform that wait for an object of a tenant or copy one, as
	// text: see [discovery.Dependencies].
	Dependencies []string
	// OtherKinds are the custom kinds that tenants may write and that no attack tries, by group.
	OtherKinds []OtherKinds
}

// Count returns the number of attacks with an outcome.
func (r Report) Count(outcome Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Finding.Outcome == outcome {
			n++
		}
	}
	return n
}

// Run finds the tenants and attacks as each of them. Of several tenants with the same shape, it
// attacks one in full, and the others without the deep attacks. It returns an error if the tenants
// cannot be found or the attacks cannot be prepared, or if the context ends; the report then has
// the results so far.
func Run(ctx context.Context, opts Options) (_ Report, err error) {
	if opts.Progress == nil {
		opts.Progress = func(Result, int) {}
	}
	with := &customs{}
	admin, err := newClient(opts.Config, with)
	if err != nil {
		return Report{}, err
	}
	report := Report{Like: map[string]string{}}
	opts.Choice.Root = opts.Root.Namespace
	found, err := discovery.Discover(ctx, admin, opts.Choice)
	if err != nil {
		return Report{}, err
	}
	report.Tenants, report.Platform = found.Tenants, found.Platform
	if len(report.Tenants) == 0 {
		return report, nil
	}
	if report.Dependencies, err = discovery.Dependencies(ctx, admin, report.Tenants); err != nil {
		return report, err
	}
	if !opts.Keep {
		if err := awaitFleetPolicies(ctx, admin); err != nil {
			return report, err
		}
	}
	victim, removeVictim, err := newVictim(ctx, admin)
	if err != nil {
		return report, err
	}
	if !opts.Keep {
		defer removeVictim()
	}
	fleet, err := readSurroundings(ctx, opts, admin, report.Tenants, with)
	if err != nil {
		return report, err
	}
	report.Ungoverned = fleet.ungoverned
	if err := serveBase(ctx, opts.Git, opts.Network); err != nil {
		return report, err
	}
	serveFile(opts.Network)
	envs, err := fleet.scenarios(ctx, opts, admin, victim, report.Tenants)
	for _, e := range envs {
		if e.invented != nil && !opts.Keep {
			defer e.remove(e.invented)
		}
	}
	if err != nil {
		return report, err
	}
	with.tenants = envs
	full := inFull(envs)
	for _, e := range full {
		e.inFull = true
		for _, other := range slices.Concat(e.owners, e.unlike) {
			other.inFull = true
		}
		if err := e.prepareHolders(ctx); err != nil {
			return report, err
		}
		if err := e.prepareDeliveries(ctx); err != nil {
			return report, err
		}
	}
	for _, e := range envs {
		if source := e.inventRepository(ctx, opts); source != nil && !opts.Keep {
			defer e.remove(source)
		}
	}
	var all []*tenantRun
	of := 0
	for _, e := range envs {
		attacks := slices.DeleteFunc(Catalogue(), func(a Attack) bool { return opts.Only != nil && !opts.Only(a) || !e.appliesTo(a) })
		if like := full[e.Tenant.Shape]; like != e {
			report.Like[e.Tenant.Name] = like.Tenant.Name
			attacks = slices.DeleteFunc(attacks, func(a Attack) bool { return a.Deep })
		}
		all = append(all, &tenantRun{scenario: e, attacks: attacks, results: make([]*Result, len(attacks))})
		of += len(attacks)
	}
	if report.OtherKinds, err = otherKinds(ctx, admin, slices.Collect(maps.Values(full)), report.Like); err != nil {
		return report, err
	}
	err = (&scheduler{progress: func(r Result) { opts.Progress(r, of) }}).run(ctx, all)
	for _, a := range all {
		for _, r := range a.results {
			if r != nil {
				report.Results = append(report.Results, *r)
			}
		}
	}
	report.shareChanges()
	return report, err
}

// surroundings are the data about the fleet that all attacks need.
type surroundings struct {
	doubts, ungoverned []string
	webhookDoubts      []webhookDoubt
	dryRunPolicies     []webhookDoubt
	networkDoubts      []unenforced
	missing            []unreadyObject
	unread             map[string]string
	namespaces         []corev1.Namespace
	proxy              *proxyEndpoint
	controllers        map[string]client.Client
	exemptions         []exemption
	customs            *customs
	mutates            bool
	called             []calledService
}

func readSurroundings(ctx context.Context, opts Options, admin client.Reader, tenants []discovery.Tenant, with *customs) (*surroundings, error) {
	var s surroundings
	var err error
	if s.doubts, err = unprovableControls(ctx, admin, tenants); err != nil {
		return nil, err
	}
	s.doubts = append(s.doubts, opts.Doubts...)
	if s.webhookDoubts, err = simulatedWebhooks(ctx, admin); err != nil {
		return nil, err
	}
	if s.dryRunPolicies, err = dryRunPolicies(ctx, admin); err != nil {
		return nil, err
	}
	if s.networkDoubts, err = enginePolicies(ctx, admin, networkPlugins, processes{}); err != nil {
		return nil, err
	}
	if s.missing, err = unreadyOf(ctx, admin, tenants); err != nil {
		return nil, err
	}
	if err := readContents(ctx, opts, admin, s.missing); err != nil {
		return nil, err
	}
	if s.unread, err = unreadTenants(ctx, admin); err != nil {
		return nil, err
	}
	var namespaces corev1.NamespaceList
	if err := admin.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("cannot read the namespaces: %w", err)
	}
	s.namespaces = namespaces.Items
	if s.ungoverned, err = ungoverned(ctx, admin, tenants, s.namespaces); err != nil {
		return nil, err
	}
	if s.proxy, err = findProxyEndpoint(ctx, admin); err != nil {
		return nil, err
	}
	if s.exemptions, err = exemptingMarks(ctx, admin); err != nil {
		return nil, err
	}
	s.customs = with
	if err = with.readCustoms(ctx, admin, s.exemptions); err != nil {
		return nil, err
	}
	if s.mutates, err = mutates(ctx, admin); err != nil {
		return nil, err
	}
	if s.called, err = calledServices(ctx, admin); err != nil {
		return nil, err
	}
	s.controllers, err = newControllers(opts.Config, with)
	return &s, err
}

// scenarios prepares the attacks of each tenant, or of the tenant that the options name. With an error, it returns those that
// have objects to remove.
func (s *surroundings) scenarios(ctx context.Context, opts Options, admin client.WithWatch, victim Victim, tenants []discovery.Tenant) ([]*Scenario, error) {
	var all []*Scenario
	for _, t := range tenants {
		if opts.Tenant != "" && t.Name != opts.Tenant {
			continue
		}
		e, err := newScenario(opts, admin, victim, t, s.customs)
		if err != nil {
			return all, fmt.Errorf("cannot attack as tenant %s: %w", t.Name, err)
		}
		e.Root, e.outside, e.proxyEndpoint, e.tenants = opts.Root, opts.Network, s.proxy, tenants
		e.doubts = append(slices.Clone(s.doubts), missingControls(s.missing, t)...)
		e.namespaces, e.networkDoubts, e.controllers = s.namespaces, s.networkDoubts, s.controllers
		e.webhookDoubts, e.dryRunPolicies = s.webhookDoubts, s.dryRunPolicies
		e.exemptions, e.mutates, e.called = s.exemptions, s.mutates, s.called
		e.lacks = cmp.Or(lacks(t, s.namespaces, s.missing), s.unread[t.Name])
		e.invented = e.inventDelivery(ctx, opts)
		e.readLimits(ctx)
		if err := e.prepareOwners(); err != nil {
			return append(all, e), fmt.Errorf("cannot attack as the owners of tenant %s: %w", t.Name, err)
		}
		for _, namespace := range t.Unlike {
			other := *e
			other.Namespace, other.owners, other.ordinaries = namespace, nil, &ordinaries{}
			other.readLimits(ctx)
			e.unlike = append(e.unlike, &other)
		}
		all = append(all, e)
	}
	return all, nil
}

// shareChanges copies the findings of attacks that got through by the change of an object, with a mark that exempts
// the object from a policy, or with a further identity, to the tenants of the same shape: these only tried to create
// the object with their account.
func (r *Report) shareChanges() {
	changed := map[[2]string]Finding{}
	for _, made := range r.Results {
		if made.Finding.InFull || len(made.Finding.Further) > 0 {
			changed[[2]string{made.Tenant, made.Attack.Key()}] = made.Finding
		}
	}
	for i, made := range r.Results {
		like := r.Like[made.Tenant]
		if f, ok := changed[[2]string{like, made.Attack.Key()}]; ok && made.Finding.Outcome == Stopped {
			const from = "as tenant %s, which has the same rights: %s"
			if f.Outcome == NotProven {
				f.Reason = fmt.Sprintf(from, like, f.Reason)
			} else {
				f.Evidence = fmt.Sprintf(from, like, f.Evidence)
			}
			r.Results[i].Finding = f
		}
	}
}

// cleanupPatience is the maximum duration of the clean-up after the attacks.
const cleanupPatience = 10 * time.Second

// inFull returns, for each shape, the tenant that tries all attacks: the first tenant with a repository to
// attack with.
func inFull(envs []*Scenario) map[string]*Scenario {
	full := map[string]*Scenario{}
	for _, e := range envs {
		if first := full[e.Tenant.Shape]; first == nil || first.Repository == nil && e.Repository != nil {
			full[e.Tenant.Shape] = e
		}
	}
	return full
}

// ungoverned returns the namespaces of tenants without a label that names the tenant, if the cluster has
// Tenure's rules: the rules select namespaces by a label that the manager sets on labelled namespaces.
func ungoverned(ctx context.Context, admin client.Reader, tenants []discovery.Tenant, namespaces []corev1.Namespace) ([]string, error) {
	var policies admissionv1.ValidatingAdmissionPolicyList
	if err := admin.List(ctx, &policies); err != nil {
		return nil, fmt.Errorf("cannot read the policies: %w", err)
	}
	if !slices.ContainsFunc(policies.Items, func(p admissionv1.ValidatingAdmissionPolicy) bool { return strings.HasPrefix(p.Name, admission.Prefix) }) {
		return nil, nil
	}
	var left []string
	for _, ns := range namespaces {
		_, labelled := tenancy.TenantOf(ns.Labels)
		if !labelled && slices.ContainsFunc(tenants, func(t discovery.Tenant) bool { return slices.Contains(t.Namespaces, ns.Name) }) {
			left = append(left, ns.Name)
		}
	}
	return left, nil
}
