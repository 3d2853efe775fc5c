// Package ocihost serves folders of this machine as OCI artifacts, to clients such
// as Flux and Helm, by the read-only part of the OCI distribution specification:
// manifests, blobs, and lists of tags and referrers.
//
// A folder with a Chart.yaml is served as a Helm chart, an OCI image layout as the artifact in it
// with its signatures, and any other folder as the artifact that `flux push artifact` would build
// from it. The same files give the same digest, and the next request shows a changed file.
//
// The package has its own handler because upstream's registry for tests accepts
// pushes and keeps everything; the types are upstream's.
package ocihost

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Address is the address of an artifact: oci://host/repository:tag.
type Address struct {
	// Host is lower case. It contains the port unless the port is 443 or 80.
	Host string
	// Repository is the path, without a slash at the ends.
	Repository string
	// Tag is empty if the address has none.
	Tag string
}

func (a Address) String() string {
	s := "oci://" + a.Host + "/" + a.Repository
	if a.Tag != "" {
		s += ":" + a.Tag
	}
	return s
}

// These are the forms of the OCI distribution specification, and of host names.
var (
	hostForm       = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm        = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
)

// ParseAddress parses oci://host[:port]/repository[:tag]. It returns an error for any other text.
func ParseAddress(raw string) (Address, error) {
	rest, ok := strings.CutPrefix(raw, "oci://")
	host, path, hasPath := strings.Cut(rest, "/")
	path, tag, hasTag := strings.Cut(strings.TrimSuffix(path, "/"), ":")
	a := Address{Host: cleanHost(host), Repository: path, Tag: tag}
	if !ok || !hasPath || !hostForm.MatchString(a.Host) || !repositoryForm.MatchString(path) || hasTag && !tagForm.MatchString(tag) {
		return Address{}, fmt.Errorf("cannot use %q as the address of an OCI artifact: it must be oci://host/repository or oci://host/repository:tag, in lower case", raw)
	}
	return a, nil
}

