package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func addUnsignedSource(register func(...Attack)) {
	register(Attack{
		ID: "S14", Via: API,
		Kinds:      []string{"Bucket", "GitRepository", "HelmChart", "HelmRelease", "OCIRepository", "Secret"},
		Slow:       true,
		Title:      "delivers from a source without the signatures that the platform demands, or with its own signature",
		Controls:   []string{"policy on spec.verify of sources", "policy on the Secrets with the platform's keys"},
		References: []string{"Flux: verification of sources"},
		Fix:        Fix{Advice: "demand spec.verify of tenants' sources, with Secrets that only the platform may write, with a ValidatingAdmissionPolicy"},
		Run:        deliversUnsigned,
	})
}

// deliversUnsigned tries sources of each kind with signatures that the platform demands: without
// verification, verified with a key of the tenant's own, and with a weaker mode. Then it writes the Secrets
// with the platform's keys.
func deliversUnsigned(ctx context.Context, e *Scenario) Finding {
	demand, err := e.signatures(ctx)
	if err != nil {
		return notProven("cannot read which signatures are demanded: " + firstLine(err.Error()))
	}
	var all []request
	if demand.Git != nil {
		all = append(all, e.unsignedGit(ctx, demand.Git.Mode)...)
	}
	artifacts := demand.OCI
	if artifacts == nil {
		artifacts = demand.Charts
	}
	if artifacts != nil {
		all = append(all, e.unsignedArtifacts(ctx, *artifacts)...)
	}
	if demand.Charts != nil {
		all = append(all, unsignedCharts(*demand.Charts)...)
	}
	if len(all) == 0 {
		return e.nothingThere(ctx, notInstalled, "the platform demands no signatures of sources")
	}
	all = append(all, request{what: "deliver from a Bucket, of which nothing is signed", aimed: creating(e.toVerify(ctx, "Bucket", nil))})
	for _, secret := range tenancy.KeySecrets() {
		key := object("v1", "Secret", e.Namespace, secret, map[string]any{"stringData": map[string]any{"own.pub": "any"}})
		there, err := e.exists(ctx, key)
		if err != nil {
			return notProven("cannot look for the platform's keys: " + firstLine(err.Error()))
		}
		own := creating(func(e *Scenario) *unstructured.Unstructured { return e.secretOf("s14", "own.pub", "any") })
		if there {
			all = append(all, request{what: "add a key of its own to the platform's in Secret " + secret, aimed: merging(key, `{"stringData":{"own.pub":"any"}}`), own: own})
			continue
		}
		all = append(all, request{what: "make the Secret " + secret + " before the platform does", aimed: func(ctx context.Context, e *Scenario) error { return e.tryCreate(ctx, key) }, own: own})
	}
	return requests(all...)(ctx, e)
}

// signatures returns the signatures that the platform demands of the tenant's sources.
func (e *Scenario) signatures(ctx context.Context) (v1alpha1.Signatures, error) {
	content, _ := e.policy(ctx, "signatures")
	var demand v1alpha1.Signatures
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &demand)
	return demand, err
}

// verification returns the fields with which Flux verifies the signatures that the platform demands for a
// source at an address. Flux verifies no signatures of a Bucket.
func (e *Scenario) verification(ctx context.Context, kind string, address map[string]any) map[string]any {
	demand, err := e.signatures(ctx)
	artifacts := demand.OCI
	if artifacts == nil {
		artifacts = demand.Charts
	}
	url, _ := address["url"].(string)
	switch {
	case err != nil:
	case kind == "GitRepository" && demand.Git != nil:
		return map[string]any{"verify": gitVerification(demand.Git.Mode)}
	case kind == "OCIRepository" && artifacts != nil:
		return map[string]any{"verify": artifactVerification(*artifacts)}
	case kind == "HelmRepository" && strings.HasPrefix(url, "oci://"):
		return map[string]any{"type": "oci"}
	}
	return nil
}

// gitVerification returns spec.verify of a GitRepository, with the platform's keys.
func gitVerification(mode string) map[string]any {
	return withKeys("mode", cmp.Or(mode, "HEAD"), tenancy.KeySecretPrefix+tenancy.VerifierGit)
}

// artifactVerification returns the spec.verify of an artifact that the platform demands.
func artifactVerification(demand v1alpha1.ArtifactSignatures) map[string]any {
	if len(demand.Providers) > 0 {
		return withKeys("provider", demand.Providers[0], tenancy.KeySecretPrefix+demand.Providers[0])
	}
	identity := map[string]any{"issuer": demand.Identities[0].Issuer, "subject": demand.Identities[0].Subject}
	return map[string]any{"provider": tenancy.VerifierCosign, "matchOIDCIdentity": []any{identity}}
}

