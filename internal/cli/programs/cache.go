package programs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// The limits of an archive.
const (
	maxFiles    = 64
	maxUnpacked = 4 << 30  // bytes of all files
	maxWindow   = 64 << 20 // bytes of memory to unpack
)

// fileName is the syntax of the names in an archive, of programs and licences: it has no folders.
var fileName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// cache is the folder with unpacked archives, by their digests.
type cache string

func openCache() (cache, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a folder for programs: %w", err)
	}
	dir = filepath.Join(dir, "tenure", "programs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make a folder for programs: %w", err)
	}
	return cache(dir), nil
}

// have returns the folder of an unpacked archive, or "" if the cache has none.
func (c cache) have(digest string) string {
	dir := filepath.Join(string(c), digest)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return ""
	}
	return dir
}

// known returns the folder that remember has stored for a place, or "".
func (c cache) known(place string) string {
	digest, err := os.ReadFile(filepath.Join(string(c), place))
	if err != nil {
		return ""
	}
	return c.have(filepath.Base(strings.TrimSpace(string(digest))))
}

// remember stores that a place has the archive in a folder.
func (c cache) remember(place, dir string) error {
	if err := os.WriteFile(filepath.Join(string(c), place), []byte(filepath.Base(dir)+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot write to the folder for programs: %w", err)
	}
	return nil
}

// unpack unpacks an archive whose digest was verified, and returns the folder. After an error or an
// interrupt the folder does not exist.
func (c cache) unpack(archive, digest string) (string, error) {
	if dir := c.have(digest); dir != "" {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(string(c), ".unpacked-")
	if err != nil {
		return "", fmt.Errorf("cannot unpack the programs: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := unpack(archive, tmp); err != nil {
		return "", fmt.Errorf("cannot unpack the programs: %w", err)
	}
	dir := filepath.Join(string(c), digest)
	if err := os.Rename(tmp, dir); err != nil && c.have(digest) == "" {
		return "", fmt.Errorf("cannot unpack the programs: %w", err)
	}
	return dir, nil
}

func unpack(archive, dir string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	plain, err := zstd.NewReader(file, zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return err
	}
	defer plain.Close()
	left := int64(maxUnpacked)
	reader := tar.NewReader(plain)
	for n := 0; ; n++ {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return kubectl(dir)
		}
		if err != nil {
			return err
		}
		switch left -= header.Size; {
		case header.Typeflag != tar.TypeReg || !fileName.MatchString(header.Name):
			return fmt.Errorf("%q is no program", header.Name)
		case n == maxFiles || left < 0:
			return errors.New("the archive is too large")
		}
		if err := writeProgram(filepath.Join(dir, header.Name), reader); err != nil { //nolint:gosec // fileName allows no folders
			return err
		}
	}
}

// writeProgram writes a program, which the reader bounds.
func writeProgram(name string, from io.Reader) error {
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700) //nolint:gosec // programs are executable
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// kubectl links the name under which the control plane's program is kubectl.
func kubectl(dir string) error {
	return os.Symlink(controlPlane, filepath.Join(dir, "kubectl"))
}
