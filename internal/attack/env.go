package attack

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/tenants"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Env is what an attack works with: one tenant on one cluster.
type Env struct {
	// Tenant is who attacks, Account as whom, Namespace from where.
	Tenant    tenants.Tenant
	Account   tenants.Account
	Namespace string
	// As is a client with the tenant's identity, Admin one that may all.
	As, Admin client.WithWatch
	// Victim is whom it must not reach.
	Victim Victim
	// Platform is the namespace of Flux.
	Platform string
	// Root is the source that the platform itself is delivered from.
	Root flux.Ref
	// Repository is the tenant's, as it is served to Flux; nil when it is
	// not mapped.
	Repository *tenants.Repository

	git *githost.Host
	// slim is the name of a source with the folder of the attacks alone, of the
	// tenant's repository; "" when there is none.
	slim string
	// unplanted says why the tenant's repository does not hold what the
	// attacks need in it; nil if it does.
	unplanted error
	// sync is the spec of the tenant's own Kustomization; see [Env.delivering].
	sync map[string]any
	// doubts are parts of the fleet that are not really there and may hold
	// controls; see [doubtsOf].
	doubts []string
}

// newEnv prepares the attacks of one tenant, which has an account.
func newEnv(config *rest.Config, admin client.WithWatch, git *githost.Host, platform string, victim Victim, t tenants.Tenant) (*Env, error) {
	account, repository := attacker(git, t)
	as, err := asAccount(config, account)
	if err != nil {
		return nil, err
	}
	return &Env{
		Tenant: t, Account: account, Namespace: account.Namespace, As: as, Admin: admin,
		Victim: victim, Platform: platform, Repository: repository, git: git,
	}, nil
}

// attacker picks the account of a tenant to attack as, and its repository: the
// first whose namespace delivers from one that is mapped.
func attacker(git *githost.Host, t tenants.Tenant) (tenants.Account, *tenants.Repository) {
	for _, account := range t.Accounts {
		for i, r := range t.Repositories {
			if _, mapped := git.Head(r.URL, r.Branch); mapped && r.Kustomization.Namespace == account.Namespace {
				return account, &t.Repositories[i]
			}
		}
	}
	return t.Accounts[0], nil
}

// noRepository is the finding of an attack that needs a repository of the
// tenant's when there is none, and what can be done about it.
func (e *Env) noRepository() Finding {
	if len(e.Tenant.Repositories) == 0 {
		return unproven("no Kustomization of the tenant applies a Git repository")
	}
	var flags []string
	for _, r := range e.Tenant.Repositories {
		if flag := "--map " + r.URL + "#" + r.Branch + "=DIR"; !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return unproven("no repository of the tenant is mapped: add " + strings.Join(flags, " or "))
}

// asAccount returns a client with the identity of a service account. Whoever
// holds the account's token is, to every check of the API server, just that.
func asAccount(config *rest.Config, account tenants.Account) (client.WithWatch, error) {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: account.User(), Groups: account.Groups()}
	return client.NewWithWatch(config, client.Options{})
}

// object is shorthand for an object of a manifest.
func object(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}}
	for key, value := range fields {
		u.Object[key] = value
	}
	return u
}

// tryCreate asks the API server whether the tenant could create an object.
func (e *Env) tryCreate(ctx context.Context, u *unstructured.Unstructured) error {
	return e.As.Create(ctx, u.DeepCopy(), client.DryRunAll)
}

// fluxPatience bounds the wait for Flux's answer to one object.
const fluxPatience = 40 * time.Second

// apply creates a Flux object as the tenant, waits for Flux's answer, looks at
// what came of it and removes it again, with all that Flux has made for it. The
// error is the API server's, for an object that it refuses.
func (e *Env) apply(ctx context.Context, u *unstructured.Unstructured, look func()) (answer, error) {
	u = u.DeepCopy()
	if err := e.As.Create(ctx, u); err != nil {
		return answer{}, err
	}
	defer e.remove(u)
	said, err := e.await(ctx, u)
	look()
	return said, err
}

