// Package catalog is a catalogue of ways in which a tenant of a cluster with Flux may try to reach objects
// of others, and runs them on a local cluster. Each attack is a file that registers itself. It lists the
// controls that would stop it, and has one of four outcomes:
//
//   - stopped: a control denied it, and the same steps work on the tenant's own
//     objects;
//   - got through: it changed a canary that only a successful attack can reach;
//   - not proven: it could not run here; the finding has the reason;
//   - not installed: its target does not exist, so that it was not tried and
//     proves nothing.
//
// An attack leaves the cluster unchanged: it sends dry runs where the API server's answer suffices, and
// removes all objects that it creates.
package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Outcome is the result of an attack: one of four values.
type Outcome string

// The outcomes, worst first.
const (
	GotThrough   Outcome = "got through"
	NotProven    Outcome = "not proven"
	Stopped      Outcome = "stopped"
	NotInstalled Outcome = "not installed"
)

// Via is the path that an attack takes: one of three values.
type Via string

// The paths of attacks.
const (
	API   Via = "api"   // requests with the tenant's own identity
	Git   Via = "git"   // a commit to the tenant's repository
	Proxy Via = "proxy" // requests to the fleet's proxy with the tenant's token
)

// Attack is an entry of the catalogue.
type Attack struct {
	// ID is the ID of the attack, such as I4: a letter for the group and a number.
	ID string
	// Via is the path of the attack; each path may have an attack with the same ID.
	Via Via
	// Kind distinguishes attacks with the same ID and path that use objects of different kinds, such as
	// HelmRelease; empty for the usual kind.
	Kind string
	// Kinds are the kinds that the attack tries, with a subresource after a slash, such as
	// Namespace/status; [Catalogue] sorts them. A star stands for any kind: the attack is about all kinds
	// and tries one. For an attack that sends bytes to the proxy and no request for an object, the list is
	// empty, but not nil.
	Kinds []string
	// Title describes the attack, in the present tense.
	Title string
	// Controls are the controls that should stop the attack.
	Controls []string
	// References are published sources: advisories, documents, RFCs.
	References []string
	// Fix tells a platform admin how to stop the attack.
	Fix Fix
	// Layers are controls that each stop the attack alone, if there are several. The report lists a missing
	// layer although another layer stops the attack.
	Layers []Layer
	// Deep is set for an attack that waits for the answer of Flux, the manager or the proxy. Of several
	// tenants with the same shape, only the first tries it.
	Deep bool
	// Slow is set for an attack that sends so many requests to the API server that it takes half a second
	// or more. The ablation tries it with its own rows only.
	Slow bool
	// Owners selects the owners of a Tenant that also try the attack.
	Owners Owners
	// Files returns the files that the attack needs in the tenant's repository, by path
	// below the attack's folder; see [Scenario.folder].
	Files func(*Scenario) map[string]string
	// Source is set for an attack with objects that need the tenant's repository as their source, and no
	// file in it.
	Source bool
	// Run tries the attack and returns the finding.
	Run func(context.Context, *Scenario) Finding
}

// Key returns the unique name of the attack: its ID, its path and its kind, such as S1-api or
// S1-api-HelmRelease.
func (a Attack) Key() string {
	if a.Kind == "" {
		return a.ID + "-" + string(a.Via)
	}
	return a.ID + "-" + string(a.Via) + "-" + a.Kind
}

// Fix tells a platform admin how to stop an attack that got through.
type Fix struct {
	// Advice is the advice in words; never empty.
	Advice string
	// Flags are the flags that Flux must be started with, if flags suffice.
	Flags []Flag
	// Rights is set if a narrower role for the tenant's account suffices.
	Rights bool
	// Denied are the rules of which the tenant's role must not have any part. If they are known, Rights is
	// set as well.
	Denied []rbacv1.PolicyRule
	// Labels are the labels that the tenant's namespaces need, if labels suffice.
	Labels map[string]string
}

// Flag is a flag of a Flux controller.
type Flag struct {
	// Controller is the name of its Deployment.
	Controller string
	// Flag is the whole argument, such as --no-cross-namespace-refs=true.
	Flag string
}

// Finding is the result of one attack.
type Finding struct {
	Outcome Outcome
	// Control is the name of the control that stopped the attack.
	Control string
	// Message is the unchanged error that the tenant got; for an attack on a part that is not installed,
	// the name of the missing part.
	Message string
	// Evidence names the object that the attack created, changed or read.
	Evidence string
	// Reason is the reason why nothing is proven.
	Reason string
	// Fix tells a platform admin how to stop the attack in this fleet; empty if the advice of
	// the attack says it.
	Fix string
	// Missing are the layers that do not hold, for an attack that another layer stopped.
	Missing []string
	// Repeat are the shell commands that repeat an attack that was stopped or got through; empty if the
	// attack sent no request to the API server.
	Repeat string

	// InFull is set if the finding depends on requests that only the tenant of a shape sends that tries all attacks: by
	// a change of an object that it may create, or with marks that exempt an object from a policy.
	InFull bool
	// Further are the rights of the identity that got through which the tenant's account lacks; nil if this
	// identity is the account or an owner.
	Further []discovery.Right
	// Sent are the requests of the attack to the API server, until its end.
	Sent []sentRequest
}

// denied returns a rule of [Fix.Denied].
func denied(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// writing are the verbs that write.
var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

func stopped(control, message string) Finding {
	return Finding{Outcome: Stopped, Control: control, Message: message}
}

func gotThrough(evidence string) Finding { return Finding{Outcome: GotThrough, Evidence: evidence} }

// and adds the control of a further part of an attack that was stopped, unless the part could
// not be tried.
func (f Finding) and(other Finding) Finding {
	if other.Control != notInstalled && !slices.Contains(strings.Split(f.Control, ", "), other.Control) {
		f.Control += ", " + other.Control
	}
	return f
}

func notProven(reason string) Finding { return Finding{Outcome: NotProven, Reason: reason} }
