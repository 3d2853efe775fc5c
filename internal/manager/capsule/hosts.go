package capsule

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission/webhook"
	"github.com/tenure-dev/tenure/internal/tenancy"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	// hostsLease begins the names of the Leases with the hosts that are being taken; a digit
	// follows. There are sixteen, so that few requests write the same one.
	hostsLease = "tenure-capsule-hosts-"
	// hostsContent is the annotation with the content of such a Lease.
	hostsContent = "tenure.dev/hosts"
	// taking is how long the Leases reserve a host for an admitted Ingress: longer than the API
	// server needs to store the Ingress and the cache to receive it.
	taking = time.Minute
	// maxRoutes is the maximum number of hosts with paths that an Ingress may get by one request: each of
	// them is written to a Lease and compared with all Ingresses.
	maxRoutes = 512
	// maxReserved is the maximum number of hosts with paths that a tenant may take in one Lease at a time. The
	// sixteen Leases have equal shares of the hosts of an honest tenant. The content of a Lease has room for a dozen
	// tenants that choose hosts for the same one.
	maxReserved = 128
	// maxContent is the maximum length of the content of a Lease, in bytes. Kubernetes stores annotations of
	// 256 KiB.
	maxContent = 250 << 10
	// maxHostAttempts bounds how often a reservation is tried while others write the same Lease.
	maxHostAttempts = 20
)

// HostsHandler refuses an Ingress with a host and path that another Ingress has, within the scope of
// spec.ingressOptions.hostnameCollisionScope. The cache shows the Ingresses that exist. For those
// that were admitted a moment ago, all replicas compare and swap reservations in Leases, so that
// one of several Ingresses at a time gets the host.
type HostsHandler struct {
	// Client reads from a cache and writes; APIReader reads from the API server.
	Client    client.Client
	APIReader client.Reader
	// Namespace is where the Leases are.
	Namespace string
	// Now is the time.
	Now func() time.Time
	// Limits bound the rate of requests of each tenant.
	Limits *webhook.Limits
}

// route is a host and a path of an Ingress.
type route struct{ host, path string }

func (r route) String() string { return fmt.Sprintf("host %q with path %q", r.host, r.path) }

var (
	// errTaken reports that another Ingress has a host and path.
	errTaken = errors.New("only one Ingress may have a host with a path")
	// errTooMany reports that a tenant takes too many hosts at a time.
	errTooMany = errors.New("too many hosts")
)

// Handle implements [admission.Handler]. It refuses a request that it cannot decide.
func (h *HostsHandler) Handle(ctx context.Context, request admission.Request) admission.Response {
	ingress, before := &networkingv1.Ingress{}, &networkingv1.Ingress{}
	if err := json.Unmarshal(request.Object.Raw, ingress); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the Ingress: %w", err))
	}
	if len(request.OldObject.Raw) > 0 {
		if err := json.Unmarshal(request.OldObject.Raw, before); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the Ingress as it was: %w", err))
		}
	}
	added := routes(ingress)
	for r := range routes(before) {
		delete(added, r)
	}
	if len(added) == 0 {
		return admission.Allowed("")
	}
	ingress.Namespace = request.Namespace
	err := h.decide(ctx, ingress, added, request.DryRun != nil && *request.DryRun)
	switch {
	case errors.Is(err, errTaken):
		return admission.Denied(err.Error())
	case errors.Is(err, errTooMany):
		return admission.Errored(http.StatusTooManyRequests, err)
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Allowed("")
}

