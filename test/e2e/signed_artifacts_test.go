package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
)

// The fleet of TestSignedArtifacts demands signatures of artifacts and charts, by cosign or notation.
const (
	artifactProfile = `apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  tenants:
    sources: {oci: ["oci://oci.example.com/acme/*"], helm: ["oci://oci.example.com/acme/*"]}
    signatures:
      oci: {providers: [cosign, notation]}
      charts: {providers: [cosign, notation]}
      keys:
        cosign: {release.pub: %q}
        notation: {trustpolicy.json: %q, acme.crt: %q}
`
	trustPolicy = `{"version": "1.0", "trustPolicies": [{"name": "acme", "registryScopes": ["*"],
  "signatureVerification": {"level": "strict"}, "trustStores": ["ca:acme"], "trustedIdentities": ["*"]}]}`

	// The verification that the profile demands.
	cosigned = ", verify: {provider: cosign, secretRef: {name: tenure-keys-cosign}}"
	notated  = ", verify: {provider: notation, secretRef: {name: tenure-keys-notation}}"

	ociSource = `apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: %[1]s, namespace: team-apps}
spec: {interval: 1h, url: "oci://oci.example.com/acme/%[1]s", ref: {tag: v1}%[2]s}
`
	ociCharts = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: team-apps}
spec: {interval: 1h, type: oci, url: "oci://oci.example.com/acme/charts"}
`
	chartOf = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: %[1]s, namespace: team-apps}
spec: {interval: 1h, chart: %[1]s, version: 0.1.0, sourceRef: {kind: HelmRepository, name: charts}%[2]s}
`
	deliveries = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: team-apps}
spec: {interval: 1h, path: ./, prune: true, serviceAccountName: team, targetNamespace: team-apps, sourceRef: {kind: OCIRepository, name: %s}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: app, namespace: team-apps}
spec:
  interval: 1h
  serviceAccountName: team
  chart: {spec: {chart: %s, version: 0.1.0, sourceRef: {kind: HelmRepository, name: charts}%s}}
`
)

// Cosign's names: of the media type of a bundle, and of the annotation of a signature.
const (
	bundleType          = "application/vnd.dev.sigstore.bundle.v0.3+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// pusher pushes artifacts and charts to a registry, and signs them.
type pusher struct {
	t    *testing.T
	host string
	dir  string
	http.Handler
}

func newPusher(t *testing.T) pusher {
	t.Helper()
	handler := registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return pusher{t, strings.TrimPrefix(server.URL, "http://"), t.TempDir(), handler}
}

// program runs one of the clients that people push with.
func (p pusher) program(program string, args ...string) {
	p.t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(bin, program), args...)
	cmd.Env = []string{"HOME=" + p.dir}
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// artifact pushes a folder with a ConfigMap as the tag v1.
func (p pusher) artifact(repository, value string) {
	p.t.Helper()
	folder := newFolder(p.t, map[string]string{"app.yaml": configMap("delivered", value)})
	p.program("flux", "push", "artifact", "oci://"+p.host+"/acme/"+repository+":v1", "--path", folder, "--source", "test", "--revision", "main@sha1:"+strings.Repeat("0", 40), "--insecure-registry")
}

// chartFolderOf returns the folder of a chart with a ConfigMap, version 0.1.0.
func chartFolderOf(t *testing.T, name string) string {
	t.Helper()
	return newFolder(t, map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: " + name + "\nversion: 0.1.0\n",
		"templates/app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: installed}\ndata: {value: " + name + "}\n",
	})
}

// chart pushes a chart.
func (p pusher) chart(repository string) {
	p.t.Helper()
	p.program("helm", "package", chartFolderOf(p.t, repository), "--destination", p.dir)
	p.program("helm", "push", filepath.Join(p.dir, repository+"-0.1.0.tgz"), "oci://"+p.host+"/acme/charts", "--plain-http")
}

// tag parses REPOSITORY:TAG of the registry.
func (p pusher) tag(reference string) name.Tag {
	p.t.Helper()
	tag, err := name.NewTag(p.host + "/acme/" + reference)
	if err != nil {
		p.t.Fatal(err)
	}
	return tag
}

func (p pusher) describe(tag name.Tag) *v1.Descriptor {
	p.t.Helper()
	descriptor, err := remote.Head(tag)
	if err != nil {
		p.t.Fatal(err)
	}
	return descriptor
}

// digest returns the digest of an artifact.
func (p pusher) digest(reference string) v1.Hash {
	p.t.Helper()
	return p.describe(p.tag(reference)).Digest
}

func (p pusher) sign(key *ecdsa.PrivateKey, message []byte) string {
	p.t.Helper()
	digest := sha256.Sum256(message)
	signed, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		p.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(signed)
}

// layer returns an artifact with one layer.
func (p pusher) layer(content []byte, kind types.MediaType, annotations map[string]string) v1.Image {
	p.t.Helper()
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(content, kind), Annotations: annotations})
	if err != nil {
		p.t.Fatal(err)
	}
	return image
}

// refer pushes an artifact as a referrer of another one.
func (p pusher) refer(image v1.Image, kind types.MediaType, to string) {
	p.t.Helper()
	image = mutate.Subject(mutate.ConfigMediaType(image, kind), *p.describe(p.tag(to))).(v1.Image)
	digest, err := image.Digest()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := remote.Write(p.tag(to).Context().Digest(digest.String()), image); err != nil {
		p.t.Fatal(err)
	}
}

// simple returns what cosign 2 signs about an artifact.
func (p pusher) simple(reference string) []byte {
	p.t.Helper()
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`,
		p.tag(reference).Context().Name(), p.digest(reference))
}

