package catalog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Scenario is the environment of an attack: one tenant on one cluster.
type Scenario struct {
	// Tenant is the attacking tenant, Account its account, and Namespace the namespace of
	// its objects. A tenant without a namespace has no account, and Namespace is its name.
	Tenant    discovery.Tenant
	Account   discovery.Account
	Namespace string
	// Owner is the owner that attacks in the account's place; nil for the account.
	Owner *discovery.Owner
	// As is a client with the attacker's identity, Admin a client with all rights.
	As, Admin client.WithWatch
	// Victim is the tenant that is attacked.
	Victim Victim
	// Platform is the namespace of Flux.
	Platform string
	// Root is the source that the platform itself is delivered from.
	Root flux.Ref
	// Repository is the tenant's repository or artifact on the local hosts; nil if it is not
	// mapped.
	Repository *discovery.Repository

	config *rest.Config
	// who holds the identity of As.
	who identity
	// inFull is set for the tenant of its shape that tries all attacks.
	inFull bool
	// ordinaries are the objects of [Scenario.ordinary], which are made once.
	ordinaries *ordinaries
	// marks are the labels and annotations that may exempt an object from a policy of the fleet.
	marks []mark
	// called are the Services that the API server calls, of all namespaces.
	called []calledService
	// owners are those that attack beside the account; see [Scenario.prepareOwners].
	owners []*Scenario
	// holders are the further identities of the tenant; see [Scenario.prepareHolders]. further are the rights
	// of such an identity that the account lacks; nil for the account and the owners.
	holders []*Scenario
	further []discovery.Right
	// unlike are the same attacks in namespaces of the tenant with other controls; see [Attack.inEachOf].
	unlike []*Scenario
	// tenants are all of the cluster's.
	tenants []discovery.Tenant
	hosts   hosts
	// outside simulates the world outside of the cluster; nil if that is not possible.
	outside Outside
	// proxyEndpoint is the fleet's proxy for tenants; nil when it has none.
	proxyEndpoint *proxyEndpoint
	// controllers are clients with the identities of Kubernetes' controllers, by the names of
	// their accounts.
	controllers map[string]client.Client
	// kube reads logs, which are no objects.
	kube kubernetes.Interface
	// slim is the name of a source with the folder of the attacks alone, of the
	// tenant's repository; "" when there is none. near is the name of one more in
	// Namespace, for a tenant whose source is the platform's; "" when there is none.
	slim, near string
	// charts is the name of a HelmRepository with the charts of the attacks, for a tenant that
	// delivers an OCI artifact, from which no chart is installed; "" for others.
	charts string
	// deliverIn is the namespace of the tenant's Kustomization, if that is not Namespace
	// and the tenant commits to its repository; see [Scenario.delivering].
	deliverIn string
	// unplanted is the error of the commit with the attacks' files; nil if the tenant's
	// repository has them.
	unplanted error
	// sync is the spec of the tenant's own Kustomization; see [Scenario.delivering].
	sync map[string]any
	// doubts are parts of the fleet that are not really there and may hold
	// controls; see [unprovableControls].
	doubts []string
	// namespaces are all namespaces of the cluster at the start of the run.
	namespaces []corev1.Namespace
	// networkDoubts are policies of network plugins, which no attack judges.
	networkDoubts []unenforced
	// lacks says why the tenant may lack rights here that the fleet gives it; "" if it
	// has them.
	lacks string
	// limits are the limits of the tenant's workloads; only these fields are read.
	limits v1alpha1.Posture
	// selectedClasses are the classes that the limits allow by their labels.
	selectedClasses v1alpha1.SelectedClasses
	// hostInUse is a host without a wildcard that the tenant has, or "".
	hostInUse string
	// runsBy is the kind of workload by which a commit of the tenant runs a Pod, or nil if it may
	// apply Pods themselves.
	runsBy *workload
}

// newScenario prepares the attacks of one tenant.
func newScenario(opts Options, admin client.WithWatch, victim Victim, t discovery.Tenant) (*Scenario, error) {
	config, local := opts.Config, opts.hosts()
	account, repository := attacker(local, t)
	who := identity{user: account.User(), groups: account.Groups()}
	as, err := asIdentity(config, who)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	return &Scenario{
		Tenant: t, Account: account, Namespace: attacksFrom(t, account), As: as, who: who, Admin: admin,
		Victim: victim, Platform: opts.Platform, Repository: repository, hosts: local, config: config, kube: kube, ordinaries: &ordinaries{},
	}, nil
}

