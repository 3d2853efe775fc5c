package admission

import (
	"fmt"
	"strings"

	"github.com/tenure-dev/tenure/internal/tenancy"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// demanded is CEL for the signatures that a tenant's sources must have.
const demanded = posture + ".signatures"

// signatures returns the rule that sources make Flux verify the signatures that the platform demands, with
// the platform's keys.
func signatures() Rule {
	const git, oci, charts = demanded + ".git", demanded + ".oci", demanded + ".charts"
	const needs = objectPhrase + " + 'needs "
	mode := fmt.Sprintf("(has(%[1]s.mode) ? %[1]s.mode : 'HEAD')", git)
	unless := func(kind, part string) string {
		return fmt.Sprintf("object.kind != '%s' || !has(%s) || !has(%s) || ", kind, demanded, part)
	}
	return Rule{
		Name: Prefix + "signatures", Rows: []string{"S14"},
		Title: "Flux verifies the signatures of sources as the platform demands, with the platform's keys",
		resources: []admissionregistrationv1.NamedRuleWithOperations{
			on(writes, groupSource, sourceKinds...), on(writes, groupHelm, helmReleases...),
		},
		scope: fluxObjects,
		validations: []validation{
			{
				// Without a mode, Flux verifies nothing.
				unless("GitRepository", git) + fmt.Sprintf("has(object.spec.verify) && has(object.spec.verify.mode) && has(object.spec.verify.secretRef)"+
					" && object.spec.verify.secretRef.name == '%[1]s' && (object.spec.verify.mode == %[2]s || object.spec.verify.mode == 'TagAndHEAD' || object.spec.verify.mode == 'head' && %[2]s == 'HEAD')",
					tenancy.KeySecretPrefix+tenancy.VerifierGit, mode),
				needs + "signed ' + " + mode + ".replace('TagAndHEAD', 'tags and commits').replace('HEAD', 'commits').replace('Tag', 'tags')" +
					" + ', which Flux verifies: set spec.verify to {mode: ' + " + mode + " + ', secretRef: {name: " + tenancy.KeySecretPrefix + tenancy.VerifierGit + "}}'",
			},
			artifacts(oci, charts),
			{
				unless("HelmRepository", charts) + "has(object.spec.type) && object.spec.type == 'oci'",
				needs + "spec.type oci: charts must be signed, and Flux verifies those in OCI registries only'",
			},
			{
				"object.kind != 'Bucket' || !has(" + demanded + ") || !(has(" + git + ") || has(" + oci + ") || has(" + charts + "))",
				objectPhrase + " + 'must not be a source: sources must be signed, and Flux verifies none in a Bucket; use a GitRepository or an OCIRepository'",
			},
		},
	}
}

// artifacts returns the validation that Flux verifies a source in an OCI registry with a key of the
// platform, or by identities that the platform lists. A trusted root of the tenant's own would vouch for
// every identity. The spec.chart of a HelmRelease has no field for identities; without a Secret, Flux would
// accept every identity there.
func artifacts(oci, charts string) validation {
	// A HelmRelease may also take a chart from an OCIRepository. The demand d and the verification v are
	// lists of one element or none.
	d := fmt.Sprintf("(object.kind == 'OCIRepository' && has(%[1]s) ? [%[1]s] : has(%[2]s) && (object.kind in ['OCIRepository', 'HelmChart'] || object.kind == 'HelmRelease' && has(object.spec.chart)) ? [%[2]s] : [])", oci, charts)
	v := "(object.kind == 'HelmRelease' ? (has(object.spec.chart.spec.verify) ? [object.spec.chart.spec.verify] : []) : has(object.spec.verify) ? [object.spec.verify] : [])"
	verified := "has(v.provider) && !has(v.trustedRootSecretRef) && (has(v.secretRef)" +
		" ? has(d.providers) && v.provider in d.providers && v.secretRef.name == '" + tenancy.KeySecretPrefix + "' + v.provider" +
		" : v.provider == 'cosign' && has(d.identities) && has(v.matchOIDCIdentity) && size(v.matchOIDCIdentity) > 0" +
		" && v.matchOIDCIdentity.all(m, d.identities.exists(i, i.issuer == m.issuer && i.subject == m.subject)))"
	field := "(object.kind != 'HelmRelease' ? 'set spec.verify to ' : has(d.providers) && size(d.providers) > 0 ? 'set spec.chart.spec.verify to '" +
		" : 'spec.chart can name no identity, so use spec.chartRef with an OCIRepository whose spec.verify is ')"
	lines := "(has(d.providers) && size(d.providers) > 0" +
		" ? '{provider: ' + d.providers[0] + ', secretRef: {name: " + tenancy.KeySecretPrefix + "' + d.providers[0] + '}}'" +
		` : '{provider: cosign, matchOIDCIdentity: [{issuer: \'' + d.identities[0].issuer + '\', subject: \'' + d.identities[0].subject + '\'}]}')`
	return validation{
		fmt.Sprintf("!has(%s) || %s.all(d, %s.exists(v, %s))", demanded, d, v, verified),
		objectPhrase + " + 'needs ' + (object.kind == 'OCIRepository' && has(" + oci + ") ? 'signed artifacts' : 'signed charts') + ', which Flux verifies: ' + " +
			d + ".map(d, " + field + " + " + lines + ")[0]",
	}
}

// signatureKeys returns the rule that only the platform writes the Secrets with the platform's public keys.
// It checks the names, also of Secrets that do not exist yet: with its own key in such a Secret, a tenant
// could sign its own sources.
func signatureKeys() Rule {
	return Rule{
		Name: Prefix + "signature-keys", Rows: []string{"S14"},
		Title:       "only the platform writes the public keys with which Flux verifies sources",
		resources:   []admissionregistrationv1.NamedRuleWithOperations{on(all, "", "secrets")},
		scope:       tenantObjects,
		compensates: true,
		conditions: append([]string{
			objectName + " in ['" + strings.Join(tenancy.KeySecrets(), "', '") + "']",
		}, notThePlatform...),
		validations: []validation{{"false", "'Secret ' + variables.name + ' holds the public keys of the signers, and only the platform writes it: ask the platform team to add a key to signatures.keys of the TenancyProfile or the Tenant, or use another name'"}},
	}
}
