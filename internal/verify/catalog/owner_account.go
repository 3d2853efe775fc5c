package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/discovery"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addOwnerAccount(register func(...Attack)) {
	register(Attack{
		ID: "I24", Via: API, Owners: OwnersWithin,
		Kinds:      slices.Concat(everyPod, []string{"Pod/exec", "Secret", "ServiceAccount", "ServiceAccount/token"}),
		Title:      "acts as an owner's service account in its namespace: with a Pod, a token, also one that exists, or a change of the account",
		Controls:   []string{"policy on accounts that own a tenant", "RBAC"},
		References: []string{"RFC-0003"},
		Fix:        Fix{Advice: "keep accounts that own a Tenant out of the tenants' namespaces, or refuse Pods, tokens and changes of them with a ValidatingAdmissionPolicy: an owner's account can create namespaces. Delete the Secrets with its tokens and the Pods that run as it, which a policy does not"},
		Run:        wearsOwnersAccount,
	})
}

func wearsOwnersAccount(ctx context.Context, e *Scenario) Finding {
	there, named, err := e.ownersAccounts(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	if len(there)+len(named) == 0 {
		return e.nothingThere(ctx, noOwner, "no other account of namespace "+e.Namespace+" owns a tenant")
	}
	var pods []func(*Scenario) *unstructured.Unstructured
	var all, others, earlier []request
	for _, account := range there {
		make := podAs(account)
		pods = append(pods, make)
		all = append(all, request{what: "run a Pod as " + account + ", which owns a tenant", aimed: creating(make), own: creating(podAs("default"))})
		others = append(others, borrowingRequests(account)...)
		for _, find := range []func(context.Context, discovery.Account, string) ([]request, error){e.earlierTokens, e.earlierPods} {
			more, err := find(ctx, discovery.Account{Namespace: e.Namespace, Name: account}, "which owns a tenant")
			if err != nil {
				return notProven(firstLine(err.Error()))
			}
			earlier = append(earlier, more...)
		}
	}
	all = append(all, others...)
	for _, account := range named {
		all = append(all, request{
			what: "make the account " + account + ", which a Tenant names as its owner",
			aimed: creating(func(e *Scenario) *unstructured.Unstructured {
				return object("v1", "ServiceAccount", e.Namespace, account, nil)
			}),
			own: creating(func(e *Scenario) *unstructured.Unstructured {
				return object("v1", "ServiceAccount", e.Namespace, name("i24"), nil)
			}),
		})
	}
	return firstEarlier(earlier, runsPods(pods, all...))(ctx, e)
}

// podAs returns a Pod that runs as an account.
func podAs(account string) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		u := pod(harmlessPod(account), harmlessContainer())(e)
		u.SetName(name("i24"))
		return u
	}
}

// tokenSecret returns a Secret in which Kubernetes keeps a token of an account, which does not
// expire.
func tokenSecret(id, account string) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		u := object("v1", "Secret", e.Namespace, name(id), map[string]any{"type": string(corev1.SecretTypeServiceAccountToken)})
		u.SetAnnotations(map[string]string{corev1.ServiceAccountNameKey: account})
		return u
	}
}

// borrowingRequests returns the requests that try to act as an existing account, without a Pod.
func borrowingRequests(account string) []request {
	const usual = "default"
	annotated := func(account string) func(context.Context, *Scenario) error {
		return func(ctx context.Context, e *Scenario) error {
			return merging(object("v1", "ServiceAccount", e.Namespace, account, nil), `{"metadata":{"annotations":{"tenure-attack":"i24"}}}`)(ctx, e)
		}
	}
	whose := account + ", which owns a tenant"
	return []request{
		{what: "make a token of " + whose, aimed: func(ctx context.Context, e *Scenario) error {
			u := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: account}}
			return e.As.SubResource("token").Create(ctx, u, &authenticationv1.TokenRequest{},
				client.DryRunAll)
		}},
		{what: "have Kubernetes keep a token of " + whose + ", in a Secret", aimed: creating(tokenSecret("i24", account)), own: creating(tokenSecret("i24", usual))},
		{what: "annotate " + whose, aimed: annotated(account), own: annotated(usual)},
		{what: "delete " + whose, aimed: func(ctx context.Context, e *Scenario) error {
			return e.As.Delete(ctx, object("v1", "ServiceAccount", e.Namespace, account, nil), client.DryRunAll)
		}},
	}
}

// ownersAccounts returns the accounts in the namespace that any Tenant names as owners,
// except the attacker: the existing accounts in there, and the missing ones in named.
func (e *Scenario) ownersAccounts(ctx context.Context) (there, named []string, err error) {
	for _, t := range e.tenants {
		for _, o := range t.Owners {
			if o.Kind != rbacv1.ServiceAccountKind || o.Namespace != e.Namespace || o.User() == e.who.user || slices.Contains(slices.Concat(there, named), o.Name) {
				continue
			}
			exists, err := e.exists(ctx, object("v1", "ServiceAccount", o.Namespace, o.Name, nil))
			if err != nil {
				return nil, nil, fmt.Errorf("cannot read account %s/%s: %w", o.Namespace, o.Name, err)
			}
			if exists {
				there = append(there, o.Name)
			} else {
				named = append(named, o.Name)
			}
		}
	}
	return there, named, nil
}