// toVerify returns a source of the tenant at an approved address; with a nil verification, it has no
// spec.verify.
func (e *Scenario) toVerify(ctx context.Context, kind string, verify map[string]any) func(*Scenario) *unstructured.Unstructured {
	spec := map[string]any{"interval": "1h", "suspend": true}
	maps.Copy(spec, e.approved(ctx, kind))
	if verify != nil {
		spec["verify"] = verify
	}
	return func(e *Scenario) *unstructured.Unstructured {
		return object(sourceAPI, kind, e.Namespace, name("s14"), map[string]any{"spec": spec})
	}
}

func withKeys(field, value, secret string) map[string]any {
	return map[string]any{field: value, "secretRef": map[string]any{"name": secret}}
}

func (e *Scenario) unsignedGit(ctx context.Context, mode string) []request {
	const kind, keys = "GitRepository", tenancy.KeySecretPrefix + tenancy.VerifierGit
	mode = cmp.Or(mode, "HEAD")
	weaker := map[string]string{"HEAD": "Tag", "Tag": "HEAD", "TagAndHEAD": "HEAD"}[mode]
	signed := e.toVerify(ctx, kind, gitVerification(mode))
	return []request{
		{what: "deliver from a GitRepository whose commits nobody signed", aimed: creating(e.toVerify(ctx, kind, nil), signed), own: creating(signed)},
		{what: "deliver from a GitRepository that it signs with a key of its own", aimed: creating(e.toVerify(ctx, kind, withKeys("mode", mode, name("s14"))), signed), own: creating(signed)},
		{what: fmt.Sprintf("deliver from a GitRepository with the mode %s and not %s", weaker, mode), aimed: creating(e.toVerify(ctx, kind, withKeys("mode", weaker, keys)), signed), own: creating(signed)},
	}
}

func (e *Scenario) unsignedArtifacts(ctx context.Context, demand v1alpha1.ArtifactSignatures) []request {
	const kind = "OCIRepository"
	verify := artifactVerification(demand)
	signed := e.toVerify(ctx, kind, verify)
	rooted := maps.Clone(verify)
	rooted["trustedRootSecretRef"] = map[string]any{"name": name("s14")}
	return []request{
		{what: "deliver from an OCIRepository whose artifacts nobody signed", aimed: creating(e.toVerify(ctx, kind, nil), signed), own: creating(signed)},
		{what: "deliver from an OCIRepository that it signs with a key of its own", aimed: creating(e.toVerify(ctx, kind, withKeys("provider", tenancy.VerifierCosign, name("s14"))), signed), own: creating(signed)},
		{what: "deliver from an OCIRepository that anybody may sign", aimed: creating(e.toVerify(ctx, kind, map[string]any{"provider": tenancy.VerifierCosign}), signed), own: creating(signed)},
		{what: "deliver from an OCIRepository whose identities it vouches for", aimed: creating(e.toVerify(ctx, kind, rooted), signed), own: creating(signed)},
	}
}

func unsignedCharts(demand v1alpha1.ArtifactSignatures) []request {
	chart := func(kind string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object(sourceAPI, "HelmChart", e.Namespace, name("s14"), map[string]any{"spec": map[string]any{
				"interval": "1h", "suspend": true, "chart": "any", "sourceRef": map[string]any{"kind": kind, "name": "any"},
			}})
		}
	}
	release := func(verify map[string]any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return e.suspendedRelease("s14", func(spec map[string]any) {
				chart := spec["chart"].(map[string]any)["spec"].(map[string]any)
				chart["sourceRef"].(map[string]any)["kind"] = "HelmRepository"
				if verify != nil {
					chart["verify"] = verify
				}
			})
		}
	}
	// The spec.chart of a HelmRelease can name keys, but no identities: without keys, the platform accepts
	// no identities with a chart.
	var own func(context.Context, *Scenario) error
	if len(demand.Providers) > 0 {
		own = creating(release(artifactVerification(demand)))
	}
	return []request{
		{what: "install a chart that nobody signed", aimed: creating(release(nil)), own: own},
		{what: "install a chart that it signs with a key of its own", aimed: creating(release(withKeys("provider", tenancy.VerifierCosign, name("s14")))), own: own},
		{what: "install a chart that anybody may sign", aimed: creating(release(map[string]any{"provider": tenancy.VerifierCosign})), own: own},
		{what: "have a chart fetched that nobody signed", aimed: creating(chart("HelmRepository"))},
	}
}
