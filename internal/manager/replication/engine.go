// Package replication creates objects in the namespaces of tenants: the objects of a Tenant's
// spec.objects, and of Capsule's TenantResources and GlobalTenantResources, as
// [replication.Plan] computes them. It reads and writes these objects only as a service account
// of the tenant, never as the manager, so that the API server applies the tenant's limits.
package replication

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// resync is the interval at which objects are read: the manager does not watch them,
	// because it would need the right to read Secrets in all namespaces.
	resync = time.Minute
	// requeueDelay is the first requeue delay while objects are missing that are expected to appear.
	requeueDelay = 2 * time.Second
)

// managerPrefix is the prefix of the field managers of declarations.
const managerPrefix = "tenure-replicate-"

// Clients makes clients that act as service accounts.
type Clients interface {
	As(account replication.Account) (client.Client, error)
}

// Engine creates, updates and deletes replicated objects.
type Engine struct {
	Clients Clients
	Mapper  apimeta.RESTMapper
	// Now is the clock.
	Now func() time.Time

	waits pendingSources
}

// entry is a list of objects, their origin, and the account that applies them.
type entry struct {
	replication.Entry
	from []source
	// context are the objects that the templates read.
	context []source
	// index is the position of the list in its declaration.
	index int
	// account returns the account that applies the objects in a namespace.
	account func(namespace string) replication.Account
	// adopt and force are the fields of the API with these names.
	adopt, force bool
}

// scope is a tenant with its namespaces that are in place, and the names of its namespaces
// that are not in place yet.
type scope struct {
	tenant string
	// object is what templates can read of the tenant; it may be nil.
	object     map[string]any
	namespaces []replication.Namespace
	waiting    []string
}

// job holds the desired objects of one declaration.
type job struct {
	// manager is the field manager. Each declaration has its own, so that the API server
	// reports conflicts between declarations.
	manager string
	scopes  []scope
	entries []entry
	// have is the inventory in the declaration's status.
	have replication.Inventory
	// once is set if the objects are applied once for each scope, and not in each namespace.
	once bool
	// mine reports whether an object may be deleted. The objects in a namespace that now belongs to
	// another tenant stay.
	mine func(replication.Held) bool
	// save writes the inventory into the status.
	save func(context.Context, replication.Inventory) error
}

// result is the result of a job.
type result struct {
	inventory replication.Inventory
	// size is the number of objects that are in place.
	size     int
	problems problems
	// processed are the objects of the job, in order.
	processed []processed
	// wait is the requeue delay while objects are expected to appear; zero if none are.
	wait time.Duration
}

// problems collects error messages for the author of the declaration.
type problems struct {
	reason   string
	messages []string
	more     int
	// waiting are problems that end without a change by a person.
	waiting map[string]bool
}

// Reasons, the most severe last.
const (
	reasonWaiting  = "Waiting"
	reasonFailed   = "Failed"
	reasonConflict = "Conflict"
	reasonRefused  = "Refused"
)

var gravity = map[string]int{reasonWaiting: 1, reasonFailed: 2, reasonConflict: 3, reasonRefused: 4}

// maxMessages is the maximum number of problems in a message.
const maxMessages = 8

func (p *problems) add(reason, format string, args ...any) {
	if gravity[reason] > gravity[p.reason] {
		p.reason = reason
	}
	message := shorten(fmt.Sprintf(format, args...))
	if reason == reasonWaiting {
		if p.waiting == nil {
			p.waiting = map[string]bool{}
		}
		p.waiting[message] = true
	}
	if len(p.messages) == maxMessages {
		p.more++
		return
	}
	p.messages = append(p.messages, message)
}

// count returns the number of problems.
func (p *problems) count() int { return len(p.messages) + p.more }

// since returns the last problem if there are more than before, and the empty text otherwise.
func (p *problems) since(before int) string {
	switch {
	case p.count() == before:
		return ""
	case p.more > 0:
		return "see the condition Ready"
	}
	return p.messages[len(p.messages)-1]
}

func (p *problems) message() string {
	m := strings.Join(p.messages, "; ")
	if p.more > 0 {
		m += fmt.Sprintf("; and %d more", p.more)
	}
	return m
}

