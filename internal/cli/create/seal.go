package create

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/fleet/secrets/sops"
)

// sealFlags select the recipients of an encrypted Secret.
type sealFlags struct {
	age, pgp []string
	keyFiles []string
}

func (f *sealFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.age, "age-recipient", nil, "age public key for which the Secret is encrypted (default: the keys in .sops.yaml); repeatable")
	flags.StringSliceVar(&f.pgp, "pgp", nil, "fingerprint of the OpenPGP key for which the Secret is encrypted; repeatable")
	flags.StringArrayVar(&f.keyFiles, "pgp-key-file", nil, "armored OpenPGP public key (default: the files *.asc of the fleet); repeatable")
}

// recipients finds the keys for a file of a repository.
func (f *sealFlags) recipients(repository fs.FS, file string) (sops.Recipients, error) {
	choice := sops.Choice{Age: f.age, PGP: f.pgp}
	for _, name := range f.keyFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			return sops.Recipients{}, fmt.Errorf("cannot read the OpenPGP key: %w", err)
		}
		entities, err := sops.ReadPGP(text)
		if err != nil {
			return sops.Recipients{}, fmt.Errorf("%s: %w", name, err)
		}
		choice.PublicKeys = append(choice.PublicKeys, text)
		if len(f.pgp) == 0 {
			// Without --pgp, all keys in the file are recipients.
			for _, e := range entities {
				choice.PGP = append(choice.PGP, sops.Fingerprint(e))
			}
		}
	}
	return sops.Resolve(repository, file, choice)
}

var encryptedFields = regexp.MustCompile(sops.EncryptedRegex)

// seal encrypts a Secret. Its plain text is never written anywhere.
func seal(secret map[string]any, to sops.Recipients) ([]byte, error) {
	plain, err := yaml.Marshal(secret)
	if err != nil {
		return nil, fmt.Errorf("cannot write the Secret: %w", err)
	}
	return sops.Encrypt(plain, to, encryptedFields, time.Now())
}
