package ocihost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/tenure-dev/tenure/internal/localcluster/network/archive"
)

// The annotations of a layout's entries: their name, of the OCI image specification (annotations.md),
// and what an entry of `cosign save` is.
const (
	annotationName = "org.opencontainers.image.ref.name"
	annotationKind = "kind"
)

// cosignTags are the ends of the tags under which cosign 2 looks for an entry, by its kind.
var cosignTags = map[string]string{"dev.cosignproject.cosign/sigs": ".sig", "dev.cosignproject.cosign/atts": ".att"}

// document is a manifest or an index of a layout.
type document struct {
	mediaType types.MediaType
	content   []byte
}

// refers holds the fields of a document that refer to other documents, and the fields that the list of referrers contains.
type refers struct {
	ArtifactType string            `json:"artifactType"`
	Config       *v1.Descriptor    `json:"config"`
	Layers       []v1.Descriptor   `json:"layers"`
	Manifests    []v1.Descriptor   `json:"manifests"`
	Subject      *v1.Descriptor    `json:"subject"`
	Annotations  map[string]string `json:"annotations"`
}

// IsLayout reports whether a folder is an OCI image layout (image-layout.md of the specification): a
// copy of an artifact, which can have signatures.
func IsLayout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "oci-layout"))
	return err == nil
}

// layoutReader reads a layout into an artifact.
type layoutReader struct {
	dir  string
	read int64
	*artifact
}

// readLayout returns the artifact of a layout: the entry with the tag of the address, or the only
// one without a name. The others can be its signatures.
func (s *source) readLayout() (*artifact, error) {
	l := &layoutReader{dir: s.dir, artifact: &artifact{blobs: map[string][]byte{}, others: map[string]document{}, tags: map[string]string{}}}
	content, err := l.file("index.json")
	if err != nil {
		return nil, fmt.Errorf("cannot serve the OCI layout %s: %w", s.dir, err)
	}
	var index v1.IndexManifest
	if err := json.Unmarshal(content, &index); err != nil {
		return nil, fmt.Errorf("cannot serve the OCI layout %s: cannot read index.json: %w", s.dir, err)
	}
	var found, unnamed []v1.Descriptor
	signatures := map[string]string{} // digests by the ends of their tags
	for _, d := range index.Manifests {
		if err := l.load(d); err != nil {
			return nil, fmt.Errorf("cannot serve the OCI layout %s: %w", s.dir, err)
		}
		name, end := tagIn(d), cosignTags[d.Annotations[annotationKind]]
		switch {
		case end != "":
			signatures[end] = d.Digest.String()
		case strings.HasPrefix(name, "sha256-"):
			l.tags[name] = d.Digest.String()
		case l.others[d.Digest.String()].refers().Subject != nil:
		case name == "":
			unnamed = append(unnamed, d)
		case s.address.Tag == "" || name == s.address.Tag:
			found = append(found, d)
		}
	}
	if len(found) == 0 {
		found = unnamed
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("cannot serve the OCI layout %s: it has %d artifacts that can be %s: name the tag of one in the address", s.dir, len(found), s.address)
	}
	main, ok := l.others[found[0].Digest.String()]
	if !ok {
		return nil, fmt.Errorf("cannot serve the OCI layout %s: its entry %s has the media type %q: write that of a manifest or an index", s.dir, found[0].Digest, found[0].MediaType)
	}
	l.tag, l.mediaType, l.manifest = cmp.Or(s.address.Tag, tagIn(found[0]), "latest"), main.mediaType, main.content
	for end, digest := range signatures {
		l.tags["sha256-"+found[0].Digest.Hex+end] = digest
	}
	return l.artifact, nil
}

// tagIn returns the tag in the name of an entry, which is REPOSITORY:TAG or TAG, or "".
func tagIn(d v1.Descriptor) string {
	name := d.Annotations[annotationName]
	if name = name[strings.LastIndex(name, ":")+1:]; !tagForm.MatchString(name) {
		return ""
	}
	return name
}

// load reads a blob with everything that it refers to.
func (l *layoutReader) load(d v1.Descriptor) error {
	digest := d.Digest.String()
	content, err := l.file(filepath.Join("blobs", d.Digest.Algorithm, d.Digest.Hex))
	if err != nil {
		return err
	}
	if digestOf(content) != digest {
		return fmt.Errorf("the content of the blob %s has another digest", digest)
	}
	l.blobs[digest] = content
	if !d.MediaType.IsImage() && !d.MediaType.IsIndex() {
		return nil
	}
	l.others[digest] = document{d.MediaType, content}
	parts := l.others[digest].refers()
	if parts.Config != nil {
		parts.Layers = append(parts.Layers, *parts.Config)
	}
	for _, part := range slices.Concat(parts.Layers, parts.Manifests) {
		if err := l.load(part); err != nil {
			return err
		}
	}
	return nil
}

// file reads a file of the layout, within the limits of all files that are served.
func (l *layoutReader) file(name string) ([]byte, error) {
	name = filepath.Join(l.dir, name)
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	if l.read += info.Size(); l.read > archive.MaxTotal {
		return nil, fmt.Errorf("%w: it has more than %d MiB", archive.ErrTooLarge, archive.MaxTotal>>20)
	}
	return os.ReadFile(name)
}

// refers returns the parts of a document. A document that cannot be read has none: its client finds
// the fault.
func (d document) refers() refers {
	var parts refers
	_ = json.Unmarshal(d.content, &parts)
	return parts
}

// serveReferrers lists the manifests about a manifest, such as its signatures.
func serveReferrers(w http.ResponseWriter, digest string, artifacts []*artifact) {
	list := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	for _, a := range artifacts {
		for name, d := range a.others {
			parts := d.refers()
			if parts.Subject == nil || parts.Subject.Digest.String() != digest {
				continue
			}
			hash, err := v1.NewHash(name)
			if err != nil {
				continue
			}
			entry := v1.Descriptor{MediaType: d.mediaType, Digest: hash, Size: int64(len(d.content)), ArtifactType: parts.ArtifactType, Annotations: parts.Annotations}
			if entry.ArtifactType == "" && parts.Config != nil {
				entry.ArtifactType = string(parts.Config.MediaType)
			}
			list.Manifests = append(list.Manifests, entry)
		}
	}
	slices.SortFunc(list.Manifests, func(a, b v1.Descriptor) int { return strings.Compare(a.Digest.Hex, b.Digest.Hex) })
	content, err := json.Marshal(list)
	if err != nil {
		fail(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	send(w, string(types.OCIImageIndex), content)
}
