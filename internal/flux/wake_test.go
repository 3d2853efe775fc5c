package flux

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnblocked(t *testing.T) {
	t.Parallel()
	fleet := ref(GitRepository, "fleet")
	dependent := func(row Row) Row {
		row.dependent = true
		return row
	}
	waiting := dependent(ks("a", Blocked, fleet, ref(Kustomization, "b")))
	applied := func(row Row, revision string) Row {
		row.Revision = revision
		return tried(row, revision)
	}
	assumed := ks("b", Suspended, fleet)
	assumed.Ready = "True"
	tests := map[string]struct {
		reason string
		rows   []Row
		want   []Ref
	}{
		"met": {
			reason: "its last look was before the dependency became ready",
			rows:   []Row{git("fleet", "main@sha1:a", Ready), applied(ks("b", Ready, fleet), "main@sha1:a"), waiting},
			want:   []Ref{ref(Kustomization, "a")},
		},
		"revision not said": {
			reason: "Flux would find the dependency at no revision",
			rows:   []Row{git("fleet", "main@sha1:a", Ready), tried(ks("b", Ready, fleet), "main@sha1:a"), waiting},
		},
		"assumed": {
			reason: "--assume makes a dependency ready too",
			rows:   []Row{git("fleet", "main@sha1:a", Ready), assumed, waiting},
			want:   []Ref{ref(Kustomization, "a")},
		},
		"not ready": {
			reason: "asking would only find the same again",
			rows:   []Row{git("fleet", "main@sha1:a", Ready), applied(ks("b", Failed, fleet), "main@sha1:a"), waiting},
		},
		"old revision": {
			reason: "Flux compares the dependency's revision with the source's",
			rows:   []Row{git("fleet", "main@sha1:b", Ready), applied(ks("b", Ready, fleet), "main@sha1:a"), waiting},
		},
		"missing": {
			reason: "a dependency that does not exist is not met",
			rows:   []Row{git("fleet", "main@sha1:a", Ready), waiting},
		},
		"source": {
			reason: "Flux watches sources itself",
			rows:   []Row{git("fleet", "main@sha1:a", Ready), ks("a", Blocked, fleet)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []Ref
			for _, row := range unblocked(tc.rows) {
				got = append(got, row.Ref())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
