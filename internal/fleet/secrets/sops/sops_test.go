package sops

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"filippo.io/age"
	agearmor "filippo.io/age/armor"
	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const plain = `apiVersion: v1
kind: Secret
metadata:
  name: dev-team-auth
  namespace: apps
stringData:
  empty: ""
  identity: |
    -----BEGIN OPENSSH PRIVATE KEY-----
    secret
    -----END OPENSSH PRIVATE KEY-----
  number: "1"
`

var (
	now     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.FixedZone("", 3600))
	secrets = regexp.MustCompile(EncryptedRegex)
)

type sealedFile struct {
	Metadata   map[string]string
	StringData map[string]string
	Sops       struct {
		Age            []struct{ Recipient, Enc string }
		PGP            []struct{ FP, Enc string }
		LastModified   string
		MAC            string
		EncryptedRegex string `json:"encrypted_regex"`
	}
}

// open decrypts a value as SOPS does.
func open(t *testing.T, key []byte, value, place string) string {
	t.Helper()
	parts := regexp.MustCompile(`^ENC\[AES256_GCM,data:([^,]+),iv:([^,]+),tag:([^,]+),type:str\]$`).FindStringSubmatch(value)
	if parts == nil {
		t.Fatalf("%s is not encrypted: %s", place, value)
	}
	raw := make([][]byte, 3)
	for i := range raw {
		var err error
		if raw[i], err = base64.StdEncoding.DecodeString(parts[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, len(raw[1]))
	if err != nil {
		t.Fatal(err)
	}
	text, err := gcm.Open(nil, raw[1], append(raw[0], raw[2]...), []byte(place))
	if err != nil {
		t.Fatalf("cannot open %s: %v", place, err)
	}
	return string(text)
}

// TestEncrypt decrypts a file with each of its keys, and checks its MAC.
func TestEncrypt(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	entity, err := openpgp.NewEntity("flux", "", "flux@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := Encrypt([]byte(plain), Recipients{Age: []string{identity.Recipient().String()}, PGP: []*openpgp.Entity{entity}}, secrets, now)
	if err != nil {
		t.Fatal(err)
	}
	var file sealedFile
	if err := yaml.Unmarshal(sealed, &file); err != nil {
		t.Fatalf("%v\n%s", err, sealed)
	}
	if file.Metadata["name"] != "dev-team-auth" || file.Sops.LastModified != "2026-11-21T11:00:00Z" || file.Sops.EncryptedRegex != EncryptedRegex {
		t.Errorf("what has to be read by everybody is not there:\n%s", sealed)
	}
	if strings.Contains(string(sealed), "OPENSSH") {
		t.Errorf("the secret is in the file:\n%s", sealed)
	}

	r, err := age.Decrypt(agearmor.NewReader(strings.NewReader(file.Sops.Age[0].Enc)), identity)
	if err != nil {
		t.Fatal(err)
	}
	key, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	block, err := armor.Decode(strings.NewReader(file.Sops.PGP[0].Enc))
	if err != nil {
		t.Fatal(err)
	}
	message, err := openpgp.ReadMessage(block.Body, openpgp.EntityList{entity}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := io.ReadAll(message.UnverifiedBody); err != nil || !bytes.Equal(other, key) {
		t.Errorf("the keys for age and OpenPGP differ, %v", err)
	}
	if want := fmt.Sprintf("%X", entity.PrimaryKey.Fingerprint); file.Sops.PGP[0].FP != want {
		t.Errorf("the fingerprint is %s, want %s", file.Sops.PGP[0].FP, want)
	}

	var want struct{ StringData map[string]string }
	if err := yaml.Unmarshal([]byte(plain), &want); err != nil {
		t.Fatal(err)
	}
	for name, value := range file.StringData {
		if value != "" { // SOPS does not encrypt empty values
			file.StringData[name] = open(t, key, value, "stringData:"+name+":")
		}
	}
	if diff := cmp.Diff(want.StringData, file.StringData); diff != "" {
		t.Errorf("the decrypted values (-want +got):\n%s", diff)
	}
	sum := sha512.Sum512([]byte("v1" + "Secret" + "dev-team-auth" + "apps" + "" + want.StringData["identity"] + "1"))
	if mac := open(t, key, file.Sops.MAC, file.Sops.LastModified); mac != fmt.Sprintf("%X", sum) {
		t.Errorf("the MAC is %s, want %X", mac, sum)
	}
}

func TestEncryptRefuses(t *testing.T) {
	t.Parallel()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	good := Recipients{Age: []string{identity.Recipient().String()}}
	for name, tc := range map[string]struct {
		reason, text string
		to           Recipients
		want         string
	}{
		"nobody":      {reason: "without a key nobody could decrypt", text: plain, want: ErrNoRecipient.Error()},
		"private key": {reason: "a private key must not be written into a file, nor an error", text: plain, to: Recipients{Age: []string{identity.String()}}, want: "this is a private age key"},
		"twice":       {reason: "an encrypted file cannot be encrypted again", text: "stringData: {a: b}\nsops: {}\n", to: good, want: "encrypted already"},
		"not YAML":    {reason: "no YAML, and the error does not repeat it", text: "password: [hunter2", to: good, want: "the text is no YAML"},
		"number":      {reason: "what is no string would change its type", text: "data: {a: 1}\n", to: good, want: "data.a is no string"},
		"reference":   {reason: "a reference would be encrypted in one place and not in another", text: "a: &x b\ndata: {c: *x}\n", to: good, want: "reference"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sealed, err := Encrypt([]byte(tc.text), tc.to, secrets, now)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if sealed != nil || strings.Contains(err.Error(), identity.String()) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: something comes out: %q, %v", tc.reason, sealed, err)
			}
		})
	}
}

func TestReadPGPRefusesPrivateKeys(t *testing.T) {
	t.Parallel()
	entity, err := openpgp.NewEntity("flux", "", "flux@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PrivateKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(entity.SerializePrivate(w, nil), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPGP(out.Bytes()); err == nil || !strings.Contains(err.Error(), "private") {
		t.Errorf("a private key is taken: %v", err)
	}
}

func TestFindKeys(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		files  map[string]string
		want   Keys
		err    error
	}{
		"first rule that matches": {
			reason: "rules are tried in order, the path is relative to the file",
			files:  map[string]string{".sops.yaml": "creation_rules:\n- {path_regex: ^clusters/, age: no}\n- {path_regex: ^tenants/.*\\.yaml$, age: 'a, b', pgp: [F]}\n- {age: c}\n"},
			want:   Keys{File: ".sops.yaml", Age: []string{"a", "b"}, PGP: []string{"F"}},
		},
		"nearest file": {
			reason: "a file nearer by comes first, as for sops",
			files:  map[string]string{".sops.yaml": "creation_rules: [{age: far}]", "tenants/.sops.yaml": "creation_rules: [{path_regex: ^base/, age: near}]"},
			want:   Keys{File: "tenants/.sops.yaml", Age: []string{"near"}},
		},
		"one group": {
			reason: "a single group is the same as none",
			files:  map[string]string{".sops.yaml": "creation_rules: [{key_groups: [{age: [a], pgp: [F]}]}]"},
			want:   Keys{File: ".sops.yaml", Age: []string{"a"}, PGP: []string{"F"}},
		},
		"no file":    {reason: "nobody said anything", err: fs.ErrNotExist},
		"no match":   {reason: "no rule is for this file", files: map[string]string{".sops.yaml": "creation_rules: [{path_regex: ^x, age: a}]"}, err: fs.ErrNotExist},
		"cloud keys": {reason: "leaving a key out would lock its owners out", files: map[string]string{".sops.yaml": "creation_rules: [{age: a, kms: arn}]"}, err: ErrUnsupported},
		"two groups": {reason: "the key would have to be split", files: map[string]string{".sops.yaml": "creation_rules: [{key_groups: [{age: [a]}, {age: [b]}]}]"}, err: ErrUnsupported},
		"no key":     {reason: "a rule without keys", files: map[string]string{".sops.yaml": "creation_rules: [{encrypted_regex: x}]"}, err: ErrNoRecipient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := fstest.MapFS{}
			for file, content := range tc.files {
				repository[file] = &fstest.MapFile{Data: []byte(content)}
			}
			got, err := FindKeys(repository, "tenants/base/dev-team/auth.yaml")
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: got %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzFindKeys checks that FindKeys returns keys or an error for any .sops.yaml.
func FuzzFindKeys(f *testing.F) {
	for _, seed := range []string{"creation_rules: [{age: a}]", "creation_rules: [{key_groups: [{pgp: [1]}]}]", "creation_rules: x", "", "[", "creation_rules: [{path_regex: '('}]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, config string) {
		keys, err := FindKeys(fstest.MapFS{".sops.yaml": {Data: []byte(config)}}, "a/b.yaml")
		if err == nil && len(keys.Age)+len(keys.PGP) == 0 {
			t.Errorf("no key and no error for %q", config)
		}
	})
}
