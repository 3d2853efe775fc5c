package controlplane

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func read(t *testing.T, elements ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestKeysLast(t *testing.T) {
	t.Parallel()
	data, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	before, err := loadKeys(data, first)
	if err != nil {
		t.Fatal(err)
	}
	after, err := loadKeys(data, second)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "sa.key", "sa.pub"} {
		if diff := cmp.Diff(string(read(t, first, name)), string(read(t, second, name))); diff != "" {
			t.Errorf("%s changed with a restart (-before +after):\n%s", name, diff)
		}
	}
	if bytes.Equal(before.Admin.CertPEM, after.Admin.CertPEM) {
		t.Error("the admin's certificate is the old one, want a new one at each start")
	}
	admin, err := before.Admin.TLS()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Leaf.Verify(x509.VerifyOptions{Roots: after.CA.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("a certificate of the first start is not good after the second: %v", err)
	}
	if diff := cmp.Diff([]string{"system:masters"}, admin.Leaf.Subject.Organization); diff != "" {
		t.Errorf("the admin's groups (-want +got):\n%s", diff)
	}
	err = filepath.WalkDir(data, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v (%v), want 0600", file, info.Mode().Perm(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBrokenKeys(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, file string
		content      []byte
	}{
		"Certificate":   {"An authority without a certificate is nobody.", "ca.crt", []byte("broken")},
		"Key":           {"An authority without a key cannot sign.", "ca.key", []byte("broken")},
		"Absent":        {"A key that was removed is not made anew: the certificate stays the old one.", "ca.key", nil},
		"FrontProxy":    {"The second authority is looked at as well.", "front-proxy-ca.crt", []byte("broken")},
		"Tokens":        {"Tokens of an unknown key would all be refused.", "sa.key", []byte("broken")},
		"TokensNotPKCS": {"PEM alone is not enough.", "sa.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})},
		"Empty":         {"A full disk leaves empty files.", "sa.key", []byte{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			if _, err := loadKeys(data, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(data, tc.file)
			err := os.WriteFile(file, tc.content, 0o600)
			if tc.content == nil {
				err = os.Remove(file)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := loadKeys(data, t.TempDir()); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(file, filepath.Ext(file))) {
				t.Errorf("%s: got %v, want an error that names %s", tc.reason, err, file)
			}
		})
	}
}

func TestKeysNeedAFolder(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dirs := range [][2]string{{file, t.TempDir()}, {t.TempDir(), file}} {
		if _, err := loadKeys(dirs[0], dirs[1]); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v, want an error that names %s", err, file)
		}
	}
}
