package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const wayTenants = `
apiVersion: capsule.clastix.io/v1beta2
kind: CapsuleConfiguration
metadata: {name: default}
spec: {administrators: [{kind: User, name: root}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: oil}
spec:
  owners: [{kind: User, name: alice}]
  resourceQuotas: {items: [{hard: {services: "9"}}]}
  limitRanges: {items: [{limits: [{type: Container, max: {cpu: "1"}}]}]}
---
apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: gas}
spec: {owners: [{kind: User, name: bob}], namespaceOptions: {quota: 2}}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: own}
spec: {owners: [{kind: User, name: olga, roles: [admin]}, {kind: User, name: root, roles: [admin, capsule-namespace-deleter]}]}
`

// way is a cluster with Capsule's Tenants oil and gas and Tenure's own.
type way struct {
	*layer
	clients map[string]client.Client
}

// patch makes a user patch a namespace.
func (w *way) patch(ctx context.Context, user, namespace, patch string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	return w.clients[user].Patch(ctx, ns, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// become waits until a user's patch is admitted.
func (w *way) become(t *testing.T, user, namespace, patch string) {
	t.Helper()
	testwait.For(t, fmt.Sprintf("%s to patch %s with %s", user, namespace, patch), patience, func() (bool, string) {
		err := w.patch(t.Context(), user, namespace, patch)
		return err == nil, fmt.Sprint(err)
	})
}

// refused checks that a user's patch is refused.
func (w *way) refused(t *testing.T, user, namespace, patch, why string) {
	t.Helper()
	err := w.patch(t.Context(), user, namespace, patch)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
		t.Errorf("%s patches %s with %s: want a refusal with %q, got: %v", user, namespace, patch, why, err)
	}
}

// create makes a user create a namespace.
func (w *way) create(ctx context.Context, user, name string, labels map[string]string) error {
	return w.clients[user].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

// created waits until a user can create a namespace.
func (w *way) created(t *testing.T, user, name string) {
	t.Helper()
	testwait.For(t, user+" to create "+name, patience, func() (bool, string) {
		err := w.create(t.Context(), user, name, nil)
		return err == nil || apierrors.IsAlreadyExists(err), fmt.Sprint(err)
	})
}

func startWay(t *testing.T, capsule string) *way {
	w := &way{layer: startLayer(t), clients: map[string]client.Client{}}
	profile := &v1alpha1.TenancyProfile{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProfileName}}
	merge(t, w.admin, profile, `{"spec":{"protectedNamespaces":["kept-*"],"capsule":`+capsule+`}}`)
	w.start(t, true)
	w.apply(t, wayTenants)
	w.theirs(t, "oil", "Succeeded", 0)
	w.theirs(t, "gas", "Succeeded", 0)
	for _, user := range []string{"alice", "bob", "olga", "root", "mallory"} {
		w.clients[user] = w.as(t, user)
	}
	return w
}

// owned checks the names of the RoleBindings and limits in a namespace, and the Tenants that own it.
func (w *way) owned(t *testing.T, namespace, tenant string, want, gone []client.Object) {
	t.Helper()
	testwait.For(t, namespace+" to be "+tenant+"'s", patience, func() (bool, string) {
		ns := &corev1.Namespace{}
		if err := w.admin.Get(t.Context(), client.ObjectKey{Name: namespace}, ns); err != nil {
			return false, err.Error()
		}
		var owners string
		for _, ref := range ns.OwnerReferences {
			owners += ref.Name
		}
		if ns.Labels["tenure.dev/tenant"] != tenant || ns.Labels["capsule.clastix.io/tenant"] != tenant || owners != tenant {
			return false, fmt.Sprint(ns.Labels, ns.Annotations, ns.OwnerReferences)
		}
		for _, o := range want {
			if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: o.GetName()}, o); err != nil {
				return false, err.Error()
			}
		}
		for _, o := range gone {
			if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: o.GetName()}, o); !apierrors.IsNotFound(err) {
				return false, fmt.Sprintf("%T %s is there: %v", o, o.GetName(), err)
			}
		}
		return true, ""
	})
}

