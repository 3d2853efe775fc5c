// Package imageflags are the flags with which `tenure profile` and `tenure install`
// check the images of Flux.
package imageflags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	signedimages "github.com/tenure-dev/tenure/internal/images"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
)

// Flags select whether and how to verify images.
type Flags struct {
	verify, given      bool
	key                string
	registry, signedAs string

	trustedRoot, issuer, identity string
}

// The names of the flags.
const (
	verifyFlag   = "verify-images"
	keyFlag      = "image-key"
	registryFlag = "image-registry"
	signedAsFlag = "image-signed-as"
	rootFlag     = "trusted-root"
	issuerFlag   = "certificate-oidc-issuer"
	identityFlag = "certificate-identity-regexp"
)

// Add adds the flags to a command.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.verify, verifyFlag, false, "verify the signatures of Flux's images, pin the images by digest, and allow only these images in Flux's namespace; =false removes the pins")
	flags.StringVar(&f.key, keyFlag, "", "trust the public key in this PEM `file`, such as cosign.pub")
	flags.StringVar(&f.trustedRoot, rootFlag, "", "trust keyless signatures by Sigstore's trusted_root.json in this `file`")
	flags.StringVar(&f.issuer, issuerFlag, signedimages.FluxIssuer, "the `URL` of the issuer of the keyless signer's identity")
	flags.StringVar(&f.identity, identityFlag, signedimages.FluxIdentity, "the identity of the keyless signer, as a regular expression (`REGEXP`)")
	cmd.MarkFlagsMutuallyExclusive(keyFlag, rootFlag)
	flags.StringVar(&f.registry, registryFlag, "", "fetch the images from this `PREFIX`, such as registry.example.com/fluxcd; the last part of their names stays")
	flags.StringVar(&f.signedAs, signedAsFlag, "", "the `PREFIX` of the images in their signatures, if Flux's manifests already name copies of the images")
	run := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		f.given = flags.Changed(verifyFlag)
		if run != nil {
			return run(cmd, args)
		}
		return nil
	}
}

// Check returns an error for an invalid combination of flags.
func (f *Flags) Check() error {
	for name, value := range map[string]string{keyFlag: f.key, rootFlag: f.trustedRoot, registryFlag: f.registry, signedAsFlag: f.signedAs} {
		if value != "" && !f.verify {
			return fmt.Errorf("--%s needs --%s", name, verifyFlag)
		}
	}
	if f.verify && f.key == "" && f.trustedRoot == "" {
		return ui.WithHint(fmt.Errorf("--%s needs a trusted key", verifyFlag),
			"for Flux's own images name Sigstore's trusted root: --"+rootFlag+" trusted_root.json",
			"for images that you sign yourself, name the public key: --"+keyFlag+" cosign.pub")
	}
	return nil
}

// Verify reports whether to verify images.
func (f *Flags) Verify() bool { return f.verify }

// Given reports whether the user set the flag, to true or false.
func (f *Flags) Given() bool { return f.given }

// Pins verifies the images and returns their pins. It returns nil if the user did not set the
// flag, and an empty slice to remove existing pins. The error names all untrusted images.
func (f *Flags) Pins(ctx context.Context, images []lockdown.Image) ([]lockdown.Pin, error) {
	if !f.verify {
		if f.given {
			return []lockdown.Pin{}, nil
		}
		return nil, nil
	}
	verifier, err := f.verifier()
	if err != nil {
		return nil, err
	}
	checker := signedimages.Checker{Verifier: verifier}
	pins, wrong := []lockdown.Pin{}, []error(nil)
	for _, image := range images {
		pin, err := checker.Check(ctx, f.place(image))
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		pins = append(pins, lockdown.Pin{Name: image.Name, Pin: pin})
	}
	if len(wrong) > 0 {
		return nil, ui.WithHint(errors.Join(wrong...), "nothing was written, and the cluster does not change")
	}
	return slices.Clip(pins), nil
}

func (f *Flags) verifier() (signedimages.Verifier, error) {
	if f.trustedRoot != "" {
		return f.keyless()
	}
	text, err := os.ReadFile(f.key)
	if err != nil {
		return nil, fmt.Errorf("cannot read --%s: %w", keyFlag, err)
	}
	return signedimages.ReadKey(text)
}

func (f *Flags) keyless() (signedimages.Verifier, error) {
	trusted, err := os.ReadFile(f.trustedRoot)
	if err != nil {
		return nil, fmt.Errorf("cannot read --%s: %w", rootFlag, err)
	}
	bin, err := localcluster.BinDir()
	if err != nil {
		return nil, err
	}
	return signedimages.NewKeyless(bin, trusted, f.issuer, f.identity)
}

// place returns the reference to fetch an image from, and the name that its signature must
// have.
func (f *Flags) place(image lockdown.Image) signedimages.Image {
	at := signedimages.Image{Reference: image.Reference, SignedAs: image.Name}
	if f.registry != "" {
		at.Reference = strings.TrimSuffix(f.registry, "/") + "/" + path.Base(image.Reference)
	}
	if f.signedAs != "" {
		at.SignedAs = strings.TrimSuffix(f.signedAs, "/") + "/" + path.Base(image.Name)
	}
	return at
}
