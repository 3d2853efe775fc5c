// Package grants says which copies of sources there are to be: a pure function
// from the SourceGrants of a namespace, its sources and the cluster's namespaces
// to ExternalArtifacts, and to what each grant has to say about itself.
package grants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// maxName bounds the name of an object, in bytes (RFC 1123 subdomain).
const maxName = 253

// maxListed bounds how many consumers a grant's status lists.
const maxListed = 1000

// Source is a source of the namespace that grants.
type Source struct {
	// Kind and Name say which.
	Kind, Name string
	// Artifact is what consumers need of its status.artifact; nil when the
	// source has none yet. See [Artifact].
	Artifact map[string]any
}

// Namespace is a namespace that may be selected.
type Namespace struct {
	Name string
	// Labels are all labels of the namespace, and Trusted the ones that selectors use:
	// see [tenancy.TrustedLabels].
	Labels, Trusted map[string]string
}

// Copy is an ExternalArtifact that is to be there.
type Copy struct {
	// Namespace is the consumer's, Name is [Name] of the source.
	Namespace, Name string
	// Source is what it follows. Without an artifact a copy is not made, and one
	// that is there stays as it is: consumers keep the last good revision.
	Source Source
}

// Result is what a grant has to say about itself.
type Result struct {
	// Consumers are the namespaces that may use its sources, by name.
	Consumers []string
	// Reason is that of the condition Ready, [ReasonGranted] if all is well.
	Reason string
	// Message says it for people.
	Message string
}

// The reasons of the condition Ready of a SourceGrant.
const (
	ReasonGranted  = "Granted"
	ReasonExpired  = "Expired"
	ReasonInvalid  = "Invalid"
	ReasonNoSource = "SourceNotReady"
	ReasonConflict = "NameTaken"
)

// Planned is the outcome of [Plan].
type Planned struct {
	// Copies are to be there, and no others, by namespace and name.
	Copies []Copy
	// Results are those of the grants, by name.
	Results map[string]Result
	// Next is when the next grant expires; zero if none does.
	Next time.Time
}

// State is what [Plan] is told.
type State struct {
	// Owner is the namespace of the grants and the sources.
	Owner   string
	Grants  []v1alpha1.SourceGrant
	Sources []Source
	// Namespaces are those of the cluster, without those that are going.
	Namespaces []Namespace
	// Taken are ExternalArtifacts that are not ours, as NAMESPACE/NAME: they
	// are left alone.
	Taken map[string]bool
	Now   time.Time
}

// Name is the name of the copies of a source: consumers read in it whose it is.
func Name(owner, source string) string { return owner + "." + source }

// Artifact returns what a consumer needs of a source's status.artifact, and
// nothing else: not the metadata, in which owners publish what they like.
func Artifact(status map[string]any) map[string]any {
	reduced := map[string]any{}
	for _, field := range []string{"digest", "lastUpdateTime", "path", "revision", "size", "url"} {
		if value, ok := status[field]; ok {
			reduced[field] = value
		}
	}
	for _, needed := range []string{"digest", "revision", "url"} {
		if text, _ := reduced[needed].(string); text == "" {
			return nil
		}
	}
	return reduced
}

// Plan says what is to be there. Grants add up: a copy is there for as long as
// any grant gives it. Where two sources of different kinds would have copies of
// one name, the first kind of the alphabet has it.
func Plan(s State) Planned {
	planned := Planned{Results: map[string]Result{}}
	sources := map[string]Source{}
	for _, source := range s.Sources {
		sources[source.Kind+"/"+source.Name] = source
	}
	copies := map[string]Copy{}
	chosen := kinds(s)
	for _, grant := range s.Grants {
		expires := grant.Spec.Expires
		if expires != nil && !expires.After(s.Now) {
			planned.Results[grant.Name] = Result{Reason: ReasonExpired, Message: "expired at " + expires.UTC().Format(time.RFC3339)}
			continue
		}
		if expires != nil && (planned.Next.IsZero() || expires.Time.Before(planned.Next)) {
			planned.Next = expires.Time
		}
		consumers, unnamed, err := s.consumers(grant)
		if err != nil {
			planned.Results[grant.Name] = Result{Reason: ReasonInvalid, Message: err.Error()}
			continue
		}
		result := Result{Consumers: consumers, Reason: ReasonGranted, Message: fmt.Sprintf("%d sources for %d namespaces", len(grant.Spec.To), len(consumers))}
		problems := unnamed
		for _, to := range grant.Spec.To {
			problems.add(s.grant(to, sources, chosen, consumers, copies))
		}
		if len(problems) > 0 {
			result.Reason, result.Message = problems[0].reason, problems.String()
		}
		planned.Results[grant.Name] = result
	}
	for _, key := range slices.Sorted(maps.Keys(copies)) {
		planned.Copies = append(planned.Copies, copies[key])
	}
	return planned
}