func (h *HostsHandler) decide(ctx context.Context, ingress *networkingv1.Ingress, added map[route]bool, dryRun bool) error {
	ns := &corev1.Namespace{}
	if err := h.Client.Get(ctx, client.ObjectKey{Name: ingress.Namespace}, ns); err != nil {
		return fmt.Errorf("cannot read namespace %s: %w", ingress.Namespace, err)
	}
	scope, within := ns.Labels[v1beta2.LabelCollisionScope], ""
	switch scope {
	case v1beta2.CollisionCluster:
	case v1beta2.CollisionTenant:
		within = ns.Labels[v1alpha1.LabelTenant]
	case v1beta2.CollisionNamespace:
		within = ns.Name
	default:
		return nil
	}
	tenant := ns.Labels[v1alpha1.LabelTenant]
	if tenant == "" {
		tenant = "namespace " + ns.Name
	}
	if len(added) > maxRoutes {
		return fmt.Errorf("%w: the Ingress %s/%s would get %d hosts with paths at once, at most %d: divide it into several Ingresses", errTooMany, ingress.Namespace, ingress.Name, len(added), maxRoutes)
	}
	if !h.Limits.Allow(tenant) {
		return fmt.Errorf("%w: %s asks for more than %d Ingresses a second; try again in a moment", errTooMany, tenant, webhook.TenantRate)
	}
	if err := h.existing(ctx, ingress, added, scope, within); err != nil {
		return err
	}
	by := claim{ingress: ingress, tenant: shortHash(tenant), holder: h.holder(ingress), scope: scope, dryRun: dryRun}
	byLease := map[string]map[string]route{}
	for r := range added {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", scope+"/"+within, r.host, r.path))
		key := hex.EncodeToString(sum[:])
		if byLease[key[:1]] == nil {
			byLease[key[:1]] = map[string]route{}
		}
		byLease[key[:1]][key] = r
	}
	for _, lease := range slices.Sorted(maps.Keys(byLease)) {
		if err := h.reserve(ctx, by, hostsLease+lease, byLease[lease]); err != nil {
			return err
		}
	}
	return nil
}

// existing returns an error that wraps errTaken if another Ingress within the scope has one of the
// routes.
func (h *HostsHandler) existing(ctx context.Context, ingress *networkingv1.Ingress, added map[route]bool, scope, within string) error {
	var options []client.ListOption
	if scope == v1beta2.CollisionNamespace {
		options = append(options, client.InNamespace(within))
	}
	tenants := map[string]bool{}
	if scope == v1beta2.CollisionTenant {
		var namespaces corev1.NamespaceList
		if err := h.Client.List(ctx, &namespaces, client.MatchingLabels{v1alpha1.LabelTenant: within}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("cannot list the namespaces of tenant %s: %w", within, err)
		}
		for i := range namespaces.Items {
			tenants[namespaces.Items[i].Name] = true
		}
	}
	var all networkingv1.IngressList
	if err := h.Client.List(ctx, &all, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return fmt.Errorf("cannot list Ingresses: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Namespace == ingress.Namespace && other.Name == ingress.Name || scope == v1beta2.CollisionTenant && !tenants[other.Namespace] {
			continue
		}
		for r := range routes(other) {
			if added[r] {
				return taken(ingress, r, "another Ingress has it", scope)
			}
		}
	}
	return nil
}

// taken returns a refusal. It does not name the other Ingress, which may be another tenant's.
func taken(ingress *networkingv1.Ingress, r route, why, scope string) error {
	return fmt.Errorf("the Ingress %s/%s must not have %s: %s, and %w in the scope %s", ingress.Namespace, ingress.Name, r, why, errTaken, scope)
}

// reservation is a route that an Ingress was admitted for. Holder and Tenant are hashes, since a Lease has room for a
// limited text.
type reservation struct {
	Holder string    `json:"holder"`
	Tenant string    `json:"tenant,omitempty"`
	At     time.Time `json:"at"`
}

// claim is a request of an Ingress for routes.
type claim struct {
	ingress *networkingv1.Ingress
	// tenant and holder are hashes of the names of the tenant and of the Ingress.
	tenant, holder string
	scope          string
	dryRun         bool
}