// attacksFrom returns the namespace of the attacks' objects: the account's namespace, or the
// tenant's first namespace if the account is in a namespace of the platform, where the account
// has no rights.
func attacksFrom(t discovery.Tenant, account discovery.Account) string {
	if account.Namespace == "" || slices.Contains(t.Namespaces, account.Namespace) || len(t.Namespaces) == 0 {
		return cmp.Or(account.Namespace, t.Name)
	}
	return t.Namespaces[0]
}

// Account is the account of a tenant that it is attacked as; the zero Account if
// it has none.
func (o Options) Account(t discovery.Tenant) discovery.Account {
	account, _ := attacker(o.hosts(), t)
	return account
}

// attacker returns the account of a tenant that attacks, and its repository: the first account
// whose namespace delivers from a mapped repository, or else the first account, and a mapped
// repository that the platform delivers from its own namespace without naming an account.
func attacker(local hosts, t discovery.Tenant) (discovery.Account, *discovery.Repository) {
	for _, account := range t.Accounts {
		for i, r := range t.Repositories {
			if local.serve(r) && r.Kustomization.Namespace == account.Namespace {
				return account, &t.Repositories[i]
			}
		}
	}
	if len(t.Accounts) == 0 {
		return discovery.Account{}, nil
	}
	for i, r := range t.Repositories {
		if local.serve(r) && !slices.Contains(t.Namespaces, r.Kustomization.Namespace) {
			return t.Accounts[0], &t.Repositories[i]
		}
	}
	return t.Accounts[0], nil
}

// noRepository is the finding of an attack that needs a repository of the
// tenant's when there is none, and what can be done about it.
func (e *Scenario) noRepository() Finding {
	if len(e.Tenant.Repositories) == 0 {
		return notProven("no Kustomization of the tenant applies a Git repository or an OCI artifact")
	}
	var flags []string
	for _, r := range e.Tenant.Repositories {
		if flag := "--map " + r.Address() + "=DIR"; r.Branch != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return notProven("the tenant's repository is selected by a tag, a version or a commit, or its artifact by a digest or a version that Flux has not found, so that no push to a branch replaces it")
	}
	return notProven("no repository of the tenant is mapped: add " + strings.Join(flags, " or "))
}

