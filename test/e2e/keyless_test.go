package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"testing"
	"time"
)

// The host of the log of a test's Sigstore. Flux wants its address, and must not connect to it.
const logHost = "rekor.example.com"

// The extensions of certificates: the issuer of the signer's identity
// (github.com/sigstore/fulcio, docs/oid-info.md), and the list of SCTs (RFC 6962, section 3.3).
var (
	issuerExtension = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	sctExtension    = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}
)

// sigstore is the Sigstore of a company: an authority that issues certificates to signers, as Fulcio
// does, a log of these certificates, and a log of signatures, as Rekor is. It has no server.
type sigstore struct {
	t            *testing.T
	root         *x509.Certificate
	rootKey      *ecdsa.PrivateKey
	certificates transparencyLog
	signatures   transparencyLog
}

// transparencyLog is the key of a log, and its ID: the SHA-256 of its public key.
type transparencyLog struct {
	key    *ecdsa.PrivateKey
	public []byte
	id     []byte
}

// identity is the identity in a certificate, and the issuer of the identity.
type identity struct{ issuer, subject string }

// certificateTemplate returns a certificate that is valid for an hour before and after now.
func certificateTemplate(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// certify returns a certificate for a public key. Without a parent, the certificate is its own.
func certify(t *testing.T, template, parent *x509.Certificate, public *ecdsa.PublicKey, parentKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func newSigningKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newSigstore returns a Sigstore with keys of its own.
func newSigstore(t *testing.T) *sigstore {
	t.Helper()
	newLog := func() transparencyLog {
		key := newSigningKey(t)
		public, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		id := sha256.Sum256(public)
		return transparencyLog{key, public, id[:]}
	}
	s := &sigstore{t: t, rootKey: newSigningKey(t), certificates: newLog(), signatures: newLog()}
	template := certificateTemplate(1, "fulcio")
	template.KeyUsage, template.IsCA, template.BasicConstraintsValid = x509.KeyUsageCertSign, true, true
	s.root = certify(t, template, nil, &s.rootKey.PublicKey, s.rootKey)
	return s
}

// object is an object in JSON, which encoding/json writes with sorted keys.
type object map[string]any

func (s *sigstore) json(value any) []byte {
	s.t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		s.t.Fatal(err)
	}
	return content
}

// sign signs a message with the key of an authority or a log.
func (s *sigstore) sign(key *ecdsa.PrivateKey, message []byte) []byte {
	s.t.Helper()
	digest := sha256.Sum256(message)
	signed, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		s.t.Fatal(err)
	}
	return signed
}

// trustedRoot returns the content of trusted_root.json (github.com/sigstore/protobuf-specs,
// protos/sigstore_trustroot.proto).
func (s *sigstore) trustedRoot() string {
	s.t.Helper()
	valid := object{"start": s.root.NotBefore.Format(time.RFC3339)}
	logged := func(host string, log transparencyLog) []object {
		return []object{{
			"baseUrl": "https://" + host, "hashAlgorithm": "SHA2_256", "logId": object{"keyId": log.id},
			"publicKey": object{"rawBytes": log.public, "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid},
		}}
	}
	return string(s.json(object{
		"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"tlogs":     logged(logHost, s.signatures),
		"ctlogs":    logged("ctlog.example.com", s.certificates),
		"certificateAuthorities": []object{{
			"subject": object{"commonName": "fulcio"}, "uri": "https://fulcio.example.com", "validFor": valid,
			"certChain": object{"certificates": []object{{"rawBytes": s.root.Raw}}},
		}},
	}))
}

// certificate returns a new key, and its certificate for an identity with the promise of the log of
// certificates, the SCT.
func (s *sigstore) certificate(of identity) (*ecdsa.PrivateKey, *x509.Certificate) {
	s.t.Helper()
	subject, err := url.Parse(of.subject)
	if err != nil {
		s.t.Fatal(err)
	}
	key := newSigningKey(s.t)
	template := certificateTemplate(2, "")
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	template.URIs = []*url.URL{subject}
	template.ExtraExtensions = []pkix.Extension{{Id: issuerExtension, Value: []byte(of.issuer)}}
	unlogged := certify(s.t, template, s.root, &key.PublicKey, s.rootKey)
	list, err := asn1.Marshal(s.sctList(unlogged))
	if err != nil {
		s.t.Fatal(err)
	}
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: sctExtension, Value: list})
	return key, certify(s.t, template, s.root, &key.PublicKey, s.rootKey)
}

