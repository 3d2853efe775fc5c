package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/internal/flux"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// delivery is a way to make Flux apply a folder of the tenant's repository. It returns the Flux object for
// it, as an ordinary tenant would write it, with the change of the attack.
type delivery func(id, folder string, change func(spec map[string]any)) *unstructured.Unstructured

// reconciles runs an attack by a Kustomization of the tenant. The attack's folder has two subfolders: aimed
// holds a foreign canary, own the positive control. The change applies to the Kustomization for aimed; the
// Kustomization for own stays unchanged.
func (e *Scenario) reconciles(ctx context.Context, id string, canary, own *unstructured.Unstructured, change func(spec map[string]any)) Finding {
	return e.delivered(ctx, e.kustomization, id, canary, own, change)
}

// delivered is [Scenario.reconciles] for any way of delivery.
func (e *Scenario) delivered(ctx context.Context, by delivery, id string, canary, own *unstructured.Unstructured, change func(spec map[string]any)) Finding {
	// An existing object would count as a canary that the attack created.
	if there, err := e.exists(ctx, canary); err != nil || there {
		return notProven(fmt.Sprintf("the canary %s %s cannot be distinguished from an existing object (%v)", canary.GetKind(), keyOf(canary), err))
	}
	var applied *unstructured.Unstructured
	var lookErr error
	said, err := e.apply(ctx, by(id, folder(id)+"/aimed", change), func() { applied, lookErr = e.read(ctx, canary) })
	switch {
	case lookErr != nil:
		return notProven("cannot read the canary: " + firstLine(lookErr.Error()))
	case applied != nil:
		e.remove(canary)
		if altered := e.alteredInCluster(ctx, canary, applied, own); altered != nil && e.leavesOwn(ctx, by, id, own, altered) {
			return stopped(altered.control(), firstLine(altered.Error()))
		}
		return gotThrough(fmt.Sprintf("Flux created %s %s/%s for it", canary.GetKind(), canary.GetNamespace(), canary.GetName()))
	case err != nil:
		return e.confirm(ctx, by, id, own, judge(err, ""))
	case said.ready == "":
		return notProven("Flux gave no answer in time: " + firstLine(said.message))
	}
	control, ok := controlOf(said.message)
	if !ok {
		return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
	}
	f := byAnotherRule(ctx, errors.New(said.message), stopped(control, firstLine(said.message)))
	return e.confirm(ctx, by, id, own, f)
}

// leavesOwn delivers the positive control, and reports whether Flux applied it with all fields of the files that policies
// changed in the canary.
func (e *Scenario) leavesOwn(ctx context.Context, by delivery, id string, own *unstructured.Unstructured, altered *alteredError) bool {
	var kept bool
	_, err := e.apply(ctx, by(id+"-own", folder(id)+"/own", nil), func() {
		applied, err := e.read(ctx, own)
		var also *alteredError
		errors.As(alteredFields(ctx, e.Admin, own, cmp.Or(applied, own)), &also)
		kept = err == nil && applied != nil && (also == nil || !slices.ContainsFunc(also.paths, func(path string) bool { return slices.Contains(altered.paths, path) }))
	})
	e.remove(own)
	return err == nil && kept
}

// confirm delivers the positive control. A stopped attack counts only if the positive control succeeds.
func (e *Scenario) confirm(ctx context.Context, by delivery, id string, own *unstructured.Unstructured, f Finding) Finding {
	if f.Outcome != Stopped {
		return f
	}
	var applied *unstructured.Unstructured
	said, err := e.apply(ctx, by(id+"-own", folder(id)+"/own", nil), func() { applied, _ = e.read(ctx, own) })
	if apierrors.IsForbidden(err) && judge(err, "").Control == f.Control {
		if e.refusesOwnCharts(ctx, by(id+"-own", folder(id)+"/own", nil)) {
			f.Control += " (nor a chart of its own)"
			return f
		}
		return e.withPositiveControl(ctx, f)
	}
	if err != nil {
		return notProven("the tenant cannot do it to its own objects either: " + firstLine(err.Error()))
	}
	if control, _ := controlOf(said.message); control == rbac && isOfFlux(said.message) {
		return notProven("Flux may not act as the account that the tenant names, so that its refusal says nothing about the tenant: " + firstLine(said.message))
	}
	if control, _ := controlOf(said.message); said.ready == "False" && control == rbac && f.Control == rbac {
		// An account without any right to apply objects cannot apply the positive control either.
		return e.withPositiveControl(ctx, f)
	}
	if reachesTheServer(f, said) {
		return f
	}
	if !isReady(said) && (applied == nil || !isUnhealthy(said)) {
		return notProven("the same steps with the tenant's own objects do not work either: " + firstLine(said.message))
	}
	e.remove(own)
	return f
}

// refusesOwnCharts reports whether the API server denied a HelmRelease because its chart comes from the
// tenant's repository, and accepts one with a chart from another source.
func (e *Scenario) refusesOwnCharts(ctx context.Context, release *unstructured.Unstructured) bool {
	kind, found, _ := unstructured.NestedString(release.Object, "spec", "chart", "spec", "sourceRef", "kind")
	if !found || kind != string(flux.GitRepository) {
		return false
	}
	other := release.DeepCopy()
	return unstructured.SetNestedField(other.Object, "HelmRepository", "spec", "chart", "spec", "sourceRef", "kind") == nil && e.tryCreate(ctx, other) == nil
}

// withPositiveControl returns the finding of an attack whose positive control was refused by
// the same control. The attack is stopped if RBAC or a missing kind refused both and the
// tenant's identity works otherwise. Other controls, such as an exceeded quota or a broken
// policy, may refuse both for a reason that an attacker could avoid.
func (e *Scenario) withPositiveControl(ctx context.Context, f Finding) Finding {
	if f.Control != rbac && f.Control != notInstalled {
		return notProven("the tenant cannot do it to its own objects either: " + f.Message)
	}
	if err := identityWorks(ctx, e); err != nil {
		return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
	}
	if f.Control != notInstalled {
		f.Control += ownToo
	}
	return f
}

// deliversManifests returns an attack that commits a canary to the tenant's repository, and
// has an ordinary Kustomization apply it. own is the positive control.
func deliversManifests(a Attack, kind string, canary, own func(*Scenario) *unstructured.Unstructured) Attack {
	a.Via, a.Deep, a.Kinds = Git, true, []string{kind}
	a.Files = func(e *Scenario) map[string]string {
		return map[string]string{"aimed/canary.yaml": manifest(e.asCustomary(canary(e))), "own/canary.yaml": manifest(e.asCustomary(own(e)))}
	}
	a.Run = func(ctx context.Context, e *Scenario) Finding {
		e, err := e.delivering(ctx)
		if err != nil {
			return notProven(firstLine(err.Error()))
		}
		return e.reconciles(ctx, a.Key(), canary(e), own(e), e.asItSyncs)
	}
	return a
}

// ownConfigMap returns a ConfigMap that every tenant may deliver.
func ownConfigMap(id string) func(*Scenario) *unstructured.Unstructured {
	return func(e *Scenario) *unstructured.Unstructured { return configMap(e.Namespace, name(id+"-own")) }
}