// asAccount returns a client with the identity of a service account.
func asAccount(config *rest.Config, account discovery.Account) (client.WithWatch, error) {
	return asIdentity(config, identity{user: account.User(), groups: account.Groups()})
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
func (e *Scenario) tryCreate(ctx context.Context, u *unstructured.Unstructured) error {
	return e.As.Create(ctx, u.DeepCopy(), client.DryRunAll)
}

// fluxPatience is the maximum wait for Flux's condition on one object. The wait ends with the
// condition, which Flux sets also if it refuses the object.
const fluxPatience = 2 * time.Minute

// apply creates a Flux object as the tenant, waits for Flux's answer, looks at
// the result and removes it again, with all that Flux has made for it. The
// error is the API server's, for an object that it refuses.
func (e *Scenario) apply(ctx context.Context, u *unstructured.Unstructured, look func()) (readiness, error) {
	u = u.DeepCopy()
	if err := e.createOrChange(ctx, u); err != nil {
		return readiness{}, err
	}
	defer e.removeRelease(u)
	said, err := e.awaitCondition(ctx, u)
	look()
	return said, err
}

// create creates an object as the tenant, not as a dry run: remove it.
func (e *Scenario) create(ctx context.Context, u *unstructured.Unstructured) error {
	err := e.As.Create(ctx, u)
	if err != nil && ctx.Err() != nil {
		// After an interruption the object may exist.
		e.remove(u)
	}
	// Attacks run side by side, so that one may get the last room and another
	// none: that is no control of either.
	if control, _ := controlOf(fmt.Sprint(err)); err != nil && strings.HasPrefix(control, quotaControl) {
		// The error is not wrapped, so that it is not taken for a refusal.
		return errors.New("the tenant's quota has no room for the attack: " + err.Error())
	}
	return err
}

// remove deletes an object and waits until it is gone, also when the run is
// being ended. Another object of the same name is left alone.
func (e *Scenario) remove(u *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	uid := u.GetUID()
	gone := func(ctx context.Context) (bool, error) {
		current := &unstructured.Unstructured{}
		current.SetGroupVersionKind(u.GroupVersionKind())
		err := e.Admin.Get(ctx, keyOf(u), current)
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			return true, nil
		case utilnet.IsConnectionRefused(err):
			return true, nil // the cluster has ended, and the object with it
		case err != nil:
			return false, nil
		case uid == "":
			uid = current.GetUID()
		}
		return current.GetUID() != uid, nil
	}
	if there, _ := gone(ctx); there {
		return
	}
	// What Flux has applied for it goes with it, as long as Flux may.
	_ = e.Admin.Delete(ctx, u)
	if pollUntil(ctx, removePatience, gone) == nil {
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	_ = e.Admin.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// removePatience bounds the wait for the end of an object, which may have
// finalizers. Without them, what Flux has applied for it stays.
const removePatience = time.Minute

// readiness is the condition Ready of an object.
type readiness struct {
	// ready is the status of the condition Ready, message its message; empty
	// when Flux has said nothing in time.
	ready   metav1.ConditionStatus
	message string
}

// passing matches what a controller says if it was not the answer to an attack that failed: a concurrent
// change, for example when another attack changed the usage of a quota, or a step that took too long on
// a busy machine. Flux tries again only after the object's interval.
var passing = regexp.MustCompile(`the object has been modified; please apply your changes to the latest version|` +
	`context deadline exceeded|Client\.Timeout exceeded|etcdserver: request timed out|rate limiter Wait returned an error`)

// maxRepetitions is how often an attack has Flux try again.
const maxRepetitions = 5

// awaitCondition waits until Flux has tried an object, and returns the result. After a passing failure
// it has Flux try again. An answer from before Flux had the attack's files is none: see [undecided].
func (e *Scenario) awaitCondition(ctx context.Context, u *unstructured.Unstructured) (readiness, error) {
	ctx, cancel := context.WithTimeout(ctx, fluxPatience)
	defer cancel()
	wait := fluxAnswer{object: u}
	for ctx.Err() == nil {
		// The API server ends a watch when it is too far behind.
		if done, err := e.watchCondition(ctx, &wait); done || err != nil {
			return wait.last, err
		}
	}
	return wait.last, nil
}

// fluxAnswer is what Flux has said about an object so far.
type fluxAnswer struct {
	object *unstructured.Unstructured
	last   readiness
	// asked is the last request to try again, of repetitions.
	asked       string
	repetitions int
}

// watchCondition waits for the answer of Flux until the watch ends, and reports whether it has come.
func (e *Scenario) watchCondition(ctx context.Context, wait *fluxAnswer) (bool, error) {
	u := wait.object
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(u.GroupVersionKind())
	w, err := e.Admin.Watch(ctx, list, client.InNamespace(u.GetNamespace()), client.MatchingFieldsSelector{
		Selector: fields.OneTermEqualSelector("metadata.name", u.GetName()),
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot watch %s: %w", u.GetName(), err)
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case event, open := <-w.ResultChan():
			current, ok := event.Object.(*unstructured.Unstructured)
			if !open || !ok {
				return false, nil
			}
			if done, err := e.reads(ctx, wait, current); done || err != nil {
				return done, err
			}
		}
	}
}

// reads takes the state of an object into account, and reports whether Flux has answered.
func (e *Scenario) reads(ctx context.Context, wait *fluxAnswer, current *unstructured.Unstructured) (bool, error) {
	a, final := readyCondition(current)
	handled, _, _ := unstructured.NestedString(current.Object, "status", "lastHandledReconcileAt")
	open := undecided(current)
	switch {
	case wait.asked != "" && handled != wait.asked:
		// This is the answer from before.
	case final && (passing.MatchString(a.message) || open && kustomizationSourceMissing.MatchString(a.message)) && wait.repetitions < maxRepetitions:
		wait.repetitions++
		wait.asked = rand.Text()
		// Without forceAt, helm-controller does not install a release again that has failed.
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%[2]q,"reconcile.fluxcd.io/forceAt":%[2]q}}}`, requestedAt, wait.asked)
		if err := e.Admin.Patch(ctx, current, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return false, fmt.Errorf("cannot have Flux try %s again: %w", current.GetName(), err)
		}
	case final && !open:
		wait.last = a
		return true, nil
	case a.message != "":
		wait.last = readiness{message: a.message}
	}
	return false, nil
}

// undecided reports whether Flux has not yet read what an attack delivers, and so decided nothing. A
// controller's cache may lag behind: then it does not find the chart that it has just asked for, or the
// folder of the attack's commit, and tries again by itself. A missing source or folder may be an attack's
// aim if it is another namespace's, or [missingFolder].
func undecided(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	failed := slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["reason"] == "ArtifactFailed"
	})
	if !failed {
		return false
	}
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, fields...)...)
		return s
	}
	if u.GetKind() == string(flux.HelmRelease) {
		return text("chart", "spec", "chart") != "" && strings.TrimPrefix(text("chart", "spec", "chart"), "./") != missingFolder && isOf(u, text("chart", "spec", "sourceRef", "namespace"))
	}
	return u.GetKind() == string(flux.Kustomization) && strings.TrimPrefix(text("path"), "./") != missingFolder && isOf(u, text("sourceRef", "namespace"))
}

// isOf reports whether a reference of an object names no other namespace than the object's.
func isOf(u *unstructured.Unstructured, namespace string) bool {
	return namespace == "" || namespace == u.GetNamespace()
}

// readyCondition reads the condition Ready. It is final when Flux has observed the object's
// generation and does not reconcile it.
func readyCondition(u *unstructured.Unstructured) (readiness, bool) { return conditionOf(u, "Ready") }

// conditionOf is readyCondition for a condition of any type.
func conditionOf(u *unstructured.Unstructured, kind string) (readiness, bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != kind {
			continue
		}
		status, _ := condition["status"].(string)
		message, _ := condition["message"].(string)
		reason, _ := condition["reason"].(string)
		generation, _ := condition["observedGeneration"].(int64)
		a := readiness{ready: metav1.ConditionStatus(status), message: message}
		waits := reason == "DependencyNotReady" || reason == "SourceNotReady"
		working := a.ready == metav1.ConditionUnknown || waits || generation != 0 && generation != u.GetGeneration()
		return a, !working
	}
	return readiness{}, false
}

// exists reports whether an object exists. It returns false for an object that is being
// deleted: the namespaces of an earlier run need seconds for that.
func (e *Scenario) exists(ctx context.Context, u *unstructured.Unstructured) (bool, error) {
	current := u.DeepCopy()
	err := e.Admin.Get(ctx, client.ObjectKeyFromObject(u), current)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil && current.GetDeletionTimestamp() == nil, err
}

// name makes the name of an object of an attack.
func name(id string) string { return "tenure-attack-" + strings.ToLower(id) }

// configMap returns the canary of most attacks: an object that no other program creates.
func configMap(namespace, name string) *unstructured.Unstructured {
	return object("v1", "ConfigMap", namespace, name, map[string]any{"data": map[string]any{"touched": "by tenure verify"}})
}

// kustomization is a Kustomization of the tenant's for a folder of its own
// repository, under its own account.
func (e *Scenario) kustomization(id, folder string, change func(spec map[string]any)) *unstructured.Unstructured {
	namespace := cmp.Or(e.deliverIn, e.Namespace)
	spec := map[string]any{
		"interval":           "1h",
		"retryInterval":      "1h",
		"timeout":            "20s",
		"path":               "./" + folder,
		"prune":              true,
		"serviceAccountName": e.Account.Name,
		"sourceRef":          e.sourceRef(namespace),
	}
	if change != nil {
		change(spec)
	}
	id = name(id)
	if e.deliverIn != "" {
		id += "-" + e.Tenant.Name // the Kustomizations of other tenants may be there too
	}
	return object(flux.Kustomization.GroupVersionKind().GroupVersion().String(), "Kustomization", namespace, id, map[string]any{"spec": spec})
}

// sourceRef refers to the tenant's source from an object in a namespace, which may be
// another one than the source's.
func (e *Scenario) sourceRef(namespace string) map[string]any {
	if e.near != "" && namespace == e.Namespace {
		return map[string]any{"kind": string(e.Repository.Source.Kind), "name": e.near}
	}
	ref := map[string]any{"kind": string(e.Repository.Source.Kind), "name": cmp.Or(e.slim, e.Repository.Source.Name)}
	if e.Repository.Source.Namespace != namespace {
		ref["namespace"] = e.Repository.Source.Namespace
	}
	return ref
}

// suspended is a Kustomization of the tenant's that does nothing, for questions
// that the API server alone answers.
func (e *Scenario) suspended(id string, change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"interval": "1h", "path": "./", "prune": true, "suspend": true,
		"serviceAccountName": e.Account.Name,
		"sourceRef":          map[string]any{"kind": "GitRepository", "name": "any"},
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
		// Marshalling maps, strings and numbers cannot fail.
		content, _ := yaml.Marshal(u.Object)
		fmt.Fprintf(&out, "---\n%s", content)
	}
	return out.String()
}
