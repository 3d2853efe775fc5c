package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore-go/pkg/verify"
)

const (
	issuer = "https://issuer.example.com"
	signer = "https://git.example.com/fluxcd/source-controller/.github/workflows/release.yml@refs/tags/v1"
)

// What the certificates of the test's Sigstore lack is that a log has them.
var needed = []verify.VerifierOption{verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1)}

// simple is a signature as cosign 2 leaves it, made by a Sigstore of the test's own.
func simple(t *testing.T, sigstore *ca.VirtualSigstore, payload string) request {
	t.Helper()
	entity, err := sigstore.Sign(signer, issuer, []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	verification, err := entity.VerificationContent()
	if err != nil {
		t.Fatal(err)
	}
	signature, err := entity.SignatureContent()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := entity.TlogEntries()
	if err != nil {
		t.Fatal(err)
	}
	entry := entries[0].TransparencyLogEntry()
	said := tlog.RekorPayload{
		Body:           base64.StdEncoding.EncodeToString(entry.CanonicalizedBody),
		IntegratedTime: entry.IntegratedTime, LogIndex: entry.LogIndex, LogID: hex.EncodeToString(entry.LogId.KeyId),
	}
	promise, err := sigstore.RekorSignPayload(said)
	if err != nil {
		t.Fatal(err)
	}
	log, err := json.Marshal(map[string]any{"SignedEntryTimestamp": promise, "Payload": said})
	if err != nil {
		t.Fatal(err)
	}
	return request{
		Issuer: issuer, Identity: `^https://git\.example\.com/fluxcd/`,
		Payload: []byte(payload), Signature: signature.Signature(), Log: string(log),
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: verification.Certificate().Raw})),
	}
}

func TestSimple(t *testing.T) {
	t.Parallel()
	sigstore, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	good, other := simple(t, sigstore, "an image"), simple(t, sigstore, "another image")
	for _, tt := range []struct {
		reason string
		change func(r *request)
		want   string
	}{
		{"a good signature", func(*request) {}, ""},
		{"another issuer", func(r *request) { r.Issuer = "https://issuer.example.net" }, "identity"},
		{"another signer", func(r *request) { r.Identity = "^https://git[.]example[.]com/acme/" }, "identity"},
		{"nobody is trusted", func(r *request) { r.Identity = "" }, "nobody is trusted"},
		{"an identity that is no expression", func(r *request) { r.Identity = "(" }, "identity cannot be read"},
		{"the payload was changed", func(r *request) { r.Payload = []byte("an evil image") }, "transparency log hashedrekord entry digest"},
		{"the signature of another image", func(r *request) { r.Signature = other.Signature }, "does not match"},
		{"the log entry of another image", func(r *request) { r.Log = other.Log }, "does not match"},
		{"the certificate of another signature", func(r *request) { r.Certificate = other.Certificate }, "does not match"},
		{"not in the log", func(r *request) { r.Log = "" }, "is not in the log"},
		{"without a certificate", func(r *request) { r.Certificate = "" }, "has no certificate"},
		{"a log that nobody knows", func(r *request) { *r = simple(t, foreign, "an image") }, "verify"},
		{"a certificate that is none", func(r *request) { r.Certificate = "x" }, "the certificate cannot be read"},
		{"a log entry that is none", func(r *request) { r.Log = "x" }, "the log's answer cannot be read"},
		{"the log's time was changed", func(r *request) {
			var log map[string]any
			if err := json.Unmarshal([]byte(r.Log), &log); err != nil {
				t.Error(err)
			}
			log["Payload"].(map[string]any)["integratedTime"] = 1
			text, _ := json.Marshal(log)
			r.Log = string(text)
		}, "verify"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			r := good
			tt.change(&r)
			found, err := r.verify(sigstore, needed...)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %+v, error %v, want %q", found, err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&statement{Payload: []byte("an image")}, found); diff != "" {
				t.Errorf("the statement differs (-want +got):\n%s", diff)
			}
		})
	}
	// What is asked for outside of tests: a log of certificates has to know it.
	if _, err := good.verify(sigstore, append(needed, verify.WithSignedCertificateTimestamps(witnesses))...); err == nil {
		t.Error("a certificate that is in no log was accepted")
	}
}

// A bundle that Sigstore's own service made: the program as it is, from end to end.
// It is of sigstore-go's examples, and signs a package, not an image.
func TestPublicGood(t *testing.T) {
	t.Parallel()
	trusted, err := os.ReadFile("testdata/trusted-root.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/bundle.json")
	if err != nil {
		t.Fatal(err)
	}
	good := request{
		TrustedRoot: trusted, Bundle: text,
		Issuer: "https://token.actions.githubusercontent.com", Identity: "^https://github[.]com/sigstore/sigstore-js/",
	}
	for _, tt := range []struct {
		reason string
		change func(r *request)
		want   string
	}{
		{"as it is", func(*request) {}, ""},
		{"another signer", func(r *request) { r.Identity = "^https://github[.]com/fluxcd/" }, "identity"},
		{"another trusted root", func(r *request) { r.TrustedRoot = []byte("{}") }, "trusted root"},
		{"a changed statement", func(r *request) {
			r.Bundle = bytes.Replace(text, []byte(`"payload":"eyJ`), []byte(`"payload":"eyI`), 1)
			r.Bundle = bytes.Replace(r.Bundle, []byte(`"payload": "eyJ`), []byte(`"payload": "eyI`), 1)
		}, "verify"},
		{"with something else beside it", func(r *request) { r.Payload = []byte("x") }, "another text came with it"},
		{"a bundle that is none", func(r *request) { r.Bundle = []byte("{}") }, "the bundle cannot be read"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			r := good
			tt.change(&r)
			content, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = run(bytes.NewReader(content), &out)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
					t.Errorf("got %s, error %v, want %q", out.String(), err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var found statement
			if err := json.Unmarshal(out.Bytes(), &found); err != nil {
				t.Fatal(err)
			}
			if found.Source != "https://github.com/sigstore/sigstore-js" || !found.InToto || !bytes.Contains(found.Payload, []byte("pkg:npm/sigstore@1.3.0")) {
				t.Errorf("got %+v", found)
			}
		})
	}
}