func called[T any, P interface {
	*T
	client.Object
}](name string) client.Object {
	o := P(new(T))
	o.SetName(name)
	return o
}

// TestCapsuleWay sets every field of the TenancyProfile that chooses Capsule's way.
func TestCapsuleWay(t *testing.T) {
	t.Parallel()
	w := startWay(t, `{"names":"Capsule","cordon":"Owners","administrators":"Namespaces"}`)
	ctx := t.Context()
	w.apply(t, `
{apiVersion: v1, kind: Namespace, metadata: {name: kept-1}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: own-a, labels: {tenure.dev/tenant: own}}}
`)
	alice, bob := []client.Object{called[rbacv1.RoleBinding]("capsule:managed:f93a4d3523f699fb")}, []client.Object{called[rbacv1.RoleBinding]("capsule:managed:b748d0d6894ca4d6")}
	bounds := []client.Object{called[corev1.ResourceQuota]("capsule-oil-0"), called[corev1.LimitRange]("capsule-oil-0")}
	const oil, gas, none, note = `{"metadata":{"labels":{"capsule.clastix.io/tenant":"oil"}}}`, `{"metadata":{"labels":{"capsule.clastix.io/tenant":"gas"}}}`,
		`{"metadata":{"labels":{"capsule.clastix.io/tenant":null},"ownerReferences":null}}`, `{"metadata":{"annotations":{"note":"x"}}}`

	w.created(t, "root", "free-a")
	for name, refused := range map[string]error{
		"an owner, without a tenant": w.create(ctx, "alice", "kept-x", nil),
		"a protected name":           w.create(ctx, "root", "kept-2", nil),
		"no tenant of this name":     w.create(ctx, "root", "free-x", map[string]string{"capsule.clastix.io/tenant": "nobody"}),
		"privileged":                 w.create(ctx, "root", "free-x", map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}),
	} {
		if !apierrors.IsForbidden(refused) {
			t.Errorf("%s: want a refusal, got: %v", name, refused)
		}
	}
	w.become(t, "root", "free-a", note)
	for _, name := range []string{"kept-1", "kube-system", "flux-system", "default"} {
		w.refused(t, "root", name, note, "platform")
		w.refused(t, "root", name, oil, "platform")
	}
	w.refused(t, "root", "own-a", oil, "Tenants of Capsule")
	w.refused(t, "root", "free-a", `{"metadata":{"labels":{"capsule.clastix.io/tenant":"own"}}}`, "Tenants of Capsule")
	w.refused(t, "root", "free-a", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`, "")
	w.refused(t, "root", "free-a", `{"metadata":{"finalizers":["example.com/x"]}}`, "")
	w.refused(t, "alice", "free-a", oil, "")
	w.refused(t, "mallory", "free-a", oil, "")

	w.become(t, "root", "free-a", oil)
	w.owned(t, "free-a", "oil", append(alice, bounds...), bob)
	w.refused(t, "bob", "free-a", gas, "")
	if err := w.patch(ctx, "alice", "free-a", none); err == nil {
		t.Error("an owner takes a namespace out of its tenant")
	}
	w.become(t, "root", "free-a", `{"metadata":{"labels":{"capsule.clastix.io/tenant":null}}}`)
	w.owned(t, "free-a", "oil", alice, nil)
	w.become(t, "root", "free-a", gas)
	w.owned(t, "free-a", "gas", bob, append(alice, bounds...))

	// gas gets two namespaces at most.
	for _, name := range []string{"free-b", "free-c"} {
		if err := w.create(ctx, "root", name, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.become(t, "root", "free-b", gas)
	w.refused(t, "root", "free-c", gas, "has 2 of 2 namespaces")

	w.become(t, "root", "free-a", none)
	testwait.For(t, "free-a to be nobody's", patience, func() (bool, string) {
		ns := &corev1.Namespace{}
		err := w.admin.Get(ctx, client.ObjectKey{Name: "free-a"}, ns)
		var bindings rbacv1.RoleBindingList
		if err == nil {
			err = w.admin.List(ctx, &bindings, client.InNamespace("free-a"))
		}
		said := fmt.Sprint(ns.Labels, ns.Annotations, ns.OwnerReferences, len(bindings.Items), err)
		return err == nil && !strings.Contains(said, "enant") && len(bindings.Items) == 0, said
	})

	w.cordons(t)
}

// cordons lets owners cordon the namespaces that they made.
func (w *way) cordons(t *testing.T) {
	const on, off = `{"metadata":{"labels":{"projectcapsule.dev/cordoned":"true"}}}`, `{"metadata":{"labels":{"projectcapsule.dev/cordoned":null}}}`
	w.created(t, "alice", "oil-a")
	w.theirs(t, "oil", "Succeeded", 1)
	stranger := w.theirs(t, "gas", "Succeeded", 1)
	w.refused(t, "alice", "oil-a", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"capsule.clastix.io/v1beta2","kind":"Tenant","name":"gas","uid":%q}]}}`, stranger.UID), "must not have the owner Tenant gas")
	works := func(want string) {
		t.Helper()
		testwait.For(t, "alice's work to end with "+want, patience, func() (bool, string) {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "oil-a", Name: "work"}}
			err := w.clients["alice"].Create(t.Context(), o, client.DryRunAll)
			return strings.Contains(fmt.Sprint(err), want), fmt.Sprint(err)
		})
	}
	works("<nil>")
	w.become(t, "alice", "oil-a", on)
	works("is cordoned")
	w.refused(t, "alice", "oil-a", `{"metadata":{"labels":{"projectcapsule.dev/cordoned":null},"annotations":{"meta.helm.sh/x":"y"}}}`, "is cordoned")
	w.refused(t, "bob", "oil-a", off, "")
	w.become(t, "alice", "oil-a", off)
	works("<nil>")
	w.refused(t, "root", "own-a", on, "")
	w.apply(t, strings.Replace(strings.Split(wayTenants, "---")[1], "spec:", "spec:\n  cordoned: true", 1))
	w.theirs(t, "oil", "Succeeded", 1)
	works("is cordoned")
	w.refused(t, "alice", "oil-a", off, "cordoned")
	w.refused(t, "root", "oil-a", `{"metadata":{"labels":{"capsule.clastix.io/tenant":"gas"}}}`, "cordoned")
}

