package sops

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// Choice is the user's choice of keys.
type Choice struct {
	// Age are recipients and PGP fingerprints. Without either, the .sops.yaml of the repository
	// names the recipients.
	Age, PGP []string
	// PublicKeys are armored OpenPGP keys, in addition to the files *.asc of
	// the repository.
	PublicKeys [][]byte
}

// Resolve finds the keys for a file of a repository: those of the choice, or else those of the
// rule in .sops.yaml. It returns an error if there are none, if a key is invalid, or if an OpenPGP
// key cannot be found.
func Resolve(repository fs.FS, file string, choice Choice) (Recipients, error) {
	if len(choice.Age)+len(choice.PGP) == 0 {
		keys, err := FindKeys(repository, file)
		if errors.Is(err, fs.ErrNotExist) {
			return Recipients{}, fmt.Errorf("%w; add a creation rule, or name the keys with --age-recipient or --pgp", err)
		}
		if err != nil {
			return Recipients{}, err
		}
		choice.Age, choice.PGP = keys.Age, keys.PGP
	}
	for _, recipient := range choice.Age {
		if _, err := ParseAge(recipient); err != nil {
			return Recipients{}, err
		}
	}
	to := Recipients{Age: choice.Age}
	if len(choice.PGP) == 0 {
		return to, nil
	}
	known, err := publicKeys(repository, choice.PublicKeys)
	if err != nil {
		return Recipients{}, err
	}
	for _, fingerprint := range choice.PGP {
		entity := find(known, fingerprint)
		if entity == nil {
			return Recipients{}, fmt.Errorf("cannot find the OpenPGP key %s: export it with `gpg --export --armor %s` to a file such as .sops.pub.asc in the fleet, or name the file with --pgp-key-file",
				fingerprint, fingerprint)
		}
		to.PGP = append(to.PGP, entity)
	}
	return to, nil
}

// maxKeyFile bounds the files that are read as keys.
const maxKeyFile = 1 << 20

// publicKeys returns the given keys and the keys in the repository, where Flux's guides store
// them as .sops.pub.asc. It skips files with other content.
func publicKeys(repository fs.FS, given [][]byte) ([]*openpgp.Entity, error) {
	var known []*openpgp.Entity
	for _, text := range given {
		entities, err := ReadPGP(text)
		if err != nil {
			return nil, err
		}
		known = append(known, entities...)
	}
	err := fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case !d.Type().IsRegular() || path.Ext(name) != ".asc":
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > maxKeyFile {
			return err
		}
		text, err := fs.ReadFile(repository, name)
		if err != nil {
			return err
		}
		if entities, err := ReadPGP(text); err == nil {
			known = append(known, entities...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot look for OpenPGP keys: %w", err)
	}
	return known, nil
}

// minFingerprint is the minimum length of a fingerprint suffix that identifies a key: a long
// key ID. Shorter ones have been forged.
const minFingerprint = 16

func find(known []*openpgp.Entity, fingerprint string) *openpgp.Entity {
	wanted := strings.ToUpper(strings.TrimPrefix(strings.ReplaceAll(fingerprint, " ", ""), "0x"))
	if len(wanted) < minFingerprint {
		return nil
	}
	for _, e := range known {
		if strings.HasSuffix(Fingerprint(e), wanted) {
			return e
		}
		for _, sub := range e.Subkeys {
			if strings.HasSuffix(fmt.Sprintf("%X", sub.PublicKey.Fingerprint), wanted) {
				return e
			}
		}
	}
	return nil
}