// remove deletes an object, also when its own end is what was attacked.
func (e *Env) remove(u *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// What Flux has applied for it goes with it, as long as Flux may.
	_ = e.Admin.Delete(ctx, u)
	key := client.ObjectKeyFromObject(u)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(u.GroupVersionKind())
		if err := e.Admin.Get(ctx, key, current); apierrors.IsNotFound(err) || current.GetUID() != u.GetUID() {
			return
		}
		select {
		case <-ctx.Done():
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			_ = e.Admin.Patch(context.WithoutCancel(ctx), u, patch)
			return
		case <-tick.C:
		}
	}
}

// answer is what Flux says about an object.
type answer struct {
	// ready is the status of the condition Ready, message its message; empty
	// when Flux has said nothing in time.
	ready   metav1.ConditionStatus
	message string
}

// await waits until Flux has tried an object, and returns what came of it.
func (e *Env) await(ctx context.Context, u *unstructured.Unstructured) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fluxPatience)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(u.GroupVersionKind())
	w, err := e.Admin.Watch(ctx, list, client.InNamespace(u.GetNamespace()), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector("metadata.name", u.GetName()),
	})
	if err != nil {
		return answer{}, fmt.Errorf("cannot watch %s: %w", u.GetName(), err)
	}
	defer w.Stop()
	var last answer
	for {
		select {
		case <-ctx.Done():
			return last, nil
		case event, open := <-w.ResultChan():
			current, ok := event.Object.(*unstructured.Unstructured)
			if !open || !ok {
				return last, nil
			}
			if a, final := answerOf(current); final {
				return a, nil
			} else if a.message != "" {
				last = answer{message: a.message}
			}
		}
	}
}

// answerOf reads the condition Ready. It is final when Flux has looked at the
// object as it is now and is not at work on it.
func answerOf(u *unstructured.Unstructured) (answer, bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != "Ready" {
			continue
		}
		status, _ := condition["status"].(string)
		message, _ := condition["message"].(string)
		reason, _ := condition["reason"].(string)
		generation, _ := condition["observedGeneration"].(int64)
		a := answer{ready: metav1.ConditionStatus(status), message: message}
		working := a.ready == metav1.ConditionUnknown || reason == "DependencyNotReady" || generation != 0 && generation != u.GetGeneration()
		return a, !working
	}
	return answer{}, false
}

// exists says whether an object is there.
func (e *Env) exists(ctx context.Context, u *unstructured.Unstructured) (bool, error) {
	current := u.DeepCopy()
	err := e.Admin.Get(ctx, client.ObjectKeyFromObject(u), current)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// name makes the name of an object of an attack.
func name(id string) string { return "tenure-attack-" + strings.ToLower(id) }

// configMap is the canary of most attacks: an object that nobody else makes.
func configMap(namespace, name string) *unstructured.Unstructured {
	return object("v1", "ConfigMap", namespace, name, map[string]any{"data": map[string]any{"touched": "by tenure verify"}})
}

// kustomization is a Kustomization of the tenant's for a folder of its own
// repository, under its own account.
func (e *Env) kustomization(id, folder string, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"interval":           "1h",
		"retryInterval":      "1h",
		"timeout":            "20s",
		"path":               "./" + folder,
		"prune":              true,
		"serviceAccountName": e.Account.Name,
		"sourceRef":          map[string]any{"kind": "GitRepository", "name": cmp.Or(e.slim, e.Repository.Source.Name)},
	}
	if change != nil {
		change(spec)
	}
	return object(flux.Kustomization.GroupVersionKind().GroupVersion().String(), "Kustomization", e.Namespace, name(id), map[string]any{"spec": spec})
}

func keyOf(u *unstructured.Unstructured) client.ObjectKey { return client.ObjectKeyFromObject(u) }

// manifest writes objects as YAML documents.
func manifest(objects ...*unstructured.Unstructured) string {
	var out strings.Builder
	for _, u := range objects {
		// What is made of maps, strings and numbers can be written.
		content, _ := yaml.Marshal(u.Object)
		fmt.Fprintf(&out, "---\n%s", content)
	}
	return out.String()
}
