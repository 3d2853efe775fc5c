// Package sops encrypts a Kubernetes Secret so that Flux's kustomize-controller and the sops
// command can decrypt it. It implements the file format of SOPS for age and OpenPGP keys.
//
// It does not use the library of SOPS, which adds the SDKs of five clouds, 86 modules and 800
// packages, to a module that has 70. The format needs only an encrypted data key for each
// recipient, AES-GCM for each value and one MAC. See docs/design/onboarding.md.
package sops

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	agearmor "filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// EncryptedRegex selects the encrypted fields of a Kubernetes object: the contents of a
// Secret. It excludes the identity of the object, since kustomize-controller needs the other
// fields in clear text.
const EncryptedRegex = `^(data|stringData)$`

// version is the release of SOPS with this format.
const version = "3.13.3"

// nonceSize and keySize are SOPS'; other tools use 12 bytes for a nonce.
const (
	nonceSize = 32
	keySize   = 32
)

// ErrNoRecipient reports that there are no recipients, so no key could decrypt.
var ErrNoRecipient = errors.New("there is no key to encrypt for")

// Recipients are the keys of the recipients. Each key alone can decrypt.
type Recipients struct {
	// Age are recipients as age writes them, age1….
	Age []string
	// PGP are OpenPGP public keys.
	PGP []*openpgp.Entity
}

// Empty reports whether there are no recipients.
func (r Recipients) Empty() bool { return len(r.Age)+len(r.PGP) == 0 }

// Encrypt encrypts the values of one YAML mapping at or below keys that match the expression. The
// values must be strings, as in Secrets. Encrypt writes the time into the file. It returns
// [ErrNoRecipient] without recipients, and another error for a text that is not a YAML mapping.
func Encrypt(plain []byte, to Recipients, encrypted *regexp.Regexp, now time.Time) ([]byte, error) {
	if to.Empty() {
		return nil, fmt.Errorf("cannot encrypt: %w", ErrNoRecipient)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(plain, &doc); err != nil {
		// Not the parser's words, which quote the text.
		return nil, errors.New("cannot encrypt: the text is no YAML")
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("cannot encrypt: the text is no YAML mapping")
	}
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("cannot encrypt: %w", err)
	}
	s := sealer{key: key, encrypted: encrypted, mac: sha512.New()}
	if err := s.walk(doc.Content[0], nil, false); err != nil {
		return nil, fmt.Errorf("cannot encrypt: %w", err)
	}
	metadata, err := s.metadata(to, now)
	if err != nil {
		return nil, fmt.Errorf("cannot encrypt: %w", err)
	}
	// SOPS writes its own field last, and Flux detects an encrypted object by this field.
	doc.Content[0].Content = append(doc.Content[0].Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "sops"}, metadata)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	if err := errors.Join(encoder.Encode(&doc), encoder.Close()); err != nil {
		return nil, fmt.Errorf("cannot encrypt: %w", err)
	}
	return out.Bytes(), nil
}

// sealer encrypts values under one key, and adds every value to the MAC.
type sealer struct {
	key       []byte
	encrypted *regexp.Regexp
	mac       io.Writer
}

// walk encrypts the values of a node in place. Each value's path is authenticated with it, so
// that values cannot be exchanged.
func (s *sealer) walk(node *yaml.Node, place []string, encrypt bool) error {
	node.HeadComment, node.LineComment, node.FootComment = "", "", "" // SOPS would encrypt comments and include them in the MAC
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i < len(node.Content); i += 2 {
			name := node.Content[i].Value
			if name == "sops" && len(place) == 0 {
				return errors.New("it is encrypted already")
			}
			node.Content[i].HeadComment, node.Content[i].LineComment, node.Content[i].FootComment = "", "", ""
			below := append(slices.Clone(place), name)
			if err := s.walk(node.Content[i+1], below, encrypt || s.encrypted.MatchString(name)); err != nil {
				return err
			}
		}
	case yaml.SequenceNode:
		for _, item := range node.Content {
			if err := s.walk(item, place, encrypt); err != nil {
				return err
			}
		}
	case yaml.ScalarNode:
		if node.Tag != "!!str" {
			return fmt.Errorf("the value of %s is no string", strings.Join(place, "."))
		}
		_, _ = io.WriteString(s.mac, node.Value)
		if encrypt && node.Value != "" {
			sealed, err := s.seal(node.Value, strings.Join(place, ":")+":")
			if err != nil {
				return err
			}
			node.Value, node.Style = sealed, 0
		}
	default:
		return fmt.Errorf("the value of %s is a reference to another one", strings.Join(place, "."))
	}
	return nil
}

