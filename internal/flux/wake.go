package flux

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WakeDependents requests a reconcile of Kustomizations and HelmReleases once their dependencies
// are ready. Otherwise Flux checks the dependencies every 30 s (--requeue-dependency), for each
// level of dependencies. WakeDependents runs until the context ends, and then returns the cause of
// the context. It returns an error earlier if the user may not read the objects.
func WakeDependents(ctx context.Context, c client.WithWatch) error {
	asked := map[Ref]string{}
	return Watch(ctx, c, Selection{Kinds: DeployKinds()}, func(rows []Row) error {
		for _, row := range unblocked(rows) {
			// Wake an object once for each state of its dependencies: Flux may
			// have other reasons to wait. After an error, the next change or the
			// object's interval wakes it.
			state := needsOf(row, rows)
			if asked[row.Ref()] != state && RequestReconcile(ctx, c, row.Ref()) == nil {
				asked[row.Ref()] = state
			}
		}
		return nil
	})
}

// needsOf returns the state of the objects that an object depends on, as text.
func needsOf(row Row, rows []Row) string {
	var state strings.Builder
	for _, other := range rows {
		if slices.Contains(row.Needs, other.Ref()) {
			fmt.Fprintf(&state, "%s %s %s %d\n", other.Ref(), other.State, other.Revision, other.generation)
		}
	}
	return state.String()
}

// unblocked returns the objects whose status reports that a dependency is not ready, although
// all their dependencies are. Those that wait for a source
// are not among them: Flux's controllers watch sources.
func unblocked(rows []Row) []Row {
	a := assessor{rows: map[Ref]Row{}}
	for _, row := range rows {
		a.rows[row.Ref()] = row
	}
	var due []Row
	for _, row := range rows {
		if row.State != Blocked || !row.dependent {
			continue
		}
		met := true
		for _, need := range row.Needs {
			met = met && a.serves(need)
		}
		if met {
			due = append(due, row)
		}
	}
	return due
}

// serves reports whether an object is ready for its dependents, at the revision of its own
// source. A Kustomization is Ready a moment before it says
// which revision it has applied, which its dependents ask for.
func (a assessor) serves(need Ref) bool {
	if a.unmet(need) != "" {
		return false
	}
	row := a.rows[need]
	state, _ := a.judge(row)
	return state != Working && (state == Suspended || row.Revision == row.attempted || need.Kind != Kustomization)
}
