package catalog

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/flux"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// attackFolder is the folder with the files of attacks in a tenant's repository.
const attackFolder = "tenure-attack"

// nothingHere is a kustomization without objects, in the folder of the attacks. Without it, a Kustomization
// of the tenant for the whole repository, which applies every manifest that it finds, would apply the files
// of the attacks too.
const nothingHere = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: _placeholder\n"

// folder returns the path of an attack's own folder in the tenant's repository.
func folder(key string) string { return path.Join(attackFolder, strings.ToLower(key)) }

// publish adds the files to the tenant's repository or artifact on the local host, or removes files without
// content, and requests a reconciliation of the source. It returns the end of the revision.
func (e *Scenario) publish(ctx context.Context, message string, files map[string][]byte) (string, error) {
	revision, err := e.hosts.publish(ctx, *e.Repository, message, files)
	if err != nil {
		return "", err
	}
	return revision, flux.RequestReconcile(ctx, e.Admin, e.Repository.Source)
}

// plant commits the files of the attacks to the tenant's repository, waits until Flux has fetched them, and
// creates the sources for the attacks. It returns a function that removes all of them.
func (e *Scenario) plant(ctx context.Context, attacks []Attack) (func(context.Context) error, error) {
	files := map[string][]byte{}
	for _, a := range attacks {
		if a.Files == nil {
			continue
		}
		for name, content := range a.Files(e) {
			files[path.Join(folder(a.Key()), name)] = []byte(content)
		}
	}
	nothing := func(context.Context) error { return nil }
	files[path.Join(attackFolder, "kustomization.yaml")] = []byte(nothingHere)
	revision, err := e.publish(ctx, "attacks", files)
	if err != nil && revision == "" {
		return nothing, fmt.Errorf("cannot publish to %s: %w", e.Repository.URL, err)
	}
	var slim, near, charts *unstructured.Unstructured
	unpush := func() {}
	restore := func(ctx context.Context) error {
		unpush()
		for _, u := range []*unstructured.Unstructured{slim, near, charts} {
			if u != nil {
				e.remove(u)
			}
		}
		nothing := map[string][]byte{}
		for name := range files {
			nothing[name] = nil
		}
		_, err := e.publish(ctx, "no attacks", nothing)
		return err
	}
	if err != nil {
		return restore, fmt.Errorf("cannot have %s fetched: %w", e.Repository.URL, err)
	}
	if slim, near, err = e.makeSlimSources(ctx); err != nil {
		return restore, err
	}
	if !inGit(*e.Repository) {
		if unpush, err = e.pushCharts(files); err != nil {
			return restore, err
		}
		if charts, err = e.makeChartSource(ctx); err != nil {
			return restore, err
		}
	}
	if err := e.awaitSource(ctx, e.Repository.Source, revision); err != nil {
		return restore, err
	}
	source := e.Repository.Source
	source.Name = slim.GetName()
	if err := e.awaitSource(ctx, source, revision); err != nil {
		return restore, err
	}
	e.slim = source.Name
	if near == nil {
		return restore, nil
	}
	source.Namespace, source.Name = near.GetNamespace(), near.GetName()
	if err := e.awaitSource(ctx, source, revision); err != nil {
		return restore, err
	}
	e.near = source.Name
	return restore, nil
}

// makeSlimSources copies the tenant's source with only the folder of the attacks: a Kustomization fetches
// and unpacks the whole artifact of its source for each attack, and a repository may be large. A tenant
// whose Kustomization and source are in the platform's namespace gets a second copy in its own namespace if
// the repository needs no credentials: the tenant could create this source.
func (e *Scenario) makeSlimSources(ctx context.Context) (slim, near *unstructured.Unstructured, err error) {
	version := e.Repository.Source.Kind.GroupVersionKind().GroupVersion().String()
	theirs := object(version, string(e.Repository.Source.Kind), e.Repository.Source.Namespace, e.Repository.Source.Name, nil)
	if err := e.Admin.Get(ctx, keyOf(theirs), theirs); err != nil {
		return nil, nil, fmt.Errorf("cannot read %s: %w", e.Repository.Source, err)
	}
	spec, _, _ := unstructured.NestedMap(theirs.Object, "spec")
	for _, field := range []string{"ignore", "include", "suspend"} {
		delete(spec, field)
	}
	spec["interval"] = "1h"
	if inGit(*e.Repository) {
		spec["sparseCheckout"] = []any{attackFolder}
	} else {
		spec["ignore"] = "/*\n!/" + attackFolder + "\n"
	}
	id := "source" + e.suffix
	if theirs.GetNamespace() != e.Namespace {
		// The namespace also contains the sources of other tenants.
		id = e.ofTenant(id)
	}
	slim = object(version, theirs.GetKind(), theirs.GetNamespace(), name(id), map[string]any{"spec": spec})
	if err := e.Admin.Create(ctx, slim); err != nil {
		return nil, nil, fmt.Errorf("cannot make a source for the attacks: %w", err)
	}
	if _, private := spec["secretRef"]; private || !e.platformDelivers() {
		return slim, nil, nil
	}
	near = object(version, theirs.GetKind(), e.Namespace, name("source"+e.suffix), map[string]any{"spec": spec})
	if err := e.Admin.Create(ctx, near); err != nil {
		return slim, nil, fmt.Errorf("cannot make a source for the attacks: %w", err)
	}
	return slim, near, nil
}

// fetchPatience is the time for which a source may fail to fetch a commit. longestFetch is the maximum
// duration of a fetch without a failure: a repository may be large, and Flux fetches the repositories of
// all tenants at the same time.
const (
	fetchPatience = 2 * time.Minute
	longestFetch  = 5 * time.Minute
)

// awaitSource waits until a source has the revision. It polls, because the source comes from the watch
// cache of the API server.
func (e *Scenario) awaitSource(ctx context.Context, source flux.Ref, revision string) error {
	u := object(source.Kind.GroupVersionKind().GroupVersion().String(), string(source.Kind), source.Namespace, source.Name, nil)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		if err := e.Admin.Get(ctx, keyOf(u), u); err == nil {
			if got, _, _ := unstructured.NestedString(u.Object, "status", "artifact", "revision"); strings.HasSuffix(got, revision) {
				return nil
			}
		}
		said, _ := readyCondition(u)
		took := time.Since(began)
		if took > longestFetch || took > fetchPatience && said.ready == metav1.ConditionFalse {
			return fmt.Errorf("%s did not fetch the commit in %s: %s", source, took.Round(time.Second), cmp.Or(said.message, "it has no condition Ready"))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not fetch the commit: %w", source, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
