package ocihost

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image returns an artifact of the type of OCI, which refers to another one if there is a subject.
func image(t *testing.T, subject *v1.Descriptor) (v1.Image, v1.Descriptor) {
	t.Helper()
	i, err := random.Image(64, 1)
	if err != nil {
		t.Fatal(err)
	}
	i = mutate.ConfigMediaType(mutate.MediaType(i, types.OCIManifestSchema1), "application/vnd.example.config")
	if subject != nil {
		i = mutate.Subject(mutate.Annotations(i, map[string]string{"of": "another"}).(v1.Image), *subject).(v1.Image)
	}
	digest, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	size, err := i.Size()
	if err != nil {
		t.Fatal(err)
	}
	return i, v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digest, Size: size}
}

// entry is an entry of a layout.
type entry struct {
	image       v1.Image
	annotations map[string]string
}

func writeLayout(t *testing.T, entries ...entry) string {
	t.Helper()
	dir := t.TempDir()
	to, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := to.AppendImage(e.image, layout.WithAnnotations(e.annotations)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLayout serves copies of artifacts with their signatures, as programs make them, to a client.
func TestLayout(t *testing.T) {
	t.Parallel()
	main, described := image(t, nil)
	older, _ := image(t, nil)
	referrer, _ := image(t, &described)
	signature, signed := image(t, nil)
	attestation, attested := image(t, nil)
	named := func(name string) map[string]string { return map[string]string{annotationName: name} }
	kind := func(kind string) map[string]string {
		return map[string]string{annotationKind: "dev.cosignproject.cosign/" + kind}
	}
	sig := strings.Replace(described.Digest.String(), ":", "-", 1) + ".sig"
	for _, tc := range []struct {
		reason, address, tag string
		entries              []entry
		tags                 map[string]v1.Hash
		referrers            int
	}{
		{"as oras copies it", "oci://HOST/acme/app:v1", "v1", []entry{{main, named("v1")}, {older, named("v0")}, {older, nil}, {referrer, nil}}, nil, 1},
		{"without a tag in the address", "oci://HOST/acme/app", "v1", []entry{{main, named("registry.example.com:5000/acme/app:v1")}}, nil, 0},
		{"without a name", "oci://HOST/acme/app", "latest", []entry{{main, nil}}, nil, 0},
		{"with the tag of cosign 2", "oci://HOST/acme/app:v1", "v1", []entry{{main, named("v1")}, {signature, named(sig)}}, map[string]v1.Hash{sig: signed.Digest}, 0},
		{
			"as cosign saves it", "oci://HOST/acme/app:v1", "v1", []entry{{main, kind("image")}, {signature, kind("sigs")}, {attestation, kind("atts")}},
			map[string]v1.Hash{sig: signed.Digest, strings.TrimSuffix(sig, "sig") + "att": attested.Digest}, 0,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			h := New()
			server := httptest.NewServer(h)
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			dir := writeLayout(t, tc.entries...)
			address := strings.Replace(tc.address, "HOST", host, 1)
			add(t, h, address, dir)
			tag, err := name.NewTag(host + "/acme/app:" + tc.tag)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := remote.Head(tag); err != nil || got.Digest != described.Digest || got.MediaType != described.MediaType {
				t.Errorf("the artifact is %+v: %v, want %+v", got, err, described)
			}
			if i, err := remote.Image(tag); err != nil {
				t.Error(err)
			} else if layers, err := i.Layers(); err != nil || len(layers) != 1 {
				t.Errorf("the artifact has the layers %v: %v", layers, err)
			}
			for name, want := range tc.tags {
				if got, err := remote.Head(tag.Context().Tag(name)); err != nil || got.Digest != want {
					t.Errorf("%s is %+v: %v, want %s", name, got, err, want)
				}
			}
			list, err := remote.Referrers(tag.Context().Digest(described.Digest.String()))
			if err != nil {
				t.Fatal(err)
			}
			index, err := list.IndexManifest()
			if err != nil || len(index.Manifests) != tc.referrers {
				t.Fatalf("the referrers are %+v: %v, want %d", index, err, tc.referrers)
			}
			for _, d := range index.Manifests {
				if d.ArtifactType != "application/vnd.example.config" || d.Annotations["of"] != "another" {
					t.Errorf("the referrer is listed as %+v", d)
				}
				if _, err := remote.Get(tag.Context().Digest(d.Digest.String())); err != nil {
					t.Error(err)
				}
			}
			parsed, err := ParseAddress(address)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Tag = tc.tag; h.Serves(parsed) {
				t.Error("attacks could change an artifact with signatures")
			}
			if _, err := h.Overlay(parsed, nil); err == nil || !strings.Contains(err.Error(), "is an OCI layout") {
				t.Errorf("the overlay of a layout: got %v", err)
			}
		})
	}
}

// TestBrokenLayout maps layouts that cannot be served.
func TestBrokenLayout(t *testing.T) {
	t.Parallel()
	first, described := image(t, nil)
	second, _ := image(t, nil)
	blob := filepath.Join("blobs", "sha256", described.Digest.Hex)
	for _, tc := range []struct {
		reason, want string
		entries      []entry
		change       func(dir string) error
	}{
		{"nothing in it", "it has 0 artifacts", nil, nil},
		{"two artifacts", "it has 2 artifacts", []entry{{first, nil}, {second, nil}}, nil},
		{"a blob is missing", "no such file", []entry{{first, nil}}, func(dir string) error { return os.Remove(filepath.Join(dir, blob)) }},
		{"a blob was changed", "has another digest", []entry{{first, nil}}, func(dir string) error { return os.WriteFile(filepath.Join(dir, blob), []byte("{}"), 0o600) }},
		{"a blob is a link", "no regular file", []entry{{first, nil}}, func(dir string) error {
			if err := os.Rename(filepath.Join(dir, blob), filepath.Join(dir, "elsewhere")); err != nil {
				return err
			}
			return os.Symlink("../../elsewhere", filepath.Join(dir, blob))
		}},
		{"a blob is too large", "too large", []entry{{first, nil}}, func(dir string) error { return os.Truncate(filepath.Join(dir, blob), 1<<30) }},
		{"the index is none", "cannot read index.json", nil, func(dir string) error { return os.WriteFile(filepath.Join(dir, "index.json"), []byte("x"), 0o600) }},
		{"an entry without a media type", `has the media type ""`, []entry{{first, nil}}, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":[{"digest":"`+described.Digest.String()+`"}]}`), 0o600)
		}},
		{"an algorithm that is a path", "cannot read index.json", nil, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"manifests":[{"digest":"../..:etc"}]}`), 0o600)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			dir := writeLayout(t, tc.entries...)
			if tc.change != nil {
				if err := tc.change(dir); err != nil {
					t.Fatal(err)
				}
			}
			a, err := ParseAddress("oci://oci.example.com/acme/app")
			if err != nil {
				t.Fatal(err)
			}
			if err := New().Add(a, dir); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
