package artifacts

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
)

// The limits of a generator: of the content of its sources together, and of each artifact. They
// hold for the sum of all files, and for files and folders together. source-watcher has none.
const (
	maxBytes = 1 << 30
	maxFiles = 100_000
	// maxArchive is the maximum size of a source's archive in bytes.
	maxArchive = 256 << 20
)

// ErrTooLarge reports a source or an artifact above the limits.
var ErrTooLarge = errors.New("the content is above the limit of the local cluster")

// budget is the number of bytes and files that may still be written.
type budget struct {
	bytes int64
	files int
}

func newBudget() *budget { return &budget{bytes: maxBytes, files: maxFiles} }

// file takes a file or folder off the budget.
func (b *budget) file(size int64) error {
	b.bytes -= size
	b.files--
	if b.bytes < 0 || b.files < 0 {
		return fmt.Errorf("%w of %d MiB and %d files", ErrTooLarge, maxBytes>>20, maxFiles)
	}
	return nil
}

// unpack writes the files of a compressed tar archive below a folder. It refuses links and
// special files, and paths that lead out of the folder.
func unpack(archive io.Reader, to *os.Root, b *budget) error {
	compressed, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	defer compressed.Close()
	reader := tar.NewReader(compressed)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if !fs.ValidPath(name) {
			return fmt.Errorf("%w: %q", ErrEscape, header.Name)
		}
		if err := b.file(header.Size); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = to.MkdirAll(name, 0o755)
		case tar.TypeReg:
			if err = to.MkdirAll(path.Dir(name), 0o755); err == nil {
				err = writeFile(to, name, reader, fs.FileMode(header.Mode&0o777))
			}
		default:
			err = fmt.Errorf("%q is a link or a special file", header.Name)
		}
		if err != nil {
			return err
		}
	}
}

// ignored are the files of Git that Flux puts into no artifact.
var ignored = []string{".git", ".gitignore", ".gitmodules", ".gitattributes"}

// pack writes a compressed tar archive of a folder. The same content gives the same bytes.
func pack(from *os.Root, to io.Writer) error {
	compressed := gzip.NewWriter(to)
	writer := tar.NewWriter(compressed)
	err := fs.WalkDir(from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if slices.Contains(ignored, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644 | int64(info.Mode()&0o100), Size: info.Size()}
		if d.IsDir() {
			return writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		file, err := from.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(writer, file)
		return err
	})
	return errors.Join(err, writer.Close(), compressed.Close())
}
