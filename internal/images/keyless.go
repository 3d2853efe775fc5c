package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The signers of Flux's own images: workflows of Flux's repositories.
const (
	// FluxIssuer is the issuer of the workflows' identities.
	FluxIssuer = "https://token.actions.githubusercontent.com"
	// FluxIdentity is a regular expression for their names.
	FluxIdentity = `^https://github\.com/fluxcd/[A-Za-z0-9._-]+/\.github/workflows/`
)

// KeylessProgram is the program that verifies keyless signatures. It is in the folder of
// Tenure's own program.
const KeylessProgram = "tenure-sigstore"

// keylessTimeout limits the verification of one signature, which takes some milliseconds.
const keylessTimeout = 30 * time.Second

// ErrNoProgram reports that KeylessProgram does not exist.
var ErrNoProgram = errors.New("the program " + KeylessProgram + " is missing")

// Keyless verifies signatures with a certificate of Fulcio and an entry in the transparency
// log. It uses no network.
type Keyless struct {
	program, issuer, identity string
	trustedRoot               []byte
}

// NewKeyless returns a verifier that trusts identities of one issuer that match a regular
// expression, with certificates and logs in Sigstore's trusted root (trusted_root.json). The
// program that verifies them is in the folder bin. It returns [ErrNoProgram] if the program is
// missing, and another error if the trusted root is not JSON, the issuer is empty, or the
// identity is not a regular expression that begins with ^.
func NewKeyless(bin string, trustedRoot []byte, issuer, identity string) (*Keyless, error) {
	program := filepath.Join(bin, KeylessProgram)
	if info, err := os.Stat(program); err != nil || info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("%w in %s: build it with `make build` in Tenure's repository", ErrNoProgram, bin)
	}
	if !json.Valid(trustedRoot) {
		return nil, errors.New("cannot read the trusted root: it is no JSON")
	}
	if issuer == "" {
		return nil, errors.New("cannot trust anybody without an issuer")
	}
	if _, err := regexp.Compile(identity); err != nil || !strings.HasPrefix(identity, "^") {
		return nil, fmt.Errorf("cannot trust the identity %q: it is a regular expression that begins with ^", identity)
	}
	return &Keyless{program: program, issuer: issuer, identity: identity, trustedRoot: trustedRoot}, nil
}

// Verify implements [Verifier].
func (k *Keyless) Verify(ctx context.Context, s Signature) (Statement, error) {
	request, err := json.Marshal(struct {
		TrustedRoot []byte `json:"trustedRoot"`
		Issuer      string `json:"issuer"`
		Identity    string `json:"identity"`
		Bundle      []byte `json:"bundle,omitempty"`
		Payload     []byte `json:"payload,omitempty"`
		Signature   []byte `json:"signature,omitempty"`
		Certificate string `json:"certificate,omitempty"`
		Log         string `json:"log,omitempty"`
	}{k.trustedRoot, k.issuer, k.identity, s.Bundle, s.Payload, s.Signature, s.Certificate, s.Log})
	if err != nil {
		return Statement{}, fmt.Errorf("the signature cannot be passed on: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, keylessTimeout)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, k.program)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, &errs
	// The program needs no environment variables.
	cmd.Env = []string{}
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(errs.String()); said != "" && ctx.Err() == nil {
			return Statement{}, errors.New(said)
		}
		return Statement{}, fmt.Errorf("%s ended early: %w", KeylessProgram, err)
	}
	var answer struct {
		Payload []byte `json:"payload"`
		InToto  bool   `json:"inToto"`
		Source  string `json:"source"`
	}
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || len(answer.Payload) == 0 {
		return Statement{}, fmt.Errorf("%s answered nothing that can be read", KeylessProgram)
	}
	return Statement{Payload: answer.Payload, InToto: answer.InToto, Source: answer.Source}, nil
}
