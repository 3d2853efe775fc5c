package main

// provenancePredicate is the type of SLSA's provenance: https://slsa.dev/spec/v1.0/provenance.
const provenancePredicate = "https://slsa.dev/provenance/v1"

const (
	// buildType identifies the meaning of the parameters: the parameters of `make image`.
	buildType = sourceURL + "/blob/main/docs/how-to/release.md#build"
	// localBuilder identifies a person's machine; the key authenticates it.
	localBuilder = sourceURL + "/blob/main/docs/how-to/release.md#sign"
)

// The types of the provenance.
type (
	provenance struct {
		Definition buildDefinition `json:"buildDefinition"`
		Details    runDetails      `json:"runDetails"`
	}
	buildDefinition struct {
		Type         string             `json:"buildType"`
		External     map[string]any     `json:"externalParameters"`
		Internal     map[string]any     `json:"internalParameters"`
		Dependencies []resolvedResource `json:"resolvedDependencies,omitempty"`
	}
	resolvedResource struct {
		URI    string            `json:"uri"`
		Digest map[string]string `json:"digest,omitempty"`
	}
	runDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	}
)

// provenance returns the sources, the parameters and the builder of the image. It has no build
// times, so that it is the same for the same sources.
func (s *source) provenance(b *built, builder string) provenance {
	p := provenance{Definition: buildDefinition{
		Type: buildType,
		External: map[string]any{
			"repository": s.repository, "version": s.version, "package": s.pkg, "architectures": s.architectures,
		},
		Internal: map[string]any{
			"ldflags": s.ldflags(), "sourceDateEpoch": s.created.Unix(),
		},
	}}
	p.Details.Builder.ID = builder
	if s.revision != "" {
		p.Definition.Dependencies = append(p.Definition.Dependencies, resolvedResource{
			URI: "git+" + sourceURL + "@" + s.revision, Digest: map[string]string{"gitCommit": s.revision},
		})
	}
	for _, platform := range b.platforms {
		p.Definition.Internal["go"] = platform.info.GoVersion
	}
	return p
}
