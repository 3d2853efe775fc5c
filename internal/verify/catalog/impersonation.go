package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addImpersonation(register func(...Attack)) {
	register(Attack{
		ID: "I8", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"ServiceAccount", "ServiceAccount/token"},
		Title:      "acts as another account, by impersonation, with a new token of that account, or by a Pod in a namespace of others",
		Controls:   []string{"RBAC"},
		References: []string{"flux2 discussion 263"},
		Fix: Fix{
			Advice: "give the tenant's role neither the verbs impersonate and impersonate:MODE, nor create on serviceaccounts/token, nor approve on signers of certificates; the roles edit, admin and cluster-admin have both",
			Rights: true,
			Denied: []rbacv1.PolicyRule{
				denied("", []string{"impersonate"}, "serviceaccounts", "users", "groups"),
				denied("authentication.k8s.io", []string{"impersonate:serviceaccount", "impersonate:user-info", "impersonate:arbitrary-node", "impersonate:associated-node"}, "serviceaccounts", "users", "groups", "nodes"),
				denied("", writing, "serviceaccounts/token"),
			},
		},
		Run: namingBindings(requestsOf((*Scenario).actsElsewhere,
			request{what: "impersonate any account of its namespace", aimed: mayNot("impersonate", "serviceaccounts", func(e *Scenario) string { return e.Namespace })},
			request{what: "impersonate any user", aimed: mayNot("impersonate", "users", func(*Scenario) string { return "" })},
			request{what: "impersonate any group", aimed: mayNot("impersonate", "groups", func(*Scenario) string { return "" })},
			request{what: "make a token for the account default of its namespace", aimed: func(ctx context.Context, e *Scenario) error {
				account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "default"}}
				return e.As.SubResource("token").Create(ctx, account, &authenticationv1.TokenRequest{},
					client.DryRunAll)
			}},
		)),
	})
}

// elsewhere returns the namespace of Flux and, for the tenant's account, the namespaces of no tenant in
// which a RoleBinding gives the account a role. I12 covers namespaces of other tenants. An owner is
// excluded because a person may have other tasks, too.
func (e *Scenario) elsewhere() []string {
	places := []string{e.Platform}
	for _, r := range e.Tenant.Rights {
		if r.Namespace != "" && e.Owner == nil {
			places = append(places, r.Namespace)
		}
	}
	slices.Sort(places)
	return slices.DeleteFunc(slices.Compact(places), func(place string) bool {
		return slices.ContainsFunc(append([]discovery.Tenant{e.Tenant}, e.tenants...), func(t discovery.Tenant) bool { return slices.Contains(t.Namespaces, place) })
	})
}

// actsElsewhere returns the requests with which the tenant would act as any account in a namespace of
// others.
func (e *Scenario) actsElsewhere() []request {
	all := []request{
		{what: "impersonate a user or a group with rights elsewhere", aimed: func(ctx context.Context, e *Scenario) error {
			powerful, err := e.powerful(ctx)
			if err != nil {
				return err
			}
			if err := holdsNone(e.Victim.Namespace, right{what: "act as somebody with other rights", verbs: []string{"impersonate"}, resources: []string{"users", "groups", "serviceaccounts"}, counts: powerful})(ctx, e); !apierrors.IsForbidden(err) {
				return err
			}
			return impersonatesNone(e.Victim.Namespace, powerful)(ctx, e)
		}},
		{what: "impersonate an account of its namespace with constraints", aimed: impersonatesNone(e.Namespace, nil)},
		{what: "approve a certificate for any user", aimed: approvesNone},
	}
	for _, place := range e.elsewhere() {
		all = append(all, request{what: "act as an account of namespace " + place, aimed: holdsNone(place, actingRights(place)...)})
	}
	return all
}

// clientSigners are the signers whose certificates the API server accepts as identities of clients.
var clientSigners = []string{"kubernetes.io/kube-apiserver-client", "kubernetes.io/kube-apiserver-client-kubelet"}

// approvesNone looks for the rights to approve a certificate that is an identity. The admission plugin CertificateApproval
// demands the verb approve on the signer, too: a tenant may approve the certificates of a signer of its own.
func approvesNone(ctx context.Context, e *Scenario) error {
	err := holdsNone(e.Victim.Namespace, right{
		what: "approve a certificate for any user", verbs: []string{"update", "patch"}, resources: []string{"certificatesigningrequests.certificates.k8s.io/approval"},
	})(ctx, e)
	var held *heldError
	if !errors.As(err, &held) {
		return err
	}
	return holdsNone(e.Victim.Namespace, right{
		what: "approve a certificate for any user", verbs: []string{"approve"}, resources: []string{"signers.certificates.k8s.io"},
		counts: func(name string) bool {
			return slices.ContainsFunc(clientSigners, func(signer string) bool { return name == signer || name == "kubernetes.io/*" })
		},
	})(ctx, e)
}

// powerful returns a function that reports whether a binding outside of the tenant's namespaces names a
// user, group or account. The tenant's own groups do not count.
func (e *Scenario) powerful(ctx context.Context) (func(name string) bool, error) {
	var everywhere rbacv1.ClusterRoleBindingList
	var bindings rbacv1.RoleBindingList
	for _, list := range []client.ObjectList{&everywhere, &bindings} {
		if err := e.Admin.List(ctx, list); err != nil {
			return nil, fmt.Errorf("cannot read the bindings: %w", err)
		}
	}
	subjects := []rbacv1.Subject{}
	for _, b := range everywhere.Items {
		subjects = append(subjects, b.Subjects...)
	}
	for _, b := range bindings.Items {
		if !slices.Contains(e.Tenant.Namespaces, b.Namespace) {
			subjects = append(subjects, b.Subjects...)
		}
	}
	return func(name string) bool {
		return !slices.Contains(e.who.groups, name) && name != e.who.user && slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return s.Name == name })
	}, nil
}

// namingBindings adds the bindings that give the tenant cluster-admin to a finding that got through: with
// cluster-admin, nothing prevents an account from acting as another.
func namingBindings(run func(context.Context, *Scenario) Finding) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		f := run(ctx, e)
		if f.Outcome != GotThrough {
			return f
		}
		for _, right := range e.Tenant.ClusterAdmin() {
			f.Evidence += "; " + right.String()
		}
		return f
	}
}

// mayNot asks the API server whether the tenant has a right on a resource, given as
// RESOURCE.GROUP/SUBRESOURCE. Every request exercises such a right, so an attack cannot try it separately.
// The result has the form of the error that the request would return.
func mayNot(verb, resource string, namespace func(*Scenario) string) func(context.Context, *Scenario) error {
	return func(ctx context.Context, e *Scenario) error {
		plain, subresource, _ := strings.Cut(resource, "/")
		plain, group, _ := strings.Cut(plain, ".")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: plain, Subresource: subresource, Namespace: namespace(e)},
		}}
		if err := e.As.Create(ctx, review); err != nil {
			return fmt.Errorf("cannot read the tenant's rights: %w", err)
		}
		if review.Status.Allowed {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("user %q cannot %s resource %q", e.who.user, verb, resource))
	}
}