// shorten shortens a message of the API server, which may quote an object.
func shorten(text string) string {
	const most = 1024
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// after returns the requeue delay.
func (r *result) after(period time.Duration) time.Duration {
	if r.wait > 0 {
		return min(r.wait, period)
	}
	return period
}

// fieldManager is the field manager of a declaration: a hash, as names may be longer
// than a field manager's.
func fieldManager(kind, namespace, name string) string {
	sum := sha256.Sum256([]byte(kind + "\n" + namespace + "\n" + name))
	return managerPrefix + hex.EncodeToString(sum[:12])
}

// run executes a job. It writes the planned objects into the inventory before it creates
// them, so that a manager that restarts in between finds them. While an object is refused or
// cannot be read, run deletes nothing: a mistake in a list must not delete existing objects.
//
// early holds the problems that the caller has already found.
func (e *Engine) run(ctx context.Context, j *job, early problems) (*result, error) {
	r := &result{inventory: replication.Inventory{}, problems: early}
	wanted := e.plan(ctx, j, &r.problems)
	complete := len(r.problems.messages) == 0
	planned := replication.Inventory{}
	for _, w := range wanted {
		planned.Add(w.object, w.account)
	}
	if err := remember(ctx, j, planned); err != nil {
		return nil, err
	}
	for _, w := range wanted {
		told := r.problems.count()
		outcome := e.apply(ctx, j.manager, w, &r.problems)
		r.processed = append(r.processed, processed{wantedObject: w, message: r.problems.since(told)})
		switch outcome {
		case inPlace:
			r.size++
			r.inventory.Add(w.object, w.account)
		case unknown:
			r.inventory.Add(w.object, w.account)
		case notOurs:
		}
	}
	for key, held := range j.have {
		if _, wanted := planned[key]; wanted || !j.mine(held) {
			continue
		}
		if !complete || !e.remove(ctx, j.manager, held, &r.problems) {
			r.inventory[key] = held
		}
	}
	r.wait = e.waits.next(j.manager, r.problems.waiting, e.Now())
	return r, nil
}

// plan returns the desired objects.
func (e *Engine) plan(ctx context.Context, j *job, p *problems) []wantedObject {
	if j.once {
		return bounded(e.planOnce(j, p), p)
	}
	var wanted []wantedObject
	for _, s := range j.scopes {
		for _, ns := range s.waiting {
			p.add(reasonWaiting, "namespace %s is not in place yet", ns)
		}
		in := replication.Input{Tenant: s.tenant, TenantObject: s.object, Namespaces: s.namespaces, Scope: e.scope}
		for i := range j.entries {
			entry := j.entries[i].Entry
			entry.Copies = e.copies(ctx, &j.entries[i], s, p)
			problems := p.count()
			entry.Context = e.contexts(ctx, &j.entries[i], s, p)
			if p.count() > problems {
				// Without its context a template would render other objects.
				entry.Templates = nil
			}
			in.Entries = append(in.Entries, entry)
		}
		objects, refusals := replication.Plan(in)
		for _, refusal := range refusals {
			p.add(reasonRefused, "%s", refusal)
		}
		for _, o := range objects {
			from := &j.entries[o.Entry]
			wanted = append(wanted, wantedObject{object: o.Object, origin: o.Origin, entry: from, account: from.account(o.Object.GetNamespace()), tenant: s.tenant})
		}
	}
	return bounded(wanted, p)
}

// bounded returns the objects, at most [replication.MaxObjects].
func bounded(wanted []wantedObject, p *problems) []wantedObject {
	if len(wanted) > replication.MaxObjects {
		wanted = wanted[:replication.MaxObjects]
		p.add(reasonRefused, "there are more than %d objects for all tenants together: select fewer tenants", replication.MaxObjects)
	}
	return wanted
}

// planOnce returns the desired objects of a job that applies them once for each scope. It refuses an
// object that two tenants get: which of them decided would depend on the order of the tenants.
func (e *Engine) planOnce(j *job, p *problems) []wantedObject {
	var wanted []wantedObject
	tenants := map[replication.Key][]string{}
	for _, s := range j.scopes {
		in := replication.Input{Tenant: s.tenant, Scope: e.scope}
		for i := range j.entries {
			in.Entries = append(in.Entries, j.entries[i].Entry)
		}
		objects, refusals := replication.PlanOnce(in)
		for _, refusal := range refusals {
			p.add(reasonRefused, "%s", refusal)
		}
		for _, o := range objects {
			from, key := &j.entries[o.Entry], replication.KeyOf(o.Object)
			tenants[key] = append(tenants[key], s.tenant)
			wanted = append(wanted, wantedObject{object: o.Object, origin: o.Origin, entry: from, account: from.account(o.Object.GetNamespace()), tenant: s.tenant})
		}
	}
	return slices.DeleteFunc(wanted, func(w wantedObject) bool {
		all := tenants[replication.KeyOf(w.object)]
		if len(all) > 1 && all[0] == w.tenant {
			p.add(reasonRefused, "%s is the same object for the tenants %s: put {{ tenant.name }} into its name or its namespace, or set spec.scope to None", name(w.object), shortList(all))
		}
		return len(all) > 1
	})
}

// shortList returns the first names of a list.
func shortList(names []string) string {
	const most = 8
	if len(names) <= most {
		return join(names)
	}
	return fmt.Sprintf("%s and %d more", join(names[:most]), len(names)-most)
}

// remember adds planned objects that are new to the saved inventory.
func remember(ctx context.Context, j *job, planned replication.Inventory) error {
	all, news := replication.Inventory{}, false
	for key, held := range j.have {
		all[key] = held
	}
	for key, held := range planned {
		if _, known := all[key]; !known {
			all[key], news = held, true
		}
	}
	if !news {
		return nil
	}
	return j.save(ctx, all)
}

// scope returns whether a kind is namespaced, as far as the cluster serves it.
func (e *Engine) scope(gvk schema.GroupVersionKind) replication.Scope {
	mapping, err := e.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	switch {
	case err != nil:
		return replication.Unknown
	case mapping.Scope.Name() == apimeta.RESTScopeNameNamespace:
		return replication.Namespaced
	}
	return replication.Cluster
}
