// Package webhook decides about the namespaces that tenants' owners create: the tenant of a namespace,
// whether the tenant may have another namespace with this name, and the labels that the namespace gets. It
// makes only the decisions that the policies in internal/admission cannot make, because they need a search,
// a count or the Tenant. The API server evaluates these policies after the webhook, and also while the
// webhook is down.
package webhook

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/admission/webhook/reservations"
	"github.com/tenure-dev/tenure/internal/tenancy"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxListed is the maximum number of names in a message.
	maxListed = 10
)

// Refusal is the decision to deny a namespace. Its text tells the owner what is allowed.
type Refusal struct{ message string }

// Error implements error.
func (r *Refusal) Error() string { return r.message }

func refuse(format string, args ...any) *Refusal { return &Refusal{fmt.Sprintf(format, args...)} }

// Situation is the input of a decision.
type Situation struct {
	// Tenant is the tenant that gets the namespace.
	Tenant *v1alpha1.Tenant
	// Profile is the TenancyProfile of the cluster.
	Profile *v1alpha1.TenancyProfile
	// Owner are the owner keys of the user: see [OwnerKeys].
	Owner []string
	// Another is set if the name of the namespace equals another tenant's name, or begins with it and a
	// hyphen.
	Another bool
	// Existing are the namespaces with the tenant's label.
	Existing []string
	// Reserved are the stored reservations of the tenant.
	Reserved reservations.Reservations
	// Request is the UID of the admission request.
	Request types.UID
	// Now is the time of the decision.
	Now time.Time
}

// Decision is the result of an admitted request for a namespace.
type Decision struct {
	// Namespace is the namespace with all changes of the webhook.
	Namespace *corev1.Namespace
	// Reserved are the new reservations, which must be written before the request is allowed.
	Reserved reservations.Reservations
}

// Decide decides whether an owner may create a namespace, and returns the namespace with the labels that it
// gets. It does not change its arguments. An error is always a [*Refusal].
func Decide(s Situation, wanted *corev1.Namespace) (*Decision, error) {
	for _, step := range []func(Situation, *corev1.Namespace) *Refusal{mayAsk, mayBeNamed, mayBelong, mayHave} {
		if r := step(s, wanted); r != nil {
			r.message = fmt.Sprintf("tenant %s: %s", s.Tenant.Name, r.message)
			return nil, r
		}
	}
	born := bornWith(s.Tenant, wanted)
	if r := lacks(s, born); r != nil {
		r.message = fmt.Sprintf("tenant %s: %s", s.Tenant.Name, r.message)
		return nil, r
	}
	if r := invalid(born); r != nil {
		r.message = fmt.Sprintf("tenant %s: %s", s.Tenant.Name, r.message)
		return nil, r
	}
	if r := full(s, wanted.Name); r != nil {
		r.message = fmt.Sprintf("tenant %s: %s", s.Tenant.Name, r.message)
		return nil, r
	}
	metav1.SetMetaDataAnnotation(&born.ObjectMeta, reservations.Mark, string(s.Request))
	admitted := s.Reserved.ForTenant(s.Tenant).Admit(reservations.Admission{Name: wanted.Name, Request: s.Request, At: s.Now.UTC()})
	return &Decision{Namespace: born, Reserved: admitted}, nil
}

// mayAsk checks that the user is an owner of the tenant, and that the tenant may get namespaces.
func mayAsk(s Situation, _ *corev1.Namespace) *Refusal {
	switch {
	case !owns(s.Owner, s.Tenant):
		return refuse("you are not one of its owners: ask the platform team to make you one, or put the name of a tenant of yours into the label %s", v1alpha1.LabelTenant)
	case !s.Tenant.DeletionTimestamp.IsZero():
		return refuse("it is being deleted, and gets no more namespaces")
	case s.Tenant.Spec.Cordoned:
		return refuse("it is cordoned, and gets no more namespaces until the platform team has ended that")
	}
	return nil
}

