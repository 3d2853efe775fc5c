package catalog

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/discovery"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Owners selects the owners of a Tenant that try an attack with their own identities, in
// addition to the account that Flux impersonates for the tenant.
type Owners string

// The owners that try an attack.
const (
	// OwnersNever is for attacks that need the account as which Flux applies the tenant.
	OwnersNever Owners = ""
	// OwnersWithin is for attacks from within a namespace of the tenant. A tenant without a namespace does
	// not try them.
	OwnersWithin Owners = "within"
	// OwnersAnywhere is for attacks on targets outside of the tenant's namespaces.
	OwnersAnywhere Owners = "anywhere"
	// OwnersAccounts is for attacks with a token: a run can create tokens for owners that are existing
	// service accounts.
	OwnersAccounts Owners = "accounts"
)

// identity is the user that sends the requests of an attack.
type identity struct {
	// name is the name of the identity in reports, empty for the tenant's account.
	name   string
	user   string
	groups []string
	// controller is set for a controller of Kubernetes that acts for the tenant.
	controller bool
}

// asIdentity returns a client that impersonates an identity. All checks of the API server
// treat it like a client with the identity's own credentials.
func asIdentity(config *rest.Config, who identity, with *customs) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: who.user, Groups: who.groups}
	recording(config, who)
	return newClient(config, with)
}

// newClient returns a client that repeats requests: see [asRecommended] and [createWithRetry]. It drops the warnings of the
// API server, because they are about the objects of attacks.
func newClient(config *rest.Config, with *customs) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(c, asRecommended(with)), nil
}

// conflictBackoff are the delays before a request to create an object is repeated.
var conflictBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 7}

// createWithRetry creates an object and repeats the request after a conflict. Quota admission returns
// conflicts if many objects of a namespace are created at the same time, whatever the tenant's rights are.
func createWithRetry(ctx context.Context, c client.Client, o client.Object, opts ...client.CreateOption) error {
	return retryIfLate(ctx, func() error {
		return retryOnConflict(func() error { return c.Create(ctx, o, opts...) })
	})
}

// late matches the message of the API server about a webhook that runs here and did not answer in time, or whose Pods are not
// ready for the moment.
var late = regexp.MustCompile(`failed calling webhook ".*(?:context deadline exceeded|Client\.Timeout exceeded|no Pod behind the Service is ready)`)

// maxLate is the maximum number of requests if a webhook does not answer in time, and latePause the time between them.
const (
	maxLate   = 6
	latePause = 5 * time.Second
)

// retryIfLate repeats a request that a webhook did not answer in time, and returns the error of the last one. All tenants attack at
// the same time, and the answer of a webhook on a busy machine says nothing about the tenant.
func retryIfLate(ctx context.Context, request func() error) (err error) {
	for range maxLate {
		if err = request(); err == nil || !late.MatchString(err.Error()) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(latePause):
		}
	}
	return err
}

// retryOnConflict repeats a request after a conflict, and returns the error of the last one. retry.RetryOnConflict
// returns no error if the context of the request ended, so that an interrupted attack would have got through.
func retryOnConflict(request func() error) (err error) {
	_ = retry.RetryOnConflict(conflictBackoff, func() error {
		err = request()
		return err
	})
	return err
}

// prepareOwners adds the owners that attack: of all owners with the same kind and the same roles, the
// first.
func (e *Scenario) prepareOwners() error {
	var shapes []string
	for _, o := range e.Tenant.Owners {
		if slices.Contains(shapes, o.Shape) || o.User() == e.who.user {
			continue
		}
		shapes = append(shapes, o.Shape)
		who := identity{name: o.String(), user: o.User(), groups: o.Groups()}
		as, err := asIdentity(e.config, who, e.customs)
		if err != nil {
			return err
		}
		owner := *e
		owner.As, owner.who, owner.Owner, owner.owners = as, who, &o, nil
		e.owners = append(e.owners, &owner)
	}
	return nil
}

// appliesTo reports whether the tenant has an identity that tries an attack.
func (e *Scenario) appliesTo(a Attack) bool {
	if e.hasAccount() {
		return true
	}
	switch a.Owners {
	case OwnersAnywhere:
		return true
	case OwnersWithin:
		return len(e.Tenant.Namespaces) > 0
	case OwnersAccounts:
		return slices.ContainsFunc(e.owners, (*Scenario).hasToken)
	}
	return false
}

// hasToken reports whether the attacker is a service account.
func (e *Scenario) hasToken() bool {
	return e.Owner == nil || e.Owner.Kind == rbacv1.ServiceAccountKind
}

// hasAccount reports whether the tenant has an account to attack as. A tenant without a namespace has no
// account.
func (e *Scenario) hasAccount() bool { return e.Account != (discovery.Account{}) }