// grant adds the copies of one source.
func (s State) grant(to v1alpha1.GrantedSource, sources map[string]Source, chosen map[string]string, consumers []string, copies map[string]Copy) *problem {
	name := Name(s.Owner, to.Name)
	if len(name) > maxName {
		return &problem{ReasonInvalid, fmt.Sprintf("the copies of %s %s would have a name of more than %d characters: give the source a shorter one", to.Kind, to.Name, maxName)}
	}
	source, found := sources[to.Kind+"/"+to.Name]
	switch {
	case !found:
		return &problem{ReasonNoSource, fmt.Sprintf("there is no %s %s", to.Kind, to.Name)}
	case chosen[to.Name] != to.Kind:
		return &problem{ReasonConflict, fmt.Sprintf("%s %s has the name of %s %s, which is granted too: rename one of them", to.Kind, to.Name, chosen[to.Name], to.Name)}
	}
	var taken []string
	for _, consumer := range consumers {
		key := consumer + "/" + name
		if s.Taken[key] {
			taken = append(taken, consumer)
			continue
		}
		copies[key] = Copy{Namespace: consumer, Name: name, Source: source}
	}
	if len(taken) > 0 {
		return &problem{ReasonConflict, fmt.Sprintf("somebody else's ExternalArtifact %s is in namespace %s: delete it there", name, listSome(taken))}
	}
	if source.Artifact == nil {
		return &problem{ReasonNoSource, fmt.Sprintf("%s %s has nothing to offer: see why it is not ready", to.Kind, to.Name)}
	}
	return nil
}

// kinds says for each name which kind of source has it. Only what exists counts:
// a grant of what is not there must not take a name away.
func kinds(s State) map[string]string {
	there := map[string]bool{}
	for _, source := range s.Sources {
		there[source.Kind+"/"+source.Name] = true
	}
	chosen := map[string]string{}
	for _, grant := range s.Grants {
		if grant.Spec.Expires != nil && !grant.Spec.Expires.After(s.Now) {
			continue
		}
		for _, to := range grant.Spec.To {
			if have, ok := chosen[to.Name]; there[to.Kind+"/"+to.Name] && (!ok || to.Kind < have) {
				chosen[to.Name] = to.Kind
			}
		}
	}
	return chosen
}

// consumers returns the names of the namespaces that a grant selects. It leaves out the
// grant's own namespace, which has the source itself. If the grant names a tenant's
// namespace without the tenant, consumers leaves it out and returns a problem: an owner
// may have chosen its name.
func (s State) consumers(grant v1alpha1.SourceGrant) ([]string, problems, error) {
	selected := map[string]bool{}
	var unnamed problems
	for i, from := range grant.Spec.From {
		selector := labels.Nothing()
		if from.NamespaceSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(from.NamespaceSelector); err != nil {
				return nil, nil, fmt.Errorf("spec.from[%d].namespaceSelector: %w", i, err)
			}
		}
		for _, ns := range s.Namespaces {
			tenant, ok := tenancy.TenantOf(ns.Labels)
			named := from.Namespace == ns.Name
			switch {
			case from.Tenant != "":
				selected[ns.Name] = selected[ns.Name] || ok && tenant == from.Tenant && (named || from.Namespace == "")
			case named && ok && ns.Name != s.Owner:
				unnamed = append(unnamed, problem{ReasonInvalid, fmt.Sprintf("spec.from[%d] names namespace %s, which is tenant %s's, without the tenant: add tenant: %s if it is meant, since owners choose the names of their namespaces", i, ns.Name, tenant, tenant)})
			default:
				selected[ns.Name] = selected[ns.Name] || named || ok && selector.Matches(labels.Set(ns.Trusted))
			}
		}
	}
	delete(selected, s.Owner)
	maps.DeleteFunc(selected, func(_ string, yes bool) bool { return !yes })
	return slices.Sorted(maps.Keys(selected)), unnamed, nil
}

// Listed are the consumers that a status has room for.
func (r Result) Listed() []string { return r.Consumers[:min(len(r.Consumers), maxListed)] }

type problem struct{ reason, message string }

type problems []problem

func (p *problems) add(one *problem) {
	if one != nil {
		*p = append(*p, *one)
	}
}

func (p problems) String() string {
	var messages []string
	for _, one := range p {
		messages = append(messages, one.message)
	}
	return strings.Join(messages, "; ")
}

// listSome lists the first few of many names.
func listSome(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
