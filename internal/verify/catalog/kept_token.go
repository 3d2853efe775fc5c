package catalog

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addKeptToken(register func(...Attack)) {
	register(Attack{
		ID: "I8", Via: API, Kind: "Secret", Owners: OwnersWithin,
		Kinds:      []string{"Secret"},
		Title:      "keeps a long-lived token of its reconciler's service account in a Secret, or reads one that exists",
		Controls:   []string{"policy on Secrets with tokens of accounts"},
		References: []string{"Kubernetes documentation: long-lived tokens for ServiceAccounts"},
		Fix:        Fix{Advice: "refuse tenants' Secrets of type kubernetes.io/service-account-token for the accounts that Flux applies as, with a ValidatingAdmissionPolicy: such a token does not expire, and gives each reader of the Secret all of the tenant's rights, without a commit and a review. Delete those that exist, which no policy keeps the tenant from reading"},
		Run:        keepsToken,
	})
}

// keepsToken tries the account that Flux applies as, and the accounts of the namespace with rights
// elsewhere. Kubernetes writes the token into the Secret after its creation, so that the Secret
// alone is evidence enough. It also tries to read the tokens that Secrets keep already.
func keepsToken(ctx context.Context, e *Scenario) Finding {
	if !e.hasAccount() || e.foreignAccount() {
		return e.nothingThere(ctx, noReconciler, "Flux applies its manifests as an account of the platform's, or as none")
	}
	privileged, err := e.privilegedAccounts(ctx)
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	own := creating(tokenSecret("i8", "default"))
	earlier, err := e.earlierTokens(ctx, e.Account, "as which Flux applies its manifests")
	if err != nil {
		return notProven(firstLine(err.Error()))
	}
	all := []request{{what: "keep a token of its reconciler's account in a Secret", aimed: creating(in(e.Account.Namespace, tokenSecret("i8", e.Account.Name))), own: own}}
	for _, p := range privileged {
		all = append(all, request{
			what:  fmt.Sprintf("keep a token of %s, which %s", p.account, p.because),
			aimed: creating(in(p.account.Namespace, tokenSecret("i8", p.account.Name))), own: own,
		})
		more, err := e.earlierTokens(ctx, p.account, "which "+p.because)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		earlier = append(earlier, more...)
	}
	return firstEarlier(earlier, requests(all...))(ctx, e)
}

// in puts an object into another namespace.
func in(namespace string, make func(*Scenario) *unstructured.Unstructured) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured {
		u := make(e)
		u.SetNamespace(namespace)
		return u
	}
}