// mayBeNamed checks the name of the namespace.
func mayBeNamed(s Situation, ns *corev1.Namespace) *Refusal {
	prefix, prefixed := s.Tenant.Name+"-", s.Tenant.Spec.Namespaces.Prefixed()
	switch {
	case ns.Name == "":
		return refuse("a namespace needs metadata.name, since its name is reserved: leave out metadata.generateName")
	case admission.ReservedNamespace(ns.Name), slices.Contains(s.Profile.Spec.PlatformNamespaces, ns.Name):
		return refuse("namespace %s must not have this name, which is the platform's: choose another one", ns.Name)
	case slices.Contains(s.Tenant.Spec.Namespaces.Create, ns.Name):
		// In a namespace that an owner creates, the rule tenure-takeover refuses the platform's objects.
		return refuse("namespace %s must not have this name, since the manager creates it, as the Tenant says in spec.namespaces.create: wait for it, or choose another name", ns.Name)
	case prefixed && !strings.HasPrefix(ns.Name, prefix):
		return refuse("namespace %s must have a name that begins with %s", ns.Name, prefix)
	case admission.DomainName(ns.Name) && (s.Profile.Spec.DomainNames != v1alpha1.DomainNamesAllowed || strings.Contains(ns.Name, "-")):
		return refuse("namespace %s must not have this name, which programs in Pods take for the end of an internet address: choose one with a hyphen, such as %s%s", ns.Name, prefix, ns.Name)
	case s.Another:
		return refuse("namespace %s must not have this name, which begins with the name of another tenant: choose another one", ns.Name)
	}
	if expression := s.Tenant.Spec.Namespaces.ForbiddenNameExpression; expression != "" {
		forbidden, err := regexp.Compile(expression)
		if err != nil {
			return refuse("namespace %s cannot be made, since the expression for forbidden names is invalid: ask the platform team (%v)", ns.Name, err)
		}
		if forbidden.MatchString(ns.Name) {
			return refuse("namespace %s must not have this name: those that match %s are forbidden", ns.Name, expression)
		}
	}
	for _, pattern := range s.Profile.Spec.ProtectedNamespaces {
		if matches(pattern, ns.Name) {
			return refuse("namespace %s must not have this name, which the platform keeps (%s): choose another one", ns.Name, pattern)
		}
	}
	return nil
}

// mayBelong checks that the labels name no other tenant, and that the namespace has no owner references and
// no finalizers.
func mayBelong(s Situation, ns *corev1.Namespace) *Refusal {
	for _, label := range tenantLabels {
		if tenant, ok := ns.Labels[label]; ok && tenant != s.Tenant.Name {
			return refuse("namespace %s must not name another tenant, %s, in the label %s", ns.Name, tenant, label)
		}
	}
	if len(ns.OwnerReferences)+len(ns.Finalizers) > 0 || slices.ContainsFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f != corev1.FinalizerKubernetes }) {
		return refuse("namespace %s must not have owners or finalizers: leave out metadata.ownerReferences, metadata.finalizers and spec.finalizers", ns.Name)
	}
	return nil
}

// mayHave checks the labels and annotations that the owner chooses.
func mayHave(s Situation, ns *corev1.Namespace) *Refusal {
	for _, rules := range metadataRules(s, ns) {
		for _, key := range slices.Sorted(maps.Keys(rules.entries)) {
			value := rules.entries[key]
			if own, ok := rules.own[key]; ok {
				if own != value {
					return refuse("namespace %s must not have the %s %s with the value %q: leave it out, or give it the tenant's value, %q", ns.Name, rules.kind, key, value, own)
				}
				continue
			}
			if ofTenure(key) || rules.kind == "annotation" && key == admission.AdmissionMark {
				continue
			}
			if r := rules.choose(key); r != nil {
				return r
			}
		}
	}
	return nil
}

// ofTenure reports whether other code checks the value of a label: the labels with the namespace's tenant,
// its creator and its name.
func ofTenure(key string) bool {
	return slices.Contains(tenantLabels, key) || key == v1alpha1.LabelMadeBy || key == corev1.LabelMetadataName
}

// texts returns the patterns as a list for messages.
func texts(patterns []v1alpha1.ValuePattern) string {
	if len(patterns) == 0 {
		return "none"
	}
	var all []string
	for _, p := range patterns {
		all = append(all, string(p))
	}
	return strings.Join(all, ", ")
}

