package catalog

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"maps"
	"slices"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The SOPS format, as far as the canaries need it: a data key for AES-256 that
// is encrypted for each recipient, and values that are encrypted with it, bound
// to their place in the file.
const (
	dataKeySize = 32
	nonceSize   = 32
	// sopsVersion is the version whose format this is.
	sopsVersion = "3.13.3"
)

// sealed writes an object whose data are encrypted for age recipients, as SOPS
// does. All values must be strings.
func sealed(u *unstructured.Unstructured, recipients []string) (string, error) {
	// Neither of the two can fail.
	key := make([]byte, dataKeySize)
	_, _ = rand.Read(key)
	u = u.DeepCopy()
	sum := sha512.New()
	digest(sum, u.Object)
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	for field, value := range data {
		var err error
		if data[field], err = sealValue(key, value, "data:"+field+":"); err != nil {
			return "", err
		}
	}
	if err := unstructured.SetNestedStringMap(u.Object, data, "data"); err != nil {
		return "", fmt.Errorf("cannot encrypt %s: %w", u.GetName(), err)
	}
	modified := time.Now().UTC().Format(time.RFC3339)
	mac, err := sealValue(key, fmt.Sprintf("%X", sum.Sum(nil)), modified)
	if err != nil {
		return "", err
	}
	var keys []any
	for _, recipient := range recipients {
		enc, err := sealKey(key, recipient)
		if err != nil {
			return "", err
		}
		keys = append(keys, map[string]any{"recipient": recipient, "enc": enc})
	}
	u.Object["sops"] = map[string]any{
		"age": keys, "encrypted_regex": "^(data|stringData)$", "lastmodified": modified, "mac": mac, "version": sopsVersion,
	}
	return manifest(u), nil
}

// digest adds all values of an object, in the order in which they are written.
func digest(sum hash.Hash, object map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		switch value := object[key].(type) {
		case map[string]any:
			digest(sum, value)
		case string:
			_, _ = sum.Write([]byte(value))
		}
	}
}

// sealKey encrypts the data key for a recipient.
func sealKey(key []byte, recipient string) (string, error) {
	r, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", recipient, err)
	}
	var out bytes.Buffer
	text := armor.NewWriter(&out)
	w, err := age.Encrypt(text, r)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt for %s: %w", recipient, err)
	}
	for _, step := range []func() error{func() error { _, err := w.Write(key); return err }, w.Close, text.Close} {
		if err := step(); err != nil {
			return "", fmt.Errorf("cannot encrypt for %s: %w", recipient, err)
		}
	}
	return out.String(), nil
}

// sealValue encrypts a string for a place in the file.
func sealValue(key []byte, value, place string) (string, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt a value: %w", err)
	}
	gcm, err := cipher.NewGCMWithNonceSize(block, nonceSize)
	if err != nil {
		return "", fmt.Errorf("cannot encrypt a value: %w", err)
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce)
	out := gcm.Seal(nil, nonce, []byte(value), []byte(place))
	text, tag := out[:len(value)], out[len(value):]
	code := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("ENC[AES256_GCM,data:%s,iv:%s,tag:%s,type:str]", code(text), code(nonce), code(tag)), nil
}
