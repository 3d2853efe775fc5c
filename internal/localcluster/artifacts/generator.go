package artifacts

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API of source-watcher, and the part of Flux's that it uses. They are read without their Go
// types, which only internal/flux imports.
var (
	generatorKind = schema.GroupVersionKind{Group: "source.extensions.fluxcd.io", Version: "v1beta1", Kind: "ArtifactGenerator"}
	artifactKind  = sourceKind("ExternalArtifact")
	sourceKinds   = []string{"GitRepository", "OCIRepository", "Bucket", "HelmChart", "ExternalArtifact"}
)

func sourceKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: kind}
}

const (
	// disabledAnnotation suspends a generator with the value disabled.
	disabledAnnotation = "source.extensions.fluxcd.io/reconcile"
	requestAnnotation  = "reconcile.fluxcd.io/requestedAt"
	// originRevision is the key in an artifact's metadata for the revision of its origin.
	originRevision = "org.opencontainers.image.revision"
)

// The reasons of a generator's conditions.
const (
	reasonSucceeded  = "Succeeded"
	reasonInvalid    = "ValidationFailed"
	reasonDenied     = "AccessDenied"
	reasonFetch      = "SourceFetchFailed"
	reasonBuild      = "BuildFailed"
	reasonReconciled = "ReconciliationFailed"
)

// failure is an error with the reason of its condition.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failf(reason, format string, args ...any) error {
	return &failure{reason, fmt.Errorf(format, args...)}
}

// stalled reports whether only a change of the generator can help.
func (f *failure) stalled() bool { return f.reason == reasonInvalid || f.reason == reasonDenied }

// spec is the spec of an ArtifactGenerator.
type spec struct {
	Sources        []reference    `json:"sources"`
	Artifacts      []output       `json:"artifacts"`
	PathPattern    string         `json:"pathPattern"`
	CommonMetadata commonMetadata `json:"commonMetadata"`
}

type commonMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// reference names a source.
type reference struct {
	Alias     string `json:"alias"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// key returns the source's key, for a generator in a namespace.
func (r reference) key(namespace string) client.ObjectKey {
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	return client.ObjectKey{Namespace: namespace, Name: r.Name}
}

// output describes an ExternalArtifact.
type output struct {
	Name           string      `json:"name"`
	Revision       string      `json:"revision"`
	OriginRevision string      `json:"originRevision"`
	Copy           []operation `json:"copy"`
}

func specOf(generator *unstructured.Unstructured) (spec, error) {
	var object struct {
		Spec spec `json:"spec"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(generator.Object, &object)
	if err != nil {
		return spec{}, failf(reasonInvalid, "cannot read the spec: %w", err)
	}
	return object.Spec, nil
}

// validate returns an error for a spec that source-watcher does not accept, or that the stand-in
// does not know.
func (s spec) validate(namespace string, noCrossNamespaceRefs bool) error {
	if s.PathPattern != "" {
		return failf(reasonInvalid, "the local cluster does not simulate pathPattern: write the artifacts one by one in a copy of the fleet")
	}
	aliases := map[string]bool{}
	for _, source := range s.Sources {
		if aliases[source.Alias] {
			return failf(reasonInvalid, "two sources have the alias %s", source.Alias)
		}
		aliases[source.Alias] = true
		if noCrossNamespaceRefs && source.key(namespace).Namespace != namespace {
			return failf(reasonDenied, "cross-namespace reference to source %s/%s/%s is not allowed", source.Kind, source.Namespace, source.Name)
		}
		if !slices.Contains(sourceKinds, source.Kind) {
			return failf(reasonInvalid, "source %s has kind %s, which is none of %s", source.Alias, source.Kind, strings.Join(sourceKinds, ", "))
		}
	}
	names := map[string]bool{}
	for _, artifact := range s.Artifacts {
		if names[artifact.Name] {
			return failf(reasonInvalid, "two artifacts have the name %s", artifact.Name)
		}
		names[artifact.Name] = true
		for _, revision := range []string{artifact.Revision, artifact.OriginRevision} {
			if alias := strings.TrimPrefix(revision, "@"); alias != "" && !aliases[alias] {
				return failf(reasonInvalid, "artifact %s takes a revision from %s, and no source has this alias", artifact.Name, alias)
			}
		}
	}
	return nil
}

// artifact is the artifact in the status of a source.
type artifact struct {
	URL            string            `json:"url"`
	Path           string            `json:"path"`
	Digest         string            `json:"digest"`
	Revision       string            `json:"revision"`
	LastUpdateTime string            `json:"lastUpdateTime"`
	Size           int64             `json:"size"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}

// artifactOf returns the artifact of a source, or nil if it has none.
func artifactOf(source *unstructured.Unstructured) *artifact {
	var object struct {
		Status struct {
			Artifact *artifact `json:"artifact"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(source.Object, &object) != nil {
		return nil
	}
	return object.Status.Artifact
}

// origin returns the revision of the content's origin.
func (a artifact) origin() string {
	if origin := a.Metadata[originRevision]; origin != "" {
		return origin
	}
	return a.Revision
}