// tenantLabels are the labels with the tenant of a namespace.
var tenantLabels = []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant}

// bornWith returns the namespace with the labels and annotations of the tenant's namespaces.
// Of the protected keys it adds only Pod Security levels of baseline or restricted. The manager
// adds the other protected keys later: if requests of owners contained them, the policies could
// not distinguish them from values that the owners chose.
func bornWith(t *v1alpha1.Tenant, wanted *corev1.Namespace) *corev1.Namespace {
	born := wanted.DeepCopy()
	labels, annotations := tenancy.NamespaceMetadata(t, wanted.Name, wanted.Labels)
	level := labels[admission.PodSecurityLabel]
	holdsBack := level == "baseline" || level == "restricted"
	maps.DeleteFunc(labels, func(key, value string) bool {
		if key == admission.PodSecurityLabel || key == admission.PodSecurityLabel+"-version" && value == "latest" {
			return !holdsBack
		}
		return admission.ProtectedKey(key)
	})
	maps.DeleteFunc(annotations, func(key, _ string) bool { return admission.ProtectedKey(key) })
	labels[v1alpha1.LabelTenant], labels[v1alpha1.LabelMadeBy] = t.Name, v1alpha1.MadeByOwner
	if born.Labels == nil {
		born.Labels = map[string]string{}
	}
	maps.Copy(born.Labels, labels)
	if born.Annotations == nil && len(annotations) > 0 {
		born.Annotations = map[string]string{}
	}
	maps.Copy(born.Annotations, annotations)
	return born
}

// lacks returns the refusal of a namespace without a required label or annotation, or nil.
func lacks(s Situation, born *corev1.Namespace) *Refusal {
	for _, rules := range metadataRules(s, born) {
		keys := slices.Sorted(maps.Keys(rules.required))
		keys = slices.AppendSeq(keys, maps.Keys(rules.expressions))
		slices.Sort(keys)
		for _, key := range keys {
			if r := rules.demand(key); r != nil {
				return r
			}
		}
	}
	return nil
}

// found reports whether an expression matches a part of a text. It returns otherwise if the expression is
// invalid, which the schema of Tenants prevents.
func found(expression v1alpha1.Expression, text string, otherwise bool) bool {
	re, err := regexp.Compile(string(expression))
	if err != nil {
		return otherwise
	}
	return re.MatchString(text)
}

// invalid returns a refusal with the errors of Kubernetes' validation of the name, labels and annotations,
// or nil. The API server validates them after the webhook: by then the name would be reserved, and would
// block the deletion of the tenant.
func invalid(born *corev1.Namespace) *Refusal {
	errs := validation.ValidateObjectMeta(&born.ObjectMeta, false, validation.ValidateNamespaceName, field.NewPath("metadata"))
	if len(errs) == 0 {
		return nil
	}
	return refuse("namespace %q is invalid: %v", born.Name, errs.ToAggregate())
}

// full returns a refusal if the tenant would have more namespaces than its quota allows, or nil.
func full(s Situation, name string) *Refusal {
	counted := s.Reserved.Counted(s.Existing)
	more := 0
	if !counted[name] {
		more = 1
	}
	if quota := s.Tenant.Spec.Namespaces.Limit(); len(counted)+more > quota {
		return refuse("has %d of %d namespaces%s; delete one or ask the platform team", len(counted), quota, listed(counted))
	}
	return nil
}

// listed returns names in parentheses, or "" if there are none.
func listed(names map[string]bool) string {
	sorted := slices.Sorted(maps.Keys(names))
	switch {
	case len(sorted) == 0:
		return ""
	case len(sorted) > maxListed:
		return fmt.Sprintf(" (%s and %d more)", strings.Join(sorted[:maxListed], ", "), len(sorted)-maxListed)
	}
	return " (" + strings.Join(sorted, ", ") + ")"
}

// matches reports whether a pattern, in which * matches any characters, matches a whole text. Case matters.
func matches(pattern v1alpha1.ValuePattern, text string) bool {
	expression := strings.ReplaceAll(regexp.QuoteMeta(string(pattern)), `\*`, `.*`)
	return regexp.MustCompile(`^(?s:` + expression + `)$`).MatchString(text)
}
