package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/tenure-dev/tenure/internal/images"
)

// guard rejects requests without the user's credentials.
func (h *host) guard(user, password string) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	f := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == want {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	h.before.Store(&f)
}

// TestPushCredentials pushes with the credentials of docker's configuration file.
func TestPushCredentials(t *testing.T) {
	h, s := serve(t), newSigner(t)
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	h.guard("jane", "s3cret")
	to, err := parseTarget(h.name+"/acme/tiny:v0.1.0", authn.DefaultKeychain)
	if err != nil {
		t.Fatal(err)
	}
	all := tinyBundle(t, s, to.tag.Repository.Name())
	for _, tt := range []struct {
		reason, password string
		fails            bool
	}{
		{"no credentials", "", true},
		{"a wrong password", "wr0ng", true},
		{"the password", "s3cret", false},
	} {
		config := "{}"
		if tt.password != "" {
			config = fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, h.name, base64.StdEncoding.EncodeToString([]byte("jane:"+tt.password)))
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		for step, err := range map[string]error{"check": to.check(), "push": to.push(t.Context(), all)} {
			if !tt.fails {
				if err != nil {
					t.Errorf("%s: %s: %v", tt.reason, step, err)
				}
				continue
			}
			if err == nil {
				t.Fatalf("%s: %s has no error", tt.reason, step)
			}
			for _, want := range []string{"cannot push " + to.tag.String(), "docker login " + h.name} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %s: the error is\n%v\nwant %q in it", tt.reason, step, err, want)
				}
			}
			if strings.Contains(err.Error(), tt.password) && tt.password != "" {
				t.Errorf("%s: %s: the error shows the password", tt.reason, step)
			}
		}
	}
}

// TestPushNowhere pushes to a port without a listener.
func TestPushNowhere(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	to, err := parseTarget(address+"/acme/tiny:v0.1.0", authn.NewMultiKeychain())
	if err != nil {
		t.Fatal(err)
	}
	want := "cannot push " + address + "/acme/tiny:v0.1.0: the registry " + address + " does not answer: check its name"
	if err := to.push(t.Context(), tinyBundle(t, newSigner(t), to.tag.Repository.Name())); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
	// The command does not compile first.
	var out, errOut bytes.Buffer
	args := []string{"-C", commitTiny(t), "-push", to.tag.String()}
	if code := run(t.Context(), args, &out, &errOut); code != 1 || !strings.Contains(errOut.String(), want) || strings.Contains(errOut.String(), "compiling") {
		t.Errorf("got code %d and\n%s\nwant %q", code, &errOut, want)
	}
}

// TestPushInterrupted fails each upload of a manifest in turn: the tag must not exist until
// everything is pushed, and another push completes it.
func TestPushInterrupted(t *testing.T) {
	t.Parallel()
	h, s := serve(t), newSigner(t)
	to, err := parseTarget(h.name+"/acme/tiny:v0.1.0", authn.NewMultiKeychain())
	if err != nil {
		t.Fatal(err)
	}
	all := tinyBundle(t, s, to.tag.Repository.Name())
	var mu sync.Mutex
	var done []string
	for failing := 0; ; failing++ {
		uploads := 0
		f := func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			if uploads++; uploads > failing {
				w.WriteHeader(http.StatusBadRequest)
				return true
			}
			done = append(done, r.URL.Path)
			return false
		}
		h.before.Store(&f)
		err := to.push(t.Context(), all)
		h.before.Store(nil)
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "cannot push "+to.tag.String()+": the registry "+h.name+" refuses it") {
			t.Errorf("the error after %d uploads is\n%v", failing, err)
		}
		var answer *transport.Error
		if _, err := remote.Head(to.tag); !errors.As(err, &answer) || answer.StatusCode != http.StatusNotFound {
			t.Fatalf("after %d uploads the tag names an image: %v", failing, done)
		}
		if failing > 20 {
			t.Fatalf("after %d uploads the push is not complete: %v", failing, done)
		}
	}
	if last := done[len(done)-1]; !strings.HasSuffix(last, "/manifests/v0.1.0") || slices.Index(done, last) != len(done)-1 {
		t.Errorf("the tag is not written last and once: %v", done)
	}
	if _, err := check(t, s.public(t), to.tag.String(), to.tag.Repository.Name()); err != nil {
		t.Errorf("the completed image is not signed: %v", err)
	}
	if _, err := check(t, newSigner(t).public(t), to.tag.String(), to.tag.Repository.Name()); !errors.Is(err, images.ErrUntrusted) {
		t.Errorf("got error %v, want that another key is refused", err)
	}
}

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for text, fails := range map[string]bool{
		"registry.example.com/acme/tenure-server:v1":                    false,
		"127.0.0.1:5000/tenure-server:v1":                               false,
		"registry.example.com/acme/tenure-server":                       true, // without a tag it would be latest
		"registry.example.com/acme/x@sha256:" + strings.Repeat("a", 64): true,
		"registry.example.com/Acme/x:v1":                                true,
		"":                                                              true,
	} {
		_, err := parseTarget(text, authn.NewMultiKeychain())
		if (err != nil) != fails || err != nil && !strings.Contains(err.Error(), "write HOST/REPOSITORY:TAG") {
			t.Errorf("%q: got error %v, want one: %t", text, err, fails)
		}
	}
}
