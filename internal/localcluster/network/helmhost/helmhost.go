// Package helmhost serves a folder of charts as a Helm repository: index.yaml and
// one archive per chart version. It packages chart folders in memory, reproducibly,
// so that the same files have the same digest, and serves *.tgz files unchanged. It
// reads the folder again when a file in it has changed.
//
// The package does its own packaging because it is small: an archive and an index
// are a tar stream and a YAML file, while Helm's library would bring newer versions
// of dozens of other modules. It ignores .helmignore.
package helmhost

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/tenure-dev/tenure/internal/localcluster/network/archive"
	"sigs.k8s.io/yaml"
)

// ErrNoCharts reports that a folder holds no chart.
var ErrNoCharts = errors.New("no Helm charts in the folder")

// created is the creation time of every chart version in the index. Real times would
// make the same charts look new after each checkout.
const created = "2020-01-01T00:00:00Z"

// Host is an http.Handler that serves one folder.
type Host struct {
	dir, prefix string

	mu    sync.Mutex
	stamp string
	index []byte
	files map[string][]byte
}

// New returns a Host that serves the charts of a folder below prefix, a prefix of
// the URL's path. It returns ErrNoCharts if the folder has none, or an error if a
// chart cannot be read.
func New(dir, prefix string) (*Host, error) {
	h := &Host{dir: dir, prefix: strings.TrimSuffix(prefix, "/")}
	if _, _, err := h.current(); err != nil {
		return nil, err
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a Helm repository can only be read", http.StatusMethodNotAllowed)
		return
	}
	index, files, err := h.current()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	name := strings.TrimPrefix(strings.TrimPrefix(path.Clean("/"+r.URL.Path), h.prefix), "/")
	if name == "index.yaml" {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(index)
		return
	}
	content, ok := files[name]
	if !ok {
		http.Error(w, fmt.Sprintf("there is no %s in %s", name, h.dir), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/gzip")
	_, _ = w.Write(content)
}

// current returns the index and the archives for the present content of the folder.
func (h *Host) current() (index []byte, files map[string][]byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stamp, err := archive.Stamp(h.dir)
	if err != nil {
		return nil, nil, err
	}
	if stamp == h.stamp {
		return h.index, h.files, nil
	}
	if index, files, err = build(h.dir); err != nil {
		return nil, nil, err
	}
	h.stamp, h.index, h.files = stamp, index, files
	return index, files, nil
}

// build packages every chart of a folder and returns the index and the archives.
func build(dir string) (index []byte, files map[string][]byte, err error) {
	files = map[string][]byte{}
	entries := map[string][]any{}
	add := func(name string, archive []byte, metadata map[string]any) error {
		if files[name] != nil {
			return fmt.Errorf("cannot serve %s: two charts in it are %s", dir, name)
		}
		chart, _ := metadata["name"].(string)
		sum := sha256.Sum256(archive)
		entry := map[string]any{}
		for key, value := range metadata {
			entry[key] = value
		}
		entry["created"], entry["digest"], entry["urls"] = created, hex.EncodeToString(sum[:]), []string{name}
		entries[chart] = append(entries[chart], entry)
		files[name] = archive
		return nil
	}
	folders, packed, err := charts(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, folder := range folders {
		archive, metadata, err := Package(folder)
		if err != nil {
			return nil, nil, err
		}
		if err := add(fmt.Sprintf("%s-%s.tgz", metadata["name"], metadata["version"]), archive, metadata); err != nil {
			return nil, nil, err
		}
	}
	for _, file := range packed {
		archive, metadata, err := readPacked(file)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the chart %s: %w", file, err)
		}
		if err := add(filepath.Base(file), archive, metadata); err != nil {
			return nil, nil, err
		}
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%w %s: it needs a Chart.yaml, folders with one, or *.tgz files", ErrNoCharts, dir)
	}
	index, err = yaml.Marshal(map[string]any{"apiVersion": "v1", "generated": created, "entries": entries})
	return index, files, err
}

// charts returns the chart folders and chart archives in a folder. It does not
// follow links: see package archive.
func charts(dir string) (folders, packed []string, err error) {
	if IsChart(dir) {
		return []string{dir}, nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the charts: %w", err)
	}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir() && IsChart(file):
			folders = append(folders, file)
		case e.Type().IsRegular() && strings.HasSuffix(file, ".tgz"):
			packed = append(packed, file)
		}
	}
	return folders, packed, nil
}

// HasCharts reports whether New finds charts in a folder, valid or not.
func HasCharts(dir string) bool {
	folders, packed, err := charts(dir)
	return err == nil && len(folders)+len(packed) > 0
}

// IsChart reports whether a folder is a chart: whether it has a Chart.yaml.
func IsChart(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, "Chart.yaml"))
	return err == nil && info.Mode().IsRegular()
}

// Package returns the archive of the chart in a folder, and the content of its Chart.yaml. The
// same files give the same bytes. It returns an error if the folder is not a chart, or if its name
// or version cannot be part of a file name.
func Package(dir string) (content []byte, metadata map[string]any, err error) {
	description, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the chart: %w", err)
	}
	if metadata, err = parseMetadata(description); err != nil {
		return nil, nil, fmt.Errorf("cannot read the chart %s: %w", dir, err)
	}
	name, _ := metadata["name"].(string)
	pack, err := archive.New(dir, name, nil, func(string) bool { return true })
	if err != nil {
		return nil, nil, fmt.Errorf("cannot package the chart: %w", err)
	}
	return pack.Gzip, metadata, nil
}

func readPacked(file string) (content []byte, metadata map[string]any, err error) {
	info, err := os.Lstat(file)
	if err != nil {
		return nil, nil, err
	}
	if info.Size() > archive.MaxTotal {
		return nil, nil, fmt.Errorf("it is %w", archive.ErrTooLarge)
	}
	if content, err = os.ReadFile(file); err != nil {
		return nil, nil, err
	}
	metadata, err = metadataOf(content)
	return content, metadata, err
}

// metadataOf reads Chart.yaml from an archive. It unpacks nothing, so the names in
// the archive can do no harm.
func metadataOf(content []byte) (map[string]any, error) {
	zip, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	tape := tar.NewReader(io.LimitReader(zip, archive.MaxTotal))
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no Chart.yaml")
		}
		if err != nil {
			return nil, err
		}
		dir, name, _ := strings.Cut(header.Name, "/")
		if header.Typeflag != tar.TypeReg || name != "Chart.yaml" || !chartName.MatchString(dir) {
			continue
		}
		description, err := io.ReadAll(io.LimitReader(tape, archive.MaxFile))
		if err != nil {
			return nil, err
		}
		return parseMetadata(description)
	}
}

// These are the names and versions that can be part of a file name and a URL. Helm
// requires lower case letters in names and semantic versions, but not all charts
// comply.
var (
	chartName    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)
	chartVersion = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9.+-]*$`)
)

func parseMetadata(content []byte) (map[string]any, error) {
	var metadata map[string]any
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return nil, fmt.Errorf("cannot parse Chart.yaml: %w", err)
	}
	for field, form := range map[string]*regexp.Regexp{"name": chartName, "version": chartVersion} {
		if value, _ := metadata[field].(string); !form.MatchString(value) {
			return nil, fmt.Errorf("its Chart.yaml has no usable %s (a text of letters, digits, dots and dashes)", field)
		}
	}
	return metadata, nil
}
