// Package helmhost serves a folder of charts as a Helm repository: index.yaml
// and one archive per chart version. Charts that are folders are packaged in
// memory, reproducibly, so that the same files have the same digest; *.tgz files
// are served as they are. The folder is read anew when a file in it has changed.
//
// The packaging is our own because it is small: an archive and an index are a
// tar stream and a YAML file, while Helm's library would bring a hundred modules
// or newer versions of them. Files are not left out for .helmignore.
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
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// ErrNoCharts says that a folder holds no chart.
var ErrNoCharts = errors.New("no Helm charts in the folder")

// created is the time that every chart version claims. Real times would make
// the same charts look new after each checkout.
const created = "2020-01-01T00:00:00Z"

// maxFile and maxChart bound what is read into memory, in bytes. Helm's own
// limits are of this size.
const (
	maxFile  = 5 << 20
	maxChart = 100 << 20
)

// Host is an http.Handler that serves one folder.
type Host struct {
	dir, prefix string

	mu    sync.Mutex
	stamp string
	index []byte
	files map[string][]byte
}

// New returns a Host for a folder, whose charts are found below the prefix of
// the URL's path. It fails with ErrNoCharts, or when a chart cannot be read.
func New(dir, prefix string) (*Host, error) {
	h := &Host{dir: dir, prefix: strings.TrimSuffix(prefix, "/")}
	if _, _, err := h.current(); err != nil {
		return nil, err
	}
	return h, nil
}

// ServeHTTP implements http.Handler.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// current returns the index and the archives as the folder is now.
func (h *Host) current() (index []byte, files map[string][]byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stamp, err := stampOf(h.dir)
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

// stampOf changes when a file of the folder does.
func stampOf(dir string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(sum, file, info.Size(), info.ModTime().UnixNano(), info.Mode())
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("cannot read the charts: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// build packages every chart of a folder and writes their index.
func build(dir string) (index []byte, files map[string][]byte, err error) {
	files = map[string][]byte{}
	entries := map[string][]any{}
	add := func(name string, archive []byte, metadata map[string]any) {
		chart, _ := metadata["name"].(string)
		sum := sha256.Sum256(archive)
		entry := map[string]any{}
		for key, value := range metadata {
			entry[key] = value
		}
		entry["created"], entry["digest"], entry["urls"] = created, hex.EncodeToString(sum[:]), []string{name}
		entries[chart] = append(entries[chart], entry)
		files[name] = archive
	}
	folders, err := chartFolders(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, folder := range folders {
		archive, metadata, err := Package(folder)
		if err != nil {
			return nil, nil, err
		}
		add(fmt.Sprintf("%s-%s.tgz", metadata["name"], metadata["version"]), archive, metadata)
	}
	packed, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the charts: %w", err)
	}
	for _, file := range packed {
		archive, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the charts: %w", err)
		}
		metadata, err := metadataOf(archive)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the chart %s: %w", file, err)
		}
		add(filepath.Base(file), archive, metadata)
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%w %s: it needs a Chart.yaml, folders with one, or *.tgz files", ErrNoCharts, dir)
	}
	index, err = yaml.Marshal(map[string]any{"apiVersion": "v1", "generated": created, "entries": entries})
	return index, files, err
}

func chartFolders(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, "Chart.yaml")); err == nil {
		return []string{dir}, nil
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", "Chart.yaml"))
	if err != nil {
		return nil, fmt.Errorf("cannot read the charts: %w", err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found, nil
}

// Package makes the archive of the chart in a folder, and returns the content
// of its Chart.yaml. The same files give the same bytes.
func Package(dir string) (archive []byte, metadata map[string]any, err error) {
	content, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the chart: %w", err)
	}
	if metadata, err = parseMetadata(content); err != nil {
		return nil, nil, fmt.Errorf("cannot read the chart %s: %w", dir, err)
	}
	var names []string
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, file)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the chart %s: %w", dir, err)
	}
	slices.Sort(names)
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	tape := tar.NewWriter(zip)
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the chart %s: %w", dir, err)
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot read the chart %s: %w", dir, err)
		}
		if len(content) > maxFile || out.Len() > maxChart {
			return nil, nil, fmt.Errorf("cannot package the chart %s: %s is too large", dir, rel)
		}
		header := &tar.Header{
			Name: path.Join(metadata["name"].(string), filepath.ToSlash(rel)),
			Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		}
		if err := tape.WriteHeader(header); err != nil {
			return nil, nil, fmt.Errorf("cannot package the chart %s: %w", dir, err)
		}
		if _, err := tape.Write(content); err != nil {
			return nil, nil, fmt.Errorf("cannot package the chart %s: %w", dir, err)
		}
	}
	if err := errors.Join(tape.Close(), zip.Close()); err != nil {
		return nil, nil, fmt.Errorf("cannot package the chart %s: %w", dir, err)
	}
	return out.Bytes(), metadata, nil
}

// metadataOf reads Chart.yaml out of an archive.
func metadataOf(archive []byte) (map[string]any, error) {
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	tape := tar.NewReader(io.LimitReader(zip, maxChart))
	for {
		header, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no Chart.yaml")
		}
		if err != nil {
			return nil, err
		}
		if dir, name := path.Split(path.Clean(header.Name)); name == "Chart.yaml" && strings.Count(dir, "/") == 1 {
			content, err := io.ReadAll(io.LimitReader(tape, maxFile))
			if err != nil {
				return nil, err
			}
			return parseMetadata(content)
		}
	}
}

func parseMetadata(content []byte) (map[string]any, error) {
	var metadata map[string]any
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return nil, fmt.Errorf("cannot parse Chart.yaml: %w", err)
	}
	for _, field := range []string{"name", "version"} {
		value, _ := metadata[field].(string)
		if value == "" || strings.ContainsAny(value, "/\\") {
			return nil, fmt.Errorf("its Chart.yaml has no usable %s", field)
		}
	}
	return metadata, nil
}
