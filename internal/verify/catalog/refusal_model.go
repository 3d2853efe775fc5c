package catalog

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/admission"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A refusal stops an attack only if the refusing control is meant for the attack. The API server checks
// many controls for a request, and a control that is meant for something else may refuse it first. Such a
// refusal says nothing about the control that is meant for the attack, and may end when its own reason
// ends.

// controlClass is a class of controls.
type controlClass string

// The classes of controls.
const (
	// byRights are RBAC and Kubernetes' escalation check. Without the right, the API server checks no other
	// control.
	byRights controlClass = "rights"
	// byPolicies are policies and webhooks. Of Tenure's rules, only those count that name the attack in
	// their Rows: see [otherRule].
	byPolicies controlClass = "policies"
	// byPodSecurity is Pod Security admission.
	byPodSecurity controlClass = "Pod Security"
	// byQuotas are quotas, and the webhooks that distribute them. They refuse an amount; their refusals say
	// nothing about the object.
	byQuotas controlClass = "quotas"
	// byChecks are checks of Kubernetes and Flux for malformed input.
	byChecks controlClass = "checks"
	// byFlux are flags of Flux, and fields of its objects that control references from other namespaces.
	byFlux controlClass = "Flux"
	// byState is a state of the cluster that an attack has read without sending a request.
	byState controlClass = "state"
)

// classOf returns the class of a control with a name.
func classOf(control string) controlClass {
	switch {
	case strings.HasPrefix(control, rbac):
		return byRights
	case strings.HasPrefix(control, quotaControl), strings.HasPrefix(control, "webhook ") && strings.Contains(control, "."+admission.QuotaWebhookSuffix):
		return byQuotas
	case isPolicy(control):
		return byPolicies
	case strings.HasPrefix(control, "Pod Security "):
		return byPodSecurity
	case slices.Contains([]string{nameCheck, schemas, "paths kept within the artifact", "detection of cycles"}, control):
		return byChecks
	case strings.HasPrefix(control, "flag "), control == "spec.accessFrom of the object", control == noProxyThere, control == noSSH, control == artifactProxy:
		return byFlux
	}
	return byState
}

// countingClasses are the classes that count for an attack in addition to rights, policies and states, by
// the ID of the attack. For other attacks, refusals of these classes do not count.
var countingClasses = map[string][]controlClass{
	// The attack is about the amount.
	"A2": {byQuotas},
	// The attack is about the webhook of the quotas.
	"A9": {byQuotas},
	// The attack is about the malformed value.
	"A6": {byChecks}, "I16": {byChecks}, "S8": {byChecks},
	// Flux decides about references, accounts, bases and kubeconfigs.
	"I1": {byFlux}, "I13": {byFlux}, "I19": {byFlux}, "I26": {byFlux}, "N1": {byFlux}, "N2": {byFlux}, "S1": {byFlux}, "S2": {byFlux},
	"S5": {byFlux}, "S7": {byFlux}, "S12": {byFlux}, "S15": {byFlux}, "S16": {byFlux},
	// Pod Security limits privileges, volumes, ports and devices of Pods.
	"W3": {byPodSecurity}, "W6": {byPodSecurity}, "W11": {byPodSecurity},
}

// counts reports whether a refusal by a control counts for an attack.
func counts(id, control string) bool {
	switch class := classOf(control); class {
	case byRights, byPolicies, byState:
		return true
	default:
		return slices.Contains(countingClasses[id], class)
	}
}

// byItsControls returns the finding of an attack. It is not proven if a control that is meant for something
// else stopped a part of the attack.
func (a Attack) byItsControls(f Finding) Finding {
	if f.Outcome != Stopped {
		return f
	}
	for control := range strings.SplitSeq(f.Control, ", ") {
		if !counts(a.ID, control) {
			return notProven(fmt.Sprintf("%s refuses it, which is no control of this attack and may refuse for a reason that an attacker can avoid: %s", control, f.Message))
		}
	}
	return f
}

// attackKey is the key of the running attack in its context.
type attackKey struct{}

