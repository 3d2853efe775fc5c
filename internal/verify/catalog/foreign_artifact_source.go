package catalog

import (
	"context"
	"regexp"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sourceWatcher is the controller of ArtifactGenerators. It runs if the fleet has objects of its API.
const sourceWatcher = "source-watcher"

func addForeignArtifactSource(register func(...Attack)) {
	register(Attack{
		ID: "S2", Via: API,
		Kinds:      []string{"ArtifactGenerator"},
		Title:      "creates an artifact from a source of another namespace",
		Controls:   []string{"flag --no-cross-namespace-refs of source-watcher", "policy on the sources of ArtifactGenerators"},
		References: []string{"RFC-0012"},
		Fix: Fix{
			Advice: "start source-watcher with --no-cross-namespace-refs=true, and refuse spec.sources[].namespace in tenants' namespaces with a ValidatingAdmissionPolicy",
			Flags:  []Flag{noCrossNamespaceRefs(sourceWatcher)},
		},
		Run: foreignArtifactSource,
	})
}

// artifactGenerator returns an ArtifactGenerator of the tenant that copies a source.
func (e *Scenario) artifactGenerator(source flux.Ref) *unstructured.Unstructured {
	return object("source.extensions.fluxcd.io/v1beta1", "ArtifactGenerator", e.Namespace, name("s2"), map[string]any{"spec": map[string]any{
		"sources":   []any{map[string]any{"alias": "base", "kind": string(source.Kind), "name": source.Name, "namespace": source.Namespace}},
		"artifacts": []any{map[string]any{"name": name("s2"), "copy": []any{map[string]any{"from": "@base/**", "to": "@artifact/"}}}},
	}})
}

// generatorSourceMissing matches the message of source-watcher when it has looked for a source and found none.
var generatorSourceMissing = regexp.MustCompile(`"[^"]+" not found`)

// foreignArtifactSource copies the source of the platform, and, as the positive control, looks for one in the tenant's own
// namespace that does not exist. If source-watcher does not run here, the answer of the API server decides.
func foreignArtifactSource(ctx context.Context, e *Scenario) Finding {
	own := flux.Ref{Kind: e.Root.Kind, Namespace: e.Namespace, Name: name("s2")}
	f := simulated(sourceWatcher,
		func(e *Scenario) *unstructured.Unstructured { return e.artifactGenerator(e.Root) },
		func(e *Scenario) *unstructured.Unstructured { return e.artifactGenerator(own) })(ctx, e)
	if f.Outcome != NotProven || !strings.HasPrefix(f.Reason, ControllerSimulated) {
		return f
	}
	switch running, err := findProcesses(ctx, e.Admin); {
	case err != nil:
		return notProven(firstLine(err.Error()))
	case !running.run(sourceWatcher):
		return f
	}
	aimed := e.generates(ctx, e.Root)
	if aimed.Outcome != Stopped {
		return aimed
	}
	return e.unless(ctx, aimed, e.generates(ctx, own))
}

// generates creates a generator that copies a source, and returns the finding from the answer of source-watcher.
func (e *Scenario) generates(ctx context.Context, source flux.Ref) Finding {
	said, err := e.apply(ctx, e.artifactGenerator(source), func() {})
	if err != nil {
		return judge(err, "")
	}
	return said.ofGenerator(source)
}

// ofGenerator returns the finding from source-watcher's answer about a generator that copies a source.
func (said readiness) ofGenerator(source flux.Ref) Finding {
	control, refused := controlOf(said.message)
	switch {
	case said.ready == "True", generatorSourceMissing.MatchString(said.message):
		return gotThrough("source-watcher opened " + source.String() + " for it")
	case refused:
		return stopped(control, firstLine(said.message))
	}
	return notProven("the answer is neither a success nor a known refusal: " + firstLine(said.message))
}