// TestCapsuleWayDefaults asks for the same without a field of the TenancyProfile.
func TestCapsuleWayDefaults(t *testing.T) {
	t.Parallel()
	w := startWay(t, `{}`)
	w.created(t, "alice", "oil-a")
	w.theirs(t, "oil", "Succeeded", 1)
	w.owned(t, "oil-a", "oil", []client.Object{called[rbacv1.RoleBinding]("tenure:owners:admin")}, []client.Object{called[corev1.LimitRange]("capsule-oil-0")})
	w.refused(t, "alice", "oil-a", `{"metadata":{"labels":{"projectcapsule.dev/cordoned":"true"}}}`, "projectcapsule.dev/cordoned")
	// The webhook keeps the Tenant's own label.
	w.become(t, "root", "oil-a", `{"metadata":{"labels":{"capsule.clastix.io/tenant":"gas"}}}`)
	w.owned(t, "oil-a", "oil", nil, nil)
	w.refused(t, "root", "oil-a", `{"metadata":{"labels":{"tenure.dev/tenant":"gas"}}}`, "must keep the label tenure.dev/tenant")
	if err := w.create(t.Context(), "root", "free-a", nil); !apierrors.IsForbidden(err) {
		t.Errorf("root makes a namespace without a tenant: %v", err)
	}
}
