package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// fieldOwner is who writes reservations.
	fieldOwner = "tenure-webhook"
	// maxAttempts bounds how often a reservation is tried while others change the
	// same Tenant.
	maxAttempts = 10
	// shards is the number of tenants, at most, that are decided about at once.
	shards = 64
)

// The indexes of the cache that [Handler] reads: see [Index].
const (
	indexOwner  = "tenure.dev/owner"
	indexTenant = "tenure.dev/tenant"
)

// Profiles gives the profile that is in force.
type Profiles interface {
	// Profile returns nil if there is none, and an error if it is not valid.
	Profile(ctx context.Context) (*v1alpha1.TenancyProfile, error)
}

// Handler answers the API server's question about a namespace that an owner
// makes. Several may run at a time: what they reserve is compared and swapped in
// the Tenant's status.
type Handler struct {
	// Client reads from a cache with the indexes of [Index], and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Profiles is what holds for all tenants.
	Profiles Profiles
	// Now is the time.
	Now func() time.Time

	// turns lets the namespaces of one tenant be decided about one after the
	// other: they would only take each other's reservations away.
	turns [shards]chan struct{}
}

// NewHandler returns a handler that is ready.
func NewHandler(c client.Client, live client.Reader, profiles Profiles) *Handler {
	h := &Handler{Client: c, Live: live, Profiles: profiles, Now: time.Now}
	for i := range h.turns {
		h.turns[i] = make(chan struct{}, 1)
	}
	return h
}

// Index adds what the handler looks up to a cache.
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
	return nil
}

// Handle implements [admission.Handler]. What cannot be decided is refused.
func (h *Handler) Handle(ctx context.Context, request admission.Request) admission.Response {
	if request.Operation != admissionv1.Create || request.Resource.Resource != "namespaces" || request.SubResource != "" {
		return admission.Allowed("")
	}
	ns := &corev1.Namespace{}
	if err := json.Unmarshal(request.Object.Raw, ns); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the namespace: %w", err))
	}
	dryRun := request.DryRun != nil && *request.DryRun
	born, err := h.decide(ctx, OwnerKeys(request.UserInfo), request.UserInfo.Groups, ns, dryRun)
	if refusal := (*Refusal)(nil); errors.As(err, &refusal) {
		return admission.Denied(refusal.Error())
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

// decide returns the namespace as it is to be made.
func (h *Handler) decide(ctx context.Context, owner, groups []string, ns *corev1.Namespace, dryRun bool) (*corev1.Namespace, error) {
	profile, err := h.Profiles.Profile(ctx)
	if err != nil {
		return nil, err
	}
	if profile == nil {
		return nil, refuse("namespace %s cannot be made while the cluster has no TenancyProfile: ask the platform team", ns.Name)
	}
	if slices.ContainsFunc(profile.Spec.BreakGlass, func(g string) bool { return slices.Contains(groups, g) }) {
		return ns, nil
	}
	name, err := h.tenant(ctx, owner, ns)
	if err != nil {
		return nil, err
	}
	release, err := h.turn(ctx, name)
	if err != nil {
		return nil, err
	}
	defer release()
	return h.admit(ctx, name, owner, profile, ns, dryRun)
}

// turn waits until nothing else of the tenant is decided about here.
func (h *Handler) turn(ctx context.Context, tenant string) (func(), error) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(tenant))
	turn := h.turns[hash.Sum32()%shards]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot decide about the namespace: %w", context.Cause(ctx))
	}
}

// tenant returns the name of the tenant that a namespace is for: that of its
// labels, or the only one that its maker owns.
func (h *Handler) tenant(ctx context.Context, owner []string, ns *corev1.Namespace) (string, error) {
	for _, label := range tenantLabels {
		if tenant, ok := ns.Labels[label]; ok {
			return tenant, nil
		}
	}
	owned := map[string]bool{}
	for _, key := range owner {
		var list v1alpha1.TenantList
		if err := h.Client.List(ctx, &list, client.MatchingFields{indexOwner: key}, client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("cannot find the tenants of an owner: %w", err)
		}
		for i := range list.Items {
			owned[list.Items[i].Name] = true
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
	return "", refuse("namespace %s: you own several tenants%s; put the name of one into the label %s", ns.Name, listed(owned), v1alpha1.LabelTenant)
}

// admit decides for a tenant, and reserves the namespace's name. It begins with
// the Tenant of the cache. A reservation is written only if the Tenant has not
// changed since, and before anybody is refused the Tenant is read again.
func (h *Handler) admit(ctx context.Context, name string, owner []string, profile *v1alpha1.TenancyProfile, ns *corev1.Namespace, dryRun bool) (*corev1.Namespace, error) {
	var reader client.Reader = h.Client
	for range maxAttempts {
		t := &v1alpha1.Tenant{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, t)
		if apierrors.IsNotFound(err) && reader == client.Reader(h.Client) {
			reader = h.Live
			continue
		}
		if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
			return nil, refuse("namespace %s: there is no tenant %q; put the name of a tenant of yours into the label %s", ns.Name, name, v1alpha1.LabelTenant)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the tenant %s: %w", name, err)
		}
		existing, err := h.existing(ctx, name)
		if err != nil {
			return nil, err
		}
		decision, err := Decide(Situation{Tenant: t, Profile: profile, Owner: owner, Existing: existing, Now: h.Now()}, ns)
		if err != nil && reader == client.Reader(h.Client) {
			reader = h.Live
			continue
		}
		if err != nil {
			return nil, err
		}
		if dryRun || !decision.Reserve {
			return decision.Namespace, nil
		}
		before := t.DeepCopy()
		t.Status.Reservations = decision.Reservations
		err = h.Client.Status().Patch(ctx, t, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldOwner))
		if err == nil {
			return decision.Namespace, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("cannot reserve the namespace %s in tenant %s: %w", ns.Name, name, err)
		}
		reader = h.Live
	}
	return nil, fmt.Errorf("cannot reserve the namespace %s: tenant %s changes all the time; try again", ns.Name, name)
}

// existing returns the namespaces of a tenant that the cache has.
func (h *Handler) existing(ctx context.Context, tenant string) ([]string, error) {
	var list corev1.NamespaceList
	if err := h.Client.List(ctx, &list, client.MatchingFields{indexTenant: tenant}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot count the namespaces of tenant %s: %w", tenant, err)
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, nil
}