// signatureTag returns the tag that cosign 2 gives to the signature of an artifact.
func (p pusher) signatureTag(reference string) name.Tag {
	p.t.Helper()
	return p.tag(reference).Context().Tag(strings.Replace(p.digest(reference).String(), ":", "-", 1) + ".sig")
}

// attachTag attaches a signature to an artifact, as cosign 2 does.
func (p pusher) attachTag(payload []byte, annotations map[string]string, to string) {
	p.t.Helper()
	if err := remote.Write(p.signatureTag(to), p.layer(payload, "application/vnd.dev.cosign.simplesigning.v1+json", annotations)); err != nil {
		p.t.Fatal(err)
	}
}

// cosign signs an artifact with a key, as cosign 2 does, and attaches the signature to the artifact
// to, which may be another one.
func (p pusher) cosign(key *ecdsa.PrivateKey, reference, to string) {
	p.t.Helper()
	payload := p.simple(reference)
	p.attachTag(payload, map[string]string{signatureAnnotation: p.sign(key, payload)}, to)
}

// dsseEnvelope is a signed statement (github.com/secure-systems-lab/dsse, envelope.md).
type dsseEnvelope struct {
	Payload     []byte          `json:"payload"`
	PayloadType string          `json:"payloadType"`
	Signatures  []dsseSignature `json:"signatures"`
}

type dsseSignature struct {
	Sig string `json:"sig"`
}