// holder returns a hash of the name of an Ingress. A generated name is not known yet. No other object has it.
func (h *HostsHandler) holder(ingress *networkingv1.Ingress) string {
	holder := ingress.Namespace + "/" + ingress.Name
	if ingress.Name == "" {
		holder += ingress.GenerateName + "\n" + h.Now().String()
	}
	return shortHash(holder)
}

// shortHash returns 64 bits of a hash, as text.
func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// reserve writes to a Lease that an Ingress takes the wanted routes, unless another one takes one of them. It writes
// once for all of them.
func (h *HostsHandler) reserve(ctx context.Context, by claim, leaseName string, wanted map[string]route) error {
	name := client.ObjectKey{Namespace: h.Namespace, Name: leaseName}
	for range maxHostAttempts {
		lease := &coordinationv1.Lease{}
		err := h.APIReader.Get(ctx, name, lease)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot read which hosts are being taken: %w", err)
		}
		missing := apierrors.IsNotFound(err)
		held := map[string]reservation{}
		if content := lease.Annotations[hostsContent]; content != "" {
			if err := json.Unmarshal([]byte(content), &held); err != nil {
				return fmt.Errorf("cannot read which hosts are being taken, delete Lease %s: %w", name, err)
			}
		}
		content, err := h.take(by, held, wanted)
		if err != nil || by.dryRun {
			return err
		}
		lease.Namespace, lease.Name = name.Namespace, name.Name
		lease.Labels = map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, hostsContent, content)
		if missing {
			err = h.Client.Create(ctx, lease, client.FieldOwner(FieldManager))
		} else {
			// The version of the Lease makes the write fail if another replica wrote first.
			err = h.Client.Update(ctx, lease, client.FieldOwner(FieldManager))
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot write which hosts are being taken: %w", err)
		}
	}
	return errors.New("too many Ingresses are made at a time, try again in a moment")
}

// take adds the wanted routes to the reservations of a Lease, of which it removes the old ones, and returns the content
// of the Lease. It returns an error that wraps errTaken if another Ingress has one of them, and one that wraps
// errTooMany if the tenant takes more than its share, or all tenants more than the Lease has room for.
func (h *HostsHandler) take(by claim, held map[string]reservation, wanted map[string]route) (string, error) {
	reserved := 0
	for key, entry := range held {
		if h.Now().Sub(entry.At) > taking {
			delete(held, key)
			continue
		}
		if r, ok := wanted[key]; ok && entry.Holder != by.holder {
			return "", taken(by.ingress, r, "another Ingress was given it a moment ago", by.scope)
		}
		if _, again := wanted[key]; !again && entry.Tenant == by.tenant {
			reserved++
		}
	}
	for key := range wanted {
		held[key] = reservation{Holder: by.holder, Tenant: by.tenant, At: h.Now().UTC().Truncate(time.Second)}
	}
	content, err := json.Marshal(held)
	if err != nil {
		return "", fmt.Errorf("cannot write which hosts are being taken: %w", err)
	}
	switch {
	case reserved+len(wanted) > maxReserved:
		return "", fmt.Errorf("%w: the Ingress %s/%s must wait, since its tenant was given as many as it may take in a minute; try again in a minute", errTooMany, by.ingress.Namespace, by.ingress.Name)
	case len(content) > maxContent:
		return "", fmt.Errorf("%w: the Ingress %s/%s must wait, since all tenants together take too many at a time; try again in a minute", errTooMany, by.ingress.Namespace, by.ingress.Name)
	}
	return string(content), nil
}

// routes returns the hosts of an Ingress with their paths. A rule without paths has all of them, as
// the path / does.
func routes(ingress *networkingv1.Ingress) map[route]bool {
	all := map[route]bool{}
	for _, rule := range ingress.Spec.Rules {
		if rule.HTTP == nil || len(rule.HTTP.Paths) == 0 {
			all[route{rule.Host, "/"}] = true
			continue
		}
		for _, p := range rule.HTTP.Paths {
			all[route{rule.Host, cmp.Or(p.Path, "/")}] = true
		}
	}
	return all
}
