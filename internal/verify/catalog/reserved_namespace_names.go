package catalog

import (
	"context"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addReservedNamespaceNames(register func(...Attack)) {
	register(Attack{
		ID: "I20", Via: API, Owners: OwnersAnywhere,
		Kinds:      []string{"*", "Namespace"},
		Title:      "creates a namespace with a name that belongs to others: an internet domain, another tenant, or a component that the platform installs later",
		Controls:   []string{"RBAC on namespaces", "the tenant's name as a prefix, reserved names", "policy on what the platform applies to namespaces that owners made"},
		References: []string{"Kubernetes: DNS for Services and Pods, search lists"},
		Fix:        Fix{Advice: "let tenants create no namespaces, or only those whose names begin with the tenant's name; keep the names of the platform's components in protectedNamespaces of the TenancyProfile, and install the rule tenure-takeover", Rights: true},
		Slow:       true,
		Run:        takesNames,
	})
}

// takesNames creates namespaces with names that belong to others, and checks whether the
// platform would apply objects to a namespace that the tenant created.
func takesNames(ctx context.Context, e *Scenario) Finding {
	own := func(ctx context.Context, e *Scenario) error { return e.positiveControlNamespace(ctx) }
	all := []request{
		{what: "make a namespace with the name of a top-level domain", aimed: e.makesNamespace("com", e.Tenant.Name), own: own},
		{what: "make the namespace of a component that the platform may install", aimed: e.makesNamespace("cert-manager", e.Tenant.Name), own: own},
	}
	for _, other := range e.tenants {
		if other.Name != e.Tenant.Name {
			all = append(all, request{what: "make a namespace with the name of tenant " + other.Name, aimed: e.makesNamespace(other.Name+"-"+name("i20"), e.Tenant.Name), own: own})
			break
		}
	}
	f := requests(all...)(ctx, e)
	if f.Outcome != Stopped {
		return f
	}
	born, err := e.wantedNamespace(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if err := e.As.Create(ctx, born, client.DryRunAll); apierrors.IsForbidden(err) {
		return f // the tenant cannot create a namespace that the platform could move into
	} else if err != nil {
		return notProven("cannot make a namespace as the tenant: " + firstLine(err.Error()))
	}
	if born.GetLabels()[v1alpha1.LabelMadeBy] != v1alpha1.MadeByOwner {
		return gotThrough("it could make a namespace that the platform cannot tell from its own")
	}
	moved := e.platformMovesIn(ctx)
	if moved.Outcome == Stopped {
		moved.Control = f.Control + ", " + moved.Control
	}
	return moved
}

// platformMovesIn applies a service account, as an account of the platform, to a namespace that an owner
// created. The namespace belongs to no tenant, so no controller changes it.
func (e *Scenario) platformMovesIn(ctx context.Context) Finding {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name("i20-"), Labels: map[string]string{v1alpha1.LabelMadeBy: v1alpha1.MadeByOwner}}}
	if err := e.Admin.Create(ctx, ns); err != nil {
		return notProven("cannot make a namespace: " + firstLine(err.Error()))
	}
	defer func() { _ = e.Admin.Delete(context.WithoutCancel(ctx), ns) }()
	platform, err := asIdentity(e.config, identity{user: "system:serviceaccount:" + e.Platform + ":" + name("i20"), groups: []string{"system:masters"}}, e.customs)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	move := func(namespace string, labels map[string]string) error {
		u := object("v1", "ServiceAccount", namespace, name("i20"), nil)
		u.SetLabels(labels)
		return platform.Create(ctx, u, client.DryRunAll)
	}
	applied := map[string]string{"kustomize.toolkit.fluxcd.io/name": "infrastructure", "kustomize.toolkit.fluxcd.io/namespace": e.Platform}
	if err := move(e.Victim.Namespace, applied); err != nil {
		return notProven("the platform cannot apply a service account to another namespace either: " + firstLine(err.Error()))
	}
	f := judge(move(ns.Name, applied), "the platform applies its service accounts to a namespace that the tenant's owner made, whose Pods can run as them")
	if f.Outcome == Stopped {
		f = judge(move(ns.Name, nil), "the hooks of the platform's charts make service accounts in a namespace that the tenant's owner made, whose Pods can run as them")
	}
	return f
}
