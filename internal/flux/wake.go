package flux

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WakeDependents asks Kustomizations and HelmReleases whose dependsOn has been
// met to look again at once. By themselves they look every 30 s
// (--requeue-dependency), for each level of dependencies. It runs until the
// context ends, whose cause it returns, or the server says that the user may
// not read the objects.
func WakeDependents(ctx context.Context, c client.WithWatch) error {
	asked := map[Ref]bool{}
	return Watch(ctx, c, Selection{Kinds: DeployKinds()}, func(rows []Row) error {
		due := map[Ref]bool{}
		for _, ref := range unblocked(rows) {
			// Once: what the object says until it has looked is old. What
			// could not be asked is asked at the next change, or looks by
			// itself.
			due[ref] = asked[ref] || RequestReconcile(ctx, c, ref) == nil
		}
		asked = due
		return nil
	})
}

// unblocked returns the objects that say that they wait for what they depend
// on, although there is nothing left to wait for. Those that wait for a source
// are not among them: Flux's controllers watch sources.
func unblocked(rows []Row) []Ref {
	a := assessor{rows: map[Ref]Row{}}
	for _, row := range rows {
		a.rows[row.Ref()] = row
	}
	var refs []Ref
	for _, row := range rows {
		if row.State != Blocked || !row.dependent {
			continue
		}
		met := true
		for _, need := range row.Needs {
			met = met && a.serves(need)
		}
		if met {
			refs = append(refs, row.Ref())
		}
	}
	return refs
}

// serves says whether a needed object is there for those that need it, at the
// revision of its own source.
func (a assessor) serves(need Ref) bool {
	if a.unmet(need) != "" {
		return false
	}
	state, _ := a.judge(a.rows[need])
	return state != Working
}
