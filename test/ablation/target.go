package ablation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// target is the cluster from which the controls are removed.
type target struct {
	opts   Options
	admin  client.WithWatch
	tenant discovery.Tenant
	// account is the account as which the tenant attacks.
	account discovery.Account
	// unsettled is set while the API server may not enforce the last change of a policy yet. The next
	// attack waits until it does, and so for the restoration of a row and the removal of the next row at
	// the same time.
	unsettled bool
	// neighbour is a namespace of another tenant, or empty.
	neighbour string
}

func newTarget(ctx context.Context, opts Options) (*target, error) {
	// Fleets without controls cause warnings on purpose.
	opts.Attack.Config = rest.CopyConfig(opts.Attack.Config)
	opts.Attack.Config.WarningHandlerWithContext = rest.NoWarnings{}
	admin, err := client.NewWithWatch(opts.Attack.Config, client.Options{})
	if err != nil {
		return nil, err
	}
	found, err := discovery.Discover(ctx, admin, opts.Attack.Choice)
	if err != nil {
		return nil, err
	}
	all := found.Tenants
	i := slices.IndexFunc(all, func(t discovery.Tenant) bool { return t.Name == opts.Attack.Tenant })
	if i < 0 || len(all[i].Accounts) == 0 {
		return nil, fmt.Errorf("there is no tenant %s with an account", opts.Attack.Tenant)
	}
	t := &target{opts: opts, admin: admin, tenant: all[i], account: opts.Attack.Account(all[i])}
	for _, other := range all {
		if other.Name != t.tenant.Name && len(other.Namespaces) > 0 {
			t.neighbour = other.Namespaces[0]
		}
	}
	return t, nil
}

// attack runs attacks as the tenant, after all policies are in force.
func (t *target) attack(ctx context.Context, only func(catalog.Attack) bool) (catalog.Report, error) {
	if t.unsettled {
		if err := t.policiesInForce(ctx); err != nil {
			return catalog.Report{}, err
		}
	}
	opts := t.opts.Attack
	opts.Only, opts.Progress, opts.Keep = only, nil, true
	return catalog.Run(ctx, opts)
}

// cleanUp removes the objects that all rows share, and waits until they are gone, so that another run can
// follow.
func (t *target) cleanUp(ctx context.Context) error {
	victim := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: catalog.VictimNamespace}}
	errs := []error{client.IgnoreNotFound(t.admin.Delete(ctx, victim)), catalog.RemovePolicy(ctx, t.admin, sentinel)}
	return errors.Join(append(errs, poll(ctx, "namespace "+victim.Name+" to be gone", func() (bool, error) {
		err := t.admin.Get(ctx, client.ObjectKeyFromObject(victim), victim)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))...)
}

// suspend suspends the platform's own Kustomizations, which would restore removed controls. It does not
// suspend the tenant's own Kustomization in the platform's namespace. The returned function resumes the
// suspended Kustomizations.
func (t *target) suspend(ctx context.Context) (func(context.Context) error, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(flux.Kustomization.GroupVersionKind())
	nothing := func(context.Context) error { return nil }
	if err := t.admin.List(ctx, list, client.InNamespace(t.opts.Attack.Platform)); err != nil {
		return nothing, fmt.Errorf("cannot list the platform's Kustomizations: %w", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
		return slices.ContainsFunc(t.tenant.Repositories, func(r discovery.Repository) bool {
			return r.Kustomization.Namespace == u.GetNamespace() && r.Kustomization.Name == u.GetName()
		})
	})
	set := func(ctx context.Context, suspend string) error {
		var errs []error
		for i := range list.Items {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":`+suspend+`}}`))
			errs = append(errs, client.IgnoreNotFound(t.admin.Patch(ctx, list.Items[i].DeepCopy(), patch)))
		}
		return errors.Join(errs...)
	}
	return func(ctx context.Context) error { return set(ctx, "null") }, set(ctx, "true")
}

// patience is the maximum duration of each wait for the cluster.
const patience = time.Minute

// poll waits until done returns true. It polls, because only responses of the API server show the
// condition, and a watch cannot observe them.
func poll(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := done()
		if ok {
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("still waiting after %s for %s", patience, what), last)
		case <-tick.C:
		}
	}
}