// seal encrypts one value.
func (s *sealer) seal(value, place string) (string, error) {
	block, err := aes.NewCipher(s.key)
	if err != nil {
		return "", err
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, nonceSize)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, nonceSize)
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	sealed := gcm.Seal(nil, nonce, []byte(value), []byte(place))
	data, tag := sealed[:len(sealed)-gcm.Overhead()], sealed[len(sealed)-gcm.Overhead():]
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:str]", encode(data), encode(nonce), encode(tag)), nil
}

// metadata returns the field sops of the file.
func (s *sealer) metadata(to Recipients, now time.Time) (*yaml.Node, error) {
	modified := now.UTC().Format(time.RFC3339)
	sum := fmt.Sprintf("%X", s.mac.(interface{ Sum([]byte) []byte }).Sum(nil))
	mac, err := s.seal(sum, modified)
	if err != nil {
		return nil, err
	}
	content := struct {
		Age            []map[string]string `yaml:"age,omitempty"`
		PGP            []map[string]string `yaml:"pgp,omitempty"`
		LastModified   string              `yaml:"lastmodified"`
		MAC            string              `yaml:"mac"`
		EncryptedRegex string              `yaml:"encrypted_regex"`
		Version        string              `yaml:"version"`
	}{LastModified: modified, MAC: mac, EncryptedRegex: s.encrypted.String(), Version: version}
	for _, recipient := range to.Age {
		sealed, err := sealAge(s.key, recipient)
		if err != nil {
			return nil, err
		}
		content.Age = append(content.Age, map[string]string{"recipient": recipient, "enc": sealed})
	}
	for _, entity := range to.PGP {
		sealed, err := sealPGP(s.key, entity)
		if err != nil {
			return nil, err
		}
		content.PGP = append(content.PGP, map[string]string{"fp": Fingerprint(entity), "enc": sealed, "created_at": modified})
	}
	node := &yaml.Node{}
	return node, node.Encode(content)
}

func sealAge(key []byte, recipient string) (string, error) {
	to, err := ParseAge(recipient)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	armored := agearmor.NewWriter(&out)
	sealed, err := age.Encrypt(armored, to)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", recipient, err)
	}
	_, err = sealed.Write(key)
	if err := errors.Join(err, sealed.Close(), armored.Close()); err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", recipient, err)
	}
	return out.String(), nil
}

// ParseAge reads an age recipient. A private key is refused without being
// repeated in the error.
func ParseAge(recipient string) (age.Recipient, error) {
	if strings.HasPrefix(strings.ToUpper(recipient), "AGE-SECRET-KEY") {
		return nil, errors.New("this is a private age key: give the public one, age1…, and keep this one safe")
	}
	if strings.HasPrefix(recipient, "age1pq1") {
		to, err := age.ParseHybridRecipient(recipient)
		if err != nil {
			return nil, fmt.Errorf("cannot read the age recipient %q: %w", recipient, err)
		}
		return to, nil
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return nil, fmt.Errorf("cannot read the age recipient %q: %w", recipient, err)
	}
	return to, nil
}

func sealPGP(key []byte, entity *openpgp.Entity) (string, error) {
	var out bytes.Buffer
	armored, err := armor.Encode(&out, "PGP MESSAGE", nil)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", Fingerprint(entity), err)
	}
	sealed, err := openpgp.Encrypt(armored, []*openpgp.Entity{entity}, nil, &openpgp.FileHints{IsBinary: true}, nil)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", Fingerprint(entity), err)
	}
	_, err = sealed.Write(key)
	if err := errors.Join(err, sealed.Close(), armored.Close()); err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", Fingerprint(entity), err)
	}
	return out.String() + "\n", nil
}

// Fingerprint returns the fingerprint of a key, in upper case, as gpg prints it.
func Fingerprint(entity *openpgp.Entity) string {
	return fmt.Sprintf("%X", entity.PrimaryKey.Fingerprint)
}

// ReadPGP reads armored OpenPGP public keys. It returns an error for a text that it cannot parse, and for a private key.
func ReadPGP(armored []byte) ([]*openpgp.Entity, error) {
	entities, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(armored))
	if err != nil {
		return nil, fmt.Errorf("cannot read the OpenPGP key: %w", err)
	}
	for _, e := range entities {
		if e.PrivateKey != nil {
			return nil, errors.New("this is a private OpenPGP key: give the public one (`gpg --export --armor KEY`), and keep this one safe")
		}
	}
	return entities, nil
}