// cleanHost returns a host in comparable form. It leaves out the default ports of
// both schemes, because an oci:// address does not say which scheme it means. Docker Hub has
// one name, docker.io: clients send their requests to others.
func cleanHost(host string) string {
	host = strings.ToLower(host)
	if name, port, err := net.SplitHostPort(host); err == nil {
		name = strings.TrimSuffix(name, ".")
		if port != "443" && port != "80" {
			return name + ":" + port
		}
		host = name
	}
	switch host = strings.TrimSuffix(host, "."); host {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return host
}

// Host is an http.Handler that serves any number of artifacts. Its methods may be
// called concurrently.
type Host struct {
	mu           sync.RWMutex
	repositories map[Address][]*source // by address without a tag
}

// New returns a Host without artifacts.
func New() *Host { return &Host{repositories: map[Address][]*source{}} }

// Add starts to serve a folder. If the address has no tag, the tag is latest or, for
// a chart, the chart's version. It returns an error if another folder has the tag, or if this
// folder cannot be served.
func (h *Host) Add(a Address, dir string) error {
	s := &source{address: a, dir: dir}
	one, err := s.current()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := Address{Host: a.Host, Repository: a.Repository}
	for _, other := range h.repositories[key] {
		if there, err := other.current(); err == nil && there.tag == one.tag {
			return fmt.Errorf("both %s and %s are mapped to %s:%s: name different tags or drop one", other.dir, dir, key, one.tag)
		}
	}
	h.repositories[key] = append(h.repositories[key], s)
	return nil
}

// Remove stops serving the folder at an address with a tag. It does nothing if there is no such
// folder.
func (h *Host) Remove(a Address) {
	s, err := h.source(a)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := Address{Host: a.Host, Repository: a.Repository}
	h.repositories[key] = slices.DeleteFunc(h.repositories[key], func(other *source) bool { return other == s })
}

// Serves reports whether a folder is served at an address with a tag, and [Host.Overlay] can change
// it: an artifact with signatures cannot be changed.
func (h *Host) Serves(a Address) bool {
	s, err := h.source(a)
	return err == nil && !IsLayout(s.dir)
}

// source returns the folder that is served at an address. The address of a folder without a tag
// is also its address with the tag that the Host gave it.
func (h *Host) source(a Address) (*source, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, s := range h.repositories[Address{Host: a.Host, Repository: a.Repository}] {
		if s.address == a {
			return s, nil
		}
		if s.address.Tag != "" {
			continue
		}
		if one, err := s.current(); err == nil && one.tag == a.Tag {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no folder is served at %s", a)
}

// Overlay changes the artifact at an address, as a push would, and returns the digest of its
// manifest. The artifact gets the files, which replace files of the folder with the same names. A
// file whose content is nil is no longer replaced. Overlay does not change the folder, and has no
// effect on a chart. It returns an error if no folder is served at the address, if an OCI image
// layout is served there, or if the folder cannot be packed.
func (h *Host) Overlay(a Address, files map[string][]byte) (digest string, err error) {
	s, err := h.source(a)
	if err != nil {
		return "", err
	}
	if IsLayout(s.dir) {
		return "", fmt.Errorf("cannot change the files of %s: %s is an OCI layout; map a folder with the files instead", a, s.dir)
	}
	s.overlayWith(files)
	one, err := s.current()
	if err != nil {
		return "", err
	}
	return digestOf(one.manifest), nil
}

// Export writes the files of the artifact at an address into a new folder. It returns an error if
// no folder is served at the address, or if a file cannot be written.
func (h *Host) Export(a Address, dir string) error {
	s, err := h.source(a)
	if err != nil {
		return err
	}
	one, err := s.current()
	if err != nil {
		return err
	}
	return one.export(dir)
}

// Hosts returns the hosts of all addresses, sorted, with the port unless it is 443
// or 80.
func (h *Host) Hosts() []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	names := map[string]bool{}
	for a := range h.repositories {
		names[a.Host] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// ServeHTTP implements http.Handler.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		fail(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "mapped folders can only be read here")
		return
	}
	if r.URL.Path == "/v2/" || r.URL.Path == "/v2" {
		w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
		return
	}
	repository, kind, reference, ok := parsePath(r.URL.Path)
	if !ok {
		fail(w, http.StatusNotFound, "UNSUPPORTED", "manifests, blobs, tags and referrers are served here, nothing else")
		return
	}
	key := Address{Host: cleanHost(r.Host), Repository: repository}
	h.mu.RLock()
	sources := slices.Clone(h.repositories[key])
	h.mu.RUnlock()
	if len(sources) == 0 {
		// Helm shows no text of an answer that says not found. The registry ghcr.io denies access
		// to a repository that does not exist, too.
		fail(w, http.StatusForbidden, "DENIED", fmt.Sprintf("%s is not mapped (add --map %s=DIR)", key, key))
		return
	}
	artifacts := make([]*artifact, 0, len(sources))
	for _, s := range sources {
		one, err := s.current()
		if err != nil {
			fail(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
			return
		}
		artifacts = append(artifacts, one)
	}
	switch kind {
	case "tags":
		serveTags(w, r, repository, artifacts)
	case "manifests":
		serveManifest(w, reference, artifacts)
	case "referrers":
		serveReferrers(w, reference, artifacts)
	default:
		serveBlob(w, reference, artifacts)
	}
}

// parsePath splits /v2/REPOSITORY/(manifests|blobs|tags|referrers)/REFERENCE.
func parsePath(path string) (repository, kind, reference string, ok bool) {
	segments := strings.Split(path, "/")
	last := len(segments) - 1
	if last < 4 || segments[0] != "" || segments[1] != "v2" {
		return "", "", "", false
	}
	kind, reference = segments[last-1], segments[last]
	known := kind == "manifests" || kind == "blobs" || kind == "referrers" || kind == "tags" && reference == "list"
	return strings.Join(segments[2:last-1], "/"), kind, reference, known
}

func serveManifest(w http.ResponseWriter, reference string, artifacts []*artifact) {
	for _, a := range artifacts {
		found := document{a.mediaType, a.manifest}
		if reference != a.tag && reference != digestOf(a.manifest) {
			digest := reference
			if tagged, ok := a.tags[reference]; ok {
				digest = tagged
			}
			found = a.others[digest]
		}
		if found.content != nil {
			w.Header().Set("Docker-Content-Digest", digestOf(found.content))
			send(w, string(found.mediaType), found.content)
			return
		}
	}
	fail(w, http.StatusNotFound, "MANIFEST_UNKNOWN", fmt.Sprintf("there is no %s here, only the tags %s", reference, strings.Join(tagsOf(artifacts), ", ")))
}

func serveBlob(w http.ResponseWriter, digest string, artifacts []*artifact) {
	for _, a := range artifacts {
		if content, ok := a.blobs[digest]; ok {
			w.Header().Set("Docker-Content-Digest", digest)
			send(w, "application/octet-stream", content)
			return
		}
	}
	fail(w, http.StatusNotFound, "BLOB_UNKNOWN", fmt.Sprintf("there is no blob %s here; the folder may have changed", digest))
}

// serveTags lists tags. If the client asks for pages, it returns n tags after the
// tag last.
func serveTags(w http.ResponseWriter, r *http.Request, repository string, artifacts []*artifact) {
	tags := tagsOf(artifacts)
	query := r.URL.Query()
	if last := query.Get("last"); last != "" {
		tags = slices.DeleteFunc(tags, func(tag string) bool { return tag <= last })
	}
	if n, err := strconv.Atoi(query.Get("n")); err == nil && n >= 0 && n < len(tags) {
		tags = tags[:n]
		if n > 0 {
			w.Header().Set("Link", fmt.Sprintf(`</v2/%s/tags/list?n=%d&last=%s>; rel="next"`, repository, n, tags[n-1]))
		}
	}
	content, err := json.Marshal(map[string]any{"name": repository, "tags": tags})
	if err != nil {
		fail(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
		return
	}
	send(w, "application/json", content)
}

func tagsOf(artifacts []*artifact) []string {
	tags := make([]string, 0, len(artifacts))
	for _, a := range artifacts {
		tags = append(tags, a.tag)
	}
	slices.Sort(tags)
	return tags
}

func send(w http.ResponseWriter, mediaType string, content []byte) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content) // the server leaves out the body of a response to HEAD
}

// fail answers with an error in the form of the specification. Clients show the
// message.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}})
}
