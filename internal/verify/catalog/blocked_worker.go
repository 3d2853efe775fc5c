package catalog

import (
	"context"
	"maps"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addBlockedWorker(register func(...Attack)) {
	timeouts := durations("a3", "1440m", map[string][]string{
		"":            {"timeout"},
		"HelmRelease": {"install.timeout", "upgrade.timeout", "test.timeout", "rollback.timeout", "uninstall.timeout"},
	})
	register(Attack{
		ID: "A3", Via: API,
		Kinds:    everyInterval,
		Title:    "blocks a worker of a controller for a day with a long timeout, or its CPU, memory and disk with an expression, a template or artifacts that contain each other",
		Controls: []string{"policy with an upper bound on spec.timeout and on the expressions, templates and inclusions of objects"},
		Fix:      Fix{Advice: "set a maximum for spec.timeout of tenants' Flux objects of every kind, and limit the size and the functions of expressions in spec.dependsOn, spec.healthCheckExprs, spec.resourceFilter and spec.git.commit.messageTemplate, and refuse spec.include of GitRepositories, with a ValidatingAdmissionPolicy"},
		Slow:     true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			f := timeouts(ctx, e)
			if f.Outcome != Stopped {
				return f
			}
			g := expressions(ctx, e)
			if g.Outcome != Stopped {
				return g
			}
			h := inclusions(ctx, e)
			if h.Outcome != Stopped {
				return h
			}
			return f.and(g).and(h)
		},
	})
}

// costly is an expression whose time and memory grow with each list in it. It has so few here that
// it costs nothing. plain costs nothing in any form.
const (
	costly = "[0, 1].map(a, [0, 1].map(b, [0, 1].map(c, c))).size() > 0"
	plain  = "true"
	// costlyMessage is a template whose time grows with a number in it, here none.
	costlyMessage = "{{ range 0 }}{{ end }}"
)

// expressions tries a costly expression in each field that has one.
func expressions(ctx context.Context, e *Scenario) Finding {
	dependsOn := func(expression string) map[string]any {
		return map[string]any{"dependsOn": []any{map[string]any{"name": "any", "readyExpr": expression}}}
	}
	checks := func(expression string) map[string]any {
		return map[string]any{"healthCheckExprs": []any{map[string]any{"apiVersion": "v1", "kind": "Service", "current": expression}}}
	}
	message := func(expression string) map[string]any {
		if expression == costly {
			expression = costlyMessage
		}
		commit := map[string]any{"author": map[string]any{"email": "canary@tenure.dev"}, "messageTemplate": expression}
		return map[string]any{"git": map[string]any{"commit": commit}}
	}
	fields := map[string][]func(expression string) map[string]any{
		"ImageUpdateAutomation": {message},
		"Kustomization":         {dependsOn, checks},
		"HelmRelease":           {dependsOn, checks},
		"Receiver":              {func(expression string) map[string]any { return map[string]any{"resourceFilter": expression} }},
	}
	var all []request
	for _, u := range e.ofEveryKind(ctx, "a3") {
		if u.GetKind() == "Receiver" {
			all = append(all, tokenExpression(ctx, e, u)...)
		}
		for _, field := range fields[u.GetKind()] {
			with := func(expression string) func(*Scenario) *unstructured.Unstructured {
				return func(*Scenario) *unstructured.Unstructured {
					aimed := u.DeepCopy()
					spec, _ := aimed.Object["spec"].(map[string]any)
					maps.Copy(spec, field(expression))
					return aimed
				}
			}
			name := slices.Collect(maps.Keys(field("")))[0]
			all = append(all, request{
				what:  "take all time and memory of the controller by an expression in the " + name + " of a " + u.GetKind(),
				aimed: creating(with(costly)),
				own:   creating(with(plain)),
			})
		}
	}
	return requests(all...)(ctx, e)
}

// tokenExpression tries a costly expression about the token of a Receiver's caller, if the tenant may have a Receiver
// of this type.
func tokenExpression(ctx context.Context, e *Scenario, receiver *unstructured.Unstructured) []request {
	with := func(expression string) func(*Scenario) *unstructured.Unstructured {
		return func(*Scenario) *unstructured.Unstructured {
			u := receiver.DeepCopy()
			spec, _ := u.Object["spec"].(map[string]any)
			delete(spec, "secretRef")
			spec["type"] = "generic-oidc"
			spec["oidcProviders"] = []any{map[string]any{
				"issuerURL":   "https://tokens.example.com",
				"validations": []any{map[string]any{"expression": expression, "message": "canary"}},
			}}
			return u
		}
	}
	own := creating(with(plain))
	if own(ctx, e) != nil {
		return nil
	}
	return []request{{what: "take all time and memory of the controller by an expression in the oidcProviders of a Receiver", aimed: creating(with(costly)), own: own}}
}

// inclusions tries to include another repository in a GitRepository: two that include each other grow at each
// interval, on the disk that all tenants share.
func inclusions(ctx context.Context, e *Scenario) Finding {
	var all []request
	for _, u := range e.ofEveryKind(ctx, "a3") {
		if u.GetKind() != "GitRepository" || u.GetLabels()[v1alpha1.LabelShard] != "" {
			continue
		}
		including := u.DeepCopy()
		spec, _ := including.Object["spec"].(map[string]any)
		spec["include"] = []any{map[string]any{"repository": map[string]any{"name": name("a3-included")}}}
		all = append(all, request{
			what:  "fill the disk of source-controller by GitRepositories that include each other",
			aimed: creating(func(*Scenario) *unstructured.Unstructured { return including.DeepCopy() }),
			own:   creating(func(*Scenario) *unstructured.Unstructured { return u.DeepCopy() }),
		})
	}
	if len(all) == 0 {
		return e.nothingThere(ctx, notInstalled, "no GitRepository of the tenant would share its disk with other tenants")
	}
	return requests(all...)(ctx, e)
}
