package catalog

import (
	"context"
	"encoding/base64"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addProviderSecret(register func(...Attack)) {
	register(Attack{
		ID: "N5", Via: API,
		Kinds:      []string{"Secret"},
		Title:      "redirects notifications with the Secret of a Provider: its address, proxy, headers or GitHub address",
		Controls:   []string{"policy on the Secrets that Providers read"},
		References: []string{"Flux: Providers, secretRef"},
		Fix:        Fix{Advice: "limit the keys address, proxy, headers and githubAppBaseURL of tenants' Secrets to the addresses that their Providers may have, with a ValidatingAdmissionPolicy"},
		Run:        sendsBySecret,
	})
}

// secretOf returns a Secret of the tenant with one key.
func (e *Scenario) secretOf(id, key, value string) *unstructured.Unstructured {
	return object("v1", "Secret", e.Namespace, name(id), map[string]any{"data": map[string]any{key: base64.StdEncoding.EncodeToString([]byte(value))}})
}

// sendsBySecret creates Secrets that a Provider could name, and changes an existing Secret: a Provider
// reads its Secret for each notification.
func sendsBySecret(ctx context.Context, e *Scenario) Finding {
	inside := "http://source-controller." + e.Platform + ".svc.cluster.local/"
	there := e.secretOf("n5-own", "token", "any")
	if err := e.create(ctx, there); err != nil {
		if f := judge(err, ""); f.Outcome == Stopped {
			return e.withPositiveControl(ctx, f)
		}
		return notProven("the tenant cannot make a Secret: " + firstLine(err.Error()))
	}
	defer e.remove(there)
	changing := func(key, value string) func(context.Context, *Scenario) error {
		return func(ctx context.Context, e *Scenario) error {
			patch := `{"data":{"` + key + `":"` + base64.StdEncoding.EncodeToString([]byte(value)) + `"}}`
			return e.As.Patch(ctx, there.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		}
	}
	var all []request
	for _, t := range []struct{ what, key, value, own string }{
		{"send a Provider to a Service of the platform", "address", inside, ""},
		{"send a Provider through a proxy of its own", "proxy", "http://proxy.unapproved.example.net", ""},
		{"say in a header of a Provider that it is another tenant", "headers", "X-Scope-OrgID: victim", "Authorization: any"},
		{"have a GitHub App of a Provider ask a Service of the platform", "githubAppBaseURL", inside, ""},
	} {
		// The positive control uses a key that needs no approval.
		ownKey, ownValue := t.key, t.own
		if t.own == "" {
			ownKey, ownValue = "token", "any"
		}
		all = append(all,
			request{what: t.what, aimed: creating(func(e *Scenario) *unstructured.Unstructured { return e.secretOf("n5", t.key, t.value) }),
				own: creating(func(e *Scenario) *unstructured.Unstructured { return e.secretOf("n5", ownKey, ownValue) })},
			request{what: t.what + " later", aimed: changing(t.key, t.value), own: changing(ownKey, ownValue)},
		)
	}
	return requests(all...)(ctx, e)
}