// sctList returns the list of one SCT of a certificate that does not have it yet (RFC 6962, sections
// 3.2 and 3.3).
func (s *sigstore) sctList(certificate *x509.Certificate) []byte {
	s.t.Helper()
	const version, ofCertificate, precertificate, sha256ID, ecdsaID = 0, 0, 1, 4, 3
	uint16Of := func(n int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }
	timestamp := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))
	issuer, tbs := sha256.Sum256(s.root.RawSubjectPublicKeyInfo), certificate.RawTBSCertificate
	signature := s.sign(s.certificates.key, bytes.Join([][]byte{
		{version, ofCertificate}, timestamp, uint16Of(precertificate), issuer[:],
		{byte(len(tbs) >> 16), byte(len(tbs) >> 8), byte(len(tbs))}, tbs, uint16Of(0),
	}, nil))
	sct := bytes.Join([][]byte{{version}, s.certificates.id, timestamp, uint16Of(0), {sha256ID, ecdsaID}, uint16Of(len(signature)), signature}, nil)
	return bytes.Join([][]byte{uint16Of(len(sct) + 2), uint16Of(len(sct)), sct}, nil)
}

// logEntry is the log's answer about a signature, in the format of cosign 2.
type logEntry struct {
	SignedEntryTimestamp []byte
	Payload              struct {
		Body           []byte `json:"body"`
		IntegratedTime int64  `json:"integratedTime"`
		LogID          string `json:"logID"`
		LogIndex       int64  `json:"logIndex"`
	}
}

// record returns the log's promise to have an entry of a kind.
func (s *sigstore) record(kind string, spec object) logEntry {
	s.t.Helper()
	var e logEntry
	e.Payload.Body = s.json(object{"apiVersion": "0.0.1", "kind": kind, "spec": spec})
	e.Payload.IntegratedTime, e.Payload.LogID = time.Now().Unix(), hex.EncodeToString(s.signatures.id)
	e.SignedEntryTimestamp = s.sign(s.signatures.key, s.json(e.Payload))
	return e
}

// proven returns an entry in the format of a bundle, with the proof that the log has it and nothing else.
func (s *sigstore) proven(kind string, e logEntry) object {
	s.t.Helper()
	leaf := sha256.Sum256(append([]byte{0}, e.Payload.Body...))
	head := logHost + " - 1\n1\n" + base64.StdEncoding.EncodeToString(leaf[:]) + "\n"
	signature := append(bytes.Clone(s.signatures.id[:4]), s.sign(s.signatures.key, []byte(head))...)
	return object{
		"logIndex": "0", "logId": object{"keyId": s.signatures.id}, "kindVersion": object{"kind": kind, "version": "0.0.1"},
		"integratedTime": fmt.Sprint(e.Payload.IntegratedTime), "canonicalizedBody": e.Payload.Body,
		"inclusionPromise": object{"signedEntryTimestamp": e.SignedEntryTimestamp},
		"inclusionProof": object{
			"logIndex": "0", "treeSize": "1", "rootHash": leaf[:], "hashes": []string{},
			"checkpoint": object{"envelope": head + "\n— " + logHost + " " + base64.StdEncoding.EncodeToString(signature) + "\n"},
		},
	}
}

func sum(content []byte) string {
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:])
}

func certificatePEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// keylessBundle signs an artifact as an identity, as cosign 3 does without a key, and attaches the
// signature to the artifact to, which may be another one.
func (p pusher) keylessBundle(by *sigstore, as identity, reference, to string) {
	p.t.Helper()
	key, certificate := by.certificate(as)
	envelope, payload, signature := p.envelope(key, reference)
	entry := by.record("dsse", object{
		"envelopeHash": object{"algorithm": "sha256", "value": sum(by.json(envelope))},
		"payloadHash":  object{"algorithm": "sha256", "value": sum(payload)},
		"signatures":   []object{{"signature": signature, "verifier": certificatePEM(certificate)}},
	})
	p.attachBundle(by.json(object{
		"mediaType": bundleType, "dsseEnvelope": envelope,
		"verificationMaterial": object{"certificate": object{"rawBytes": certificate.Raw}, "tlogEntries": []object{by.proven("dsse", entry)}},
	}), to)
}

