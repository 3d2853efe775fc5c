// Package archive makes reproducible archives of folders: the same files always give
// the same bytes. An archive holds regular files only. With a symbolic link, a fleet
// under review could read files outside of its folder.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// MaxFile and MaxTotal limit the bytes that are read into memory: of one file, and
// of all files of a folder. Helm has limits of this size too.
const (
	MaxFile  = 5 << 20
	MaxTotal = 100 << 20
)

// ErrTooLarge reports that a file or a folder exceeds the limits.
var ErrTooLarge = errors.New("too large")

// walk visits the regular files of a folder in the order of their names, with
// slash-separated names relative to the folder. It skips .git.
func walk(dir string, visit func(name, file string, info fs.FileInfo) error) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" && file != dir {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel), file, info)
	})
}

// Stamp returns a text that changes when the name, the size, the time or the mode of a file in the
// folder changes. It does not read the content of files. It returns an error if the folder cannot
// be read.
func Stamp(dir string) (string, error) {
	sum := sha256.New()
	err := walk(dir, func(name, _ string, info fs.FileInfo) error {
		fmt.Fprintf(sum, "%q %d %d %o\n", name, info.Size(), info.ModTime().UnixNano(), info.Mode())
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("cannot look through %s: %w", dir, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Pack is a compressed archive of a folder.
type Pack struct {
	// Gzip is the tar stream, compressed with gzip.
	Gzip []byte
	// TarDigest is the SHA-256 of the uncompressed tar stream, hexadecimal.
	TarDigest string
}

// New packs the files of a folder for whose relative names keep returns true, and then the files
// of overlay by their names. The latter replace files of the folder, below the folder prefix of
// the archive. It returns [ErrTooLarge] if a file or the folder exceeds the limits, and another
// error if a file cannot be read.
func New(dir, prefix string, overlay map[string][]byte, keep func(name string) bool) (*Pack, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	plain := sha256.New()
	tape := tar.NewWriter(io.MultiWriter(zip, plain))
	var total int64
	err := walk(dir, func(name, file string, info fs.FileInfo) error {
		if _, replaced := overlay[name]; replaced || !keep(name) {
			return nil
		}
		if total += info.Size(); info.Size() > MaxFile || total > MaxTotal {
			return fmt.Errorf("%s is %w: at most %d MiB a file, %d MiB in all", name, ErrTooLarge, MaxFile>>20, MaxTotal>>20)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return add(tape, path.Join(prefix, name), content, info.Mode())
	})
	for _, name := range slices.Sorted(maps.Keys(overlay)) {
		err = errors.Join(err, add(tape, path.Join(prefix, name), overlay[name], 0))
	}
	if err = errors.Join(err, tape.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("cannot pack %s: %w", dir, err)
	}
	return &Pack{Gzip: out.Bytes(), TarDigest: digest(plain)}, nil
}

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func add(tape *tar.Writer, name string, content []byte, mode fs.FileMode) error {
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if mode&0o100 != 0 {
		header.Mode = 0o755
	}
	if err := tape.WriteHeader(header); err != nil {
		return err
	}
	_, err := tape.Write(content)
	return err
}
