package capsule

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
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
}

// route is a host and a path of an Ingress.
type route struct{ host, path string }

func (r route) String() string { return fmt.Sprintf("host %q with path %q", r.host, r.path) }

// errTaken reports that another Ingress has a host and path.
var errTaken = errors.New("only one Ingress may have a host with a path")

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
	had := routes(before)
	added := slices.DeleteFunc(routes(ingress), func(r route) bool { return slices.Contains(had, r) })
	if len(added) == 0 {
		return admission.Allowed("")
	}
	ingress.Namespace = request.Namespace
	err := h.decide(ctx, ingress, added, request.DryRun != nil && *request.DryRun)
	switch {
	case errors.Is(err, errTaken):
		return admission.Denied(err.Error())
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.Allowed("")
}

func (h *HostsHandler) decide(ctx context.Context, ingress *networkingv1.Ingress, added []route, dryRun bool) error {
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
	if err := h.existing(ctx, ingress, added, scope, within); err != nil {
		return err
	}
	for _, r := range added {
		if err := h.reserve(ctx, ingress, r, scope+"/"+within, dryRun); err != nil {
			return err
		}
	}
	return nil
}

// existing returns an error that wraps errTaken if another Ingress within the scope has one of the
// routes.
func (h *HostsHandler) existing(ctx context.Context, ingress *networkingv1.Ingress, added []route, scope, within string) error {
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
		for _, r := range routes(other) {
			if slices.Contains(added, r) {
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

// reservation is a route that an Ingress was admitted for.
type reservation struct {
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

// reserve writes down that an Ingress takes a route, unless another one does.
func (h *HostsHandler) reserve(ctx context.Context, ingress *networkingv1.Ingress, r route, scope string, dryRun bool) error {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", scope, r.host, r.path))
	key := hex.EncodeToString(sum[:])
	name := client.ObjectKey{Namespace: h.Namespace, Name: hostsLease + key[:1]}
	// A generated name is not known yet. No other object has it.
	holder := ingress.Namespace + "/" + ingress.Name
	if ingress.Name == "" {
		holder += ingress.GenerateName + "\n" + h.Now().String()
	}
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
		for other, entry := range held {
			if h.Now().Sub(entry.At) > taking {
				delete(held, other)
			}
		}
		if entry, ok := held[key]; ok && entry.Holder != holder {
			return taken(ingress, r, "another Ingress was given it a moment ago", scope)
		}
		if dryRun {
			return nil
		}
		held[key] = reservation{Holder: holder, At: h.Now()}
		content, err := json.Marshal(held)
		if err != nil {
			return fmt.Errorf("cannot write which hosts are being taken: %w", err)
		}
		lease.Namespace, lease.Name = name.Namespace, name.Name
		lease.Labels = map[string]string{tenancy.LabelManaged: tenancy.ManagedValue}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, hostsContent, string(content))
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

// routes returns the hosts of an Ingress with their paths. A rule without paths has all of them, as
// the path / does.
func routes(ingress *networkingv1.Ingress) []route {
	var all []route
	for _, rule := range ingress.Spec.Rules {
		paths := []string{"/"}
		if rule.HTTP != nil && len(rule.HTTP.Paths) > 0 {
			paths = nil
			for _, p := range rule.HTTP.Paths {
				if p.Path == "" {
					p.Path = "/"
				}
				paths = append(paths, p.Path)
			}
		}
		for _, path := range paths {
			all = append(all, route{rule.Host, path})
		}
	}
	return all
}
