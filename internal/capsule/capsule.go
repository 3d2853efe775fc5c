// Package capsule translates the objects of Capsule (capsule.clastix.io) into
// those of Tenure. It is pure: it reads no cluster and writes nothing.
//
// No field is silently accepted. A field is honoured, honoured in another way,
// reported, or refused; [Fields] is the list, and docs/reference/capsule.md is
// made of it. A field that holds tenants back and that Tenure cannot enforce
// refuses the whole Tenant, until the platform admin accepts by name, with the
// annotation [AcceptAnnotation], that something else enforces it. The
// translation never grants more than Capsule's Tenant does.
package capsule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// AcceptAnnotation of a Tenant or CapsuleConfiguration of Capsule lists fields,
// with commas between them, that are accepted although Tenure does not enforce
// them. A field stands for all that is below it.
const AcceptAnnotation = "tenure.dev/accept-unenforced"

// Names of cluster roles.
const (
	// RoleDeleter lets owners delete their namespaces.
	RoleDeleter = "capsule-namespace-deleter"
	// RoleProvisioner lets Capsule's users make namespaces.
	RoleProvisioner = "capsule-namespace-provisioner"
	// roleAdmin is Kubernetes' own.
	roleAdmin = "admin"
	// roleClusterAdmin is never given to tenants; roleTenant is in its place.
	roleClusterAdmin = "cluster-admin"
	roleTenant       = "tenure-tenant"
)

// Input is what a translation depends on.
type Input struct {
	// Tenant is Capsule's.
	Tenant *v1beta2.Tenant
	// Configuration is the CapsuleConfiguration called default; nil if there is
	// none.
	Configuration *v1beta2.CapsuleConfiguration
	// Protected are the names that the TenancyProfile protects.
	Protected []v1alpha1.ValuePattern
}

// Note says what became of a field that is not simply honoured.
type Note struct {
	// Field is its path, such as spec.owners[0].name. Those of the
	// CapsuleConfiguration have its kind in front.
	Field string
	// State is Different, Reported, Unenforced or Refused.
	State State
	// Message says how, or why not, in one sentence.
	Message string
}

func (n Note) String() string { return n.Field + ": " + n.Message }

// Result is a translation.
type Result struct {
	// Spec is Tenure's. It must not be used when there are [Result.Refusals].
	Spec v1alpha1.TenantSpec
	// Notes are about fields that are not simply honoured, in the order of the
	// fields in the Tenant.
	Notes []Note
}

// Role is the cluster role that is given in the place of one that a Tenant of
// Capsule names.
func Role(name string) string {
	if name == roleClusterAdmin {
		return roleTenant
	}
	return name
}

// Refusals are the notes for which the Tenant is refused. Then the one that was
// translated last stays in force.
func (r Result) Refusals() []Note { return pick(r.Notes, Unenforced, Refused) }

// Unhonoured are the notes about fields without effect.
func (r Result) Unhonoured() []Note { return pick(r.Notes, Reported) }

func pick(notes []Note, states ...State) []Note {
	return slices.DeleteFunc(slices.Clone(notes), func(n Note) bool { return !slices.Contains(states, n.State) })
}

// Translate translates a Tenant.
func Translate(in Input) Result {
	t := translation{tenant: in.Tenant}
	t.name()
	t.owners()
	t.permissions()
	t.bindings()
	t.namespaces(in.Configuration)
	t.forbidden()
	t.required()
	t.quotas()
	t.annotations()
	t.switches()
	t.workloads()
	t.accept(in.Tenant.Annotations, "")
	t.notes = append(t.notes, Check(in.Configuration, in.Protected)...)
	return Result{Spec: t.spec, Notes: t.notes}
}

type translation struct {
	tenant *v1beta2.Tenant
	spec   v1alpha1.TenantSpec
	notes  []Note
}

func (t *translation) note(state State, field, format string, args ...any) {
	t.notes = append(t.notes, Note{Field: field, State: state, Message: fmt.Sprintf(format, args...)})
}

// accept turns what is not enforced and was accepted into what is reported.
func (t *translation) accept(annotations map[string]string, kind string) {
	fields := list(annotations[AcceptAnnotation])
	for i, n := range t.notes {
		if n.State != Unenforced {
			continue
		}
		path := strings.TrimPrefix(n.Field, kind)
		if slices.ContainsFunc(fields, func(f string) bool { return below(path, f) }) {
			t.notes[i].State = Reported
			t.notes[i].Message += "; accepted"
			continue
		}
		t.notes[i].Message += "; if something else sees to it, accept it with the annotation " + AcceptAnnotation + ": " + path
	}
}

// below says whether a path is a field or lies below it.
func below(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// list is what stands between commas, without spaces around it.
func list(text string) []string {
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// name checks that there can be a Tenant of ours of the name.
func (t *translation) name() {
	if problems := validation.IsDNS1123Label(t.tenant.Name); len(problems) > 0 {
		t.note(Refused, "metadata.name", "a Tenant of Tenure cannot have this name: %s", problems[0])
	}
}

// switches are the fields that are on or off.
func (t *translation) switches() {
	t.spec.Cordoned = t.spec.Cordoned || t.tenant.Spec.Cordoned
	t.spec.Protected = t.spec.Protected || t.tenant.Spec.PreventDeletion
}

// quotas are quotas, limit ranges and network policies.
func (t *translation) quotas() {
	if q := t.tenant.Spec.ResourceQuotas; q != nil {
		if len(q.Items) > maxQuotas {
			t.note(Refused, "spec.resourceQuotas.items", "there are %d, and at most %d can be kept", len(q.Items), maxQuotas)
		}
		for i, item := range q.Items {
			if len(item.Hard) == 0 {
				t.note(Reported, fmt.Sprintf("spec.resourceQuotas.items[%d]", i), "without hard it bounds nothing")
				continue
			}
			t.spec.Quotas = append(t.spec.Quotas, v1alpha1.NewTenantQuota(fmt.Sprintf("capsule-%d", i), cmp.Or(q.Scope, "Tenant"), item))
		}
	}
	if l := t.tenant.Spec.LimitRanges; l != nil {
		if len(l.Items) > maxLimitRanges {
			t.note(Refused, "spec.limitRanges.items", "there are %d, and at most %d can be kept", len(l.Items), maxLimitRanges)
		}
		for _, item := range l.Items {
			t.spec.LimitRanges = append(t.spec.LimitRanges, v1alpha1.NewLimitRange(item))
		}
	}
	if n := t.tenant.Spec.NetworkPolicies; n != nil {
		if len(n.Items) > maxNetworkPolicies {
			t.note(Refused, "spec.networkPolicies.items", "there are %d, and at most %d can be kept", len(n.Items), maxNetworkPolicies)
		}
		for _, item := range n.Items {
			t.spec.NetworkPolicies = append(t.spec.NetworkPolicies, *item.DeepCopy())
		}
	}
}

// The bounds of lists in a Tenant of ours: see its CRD.
const (
	maxOwners          = 10000
	maxRoles           = 8
	maxBindings        = 64
	maxSubjects        = 1000
	maxQuotas          = 16
	maxLimitRanges     = 16
	maxNetworkPolicies = 32
	maxMetadata        = 64
	maxPatterns        = 32
	maxBindingMetadata = 32
	maxNamespaces      = 100000
	maxName            = 253
)