// envelope returns the statement that cosign 3 signs about an artifact, its payload and the signature.
func (p pusher) envelope(key *ecdsa.PrivateKey, reference string) (envelope dsseEnvelope, payload []byte, signature string) {
	p.t.Helper()
	const kind = "application/vnd.in-toto+json"
	payload = fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{}}`, p.digest(reference).Hex)
	signature = p.sign(key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	return dsseEnvelope{payload, kind, []dsseSignature{{signature}}}, payload, signature
}

// attachBundle attaches a bundle to an artifact, as cosign 3 does.
func (p pusher) attachBundle(bundle []byte, to string) {
	p.t.Helper()
	image := mutate.Annotations(p.layer(bundle, bundleType, nil), map[string]string{
		"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": "https://sigstore.dev/cosign/sign/v1",
	}).(v1.Image)
	p.refer(image, bundleType, to)
}

// bundle signs an artifact with a key, as cosign 3 does, and attaches the signature to the artifact
// to, which may be another one.
func (p pusher) bundle(key *ecdsa.PrivateKey, reference, to string) {
	p.t.Helper()
	envelope, _, _ := p.envelope(key, reference)
	bundle, err := json.Marshal(map[string]any{
		"mediaType": bundleType, "verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": "release"}}, "dsseEnvelope": envelope,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.attachBundle(bundle, to)
}

// notation signs an artifact as `notation sign` does, and attaches the signature to the artifact to,
// which may be another one.
func (p pusher) notation(by certified, reference, to string) {
	p.t.Helper()
	target := p.describe(p.tag(reference))
	payload := fmt.Appendf(nil, `{"targetArtifact":{"mediaType":%q,"digest":%q,"size":%d}}`, target.MediaType, target.Digest, target.Size)
	signer, err := signature.NewLocalSigner([]*x509.Certificate{by.leaf, by.root}, by.key)
	if err != nil {
		p.t.Fatal(err)
	}
	envelope, err := jws.NewEnvelope().Sign(&signature.SignRequest{
		Payload: signature.Payload{ContentType: "application/vnd.cncf.notary.payload.v1+json", Content: payload},
		Signer:  signer, SigningTime: time.Now(), SigningScheme: signature.SigningSchemeX509, SigningAgent: "test",
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.refer(p.layer(envelope, jws.MediaTypeEnvelope, nil), "application/vnd.cncf.notary.signature", to)
}

// certified is a key with its certificate and the authority that issued it.
type certified struct {
	key        crypto.PrivateKey
	leaf, root *x509.Certificate
}

// newCertified returns a key that may sign, as the specification of the Notary Project demands it.
func newCertified(t *testing.T, organization string) certified {
	t.Helper()
	template := func(serial int64, name string) *x509.Certificate {
		template := certificateTemplate(serial, name)
		template.Subject.Organization, template.Subject.Country, template.Subject.Province = []string{organization}, []string{"DE"}, []string{"Berlin"}
		return template
	}
	authority, leaf := template(1, "authority"), template(2, "release")
	authority.KeyUsage, authority.IsCA, authority.BasicConstraintsValid = x509.KeyUsageCertSign, true, true
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	rootKey, key := newSigningKey(t), newSigningKey(t)
	root := certify(t, authority, nil, &rootKey.PublicKey, rootKey)
	return certified{key, certify(t, leaf, root, &key.PublicKey, rootKey), root}
}

// cosignKey returns a key, and its public part as `cosign generate-key-pair` writes it.
func cosignKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key := newSigningKey(t)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return key, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

// isVerified waits until Flux has verified the signature of a source, or has refused it.
func (r run) isVerified(namespace, source string, verified bool) {
	r.t.Helper()
	if !verified {
		r.isRefused(namespace, source, "")
		return
	}
	r.says(namespace, source, "True", "SourceVerified", "verified signature of")
}

// isRefused waits until Flux says that it does not trust the signature of a source, for a reason. The
// condition Ready has the reason: source-controller takes an error whose digest happens to contain 401 for
// one of authentication, and then sets no condition about the verification of a chart.
func (r run) isRefused(namespace, source, reason string) {
	r.t.Helper()
	r.says(namespace, source, "False", "Ready", "failed to verify", reason)
}

// says waits until Ready and another condition of a source have a status, and the latter a message with all
// of the parts.
func (r run) says(namespace, source, status, condition string, parts ...string) {
	r.t.Helper()
	testwait.For(r.t, "Flux to say of "+source+": "+strings.Join(parts, ": "), patience, func() (bool, string) {
		ready := r.field(namespace, source, `.status.conditions[?(@.type=="Ready")].status`)
		got := r.field(namespace, source, `.status.conditions[?(@.type=="`+condition+`")]['status','message']`)
		missing := slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(got, part) })
		return ready == status && strings.HasPrefix(got, status) && !missing, ready + ": " + got
	})
}

// delivered waits until a ConfigMap of the team has the value.
func (r run) delivered(name, value string) {
	r.t.Helper()
	testwait.For(r.t, value+" to be delivered", patience, func() (bool, string) {
		got := r.field("team-apps", "configmap/"+name, ".data.value")
		return got == value, got
	})
}

// TestSignedArtifacts shows that Flux verifies the signatures that the rules demand of OCI registries: it
// delivers artifacts and charts that the platform's keys signed, with cosign and with notation, but none
// without a signature, with the signature of another signer, or with the signature of another artifact.
func TestSignedArtifacts(t *testing.T) {
	t.Parallel()
	key, public := cosignKey(t)
	strangersKey, _ := cosignKey(t)
	acme, stranger := newCertified(t, "acme"), newCertified(t, "stranger")
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: acme.root.Raw}))
	p := newPusher(t)
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/tenure.yaml":           tenureSync,
		"clusters/test/apps.yaml":             tenantsSync,
		"infrastructure/tenure/crds.yaml":     string(config.CRDs()),
		"infrastructure/tenure/roles.yaml":    string(config.Roles()),
		"infrastructure/tenure/policies.yaml": string(config.Policies()),
		"infrastructure/tenure/manager.yaml":  string(config.Manager()),
		"infrastructure/tenure/profile.yaml":  fmt.Sprintf(artifactProfile, public, trustPolicy, authority),
		"tenants/team.yaml":                   chartTenant,
	})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test"})
	expectNothing(t, "the platform becomes ready", failed)
	r.Network.Handle("oci.example.com", "/v2", p)
	r.untilMay("alice", "create", "ocirepositories.source.toolkit.fluxcd.io", "-n", "team-apps")

	// other is the same artifact of the first case.
	other := func(reference string) string {
		return regexp.MustCompile(`[^/]+:`).ReplaceAllString(reference, "cosigned:")
	}
	cases := []struct {
		name, verify string
		sign         func(reference string)
		verified     bool
	}{
		{"cosigned", cosigned, func(to string) { p.cosign(key, to, to) }, true},
		{"bundled", cosigned, func(to string) { p.bundle(key, to, to) }, true},
		{"notated", notated, func(to string) { p.notation(acme, to, to) }, true},
		{"cosign-unsigned", cosigned, func(string) {}, false},
		{"notation-unsigned", notated, func(string) {}, false},
		{"cosign-stranger", cosigned, func(to string) { p.cosign(strangersKey, to, to) }, false},
		{"bundle-stranger", cosigned, func(to string) { p.bundle(strangersKey, to, to) }, false},
		{"notation-stranger", notated, func(to string) { p.notation(stranger, to, to) }, false},
		{"cosign-for-notation", notated, func(to string) { p.cosign(key, to, to) }, false},
		{"bundle-of-another", cosigned, func(to string) { p.bundle(key, other(to), to) }, false},
		{"notation-of-another", notated, func(to string) { p.notation(acme, other(to), to) }, false},
	}
	manifests := []string{ociCharts}
	for _, tc := range cases {
		p.artifact(tc.name, tc.name)
		tc.sign(tc.name + ":v1")
		p.chart(tc.name)
		tc.sign("charts/" + tc.name + ":0.1.0")
		manifests = append(manifests, fmt.Sprintf(ociSource, tc.name, tc.verify), fmt.Sprintf(chartOf, tc.name, tc.verify))
	}
	r.kubectl(strings.Join(manifests, "---\n"), "apply", "-f", "-", "--as=alice")
	for _, tc := range cases {
		for _, source := range []string{"ocirepository/" + tc.name, "helmchart/" + tc.name} {
			r.isVerified("team-apps", source, tc.verified)
		}
	}

	r.kubectl(fmt.Sprintf(deliveries, "cosigned", "notated", notated), "apply", "-f", "-", "--as=alice")
	r.delivered("delivered", "cosigned")
	r.delivered("installed", "notated")

	// Who can only write to the registry replaces the artifact under its tag.
	p.artifact("cosigned", "replaced")
	r.kubectl("", "-n", "team-apps", "annotate", "ocirepository/cosigned", "reconcile.fluxcd.io/requestedAt=now")
	r.isVerified("team-apps", "ocirepository/cosigned", false)
	if got := r.field("team-apps", "configmap/delivered", ".data.value"); got != "cosigned" {
		t.Errorf("an artifact without a signature is delivered: %s", got)
	}
	p.cosign(key, "cosigned:v1", "cosigned:v1")
	r.kubectl("", "-n", "team-apps", "annotate", "ocirepository/cosigned", "reconcile.fluxcd.io/requestedAt=later", "--overwrite")
	r.delivered("delivered", "replaced")
}

// copy pushes an artifact again, without its signatures.
func (p pusher) copy(from, to string) {
	p.t.Helper()
	image, err := remote.Image(p.tag(from))
	if err == nil {
		err = remote.Write(p.tag(to), image)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// layout copies an artifact with its signatures, as `oras copy --recursive --to-oci-layout` does.
func (p pusher) layout(reference string) string {
	p.t.Helper()
	dir := p.t.TempDir()
	to, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		p.t.Fatal(err)
	}
	copied := func(from name.Reference, annotations map[string]string) {
		p.t.Helper()
		image, err := remote.Image(from)
		if err == nil {
			err = to.AppendImage(image, layout.WithAnnotations(annotations))
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	tag, signature := p.tag(reference), p.signatureTag(reference)
	copied(tag, map[string]string{"org.opencontainers.image.ref.name": tag.TagStr()})
	list, err := remote.Referrers(tag.Context().Digest(p.digest(reference).String()))
	if err != nil {
		p.t.Fatal(err)
	}
	referrers, err := list.IndexManifest()
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := remote.Head(signature); err == nil {
		copied(signature, map[string]string{"org.opencontainers.image.ref.name": signature.TagStr()})
	}
	for _, d := range referrers.Manifests {
		copied(tag.Context().Digest(d.Digest.String()), nil)
	}
	return dir
}

// TestSignedLayouts maps copies of artifacts with their signatures. Flux verifies them, without a network,
// with the keys and the root of trust that the fleet names. Assumed are a folder without signatures, and
// signatures whose root Flux would fetch.
func TestSignedLayouts(t *testing.T) {
	t.Parallel()
	key, public := cosignKey(t)
	strangersKey, _ := cosignKey(t)
	acme, ownSigstore := newCertified(t, "acme"), newSigstore(t)
	p := newPusher(t)
	manifests := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: tenure-keys-cosign, namespace: flux-system}
stringData: {release.pub: %q}
---
apiVersion: v1
kind: Secret
metadata: {name: tenure-keys-notation, namespace: flux-system}
stringData: {trustpolicy.json: %q, acme.crt: %q}
---
apiVersion: v1
kind: Secret
metadata: {name: sigstore, namespace: flux-system}
stringData: {trusted_root.json: %q}
---
`, public, trustPolicy, certificatePEM(acme.root), ownSigstore.trustedRoot())
	var maps []network.Map
	for name, sign := range map[string]func(to string){
		"bundled":  func(to string) { p.bundle(key, to, to) },
		"notated":  func(to string) { p.notation(acme, to, to) },
		"stranger": func(to string) { p.bundle(strangersKey, to, to) },
		"keyless":  func(to string) { p.bundle(key, to, to) },
		"folder":   nil,
	} {
		verify := map[string]string{"notated": notated, "keyless": ", verify: {provider: cosign}"}[name]
		if verify == "" {
			verify = cosigned
		}
		manifests += fmt.Sprintf(ociSource+"---\n"+chartOf+"---\n", name, verify)
		artifact, chart := newFolder(t, map[string]string{"app.yaml": configMap("app", name)}), chartFolderOf(t, name)
		if sign != nil {
			p.artifact(name, name)
			p.chart(name)
			sign(name + ":v1")
			sign("charts/" + name + ":0.1.0")
			artifact, chart = p.layout(name+":v1"), p.layout("charts/"+name+":0.1.0")
		}
		maps = append(maps, parseMaps(t, "oci://oci.example.com/acme/"+name+":v1="+artifact, "oci://oci.example.com/acme/charts/"+name+":0.1.0="+chart)...)
	}
	keyless := keylessCases(p, ownSigstore)
	for _, tc := range keyless {
		p.copy("bundled:v1", tc.name+":v1")
		if tc.sign != nil {
			tc.sign(tc.name + ":v1")
		}
		manifests += fmt.Sprintf(ociSource+"---\n", tc.name, rooted)
		maps = append(maps, parseMaps(t, "oci://oci.example.com/acme/"+tc.name+":v1="+p.layout(tc.name+":v1"))...)
	}
	const later = "zz-later"
	maps = append(maps, parseMaps(t, "oci://oci.example.com/acme/"+later+":v1="+newFolder(t, map[string]string{"app.yaml": configMap("app", later)}))...)
	inPlatform := strings.NewReplacer("namespace: team-apps", "namespace: flux-system")
	manifests = inPlatform.Replace(manifests + ociCharts)
	dir, _ := newFleet(t, map[string]string{"clusters/test/sources.yaml": manifests})
	r := run{testcluster.Start(t, localcluster.Options{Fleet: dir, Path: "clusters/test", Maps: maps}), t}
	for _, kind := range []string{"ocirepository/", "helmchart/"} {
		r.isVerified("flux-system", kind+"bundled", true)
		r.isVerified("flux-system", kind+"notated", true)
		r.isVerified("flux-system", kind+"stranger", false)
	}
	r.isVerifiedKeyless(keyless)
	// The cluster goes through the sources in the order of their names: when it has assumed this one, it has
	// seen that Flux refuses the others.
	r.kubectl(inPlatform.Replace(fmt.Sprintf(ociSource, later, cosigned)), "apply", "-f", "-")
	want := []string{
		"the signature of HelmChart/flux-system/folder is not verified here", "the signature of HelmChart/flux-system/keyless is not verified here",
		"the signature of OCIRepository/flux-system/folder is not verified here", "the signature of OCIRepository/flux-system/keyless is not verified here",
		"the signature of OCIRepository/flux-system/" + later + " is not verified here",
	}
	testwait.For(t, "the other signatures to be assumed", patience, func() (bool, string) {
		var assumed []string
		for _, fake := range r.Fakes() {
			if fake.Assumed {
				assumed = append(assumed, fake.Text)
			}
		}
		slices.Sort(assumed)
		return slices.Equal(want, assumed), strings.Join(assumed, "\n")
	})
	r.isVerified("flux-system", "ocirepository/stranger", false)
	for _, refusal := range r.Network.Refused() {
		if strings.HasPrefix(refusal.Address, logHost) {
			t.Errorf("Flux connects to %s", refusal.Address)
		}
	}
}
