package catalog

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addApplyingAccountPod(register func(...Attack)) {
	own := func(e *Scenario) string { return e.Account.Name }
	as := func(account func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := pod(harmlessPod(account(e)), harmlessContainer())(e)
			u.SetName(name("i9"))
			return u
		}
	}
	register(Attack{
		ID: "I9", Via: API,
		Kinds:      slices.Concat(everyPod, []string{"Pod/exec"}),
		Title:      "runs a Pod as its reconciler's service account",
		Controls:   []string{"policy on spec.serviceAccountName of Pods"},
		References: []string{"RFC-0003"},
		Fix:        Fix{Advice: "forbid Pods of tenants to run as the reconciler's account with a ValidatingAdmissionPolicy: a user who can enter such a Pod has all of the tenant's rights, without a commit and a review"},
		Run: func(ctx context.Context, e *Scenario) Finding {
			if e.foreignAccount() {
				return e.nothingThere(ctx, "the account is outside of the tenant's namespaces", "account "+e.Account.String()+" is in a namespace of the platform's")
			}
			earlier, err := e.earlierPods(ctx, e.Account, "as which Flux applies its manifests")
			if err != nil {
				return notProven(firstLine(err.Error()))
			}
			return firstEarlier(earlier, runsPods([]func(*Scenario) *unstructured.Unstructured{as(own)}, request{
				what:  "run a Pod as its reconciler's account",
				aimed: creating(as(own)),
				own:   creating(as(func(*Scenario) string { return "default" })),
			}))(ctx, e)
		},
	})
}

// fewResources returns small requests and limits for a container: a quota of CPU, memory or storage denies
// a Pod without them, whatever else is wrong with the Pod.
func fewResources() map[string]any {
	amounts := func() map[string]any {
		return map[string]any{"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi"}
	}
	return map[string]any{"requests": amounts(), "limits": amounts()}
}

// harmlessPod and harmlessContainer return specs that comply with the strictest level of Pod Security, so
// that Pod Security does not refuse them.
func harmlessPod(account string) map[string]any {
	return map[string]any{
		"serviceAccountName": account,
		"securityContext": map[string]any{
			"runAsNonRoot":   true,
			"seccompProfile": map[string]any{"type": "RuntimeDefault"},
		},
	}
}

func harmlessContainer() map[string]any {
	return map[string]any{
		"allowPrivilegeEscalation": false,
		"capabilities":             map[string]any{"drop": []any{"ALL"}},
	}
}
