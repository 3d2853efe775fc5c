package examples_test

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"filippo.io/age"
	"filippo.io/age/armor"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/yaml"
)

// The fields of Flux's and Kubernetes' objects that the tests read. Only
// internal/flux imports Flux's own types.
type (
	kustomization struct {
		Spec struct {
			Path               string `json:"path"`
			ServiceAccountName string `json:"serviceAccountName"`
			Prune              bool   `json:"prune"`
			Wait               bool   `json:"wait"`
			Timeout            string `json:"timeout"`
			DependsOn          []named
			Decryption         *struct {
				Provider  string `json:"provider"`
				SecretRef named  `json:"secretRef"`
			} `json:"decryption"`
		} `json:"spec"`
	}
	named struct {
		Name string `json:"name"`
	}
	deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Args []string `json:"args"`
					} `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	secret struct {
		Metadata struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		StringData map[string]string `json:"stringData"`
		Sops       struct {
			Age []struct {
				Recipient string `json:"recipient"`
				Enc       string `json:"enc"`
			} `json:"age"`
		} `json:"sops"`
	}
)

// TestSecretOpens decrypts billing's Secret in every environment the way that
// Flux does, with the key that the platform's Kustomization names.
func TestSecretOpens(t *testing.T) {
	t.Parallel()
	for _, env := range []string{"staging", "production"} {
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			var sync kustomization
			decode(t, find(t, build(t, "fleet/platform/tenants/"+env), "Kustomization", "billing"), &sync)
			if sync.Spec.Decryption == nil || sync.Spec.Decryption.Provider != "sops" {
				t.Fatal("billing's Kustomization decrypts nothing")
			}
			key := bootstrapKey(t, "billing", sync.Spec.Decryption.SecretRef.Name)

			var sealed secret
			decode(t, find(t, build(t, "fleet/billing/"+env), "Secret", "credentials"), &sealed)
			got, err := open(sealed, key)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"database-password": "not-a-secret-of-anybody", "token": "the-sender-of-pushes-knows-this"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the decrypted Secret: -want, +got:\n%s", diff)
			}

			other, err := age.GenerateX25519Identity()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := open(sealed, other); !errors.As(err, new(*age.NoIdentityMatchError)) {
				t.Errorf("the Secret opens with another key, or for another reason does not: %v", err)
			}
		})
	}
}

// bootstrapKey returns the age key of a Secret that a platform admin applies by
// hand.
func bootstrapKey(t *testing.T, namespace, name string) *age.X25519Identity {
	t.Helper()
	files, err := filepath.Glob("fleet/bootstrap/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(content), "\n---\n") {
			var s secret
			if err := yaml.Unmarshal([]byte(doc), &s); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if s.Metadata.Name != name || s.Metadata.Namespace != namespace {
				continue
			}
			for field, value := range s.StringData {
				if !strings.HasSuffix(field, ".agekey") {
					t.Errorf("Flux takes only fields that end in .agekey for age keys, not %s", field)
				}
				key, err := age.ParseX25519Identity(strings.TrimSpace(value))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				return key
			}
		}
	}
	t.Fatalf("no file in fleet/bootstrap holds the Secret %s/%s", namespace, name)
	return nil
}

// open decrypts a Secret as SOPS lays it out: the data key is encrypted with
// age, each value with AES-GCM under the data key, bound to its place.
func open(s secret, key age.Identity) (map[string]string, error) {
	if len(s.Sops.Age) == 0 {
		return nil, errors.New("the Secret is not encrypted for any age key")
	}
	plain, err := age.Decrypt(armor.NewReader(strings.NewReader(s.Sops.Age[0].Enc)), key)
	if err != nil {
		return nil, fmt.Errorf("cannot decrypt the data key: %w", err)
	}
	dataKey, err := io.ReadAll(plain)
	if err != nil {
		return nil, fmt.Errorf("cannot decrypt the data key: %w", err)
	}
	block, err := aes.NewCipher(dataKey)
	if err != nil {
		return nil, err
	}
	opened := map[string]string{}
	for field, value := range s.StringData {
		parts := sealedValue.FindStringSubmatch(value)
		if parts == nil {
			return nil, fmt.Errorf("the field %s is not encrypted", field)
		}
		var raw [3][]byte // data, nonce, tag
		for i := range raw {
			if raw[i], err = base64.StdEncoding.DecodeString(parts[i+1]); err != nil {
				return nil, err
			}
		}
		sealer, err := cipher.NewGCMWithNonceSize(block, len(raw[1]))
		if err != nil {
			return nil, err
		}
		text, err := sealer.Open(nil, raw[1], append(raw[0], raw[2]...), []byte("stringData:"+field+":"))
		if err != nil {
			return nil, fmt.Errorf("cannot decrypt the field %s: %w", field, err)
		}
		opened[field] = string(text)
	}
	return opened, nil
}

var sealedValue = regexp.MustCompile(`^ENC\[AES256_GCM,data:([^,]+),iv:([^,]+),tag:([^,]+),type:str\]$`)

// encrypted says whether an object was encrypted by SOPS: it then has a field
// that Kubernetes does not know, until Flux decrypts it.
func encrypted(o *resource.Resource) bool {
	return o.Field("sops") != nil
}

func find(t *testing.T, objects resmap.ResMap, kind, name string) *resource.Resource {
	t.Helper()
	for _, o := range objects.Resources() {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func decode(t *testing.T, o *resource.Resource, into any) {
	t.Helper()
	text, err := o.AsYAML()
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func names(refs []named) []string {
	list := make([]string, 0, len(refs))
	for _, r := range refs {
		list = append(list, r.Name)
	}
	return list
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
