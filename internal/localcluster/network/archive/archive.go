// Package archive makes reproducible archives of folders: the same files give the
// same bytes, wherever and whenever. Only regular files are taken: a symbolic link
// of a fleet under review must not fetch what lies outside of its folder.
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
	"os"
	"path"
	"path/filepath"
	"time"
)

// MaxFile and MaxTotal bound what is read into memory, in bytes: one file, and
// all files of a folder together. Helm's own limits are of this size.
const (
	MaxFile  = 5 << 20
	MaxTotal = 100 << 20
)

// ErrTooLarge says that a file or a folder is beyond the bounds.
var ErrTooLarge = errors.New("too large")

// walk visits the regular files of a folder in the order of their names, with
// their slash-separated names relative to it. Git's own folder is left out.
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

// Stamp returns a text that changes when a file of the folder does, by name, size
// or time. It reads no file.
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

// Pack is a folder as a compressed archive.
type Pack struct {
	// Gzip is a tar stream, compressed.
	Gzip []byte
	// TarDigest is the SHA-256 of the tar stream itself, hexadecimal.
	TarDigest string
}

// New packs the files of a folder for whose relative name keep is true, below the
// folder prefix of the archive. The error is ErrTooLarge beyond the bounds.
func New(dir, prefix string, keep func(name string) bool) (*Pack, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	plain := sha256.New()
	tape := tar.NewWriter(io.MultiWriter(zip, plain))
	var total int64
	err := walk(dir, func(name, file string, info fs.FileInfo) error {
		if !keep(name) {
			return nil
		}
		if total += info.Size(); info.Size() > MaxFile || total > MaxTotal {
			return fmt.Errorf("%s is %w: at most %d MiB a file, %d MiB in all", name, ErrTooLarge, MaxFile>>20, MaxTotal>>20)
		}
		return add(tape, path.Join(prefix, name), file, info)
	})
	if err = errors.Join(err, tape.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("cannot pack %s: %w", dir, err)
	}
	return &Pack{Gzip: out.Bytes(), TarDigest: digest(plain)}, nil
}

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func add(tape *tar.Writer, name, file string, info fs.FileInfo) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if info.Mode()&0o100 != 0 {
		header.Mode = 0o755
	}
	if err := tape.WriteHeader(header); err != nil {
		return err
	}
	_, err = tape.Write(content)
	return err
}
