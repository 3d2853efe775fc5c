package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// maxAttempts is the maximum number of attempts of an admission while other replicas change the same
	// reservations.
	maxAttempts = 10
	// maxUnseen is the maximum number of reserved names that the cache does not contain. With more, the
	// handler reads the namespaces from the API server, so that the reservations do not grow with each
	// namespace that is created and deleted.
	maxUnseen = 64
	// shards is the maximum number of tenants about which the handler decides at the same time.
	shards = 64
	// maxEntries is the maximum number of labels, and of annotations, of a namespace. Kubernetes has no limit, and the
	// handler compares each key with the patterns that allow it.
	maxEntries = 1000
	// decisionTimeout is the maximum time of a decision. It is less than the five seconds that the API server waits: the API
	// server's error for a webhook that does not answer in time shows the user the secret path of the webhook.
	decisionTimeout = 4 * time.Second
)

// The indexes of the cache that [Handler] reads: see [Index].
const (
	indexOwner  = "tenure.dev/owner"
	indexTenant = "tenure.dev/tenant"
	// indexAnyTenant is the index of namespaces by the tenant in any of the tenant labels.
	indexAnyTenant = "tenure.dev/any-tenant"
)

// Profiles returns the TenancyProfile in force.
type Profiles interface {
	// Profile returns nil if there is none, and an error if it is not valid.
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Handler decides about a namespace that an owner creates or changes. Several handlers may run at the same
// time: they write admitted names to the tenant's reservations by compare and swap.
type Handler struct {
	// Client reads from a cache with the indexes of [Index].
	Client client.Reader
	// APIReader reads from the API server.
	APIReader client.Reader
	// Reservations stores the admitted namespaces.
	Reservations *reservations.Keeper
	// Profiles returns the TenancyProfile.
	Profiles Profiles
	// Now returns the current time.
	Now func() time.Time
	// Refuses returns the message with which a policy refuses a new namespace of a user, or "". It may be
	// nil. The handler calls it before it reserves a name: after that, a refusal would block the deletion
	// of the tenant.
	Refuses func(ctx context.Context, user string, groups []string, born *corev1.Namespace) (string, error)

	// Administers reports whether the user with these owner keys is an administrator of the
	// CapsuleConfiguration. It may be nil.
	Administers func(ctx context.Context, owner []string) (bool, error)

	// turns serialize the decisions for one tenant: concurrent decisions would conflict when they write the
	// reservations. A goroutine that has received from the channel may decide.
	turns [shards]chan *look
	// limits bound the request rate of each tenant's owners.
	limits *Limits
}

// look is the last state of a tenant that was read from the API server, and the time when the read began.
type look struct {
	tenant string
	began  time.Time
	Situation
}

// NewHandler returns a handler that reads from the cache c and from the API server.
func NewHandler(c client.Reader, live client.Reader, keeper *reservations.Keeper, profiles Profiles) *Handler {
	h := &Handler{Client: c, APIReader: live, Reservations: keeper, Profiles: profiles, Now: time.Now, limits: NewLimits()}
	for i := range h.turns {
		h.turns[i] = make(chan *look, 1)
		h.turns[i] <- nil
	}
	return h
}

// Index adds the indexes that the handler uses to a cache. It returns an error if the cache cannot
// index a kind.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &v1alpha1.Tenant{}, indexOwner, func(o client.Object) []string {
		return TenantKeys(o.(*v1alpha1.Tenant))
	}); err != nil {
		return fmt.Errorf("cannot index the owners of tenants: %w", err)
	}
	if err := indexer.IndexField(ctx, &corev1.Namespace{}, indexTenant, func(o client.Object) []string {
		if tenant, ok := o.GetLabels()[v1alpha1.LabelTenant]; ok {
			return []string{tenant}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("cannot index the namespaces of tenants: %w", err)
	}
	if err := indexer.IndexField(ctx, &corev1.Namespace{}, indexAnyTenant, func(o client.Object) []string {
		if tenant, ok := tenancy.TenantOf(o.GetLabels()); ok {
			return []string{tenant}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("cannot index the namespaces of tenants: %w", err)
	}
	return nil
}

// Handle implements [admission.Handler]. It refuses requests about which it cannot decide.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	creates, updates := request.Operation == admissionv1.Create, request.Operation == admissionv1.Update
	if !creates && !updates || request.Resource.Resource != "namespaces" || request.SubResource != "" {
		return admission.Allowed("")
	}
	ns := &corev1.Namespace{}
	if err := json.Unmarshal(request.Object.Raw, ns); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the namespace: %w", err))
	}
	if r := tooLarge(ns); r != nil {
		return admission.Denied(r.Error())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, decisionTimeout, errSlow)
	defer cancel()
	q := &question{
		user: request.UserInfo.Username, owner: OwnerKeys(request.UserInfo), groups: request.UserInfo.Groups,
		namespace: ns, request: request.UID, dryRun: request.DryRun != nil && *request.DryRun, asked: h.Now(),
	}
	decide := h.decide
	if updates {
		before := &corev1.Namespace{}
		if err := json.Unmarshal(request.OldObject.Raw, before); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the namespace as it was: %w", err))
		}
		decide = func(ctx context.Context, q *question) (*corev1.Namespace, error) { return h.edit(ctx, q, before) }
	}
	born, err := decide(ctx, q)
	if apierrors.IsAlreadyExists(err) {
		return exists(err)
	}
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		return admission.Denied(refusal.Error())
	}
	if errors.Is(err, errTooMany) {
		return admission.Errored(http.StatusTooManyRequests, err)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	content, err := json.Marshal(born)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, fmt.Errorf("cannot write the namespace: %w", err))
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, content)
}

