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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// maxAttempts bounds how often an admission is tried while others change the
	// same reservations.
	maxAttempts = 10
	// maxUnseen is how many names the reservations may have, at most, that the cache has not,
	// before the API server is asked whether they are there: they must not grow
	// with each namespace that comes and goes.
	maxUnseen = 64
	// shards is the number of tenants, at most, that are decided about at once.
	shards = 64
)

// The indexes of the cache that [Handler] reads: see [Index].
const (
	indexOwner  = "tenure.dev/owner"
	indexTenant = "tenure.dev/tenant"
	// indexAnyTenant is the index of namespaces by the tenant that any of the labels
	// names.
	indexAnyTenant = "tenure.dev/any-tenant"
)

// Profiles returns the TenancyProfile in force.
type Profiles interface {
	// Profile returns nil if there is none, and an error if it is not valid.
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Handler decides about a namespace that an owner creates or changes. Several handlers may run at
// the same time: they write admitted names to the tenant's reservations by compare and swap.
type Handler struct {
	// Client reads from a cache with the indexes of [Index].
	Client client.Reader
	// APIReader reads from the API server.
	APIReader client.Reader
	// Reservations stores the admitted namespaces.
	Reservations *reservations.Keeper
	// Profiles returns the TenancyProfile.
	Profiles Profiles
	// Now is the time.
	Now func() time.Time
	// Refuses returns why a policy refuses a new namespace of a user, as the user gets it, or "". It may
	// be nil. The handler asks it before it reserves a name: a refusal after that would hold up the
	// deletion of the tenant.
	Refuses func(ctx context.Context, user string, groups []string, born *corev1.Namespace) (string, error)

	// Administers reports whether the user with these owner keys is an administrator of the
	// CapsuleConfiguration. It may be nil.
	Administers func(ctx context.Context, owner []string) (bool, error)

	// turns serialize the decisions for one tenant, which would conflict with each other when
	// they write the reservations. A goroutine that has received from the channel has the
	// turn.
	turns [shards]chan *look
	// limits bound the rate of requests of each tenant's owners.
	limits *Limits
}

// look is the last state of a tenant that was read from the API server, with its time.
type look struct {
	tenant string
	began  time.Time
	Situation
}

// NewHandler returns a handler that is ready.
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

// Handle implements [admission.Handler]. What cannot be decided is refused.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	creates, updates := request.Operation == admissionv1.Create, request.Operation == admissionv1.Update
	if !creates && !updates || request.Resource.Resource != "namespaces" || request.SubResource != "" {
		return admission.Allowed("")
	}
	ns := &corev1.Namespace{}
	if err := json.Unmarshal(request.Object.Raw, ns); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the namespace: %w", err))
	}
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

// exists returns the response about a namespace that exists, which is the API server's.
func exists(err error) admission.Response {
	response := admission.Errored(http.StatusConflict, err)
	response.Result.Reason = metav1.StatusReasonAlreadyExists
	return response
}

// question is about one namespace.
type question struct {
	// owner are the keys of the user, see [OwnerKeys], groups the user's groups, and user
	// the user name.
	owner, groups []string
	user          string
	namespace     *corev1.Namespace
	request       types.UID
	dryRun        bool
	// asked is when, and profile what holds then.
	asked   time.Time
	profile *v1alpha1.TenancyProfile
	// another is set if the name belongs to another tenant.
	another bool
}

// decide returns the namespace with the changes of the webhook.
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
		return nil, nil //nolint:nilnil // The doc comment says what it means.
	}
	return profile, nil
}

// errTooMany is the error for a user or tenant that sends too many requests.
var errTooMany = errors.New("too many requests")

// flowDistinguisher returns the key under which a request counts: the tenant if an owner sent it, so
// that nobody else can use up the limit of its owners, and otherwise the user.
func (h *Handler) flowDistinguisher(ctx context.Context, name string, q *question) string {
	t := &v1alpha1.Tenant{}
	if err := h.Client.Get(ctx, client.ObjectKey{Name: name}, t); err == nil && owns(q.owner, t) {
		return "tenant " + name
	}
	return "user " + q.user
}

// another reports whether the name of a namespace of a tenant equals the name of a
// different tenant, or begins with it and a hyphen. It ignores a different tenant with a
// shorter name if the namespace's name begins with its own tenant's name and a hyphen, and
// tenants that the user owns, too.
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

// tenant returns the name of a new namespace's tenant: the tenant in its labels, the only tenant
// that the user owns, or the tenant whose prefix the name of the namespace has. It refuses a user
// without a tenant only after reading the API server, because the cache may not show a new tenant
// yet.
func (h *Handler) tenant(ctx context.Context, owner []string, ns *corev1.Namespace) (string, error) {
	for _, label := range tenantLabels {
		if tenant, ok := ns.Labels[label]; ok {
			return tenant, nil
		}
	}
	owned := map[string]bool{} // and whether the tenant demands its prefix
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

// closest returns the tenant with the longest name that begins the name of a namespace, if one of
// the user's tenants demands its prefix. Otherwise a name says nothing about the tenant.
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

// ownedBy adds the names of the tenants that a user owns, see [OwnerKeys], and whether they
// demand their prefix.
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
