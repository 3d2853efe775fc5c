package flux

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Ref names one of Flux's objects.
type Ref struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String writes a Ref as Flux does in its messages: Kind/namespace/name.
func (r Ref) String() string { return fmt.Sprintf("%s/%s/%s", r.Kind, r.Namespace, r.Name) }

// ParseRef reads the Kind/namespace/name that [Ref.String] writes, with the kind in any case
// and, instead of it, the short names that Flux knows (ks, hr). It returns an error for another
// form or an unknown kind.
func ParseRef(s string) (Ref, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return Ref{}, fmt.Errorf("cannot read %q as an object of flux: want KIND/NAMESPACE/NAME", s)
	}
	short := map[string]Kind{"ks": Kustomization, "hr": HelmRelease}
	if kind, ok := short[strings.ToLower(parts[0])]; ok {
		return Ref{kind, parts[1], parts[2]}, nil
	}
	for _, kind := range append(AllKinds(), OperatorKinds()...) {
		if strings.EqualFold(string(kind), parts[0]) {
			return Ref{kind, parts[1], parts[2]}, nil
		}
	}
	return Ref{}, fmt.Errorf("cannot read %q as an object of flux: %q is none of its kinds", s, parts[0])
}

// State is the state in an object's own status. [Assess] also considers the object's
// dependencies.
type State int

const (
	// Working objects are new or being reconciled: their status will change.
	Working State = iota
	// Blocked objects wait for another object: a source or a dependency.
	Blocked
	// Ready objects have been reconciled at their current generation.
	Ready
	// Failed objects were tried and say why it did not work. Flux tries most
	// of them again at their (retry) interval.
	Failed
	// Suspended objects are left alone by Flux.
	Suspended
)

// String is the state in lower case.
func (s State) String() string {
	return [...]string{"working", "blocked", "ready", "failed", "suspended"}[s]
}

// Row is the state of one object, with the columns of the tables of `flux get`.
type Row struct {
	Namespace string
	Kind      Kind
	Name      string
	// Source is the source of the object, as Kind/namespace/name; for an ImagePolicy it is
	// the image.
	Source string
	// Revision is the whole revision that was fetched or applied; tables
	// show [ShortRevision]. It is the tag of an ImagePolicy and the time of
	// the last scan or run of the other image objects.
	Revision string
	// Suspended is spec.suspend.
	Suspended bool
	// Ready is the status of the condition Ready: True, False or Unknown.
	// As in Flux, an object without the condition says False.
	Ready string
	// Message is the condition's message. It is untrusted: it can quote text of a tenant,
	// including line breaks and terminal sequences.
	Message string
	// State sums up the status.
	State State
	// Needs are the objects that must be ready first: the source and what
	// dependsOn names. Namespaces are filled in.
	Needs []Ref

	// dependent is set while the object says that it waits for dependsOn.
	dependent bool
	// checks is set while an object checks the health of the objects that it applied.
	checks bool
	// owner is the object of flux-operator or the HelmRelease that applied this one.
	owner Ref
	// waits is set for an object of flux-operator that is configured to wait for the health of the
	// objects that it applies, and for a HelmRelease that waits for it now. The status names these
	// objects only when their health is known, and the status of flux-operator's objects does not
	// show when they wait.
	waits bool
	// checked are the objects of other kinds than Flux's whose health a Kustomization checks now.
	checked []checkedObject
	// unhealthy is set in the rows of [Unhealthy]. missing is set in the rows of these for objects that do not exist.
	unhealthy, missing bool
	// attempted is the revision that a Kustomization last tried; "" when it
	// has not got that far.
	attempted string
	// generation and observed are metadata.generation and
	// status.observedGeneration.
	generation, observed int64
}

// Ref names the row's object.
func (r Row) Ref() Ref { return Ref{r.Kind, r.Namespace, r.Name} }

// Equal reports whether two rows are the same in every field.
func (r Row) Equal(other Row) bool { return reflect.DeepEqual(r, other) }

// SortRows sorts by kind (in the order of `flux get all`), namespace and name.
func SortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(kindIndex(a.Kind), kindIndex(b.Kind)),
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
		)
	})
}
