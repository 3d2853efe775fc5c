// Package capsule translates the objects of Capsule (capsule.clastix.io) into objects of Tenure. Its
// functions are pure: they neither read a cluster nor write to it.
//
// Each field of Capsule has a [State]; [Fields] lists them, and docs/reference/capsule.md is generated from
// the list. If a Tenant restricts its owners with a field that Tenure cannot enforce, the translation
// refuses the whole Tenant. The platform admin can accept such a field by name with the annotation
// [AcceptAnnotation]. The translation never grants more than Capsule's Tenant does.
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

// AcceptAnnotation is the annotation of a Capsule Tenant or CapsuleConfiguration that lists accepted
// fields, separated by commas. Tenure does not enforce these fields. An entry covers the field and all
// fields below it.
const AcceptAnnotation = "tenure.dev/accept-unenforced"

// Names of cluster roles.
const (
	// RoleDeleter lets owners delete their namespaces.
	RoleDeleter = "capsule-namespace-deleter"
	// RoleProvisioner lets Capsule's users create namespaces.
	RoleProvisioner = "capsule-namespace-provisioner"
	// roleAdmin is a default ClusterRole of Kubernetes.
	roleAdmin = "admin"
	// roleClusterAdmin is never granted to tenants; [Role] replaces it with roleTenant.
	roleClusterAdmin = "cluster-admin"
	roleTenant       = "tenure-tenant"
)

// Input is the input of [Translate].
type Input struct {
	// Tenant is the Capsule Tenant.
	Tenant *v1beta2.Tenant
	// Unknown are the paths of the fields that the Tenant has and its type has not, such as spec.owner. They may
	// restrict the tenant.
	Unknown []string
	// Configuration is the CapsuleConfiguration named default; nil if there is none.
	Configuration *v1beta2.CapsuleConfiguration
	// Owners are the TenantOwners of the cluster.
	Owners []v1beta2.TenantOwner
	// Promoted are the service accounts of the tenant's namespaces with [LabelPromote].
	Promoted []Account
	// Entitled are the service accounts of the tenant's namespaces with [LabelEntitle].
	Entitled []Account
	// Hosts are the hosts that the TenancyProfile allows to Tenants without hosts of their own; nil if it names none.
	Hosts *v1alpha1.AllowedNames
}

// Note describes a field that Tenure does not honour exactly.
type Note struct {
	// Field is the path of the field, such as spec.owners[0].name. For fields of the
	// CapsuleConfiguration, the kind precedes the path.
	Field string
	// State is Different, Reported, Unenforced or Refused.
	State State
	// Message explains the state in one sentence.
	Message string
}

func (n Note) String() string { return n.Field + ": " + n.Message }

// Result is the result of a translation.
type Result struct {
	// Spec is the spec of the Tenant of Tenure. It must not be used when there are
	// [Result.Refusals].
	Spec v1alpha1.TenantSpec
	// Notes describe the fields that Tenure does not honour exactly, in the order of the fields in
	// the Tenant.
	Notes []Note
	// Administrators are the owners in Spec that are only administrators of the CapsuleConfiguration.
	// Capsule does not count them as owners.
	Administrators []v1alpha1.Owner
}

// Role returns the ClusterRole that Tenure grants for a ClusterRole of a Capsule Tenant: tenure-tenant for
// cluster-admin, and otherwise the same ClusterRole.
func Role(name string) string {
	if name == roleClusterAdmin {
		return roleTenant
	}
	return name
}

// Refusals returns the notes that refuse the Tenant. If there are any, the last accepted spec
// stays in force.
func (r Result) Refusals() []Note { return pick(r.Notes, Unenforced, Refused) }

// IgnoredFields returns the notes about fields without effect.
func (r Result) IgnoredFields() []Note { return pick(r.Notes, Reported) }

func pick(notes []Note, states ...State) []Note {
	return slices.DeleteFunc(slices.Clone(notes), func(n Note) bool { return !slices.Contains(states, n.State) })
}

// Translate translates a Capsule Tenant.
func Translate(in Input) Result {
	t := translation{tenant: in.Tenant}
	t.name()
	for _, field := range in.Unknown {
		t.unenforced(field, "Tenure does not know the field")
	}
	t.owners()
	t.permissions(in.Owners)
	t.promotions(in.Configuration, in.Promoted)
	t.administrators(in.Configuration)
	t.bindings()
	t.namespaces(in.Configuration)
	t.forbidden()
	t.required()
	t.quotas()
	t.annotations()
	t.switches()
	t.workloads(in.Hosts)
	t.entitlements(in.Configuration, in.Entitled)
	t.accept(in.Tenant.Annotations, "")
	t.notes = append(t.notes, Check(in.Configuration)...)
	return Result{Spec: t.spec, Notes: t.notes, Administrators: t.onlyAdministrators}
}

type translation struct {
	tenant *v1beta2.Tenant
	spec   v1alpha1.TenantSpec
	notes  []Note
	// onlyAdministrators is [Result.Administrators].
	onlyAdministrators []v1alpha1.Owner
}

func (t *translation) note(state State, field, format string, args ...any) {
	t.notes = append(t.notes, Note{Field: field, State: state, Message: fmt.Sprintf(format, args...)})
}

// accept changes the state of accepted fields from Unenforced to Reported. It appends instructions for
// accepting a field to the messages of the other unenforced fields.
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

// below reports whether path is field or a field below it.
func below(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// list splits a text at its commas and trims the spaces of the items.
func list(text string) []string {
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}

// name checks that the name of the Tenant is valid for a Tenant of Tenure.
func (t *translation) name() {
	if problems := validation.IsDNS1123Label(t.tenant.Name); len(problems) > 0 {
		t.note(Refused, "metadata.name", "a Tenant of Tenure cannot have this name: %s", problems[0])
	}
}

// switches translates the boolean fields.
func (t *translation) switches() {
	t.spec.Cordoned = t.spec.Cordoned || t.tenant.Spec.Cordoned
	t.spec.Protected = t.spec.Protected || t.tenant.Spec.PreventDeletion
	if t.spec.Cordoned {
		t.spec.Namespaces.Labels[v1alpha1.LabelCapsuleCordoned] = "true"
	}
	if t.tenant.Spec.Data != nil {
		t.note(Reported, "spec.data", "templates are not run")
	}
}

// quotas translates quotas, limit ranges and network policies.
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

// quotaOfRule is the prefix of the names of the quotas in spec.rules.
const quotaOfRule = "capsule-rule-"

// Maximum lengths in the CRD of Tenure's Tenant.
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
	maxSelected        = 32
	maxNodeLabels      = 16
	maxBindingMetadata = 32
	maxNamespaces      = 100000
	maxName            = 253
)