// errSlow means that the handler could not decide in time.
var errSlow = errors.New("the manager or the API server is busy; try again in a moment")

// tooLarge returns a refusal of a namespace whose name, labels or annotations would take long to check, or nil. The API
// server validates them only after the webhook. A namespace that exists has a valid name.
func tooLarge(ns *corev1.Namespace) *Refusal {
	switch {
	case len(ns.Name) > validation.DNS1123LabelMaxLength:
		return refuse("a namespace must not have a name of %d characters: choose one with %d at most", len(ns.Name), validation.DNS1123LabelMaxLength)
	case len(ns.Labels) > maxEntries, len(ns.Annotations) > maxEntries:
		return refuse("namespace %s must not have %d labels and %d annotations: leave some out, so that it has %d of each at most", ns.Name, len(ns.Labels), len(ns.Annotations), maxEntries)
	}
	for _, label := range tenantLabels {
		if len(ns.Labels[label]) > validation.LabelValueMaxLength {
			return refuse("namespace %s must not have a value of %d characters in the label %s: put the name of a tenant into it", ns.Name, len(ns.Labels[label]), label)
		}
	}
	return nil
}

// exists returns the API server's response for a namespace that already exists.
func exists(err error) admission.Response {
	response := admission.Errored(http.StatusConflict, err)
	response.Result.Reason = metav1.StatusReasonAlreadyExists
	return response
}

// question is a request about one namespace.
type question struct {
	// owner are the owner keys of the user, see [OwnerKeys]; groups are the user's groups, and user is the
	// user name.
	owner, groups []string
	user          string
	namespace     *corev1.Namespace
	request       types.UID
	dryRun        bool
	// asked is the time of the request. profile is the TenancyProfile, for the creation of a namespace.
	asked   time.Time
	profile *v1alpha1.TenancyProfile
	// another is [Situation.Another].
	another bool
}

