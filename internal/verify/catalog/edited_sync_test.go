package catalog

import "testing"

func TestEffective(t *testing.T) {
	t.Parallel()
	u := object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "team", "team", map[string]any{"spec": map[string]any{
		"prune": false, "path": "./deploy", "sourceRef": map[string]any{"kind": "GitRepository", "name": "team"},
	}})
	for reason, patches := range map[string][2]string{
		"the object does not prune yet":  {`{"spec":{"prune":false}}`, `{"spec":{"prune":true}}`},
		"the object is not suspended":    {`{"spec":{"suspend":true}}`, `{"spec":{"suspend":true}}`},
		"the object has another path":    {`{"spec":{"path":"./other"}}`, `{"spec":{"path":"./other"}}`},
		"one field is equal, one is not": {`{"spec":{"prune":false,"sourceRef":{"name":"x"}}}`, `{"spec":{"prune":false,"sourceRef":{"name":"x"}}}`},
		"the object has no such fields":  {`{"status":{"a":true}}`, `{"status":{"a":true}}`},
	} {
		if got := effective(u.Object, patches[0]); got != patches[1] {
			t.Errorf("%s: got %s, want %s", reason, got, patches[1])
		}
	}
}
