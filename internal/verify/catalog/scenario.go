package catalog

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	"k8s.io/apimachinery/pkg/util/validation"
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
	// Owner is the owner that attacks instead of the account; nil for the account.
	Owner *discovery.Owner
	// As is a client with the attacker's identity, and Admin a client with all rights.
	As, Admin client.WithWatch
	// Victim is the target of the attacks.
	Victim Victim
	// Platform is the namespace of Flux.
	Platform string
	// Root is the source that delivers the platform itself.
	Root flux.Ref
	// Repository is the tenant's repository or artifact on the local hosts; nil if it is not
	// mapped.
	Repository *discovery.Repository
	// invented is the source of [Scenario.inventDelivery]; nil if the tenant needs none.
	invented *unstructured.Unstructured

	config *rest.Config
	// who is the identity of As.
	who identity
	// inFull is set for the tenant that tries all attacks, of the tenants with the same shape.
	inFull bool
	// ordinaries are the objects of [Scenario.ordinary], which are created once.
	ordinaries *ordinaries
	// customs are the labels that policies of the fleet demand of every object, for all tenants.
	customs *customs
	// exemptions are the labels, annotations and names that may exempt an object from a policy of the fleet.
	exemptions []exemption
	// mutates is set if a policy or a webhook of the fleet may change objects.
	mutates bool
	// called are the Services in all namespaces that the API server calls.
	called []calledService
	// owners are the owners that attack beside the account; see [Scenario.prepareOwners].
	owners []*Scenario
	// holders are the further identities of the tenant; see [Scenario.prepareHolders]. further are the
	// rights of such an identity that the account lacks; nil for the account and the owners.
	holders []*Scenario
	further []discovery.Right
	// deliveries are scenarios with further repositories of the tenant that Flux applies with other rights; see
	// [Scenario.prepareDeliveries]. suffix distinguishes the names of their sources.
	deliveries []*Scenario
	suffix     string
	// distinguished is set for a further identity that policies treat in another way than the account, by its name.
	distinguished bool
	// unlike are scenarios in namespaces of the tenant with other controls; see [Attack.inEachOf].
	unlike []*Scenario
	// tenants are all tenants of the cluster.
	tenants []discovery.Tenant
	hosts   hosts
	// outside simulates the network outside of the cluster; nil if that is not possible.
	outside Outside
	// proxyEndpoint is the fleet's proxy for tenants; nil if there is none.
	proxyEndpoint *proxyEndpoint
	// controllers are clients with the identities of Kubernetes' controllers, by the names of
	// their accounts.
	controllers map[string]client.Client
	// kube reads logs, which are not API objects.
	kube kubernetes.Interface
	// slim is the name of a copy of the tenant's source with only the folder of the attacks; "" if there is
	// none. near is the name of a second copy in Namespace, for a tenant whose source is in the platform's
	// namespace; "" if there is none.
	slim, near string
	// charts is the name of a HelmRepository with the charts of the attacks, for a tenant that delivers an
	// OCI artifact, from which helm-controller installs no chart; "" for other tenants.
	charts string
	// deliverIn is the namespace of the tenant's Kustomization if it is not Namespace and the attack
	// commits to the tenant's repository; see [Scenario.delivering].
	deliverIn string
	// unplanted is the error of the commit with the attacks' files; nil if the tenant's repository contains
	// them.
	unplanted error
	// sync is the spec of the tenant's own Kustomization; see [Scenario.delivering].
	sync map[string]any
	// doubts are parts of the fleet that are simulated or missing here and may contain controls; see
	// [unprovableControls].
	doubts []string
	// webhookDoubts are webhooks that do not run here and may stop attacks.
	webhookDoubts []webhookDoubt
	// dryRunPolicies are policies that look at whether a request is a dry run.
	dryRunPolicies []webhookDoubt
	// namespaces are all namespaces of the cluster at the start of the run.
	namespaces []corev1.Namespace
	// networkDoubts are policies of network plugins, which no attack judges.
	networkDoubts []unenforced
	// lacks is the reason why the tenant may lack rights here that the fleet gives it; "" if the tenant has
	// them.
	lacks string
	// limits are the limits of the tenant's workloads; only these fields are read.
	limits v1alpha1.Posture
	// selectedClasses are the classes that the limits allow by their labels.
	selectedClasses v1alpha1.SelectedClasses
	// hostInUse is a host without a wildcard that the tenant uses, or "".
	hostInUse string
	// runsBy is the kind of workload with which a commit of the tenant runs a Pod, or nil if the tenant may
	// apply Pods.
	runsBy *workload
	// takeover is the index of the Pod in takeovers that a commit of the tenant delivers.
	takeover int
}