// tryAll runs an attack as the tenant's account, as its owners and, if it did not get through, as its
// further identities. It returns the worst finding.
func (e *Scenario) tryAll(ctx context.Context, a Attack) Finding {
	var all []Finding
	if e.hasAccount() {
		all = append(all, a.run(ctx, e))
	}
	for _, other := range a.inEachOf(e.unlike) {
		// The account may lack a right that the attack needs there, so only a finding that got through
		// counts.
		if f := a.run(ctx, other); f.Outcome == GotThrough {
			all = append(all, f.by("the tenant in its namespace "+other.Namespace))
		}
	}
	if a.Owners != OwnersNever {
		for _, owner := range e.owners {
			if a.Owners == OwnersAccounts && !owner.hasToken() {
				continue
			}
			all = append(all, a.run(ctx, owner).by(owner.who.name))
		}
	}
	for _, holder := range a.byHolders(e.holders) {
		if slices.ContainsFunc(all, func(f Finding) bool { return f.Outcome == GotThrough }) {
			break
		}
		// The holder may lack a right that the attack needs, so only a finding that got through counts.
		if f := a.run(ctx, holder); f.Outcome == GotThrough {
			f.Further = holder.further
			all = append(all, f.by(holder.who.name))
		}
	}
	for _, other := range e.delayed(a, all) {
		if f := a.run(ctx, other); f.Outcome == GotThrough {
			f.Further = other.further
			all = append(all, f.by(other.who.name))
			break
		}
	}
	if outcome := worstFinding(all).Outcome; outcome != GotThrough {
		if f := e.byDeliveries(ctx, a, outcome == Stopped); f != nil {
			all = append(all, *f)
		}
	}
	if len(all) == 0 {
		reason := "the tenant has neither an account nor an owner to attack as"
		if len(e.Tenant.Namespaces) == 0 && len(e.Tenant.Why) > 0 {
			reason += ": " + strings.Join(e.Tenant.Why, "; ")
		}
		return notProven(reason)
	}
	return worstFinding(all)
}

// inEachOf returns the scenarios for further namespaces of the tenant if the attack is about an object in
// the tenant's namespace and involves neither Flux nor the account of the sync. In another namespace,
// labels, quotas and policies may admit the object.
func (a Attack) inEachOf(scenarios []*Scenario) []*Scenario {
	about := []string{"A1", "A4", "I13", "N3", "N4", "S3", "S4", "S9", "S13", "W3", "W4", "W5", "W6", "W7", "W9", "W10", "W11", "W13", "W15"}
	if a.Via != API || a.Kind != "" || a.Deep || !slices.Contains(about, a.ID) {
		return nil
	}
	return scenarios
}

// run runs the attack, and records the commands that repeat it.
func (a Attack) run(ctx context.Context, e *Scenario) Finding {
	ctx, recorder := recorded(ctx)
	f := a.byItsControls(a.Run(withAttack(ctx, a), e))
	f.Repeat, f.Sent = recorder.repeat(f, e.who), recorder.all
	if a.Files != nil && e.Repository != nil && (f.Outcome == Stopped || f.Outcome == GotThrough) {
		f.Repeat = strings.TrimSpace(e.commits(a) + "\n" + f.Repeat)
	}
	return f
}

// by adds the name of the attacking identity to a finding.
func (f Finding) by(who string) Finding {
	for _, text := range []*string{&f.Evidence, &f.Reason} {
		if *text != "" {
			*text = "as " + who + ": " + *text
		}
	}
	return f
}

// worstFinding returns the worst of several findings. If all attacks were stopped, it names all of their
// controls; a missing target does not count as a control.
func worstFinding(all []Finding) Finding {
	if len(all) == 0 {
		return notProven("the tenant has neither an account nor an owner to attack as")
	}
	var controls []string
	counts := all[0]
	for _, f := range all {
		if outcomeRank(f.Outcome) > outcomeRank(counts.Outcome) {
			counts = f
		}
		for control := range strings.SplitSeq(f.Control, ", ") {
			if control != "" && !slices.Contains(controls, control) {
				controls = append(controls, control)
			}
		}
	}
	if counts.Outcome != Stopped {
		return counts
	}
	if real := slices.DeleteFunc(slices.Clone(controls), absent); len(real) > 0 {
		controls = real
		counts = all[slices.IndexFunc(all, func(f Finding) bool { return !absent(f.Control) })]
	}
	counts.Control = strings.Join(controls, ", ")
	return counts
}

func outcomeRank(o Outcome) int { return slices.Index([]Outcome{Stopped, NotProven, GotThrough}, o) }
