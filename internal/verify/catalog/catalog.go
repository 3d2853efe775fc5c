// Package catalog is a catalogue of ways in which a tenant of a cluster with Flux
// may try to reach objects of others, and runs them on a local cluster. Each
// attack is a file that registers itself. It lists the controls that would stop
// it, and has one of four outcomes:
//
//   - stopped: a control denied it, and the same steps work on the tenant's own
//     objects;
//   - got through: it changed a canary that only a successful attack can reach;
//   - not proven: it could not run here; the finding has the reason;
//   - not installed: its target does not exist, so that it was not tried and
//     proves nothing.
//
// An attack leaves the cluster unchanged: it sends dry runs where the API server's
// answer is enough, and removes all objects that it creates.
package catalog

import (
	"context"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Outcome is how an attack ended.
type Outcome string

// The outcomes, worst first.
const (
	GotThrough   Outcome = "got through"
	NotProven    Outcome = "not proven"
	Stopped      Outcome = "stopped"
	NotInstalled Outcome = "not installed"
)

// Via is the way that an attack takes.
type Via string

// The ways.
const (
	API   Via = "api"   // requests with the tenant's own identity
	Git   Via = "git"   // a commit to the tenant's repository
	Proxy Via = "proxy" // requests to the fleet's proxy with the tenant's token
)

// Attack is an entry of the catalogue.
type Attack struct {
	// ID is the name of its row, such as I4; a letter for the group and a
	// number.
	ID string
	// Via is the way that it takes; an ID may have an attack for each.
	Via Via
	// Kind tells attacks of one ID and way apart that are tried with objects of
	// different kinds, such as HelmRelease; empty for the usual one.
	Kind string
	// Kinds are the kinds that it tries, with a subresource after a slash, such as
	// Namespace/status; [Catalogue] sorts them. A star stands for any kind: the attack is about all of
	// them and tries one. An attack that sends no request for an object, but bytes to the proxy,
	// has an empty list, which is not nil.
	Kinds []string
	// Title describes the attack, in the present tense.
	Title string
	// Controls are the controls that should stop the attack.
	Controls []string
	// References are published sources: advisories, documents, RFCs.
	References []string
	// Fix tells a platform admin how to stop the attack.
	Fix Fix
	// Layers are controls that each stop the attack alone, if there are several: a
	// missing layer is reported although another layer stops the attack.
	Layers []Layer
	// Deep is set for an attack that waits for the answer of Flux, the manager or the
	// proxy. Of several tenants with the same shape, only the first is attacked with it.
	Deep bool
	// Slow is set for an attack that sends so many requests to the API server that it
	// takes half a second or more. Ablation tries it with its own rows only.
	Slow bool
	// Owners says whether the owners of a Tenant try it as well.
	Owners Owners
	// Files returns the files that the attack needs in the tenant's repository, by path
	// below the attack's folder; see [Scenario.folder].
	Files func(*Scenario) map[string]string
	// Source is set for an attack whose objects need the tenant's repository as their source, and
	// no file in it.
	Source bool
	// Run tries it.
	Run func(context.Context, *Scenario) Finding
}

// Key names the attack among all others: its ID, its way and its kind, such as
// S1-api or S1-api-HelmRelease.
func (a Attack) Key() string {
	if a.Kind == "" {
		return a.ID + "-" + string(a.Via)
	}
	return a.ID + "-" + string(a.Via) + "-" + a.Kind
}

// Fix tells a platform admin how to stop an attack that got through.
type Fix struct {
	// Advice says it in words, always.
	Advice string
	// Flags are what Flux has to be started with, if that is enough.
	Flags []Flag
	// Rights is set if a narrower role for the tenant's account is enough.
	Rights bool
	// Denied are the rules that the tenant's role must not have any part of.
	// Where it is known which they are, Rights is set as well.
	Denied []rbacv1.PolicyRule
	// Labels are the labels that the tenant's namespaces need, if labels are enough.
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
	// Control is what stopped it.
	Control string
	// Message is the error that the tenant got, unchanged; for an attack on a part that
	// is not installed, the name of the missing part.
	Message string
	// Evidence names the object that the attack created, changed or read.
	Evidence string
	// Reason says why nothing is proven.
	Reason string
	// Fix tells a platform admin how to stop the attack in this fleet; empty if the advice of
	// the attack says it.
	Fix string
	// Missing are the layers that did not hold, of an attack that was stopped
	// by another.
	Missing []string
	// Repeat are the commands of a shell by which people can repeat it, of an attack that
	// was stopped or got through; empty if it was no request to the API server.
	Repeat string

	// ByChange is set for an attack that got through by the change of an object that the
	// tenant may create.
	ByChange bool
	// Further are the rights of the identity that got through, if it is neither the tenant's account nor an
	// owner: those that the account lacks.
	Further []discovery.Right
}

// denied is shorthand for a rule of [Fix.Denied].
func denied(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// writing are the verbs that change something.
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