// decide decides about the creation of a namespace, and returns the namespace with the changes of the
// webhook.
func (h *Handler) decide(ctx context.Context, q *question) (*corev1.Namespace, error) {
	profile, err := h.profile(ctx, q)
	if err != nil {
		return nil, err
	}
	if profile == nil {
		return q.namespace, nil
	}
	if born, err := h.unassigned(ctx, q, profile); err != nil || born != nil {
		return born, err
	}
	q.profile = profile
	name, err := h.tenant(ctx, q.owner, q.namespace)
	if err != nil {
		return nil, err
	}
	if who := h.flowDistinguisher(ctx, name, q); !h.limits.Allow(who) {
		return nil, fmt.Errorf("%w: %s asks for more than %d namespaces a second; try again in a moment", errTooMany, who, TenantRate)
	}
	if q.another, err = h.another(ctx, q, name); err != nil {
		return nil, err
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	turn := h.turns[hash.Sum32()%shards]
	select {
	case last := <-turn:
		defer func() { turn <- last }()
		return h.admit(ctx, name, q, &last)
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot decide about the namespace: %w", context.Cause(ctx))
	}
}

// profile returns the profile of the cluster, or nil if the user is in a break-glass group.
func (h *Handler) profile(ctx context.Context, q *question) (*v1alpha1.TenancyProfile, error) {
	profile, err := h.Profiles.Profile(ctx)
	switch {
	case err != nil:
		return nil, err
	case profile == nil:
		return nil, refuse("namespace %s cannot be made or changed while the cluster has no TenancyProfile: ask the platform team", q.namespace.Name)
	case slices.ContainsFunc(profile.Spec.BreakGlass, func(g string) bool { return slices.Contains(q.groups, g) }):
		return nil, nil //nolint:nilnil // See the doc comment.
	}
	return profile, nil
}

// errTooMany is the error for a user or tenant that sends too many requests.
var errTooMany = errors.New("too many requests")

// flowDistinguisher returns the key of the rate limit for a request. It is the tenant if an owner sent the
// request, so that no other user can use up the limit of the owners, and otherwise the user.
func (h *Handler) flowDistinguisher(ctx context.Context, name string, q *question) string {
	t := &v1alpha1.Tenant{}
	if err := h.Client.Get(ctx, client.ObjectKey{Name: name}, t); err == nil && owns(q.owner, t) {
		return "tenant " + name
	}
	return "user " + q.user
}

// another reports whether the name of a tenant's namespace equals the name of a different tenant, or begins
// with it and a hyphen. It ignores a different tenant that the user also owns. If the namespace's name
// begins with the name of its own tenant and a hyphen, it also ignores different tenants with a shorter
// name.
func (h *Handler) another(ctx context.Context, q *question, tenant string) (bool, error) {
	own, namespace := 0, q.namespace.Name
	if strings.HasPrefix(namespace, tenant+"-") {
		own = len(tenant)
	}
	for end := len(namespace); end > own; end = strings.LastIndexByte(namespace[:end], '-') {
		name := namespace[:end]
		if name == tenant {
			continue
		}
		different := &v1alpha1.Tenant{}
		err := h.Client.Get(ctx, client.ObjectKey{Name: name}, different, client.UnsafeDisableDeepCopy)
		if err == nil && owns(q.owner, different) {
			continue
		}
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("cannot read the tenants: %w", err)
		}
		var labelled corev1.NamespaceList
		if err := h.Client.List(ctx, &labelled, client.MatchingFields{indexAnyTenant: name}, client.Limit(1), client.UnsafeDisableDeepCopy); err != nil {
			return false, fmt.Errorf("cannot read the namespaces of tenants: %w", err)
		}
		if len(labelled.Items) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// tenant returns the name of a new namespace's tenant: the tenant in its labels, the only tenant that the
// user owns, or the tenant whose prefix the name of the namespace has. The cache may lack a new tenant, so
// tenant reads the API server before it refuses a user who owns none.
func (h *Handler) tenant(ctx context.Context, owner []string, ns *corev1.Namespace) (string, error) {
	for _, label := range tenantLabels {
		if tenant, ok := ns.Labels[label]; ok {
			return tenant, nil
		}
	}
	owned := map[string]bool{} // by tenant, whether the tenant requires its prefix
	for _, key := range owner {
		if err := ownedBy(ctx, h.Client, owner, owned, client.MatchingFields{indexOwner: key}, client.UnsafeDisableDeepCopy); err != nil {
			return "", err
		}
	}
	if len(owned) == 0 {
		if err := ownedBy(ctx, h.APIReader, owner, owned); err != nil {
			return "", err
		}
	}
	switch len(owned) {
	case 0:
		return "", refuse("namespace %s: there is no tenant that you own; ask the platform team", ns.Name)
	case 1:
		for name := range owned {
			return name, nil
		}
	}
	if name := closest(owned, ns.Name); name != "" {
		return name, nil
	}
	return "", refuse("namespace %s: you own several tenants%s; put the name of one into the label %s", ns.Name, listed(owned), v1alpha1.LabelTenant)
}

// closest returns the tenant with the longest name that is a prefix of a namespace's name, if one of the
// user's tenants requires its prefix. Otherwise it returns "", because names then do not show the tenant.
func closest(owned map[string]bool, namespace string) string {
	longest, demanded := "", false
	for name, prefixed := range owned {
		demanded = demanded || prefixed
		if len(name) > len(longest) && strings.HasPrefix(namespace, name+"-") {
			longest = name
		}
	}
	if !demanded {
		return ""
	}
	return longest
}

// ownedBy adds the names of the tenants that a user with these owner keys owns, and whether they require
// their prefix.
func ownedBy(ctx context.Context, from client.Reader, owner []string, owned map[string]bool, which ...client.ListOption) error {
	var list v1alpha1.TenantList
	if err := from.List(ctx, &list, which...); err != nil {
		return fmt.Errorf("cannot find the tenants of an owner: %w", err)
	}
	for i := range list.Items {
		if owns(owner, &list.Items[i]) {
			owned[list.Items[i].Name] = list.Items[i].Spec.Namespaces.Prefixed()
		}
	}
	return nil
}
