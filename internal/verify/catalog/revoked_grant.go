package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addRevokedGrant(register func(...Attack)) {
	register(Attack{
		ID: "S11", Via: API, Deep: true,
		Kinds:    []string{"ExternalArtifact"},
		Title:    "still uses another namespace's source after the grant was revoked",
		Controls: []string{"the manager, which deletes the artifact when the grant ends"},
		Fix:      Fix{Advice: "run tenure-server manager, which deletes the artifact when a SourceGrant ends, and give no other account the right to write ExternalArtifacts"},
		Run:      keepsWhatWasGranted,
	})
}

// grantPatience is the maximum time to wait until the manager has reconciled the grants. endPatience is the
// time for which a copy may exist after that: the manager removes the copy before it reports.
const (
	grantPatience = time.Minute
	endPatience   = 30 * time.Second
)

// keepsWhatWasGranted grants the tenant a source of the victim, deletes the grant, and checks whether the
// tenant gets the next revision. The source is suspended and an admin writes its status, so that Flux
// fetches nothing.
func keepsWhatWasGranted(ctx context.Context, e *Scenario) Finding {
	source := object("source.toolkit.fluxcd.io/v1", "GitRepository", e.Victim.Namespace, name("s11-"+e.Namespace), map[string]any{"spec": map[string]any{
		"interval": "1h", "suspend": true, "url": "https://git.example.com/canary", "ref": map[string]any{"branch": "main"},
	}})
	grant := grantOf(source, source.GetName(), map[string]any{"tenant": e.Tenant.Name, "namespace": e.Namespace})
	shared := object("source.toolkit.fluxcd.io/v1", "ExternalArtifact", e.Namespace, e.Victim.Namespace+"."+source.GetName(), nil)
	for _, u := range []*unstructured.Unstructured{grant, source} {
		if err := e.Admin.Create(ctx, u); err != nil {
			if f := judge(err, ""); f.Control == notInstalled {
				return f
			}
			return notProven("cannot create the granted source: " + firstLine(err.Error()))
		}
		defer e.remove(u)
	}
	defer e.remove(shared) // in case the manager does not remove it
	if err := e.offers(ctx, source, "1"); err != nil {
		return notProven("cannot offer a revision: " + firstLine(err.Error()))
	}
	has := func(revision string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			there, err := e.exists(ctx, shared)
			if err != nil || !there {
				return revision == "" && err == nil, err
			}
			current := shared.DeepCopy()
			if err := e.Admin.Get(ctx, keyOf(shared), current); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			got, _, _ := unstructured.NestedString(current.Object, "status", "artifact", "revision")
			return revision != "" && got == "main@sha1:"+revision, nil
		}
	}
	if pollUntil(ctx, grantPatience, has("1")) != nil {
		return notProven("no manager acts on grants here: the granted source did not appear in the tenant's namespace")
	}
	if err := e.Admin.Delete(ctx, grant.DeepCopy()); err != nil {
		return notProven("cannot delete the grant: " + firstLine(err.Error()))
	}
	if err := e.offers(ctx, source, "2"); err != nil {
		return notProven("cannot offer a revision: " + firstLine(err.Error()))
	}
	return e.takenAway(ctx, source, shared, has(""))
}

// takenAway returns the finding about a copy after the revocation of its grant. A busy manager must not
// count as an attack that got through. The manager receives the grants in order, so the status of another
// grant without consumers shows that it has reconciled the revocation.
func (e *Scenario) takenAway(ctx context.Context, source, shared *unstructured.Unstructured, gone func(context.Context) (bool, error)) Finding {
	later := grantOf(source, source.GetName()+"-later", map[string]any{"tenant": name("s11")})
	if err := e.Admin.Create(ctx, later); err != nil {
		return notProven("cannot make another grant: " + firstLine(err.Error()))
	}
	defer e.remove(later)
	err := pollUntil(ctx, grantPatience, func(ctx context.Context) (bool, error) {
		if done, err := gone(ctx); err != nil || done {
			return done, err
		}
		current := later.DeepCopy()
		if err := e.Admin.Get(ctx, keyOf(later), current); err != nil {
			return false, err
		}
		seen, there, _ := unstructured.NestedInt64(current.Object, "status", "observedGeneration")
		return there && seen == current.GetGeneration(), nil
	})
	if err != nil {
		return notProven("cannot find out whether the manager has seen the deletion of the grant: " + firstLine(err.Error()))
	}
	_ = pollUntil(ctx, endPatience, func(ctx context.Context) (bool, error) {
		done, err := gone(ctx)
		return done && err == nil, nil
	})
	switch done, err := gone(ctx); {
	case err != nil:
		return notProven("cannot read the copy of the granted source: " + firstLine(err.Error()))
	case !done:
		return gotThrough("ExternalArtifact " + keyOf(shared).String() + " still exists after the deletion of the grant")
	}
	return stopped("manager", "ExternalArtifact "+keyOf(shared).String()+" was deleted with the grant")
}

// grantOf returns a SourceGrant of a source for some consumers.
func grantOf(source *unstructured.Unstructured, name string, from map[string]any) *unstructured.Unstructured {
	return object(v1alpha1.GroupVersion.String(), "SourceGrant", source.GetNamespace(), name, map[string]any{"spec": map[string]any{
		"to":   []any{map[string]any{"kind": source.GetKind(), "name": source.GetName()}},
		"from": []any{from},
	}})
}

// offers writes the status of a source with a new revision, as Flux does.
func (e *Scenario) offers(ctx context.Context, source *unstructured.Unstructured, revision string) error {
	status := fmt.Sprintf(`{"status":{"artifact":{"url":"http://storage.invalid/%[1]s.tar.gz","digest":"sha256:%064[1]s","revision":"main@sha1:%[1]s","path":"canary","lastUpdateTime":%[2]q}}}`,
		revision, time.Now().UTC().Format(time.RFC3339))
	return e.Admin.Status().Patch(ctx, source.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(status)))
}