// keylessTag signs an artifact as an identity, as cosign 2 does without a key, and attaches the
// signature to it.
func (p pusher) keylessTag(by *sigstore, as identity, reference string) {
	p.t.Helper()
	key, certificate := by.certificate(as)
	payload := p.simple(reference)
	signature := p.sign(key, payload)
	entry := by.record("hashedrekord", object{
		"data":      object{"hash": object{"algorithm": "sha256", "value": sum(payload)}},
		"signature": object{"content": signature, "publicKey": object{"content": certificatePEM(certificate)}},
	})
	p.attachTag(payload, map[string]string{
		signatureAnnotation: signature, "dev.sigstore.cosign/certificate": string(certificatePEM(certificate)),
		"dev.sigstore.cosign/chain": string(certificatePEM(by.root)), "dev.sigstore.cosign/bundle": string(by.json(entry)),
	}, reference)
}

// keylessCase is an artifact, and what Flux says of it with the verification rooted.
type keylessCase struct {
	name string
	// sign signs the artifact. Without it, the artifact has no signature.
	sign func(to string)
	// refused is the reason for which Flux refuses the artifact. It verifies the artifact if this is empty.
	refused string
}

// rooted verifies the signatures of the release of acme, by a certificate of the Sigstore that a Secret names.
const rooted = `, verify: {provider: cosign, trustedRootSecretRef: {name: sigstore},
  matchOIDCIdentity: [{issuer: '^https://issuer\.example\.com$', subject: '^https://git\.example\.com/acme/app/'}]}`

// keylessCases returns signatures of a Sigstore, and signatures that it does not vouch for.
func keylessCases(p pusher, own *sigstore) []keylessCase {
	release := identity{"https://issuer.example.com", "https://git.example.com/acme/app/release.yaml@refs/tags/v1"}
	subject, issuer := release, release
	subject.subject = "https://git.example.com/stranger/app/release.yaml@refs/tags/v1"
	issuer.issuer = "https://issuer.example.net"
	stranger := newSigstore(p.t)
	uncertified, unlogged, uncounted := *own, *own, *own
	uncertified.root, uncertified.rootKey = stranger.root, stranger.rootKey
	unlogged.signatures, uncounted.certificates = stranger.signatures, stranger.certificates
	bundle := func(by *sigstore, as identity) func(string) {
		return func(to string) { p.keylessBundle(by, as, to, to) }
	}
	tag := func(by *sigstore, as identity) func(string) {
		return func(to string) { p.keylessTag(by, as, to) }
	}
	return []keylessCase{
		{"keyless-bundle", bundle(own, release), ""},
		{"keyless-tag", tag(own, release), ""},
		{"keyless-unsigned", nil, "no signatures found"},
		{"keyless-subject", bundle(own, subject), "expected SAN value"},
		{"keyless-subject-tag", tag(own, subject), "none of the expected identities"},
		{"keyless-issuer", bundle(own, issuer), "expected issuer value"},
		{"keyless-root", bundle(stranger, release), "not enough verified log entries"},
		{"keyless-root-tag", tag(stranger, release), "log public key not found"},
		{"keyless-uncertified", bundle(&uncertified, release), "leaf certificate"},
		{"keyless-unlogged", bundle(&unlogged, release), "not enough verified log entries"},
		{"keyless-uncounted", bundle(&uncounted, release), "SCT"},
		{"keyless-another", func(to string) { p.keylessBundle(own, release, "notated:v1", to) }, "digest"},
	}
}

// isVerifiedKeyless waits until Flux verifies each case, or refuses it with the reason.
func (r run) isVerifiedKeyless(cases []keylessCase) {
	r.t.Helper()
	for _, tc := range cases {
		source := "ocirepository/" + tc.name
		if tc.refused != "" {
			r.isRefused("flux-system", source, tc.refused)
			continue
		}
		r.isVerified("flux-system", source, true)
	}
}