func withAttack(ctx context.Context, a Attack) context.Context {
	return context.WithValue(ctx, attackKey{}, a)
}

// ruleName matches the name of a rule of Tenure at the end of a refusal; a message may contain several
// refusals.
var ruleName = regexp.MustCompile(`\(rule (` + regexp.QuoteMeta(admission.Prefix) + `[a-z-]+)\)`)

// otherRule returns the name of a rule of Tenure that wrote a refusal, if none of the rules in the refusal
// is meant for the running attack, neither by its Rows nor by [alsoStops].
func otherRule(ctx context.Context, message string) (string, bool) {
	a, running := ctx.Value(attackKey{}).(Attack)
	named := ruleName.FindAllStringSubmatch(message, -1)
	if !running || len(named) == 0 {
		return "", false
	}
	for _, m := range named {
		for _, r := range admission.Rules() {
			if r.Name == m[1] && (slices.Contains(r.Rows, a.ID) || slices.Contains(alsoStops[r.Name], a.ID)) {
				return "", false
			}
		}
	}
	return named[0][1], true
}

// byAnotherRule returns the finding of a refused request. It is not proven if a rule of Tenure that is not
// meant for the attack wrote the refusal.
func byAnotherRule(ctx context.Context, refusal error, f Finding) Finding {
	if f.Outcome != Stopped || refusal == nil {
		return f
	}
	if rule, other := otherRule(ctx, refusal.Error()); other {
		return notProven(fmt.Sprintf("rule %s refuses it, which is about something else: %s", rule, f.Message))
	}
	return f
}

// alsoStops maps rules of Tenure to further attacks that they stop for the reason of the rule. The Rows of
// these rules do not name the attacks: the rows of the ablation remove the rules together with others, or
// try other requests of the attack.
var alsoStops = map[string][]string{
	// The attack removes the account from the sync.
	admission.Prefix + "accounts": {"I10"},
	// The attack changes an object of the platform.
	admission.Prefix + "managed": {"I17", "S4", "S14"},
	// The attack makes the manager act in a namespace without a tenant.
	admission.Prefix + "manager": {"I15"},
	// The attack creates a token of an owner's account.
	admission.Prefix + "tokens": {"I24"},
	// The attack creates or changes a namespace of others.
	admission.Prefix + "namespaces":      {"A2", "I20", "I21"},
	admission.Prefix + "namespace-names": {"A2", "I6"},
}

// controllerError is the refusal of a request that a controller of Kubernetes sends for an object of the
// tenant.
type controllerError struct {
	account string
	error
}

func (e *controllerError) Unwrap() error { return e.error }

// asController sends a request with the identity of a controller of Kubernetes. The rights of the
// controller say nothing about the tenant: asController marks a refusal by RBAC, and [judge] does not count
// it as a refusal of the tenant.
func (e *Scenario) asController(account string, send func(client.Client) error) error {
	err := send(e.controllers[account])
	if control, known := controlOf(fmt.Sprint(err)); err != nil && known && classOf(control) == byRights {
		return &controllerError{account, err}
	}
	return err
}

// creates creates an object as a controller of Kubernetes, in a dry run.
func (e *Scenario) creates(ctx context.Context, account string, o client.Object) error {
	return e.asController(account, func(c client.Client) error { return c.Create(ctx, o, client.DryRunAll) })
}

// createsIntact is [Scenario.creates], and returns an [alteredError] if the API server accepts the object with other values.
func (e *Scenario) createsIntact(ctx context.Context, account string, u *unstructured.Unstructured) error {
	got := u.DeepCopy()
	if err := e.creates(ctx, account, got); err != nil {
		return err
	}
	return e.altered(ctx, u, got)
}

// noImpersonation matches the refusal of a Flux controller that may not impersonate an account.
var noImpersonation = regexp.MustCompile(`User \\?"[^"\\]+\\?" cannot impersonate `)

// isOfFlux reports whether RBAC refused a right to Flux itself, and not to the account that Flux
// impersonates. The impersonated account may be another account than the tenant's.
func isOfFlux(message string) bool { return noImpersonation.MatchString(message) }