// newScenario prepares the attacks of one tenant.
func newScenario(opts Options, admin client.WithWatch, victim Victim, t discovery.Tenant, with *customs) (*Scenario, error) {
	config, local := opts.Config, opts.hosts()
	account, repository := attacker(local, t)
	who := identity{user: account.User(), groups: account.Groups()}
	as, err := asIdentity(config, who, with)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	return &Scenario{
		Tenant: t, Account: account, Namespace: attacksFrom(t, account), As: as, who: who, Admin: admin,
		Victim: victim, Platform: opts.Platform, Repository: repository, hosts: local, config: config, kube: kube, ordinaries: &ordinaries{}, customs: with,
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

// Account returns the account as which the attacks of a tenant run, or the zero Account if the tenant has
// none.
func (o Options) Account(t discovery.Tenant) discovery.Account {
	account, _ := attacker(o.hosts(), t)
	return account
}

// attacker returns the account of a tenant that attacks, and its repository. It prefers the first account
// in a namespace that delivers from a mapped repository. Otherwise it returns the first account, and a
// mapped repository that the platform delivers from its own namespace without naming an account.
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

// noRepository returns the finding of an attack that needs a repository of the tenant if there is none,
// with advice.
func (e *Scenario) noRepository() Finding {
	if len(e.Tenant.Repositories) == 0 && e.unplanted != nil {
		return notProven("no Kustomization of the tenant applies a Git repository or an OCI artifact, and verify could not give it one: " + firstLine(e.unplanted.Error()))
	}
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

// withoutRepository returns the finding of an attack through the API that needs a repository of the tenant if there is
// none. If Flux delivers nothing for the tenant, the attack is stopped if the tenant may write neither
// Kustomizations nor HelmReleases, which would deliver another source.
func (e *Scenario) withoutRepository(ctx context.Context) Finding {
	if !e.undelivered() {
		return e.noRepository()
	}
	kind, err := e.maySync(ctx)
	switch {
	case err != nil:
		return notProven(firstLine(err.Error()))
	case kind == "":
		return stopped(rbac, "the tenant may write neither Kustomizations nor HelmReleases")
	}
	reason := fmt.Sprintf("Flux delivers no repository of the tenant, which may write %ss, and verify could not give it one", kind)
	if e.unplanted != nil {
		reason += ": " + firstLine(e.unplanted.Error())
	}
	return notProven(reason)
}

// asAccount returns a client with the identity of a service account.
func asAccount(config *rest.Config, account discovery.Account, with *customs) (client.WithWatch, error) {
	return asIdentity(config, identity{user: account.User(), groups: account.Groups()}, with)
}

// object returns an object of a manifest.
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

// fluxPatience is the maximum time to wait for Flux's condition on one object. The wait ends with the
// condition, which Flux also sets if it refuses the object.
const fluxPatience = 2 * time.Minute

// apply creates a Flux object as the tenant, waits for Flux's answer, calls look, and removes the object
// with all objects that Flux created for it. The error is the error of the API server if it refuses the
// object.
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

// create creates an object as the tenant, not as a dry run. The caller must remove it.
func (e *Scenario) create(ctx context.Context, u *unstructured.Unstructured) error {
	err := e.As.Create(ctx, u)
	if err != nil && ctx.Err() != nil {
		// After an interrupted request the object may exist.
		e.remove(u)
	}
	// Attacks run concurrently, so one attack may use up the quota that another needs. Such a refusal is no
	// control of either attack.
	if control, _ := controlOf(fmt.Sprint(err)); err != nil && strings.HasPrefix(control, quotaControl) {
		// The error is not wrapped, so that it is not taken for a refusal.
		return errors.New("the tenant's quota has no room for the attack: " + err.Error())
	}
	return err
}

// remove deletes an object and waits until it is gone, also after the context of the run has ended. It does
// not remove another object with the same name.
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
			return true, nil // the cluster has stopped, so the object is gone
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
	// With this object, Flux also removes the objects that it applied for it, as long as Flux has the right
	// to do so.
	_ = e.Admin.Delete(ctx, u)
	if pollUntil(ctx, removePatience, gone) == nil {
		return
	}
	ctx, cancel = context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	_ = e.Admin.Patch(ctx, u, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// removePatience is the maximum time to wait for the end of an object, which may have finalizers. If remove
// removes the finalizers, the objects that Flux applied remain.
const removePatience = time.Minute

// readiness is the condition Ready of an object.
type readiness struct {
	// ready is the status of the condition Ready, and message its message; both are empty if Flux has set
	// no condition in time.
	ready   metav1.ConditionStatus
	message string
}

// passing matches the message of a controller about a temporary failure, which is not the answer to an
// attack: a concurrent change, for example if another attack changed the usage of a quota, or a step that
// took too long on a busy machine. Flux retries only after the object's interval.
var passing = regexp.MustCompile(`the object has been modified; please apply your changes to the latest version|` +
	`context deadline exceeded|Client\.Timeout exceeded|etcdserver: request timed out|rate limiter Wait returned an error`)

// maxRepetitions is the maximum number of retries that an attack requests from Flux.
const maxRepetitions = 5

// awaitCondition waits until Flux has processed an object, and returns the result. After a temporary
// failure it requests a retry from Flux. It ignores an answer that Flux gave before it had the attack's
// files: see [undecided].
func (e *Scenario) awaitCondition(ctx context.Context, u *unstructured.Unstructured) (readiness, error) {
	ctx, cancel := context.WithTimeout(ctx, fluxPatience)
	defer cancel()
	wait := fluxAnswer{object: u}
	for ctx.Err() == nil {
		// The API server ends a watch that lags too far behind.
		if done, err := e.watchCondition(ctx, &wait); done || err != nil {
			return wait.last, err
		}
	}
	return wait.last, nil
}

// fluxAnswer is the state of the wait for Flux's answer about an object.
type fluxAnswer struct {
	object *unstructured.Unstructured
	last   readiness
	// asked is the value of the last request for a retry, and repetitions is the number of these requests.
	asked       string
	repetitions int
}

// watchCondition waits for the answer of Flux until the watch ends, and reports whether the answer has
// arrived.
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

// reads processes the state of an object, and reports whether Flux has answered.
func (e *Scenario) reads(ctx context.Context, wait *fluxAnswer, current *unstructured.Unstructured) (bool, error) {
	a, final := readyCondition(current)
	handled, _, _ := unstructured.NestedString(current.Object, "status", "lastHandledReconcileAt")
	open := undecided(current)
	switch {
	case wait.asked != "" && handled != wait.asked:
		// This is the answer from before the last request for a retry.
	case final && (passing.MatchString(a.message) || open && kustomizationSourceMissing.MatchString(a.message)) && wait.repetitions < maxRepetitions:
		wait.repetitions++
		wait.asked = rand.Text()
		// Without forceAt, helm-controller does not install a failed release again.
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

// undecided reports whether Flux has not read the attack's files yet, so that its answer decides nothing. A
// controller's cache may lag behind: the controller then does not find the chart that it has just
// requested, or the folder of the attack's commit, and retries by itself. But a missing source or folder
// may be the target of the attack, if it is in another namespace, or is [missingFolder].
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

// isOf reports whether a reference with this namespace, which may be empty, refers to an object's own
// namespace.
func isOf(u *unstructured.Unstructured, namespace string) bool {
	return namespace == "" || namespace == u.GetNamespace()
}

// readyCondition returns the condition Ready, and whether it is final: Flux has observed the object's
// generation and does not reconcile it.
func readyCondition(u *unstructured.Unstructured) (readiness, bool) { return conditionOf(u, "Ready") }

// conditionOf is [readyCondition] for a condition of any type.
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

// exists reports whether an object exists. It returns false for an object that is being deleted: the
// deletion of the namespaces of an earlier run takes seconds.
func (e *Scenario) exists(ctx context.Context, u *unstructured.Unstructured) (bool, error) {
	current, err := e.read(ctx, u)
	return current != nil, err
}

// read returns an object as it is in the cluster, and nil for an object that does not exist or is being deleted.
func (e *Scenario) read(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	current := u.DeepCopy()
	err := e.Admin.Get(ctx, client.ObjectKeyFromObject(u), current)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || err == nil && current.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s %s: %w", u.GetKind(), keyOf(u), err)
	}
	return current, nil
}

// name returns the name of an object of an attack.
func name(id string) string { return "tenure-attack-" + strings.ToLower(id) }

// configMap returns the canary of most attacks: an object that no other program creates.
func configMap(namespace, name string) *unstructured.Unstructured {
	return object("v1", "ConfigMap", namespace, name, map[string]any{"data": map[string]any{"touched": "by tenure verify"}})
}

// kustomization returns a Kustomization of the tenant for a folder of the tenant's repository, with the
// tenant's account.
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
		id = e.ofTenant(id) // the namespace may also contain Kustomizations of other tenants
	}
	return object(flux.Kustomization.GroupVersionKind().GroupVersion().String(), "Kustomization", namespace, id, map[string]any{"spec": spec})
}

// maxName is the maximum length of the name of a Flux object, which becomes the value of a label.
const maxName = 63

// ofTenant returns a name with the tenant's name, as a part of the name of an object. The tenant's name may have characters
// that names of objects have not, and together they may be too long: then it adds a hash instead.
func (e *Scenario) ofTenant(id string) string {
	named := id + "-" + e.Tenant.Name
	if len(validation.IsDNS1123Label(named)) == 0 && len(name(named)) <= maxName {
		return named
	}
	sum := sha256.Sum256([]byte(e.Tenant.Name))
	return id + "-" + hex.EncodeToString(sum[:4])
}

// sourceRef returns a reference to the tenant's source from an object in a namespace, which may differ from
// the source's namespace.
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

// suspended returns a suspended Kustomization of the tenant, for requests about which the API server alone
// decides.
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

// manifest returns objects as YAML documents.
func manifest(objects ...*unstructured.Unstructured) string {
	var out strings.Builder
	for _, u := range objects {
		// Marshalling maps, strings and numbers cannot fail.
		content, _ := yaml.Marshal(u.Object)
		fmt.Fprintf(&out, "---\n%s", content)
	}
	return out.String()
}
