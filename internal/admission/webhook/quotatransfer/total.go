package quotatransfer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// maxListed is the maximum number of namespaces in a refusal.
const maxListed = 10

// total is a quota that a tenant shares among its namespaces.
type total struct {
	tenant *v1alpha1.Tenant
	name   string
	limit  corev1.ResourceList
	// used are the used amounts by namespace.
	used map[string]corev1.ResourceList
}

// total returns the quota that a part belongs to, or nil if the Tenant or its quota no longer exists.
func (h *Handler) total(ctx context.Context, part *corev1.ResourceQuota) (*total, error) {
	t := &total{tenant: &v1alpha1.Tenant{}, used: map[string]corev1.ResourceList{}}
	name := part.Labels[v1alpha1.LabelFluxTenant]
	err := h.Client.Get(ctx, client.ObjectKey{Name: name}, t.tenant)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the tenant %s: %w", name, err)
	}
	i := slices.IndexFunc(t.tenant.Spec.Quotas, func(q v1alpha1.TenantQuota) bool {
		return tenancy.SharedByTenant(q) && tenancy.QuotaObjectName(t.tenant, q.Name) == part.Name
	})
	if i < 0 {
		return nil, nil
	}
	t.name, t.limit = t.tenant.Spec.Quotas[i].Name, corev1.ResourceList(t.tenant.Spec.Quotas[i].Hard)
	var list corev1.ResourceQuotaList
	if err := h.Client.List(ctx, &list, client.MatchingFields{indexTenant: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("cannot read the quotas of tenant %s: %w", name, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == part.Name {
			t.used[list.Items[i].Namespace] = list.Items[i].Status.Used
		}
	}
	return t, nil
}

// rest returns the free amount of the tenant's quota.
func (t *total) rest() corev1.ResourceList {
	left := t.limit
	for _, used := range t.used {
		left = subtract(left, only(used, t.limit))
	}
	return left
}

// refusal returns a response that denies the request and tells the user the limit and the usage of the
// tenant. It begins with the words of the API server's own quota, by which controllers recognize a quota
// error.
func (h *Handler) refusal(ctx context.Context, request admission.Request, w *waitingRequest) admission.Response {
	parts, err := h.parts(ctx, request.Namespace)
	if err != nil {
		return admission.Allowed("").WithWarnings(err.Error())
	}
	for i := range parts {
		need, ok := w.needs[parts[i].Name]
		if !ok || !tenancy.Lacks(rest(&parts[i]), need) {
			continue
		}
		total, err := h.total(ctx, &parts[i])
		if err != nil {
			return admission.Allowed("").WithWarnings(err.Error())
		}
		if total == nil {
			continue
		}
		if need = only(need, total.limit); tenancy.Lacks(total.rest(), need) {
			names := strings.HasPrefix(request.UserInfo.Username, kubernetesAccounts) || h.Owns(request, total.tenant)
			return admission.Denied(total.message(request.Namespace, need, names))
		}
	}
	return admission.Allowed("")
}

// kubernetesAccounts is the prefix of the user names of Kubernetes' controllers. They copy errors into
// events and conditions in the namespace, which its tenant reads.
const kubernetesAccounts = "system:serviceaccount:kube-system:"

// message returns the text of a refusal. It contains the names of other namespaces only if names is set,
// for users who may know them.
func (t *total) message(namespace string, need corev1.ResourceList, names bool) string {
	var requested, used, limited []string
	left := t.rest()
	for _, name := range slices.Sorted(maps.Keys(need)) {
		quantity, free, limit := need[name], left[name], t.limit[name]
		if free.Cmp(quantity) >= 0 {
			continue
		}
		sum := limit.DeepCopy()
		sum.Sub(free)
		requested = append(requested, fmt.Sprintf("%s=%s", name, quantity.String()))
		used = append(used, fmt.Sprintf("%s=%s (%s)", name, sum.String(), t.by(name, namespace, names)))
		limited = append(limited, fmt.Sprintf("%s=%s", name, limit.String()))
	}
	return fmt.Sprintf("exceeded quota: %s of all namespaces of tenant %s, requested: %s, used: %s, limited: %s; delete what is not needed, or ask the platform team for more",
		t.name, t.tenant.Name, strings.Join(requested, ", "), strings.Join(used, ", "), strings.Join(limited, ", "))
}

// by returns a list of the namespaces that use a resource, the largest usage first.
func (t *total) by(name corev1.ResourceName, namespace string, names bool) string {
	var users []string
	for _, ns := range slices.Sorted(maps.Keys(t.used)) {
		if q := t.used[ns][name]; q.Sign() > 0 {
			users = append(users, ns)
		}
	}
	slices.SortStableFunc(users, func(a, b string) int {
		of, to := t.used[a][name], t.used[b][name]
		return to.Cmp(of)
	})
	var texts []string
	others, rest := 0, corev1.ResourceList{}
	for i, ns := range users {
		q := t.used[ns][name]
		if ns == namespace || names && i < maxListed {
			texts = append(texts, ns+" "+q.String())
			continue
		}
		others++
		rest = add(rest, corev1.ResourceList{name: q})
	}
	if others > 0 {
		sum := rest[name]
		texts = append(texts, fmt.Sprintf("other namespaces %s", sum.String()))
	}
	if len(texts) == 0 {
		return "by no namespace"
	}
	return strings.Join(texts, ", ")
}
