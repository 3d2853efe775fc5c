// Package olderobjects counts the objects of tenants that today's rules would refuse: those that are
// older than a rule, than a limit in the TenancyProfile or than one in a Tenant. They keep running.
//
// The API server decides. For each object, [Count] sends a dry run that creates the object once more
// under its own name, as an account of the tenant: platform admins are exempt from the rules. The API
// server asks the policies before it finds that the object exists, so that each request is refused,
// by a rule or with AlreadyExists.
package olderobjects

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxObjects is the maximum number of objects that [Count] looks at.
	maxObjects = 2000
	// parallel is the number of objects that are tried at the same time.
	parallel = 16
	// maxUsers is the maximum number of accounts and owners of a tenant that are tried until one may
	// create an object.
	maxUsers = 4
)

// Report is what [Count] found.
type Report struct {
	// Objects is the number of objects that were looked at.
	Objects int
	// Refused are the objects that a rule refuses or warns of, sorted.
	Refused []Refusal
	// Untried is the number of objects that the API server refused for other reasons before the rules
	// decided, and Reason is its reason for one of them.
	Untried int
	Reason  string
	// More reports whether there are more objects than were looked at.
	More bool
}

// Refusal is an object that the rules refuse.
type Refusal struct {
	// Object is the kind, namespace and name.
	Object string
	// Rules are the names of the rules.
	Rules []string
}

// Count counts the objects in the namespaces of tenants. The configuration needs the rights to list
// and get them, and to impersonate the tenants' accounts. Count calls progress with a text for people. It returns an error if the configuration impersonates a user, if it cannot list or read the objects, or if the context ends.
func Count(ctx context.Context, config *rest.Config, tenants []discovery.Tenant, progress func(string)) (*Report, error) {
	if user := config.Impersonate.UserName; user != "" {
		return nil, fmt.Errorf("the kubeconfig impersonates %s, who cannot impersonate the tenants' accounts in turn", user)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server limits the rate
	config.WarningHandlerWithContext = collector{}
	kube, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the cluster: %w", err)
	}
	found, more, err := find(ctx, kube, tenants)
	if err != nil {
		return nil, err
	}
	c := counter{
		config: config, kube: kube, users: usersOf(tenants), tries: map[string]*try{}, clients: map[string]client.Client{},
		report: Report{Objects: len(found), More: more},
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(parallel)
	for i, o := range found {
		if i%100 == 0 {
			progress(fmt.Sprintf("%d of %d", i, len(found)))
		}
		t := c.tryFor(o)
		work.Go(func() error { return c.count(ctx, o, t) })
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(c.report.Refused, func(a, b Refusal) int { return cmp.Compare(a.Object, b.Object) })
	return &c.report, nil
}

// usersOf returns the accounts and owners of tenants, by namespace: first the accounts of the
// namespace itself.
func usersOf(tenants []discovery.Tenant) map[string][]rest.ImpersonationConfig {
	users := map[string][]rest.ImpersonationConfig{}
	for _, t := range tenants {
		for _, namespace := range t.Namespaces {
			var here, all []rest.ImpersonationConfig
			for _, a := range t.Accounts {
				user := rest.ImpersonationConfig{UserName: a.User()}
				if a.Namespace == namespace {
					here = append(here, user)
					continue
				}
				all = append(all, user)
			}
			all = append(here, all...)
			for _, o := range t.Owners {
				all = append(all, rest.ImpersonationConfig{UserName: o.User(), Groups: o.Groups()})
			}
			users[namespace] = all[:min(len(all), maxUsers)]
		}
	}
	return users
}

// counter counts objects.
type counter struct {
	config *rest.Config
	kube   client.Client
	users  map[string][]rest.ImpersonationConfig
	tries  map[string]*try

	mu sync.Mutex
	// clients are the clients of users, by user name.
	clients map[string]client.Client
	report  Report
}

// try is shared by the objects of one kind in one namespace: the same user may create all of them.
type try struct {
	users []rest.ImpersonationConfig
	// first is the index of the first user with the right to create them.
	first atomic.Int32
}

// tryFor returns the try of an object.
func (c *counter) tryFor(o object) *try {
	key := o.kind.String() + "/" + o.namespace
	if c.tries[key] == nil {
		c.tries[key] = &try{users: c.users[o.namespace]}
	}
	return c.tries[key]
}

// count tries one object. It returns an error only if nothing more can be counted.
func (c *counter) count(ctx context.Context, found object, t *try) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(found.kind)
	err := c.kube.Get(ctx, client.ObjectKey{Namespace: found.namespace, Name: found.name}, o)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read %s %s/%s: %w", found.kind.Kind, found.namespace, found.name, err)
	}
	rules, reason := c.create(ctx, request(o), t)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(rules) > 0:
		c.report.Refused = append(c.report.Refused, Refusal{lockdown.ObjectName(o), rules})
	case reason != "":
		c.report.Untried++
		c.report.Reason = cmp.Or(c.report.Reason, reason)
	}
	return nil
}

// create sends the request as the first user who may create the object. It returns the rules that
// refuse it, or why the rules said nothing.
func (c *counter) create(ctx context.Context, o *unstructured.Unstructured, t *try) (rules []string, reason string) {
	for i := t.first.Load(); int(i) < len(t.users); i++ {
		as, err := c.clientOf(t.users[i])
		if err != nil {
			return nil, err.Error()
		}
		var warnings []string
		err = as.Create(context.WithValue(ctx, warningsKey{}, &warnings), o.DeepCopy(), client.DryRunAll)
		if mayNot(err) {
			t.first.CompareAndSwap(i, i+1)
			reason = err.Error()
			continue
		}
		return verdict(o, err, warnings)
	}
	return nil, cmp.Or(reason, "no account of the tenant may create it")
}

// clientOf returns a client that impersonates a user.
func (c *counter) clientOf(user rest.ImpersonationConfig) (client.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients[user.UserName] == nil {
		config := rest.CopyConfig(c.config)
		config.Impersonate = user
		as, err := client.New(config, client.Options{Mapper: c.kube.RESTMapper()})
		if err != nil {
			return nil, err
		}
		c.clients[user.UserName] = as
	}
	return c.clients[user.UserName], nil
}

// mayNot reports whether an error says that the user may not create the object, or that nobody may act
// as this user.
func mayNot(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), " cannot create resource ") || strings.Contains(err.Error(), " cannot impersonate"))
}

// warningsKey is the key of a context for the list of the warnings about its request.
type warningsKey struct{}

// collector collects the warnings: rules in warn mode refuse nothing.
type collector struct{}

// HandleWarningHeaderWithContext implements [rest.WarningHandlerWithContext].
func (collector) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if warnings, ok := ctx.Value(warningsKey{}).(*[]string); ok {
		*warnings = append(*warnings, text)
	}
}
