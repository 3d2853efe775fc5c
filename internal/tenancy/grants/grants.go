// Package grants computes the copies of shared sources. [Plan] is a pure function: its input
// is the SourceGrants of a namespace, the sources of the namespace and the namespaces of the
// cluster; its output is the desired ExternalArtifacts and the status of each grant.
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

// maxName is the maximum length of an object's name, in bytes (RFC 1123 subdomain).
const maxName = 253

// maxListed is the maximum number of consumers in a grant's status.
const maxListed = 1000

// Source is a source in the namespace of the grants.
type Source struct {
	// Kind and Name identify the source.
	Kind, Name string
	// Artifact holds the fields of status.artifact that consumers need: see [Artifact]. It
	// is nil if the source has no artifact yet.
	Artifact map[string]any
}

// Namespace is a namespace that a grant may select.
type Namespace struct {
	Name string
	// Labels are all labels of the namespace. Trusted are the labels that selectors match:
	// see [tenancy.TrustedLabels].
	Labels, Trusted map[string]string
}

// Copy is a desired ExternalArtifact.
type Copy struct {
	// Namespace is the consumer's namespace. Name is the result of [Name] for the source.
	Namespace, Name string
	// Source is the source that the copy follows. If the source has no artifact, the manager
	// creates no copy and leaves an existing copy unchanged: consumers keep the last good
	// revision.
	Source Source
}

// Result is the content of a grant's status.
type Result struct {
	// Consumers are the namespaces that may use the granted sources, sorted by name.
	Consumers []string
	// Reason is the reason of the condition Ready: [ReasonGranted] if there is no problem.
	Reason string
	// Message is the message of the condition Ready.
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
	// Copies are all desired copies, sorted by namespace and name. The manager deletes its
	// other copies.
	Copies []Copy
	// Results are the results of the grants, by the name of the grant.
	Results map[string]Result
	// Next is the time at which the next grant expires; zero if none expires.
	Next time.Time
}

// State is the input of [Plan].
type State struct {
	// Owner is the namespace of the grants and of the sources.
	Owner   string
	Grants  []v1alpha1.SourceGrant
	Sources []Source
	// Namespaces are the namespaces of the cluster, except those that are being deleted.
	Namespaces []Namespace
	// Taken are the ExternalArtifacts, as NAMESPACE/NAME, that the manager did not create.
	// The plan contains no copy of these names.
	Taken map[string]bool
	Now   time.Time
}

// Name returns the name of the copies of a source. It begins with the namespace of the
// source, so that consumers see who owns it.
func Name(owner, source string) string { return owner + "." + source }

// Artifact returns the fields of a source's status.artifact that a consumer needs, or nil if
// the digest, the revision or the URL is missing. It leaves out the metadata, since the
// owner of the source controls its content.
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

// Plan returns the desired copies and the result of each grant. Grants add up: a copy
// exists as long as any grant demands it. If copies of two sources of different kinds
// would have the same name, Plan copies the source whose kind is first in the alphabet.
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

// grant adds the copies of one source to copies. It returns a problem, or nil.
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
		return &problem{ReasonConflict, fmt.Sprintf("namespace %[2]s has an ExternalArtifact %[1]s that this grant did not create: delete it there", name, listSome(taken))}
	}
	if source.Artifact == nil {
		return &problem{ReasonNoSource, fmt.Sprintf("%s %s has nothing to offer: see why it is not ready", to.Kind, to.Name)}
	}
	return nil
}

// kinds returns the kind of source that gets the copies of each name. It considers only
// existing sources: a grant of a missing source must not reserve a name.
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

// Listed returns the consumers for the status: at most maxListed of them.
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

// listSome returns the first three names, and the number of the others.
func listSome(names []string) string {
	const shown = 3
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}
