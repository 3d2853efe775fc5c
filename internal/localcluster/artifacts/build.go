package artifacts

import (
	"context"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
)

// storage keeps the archives of artifacts.
type storage struct {
	// root is the folder that is served, host the name under which consumers reach it.
	root *os.Root
	host string
	// client fetches the archives of sources.
	client *http.Client
}

// folder returns the folder of an ExternalArtifact's archives, or of those of a namespace. The paths are those of
// source-watcher, which the artifact proxy of Tenure knows.
func folder(parts ...string) string {
	return path.Join(append([]string{"externalartifact"}, parts...)...)
}

// generatorFile is the name of the file that says which generator's archives a folder has.
const generatorFile = ".generator"

// fetchTimeout limits the download of a source's archive.
const fetchTimeout = time.Minute

// fetch downloads the archive of a source and unpacks it into a folder.
func (s *storage) fetch(ctx context.Context, a artifact, to *os.Root, b *budget) error {
	expected, err := digest.Parse(a.Digest)
	if err != nil {
		return fmt.Errorf("digest %q: %w", a.Digest, err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, http.NoBody)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("cannot fetch %s: %s", a.URL, response.Status)
	}
	archive, err := os.CreateTemp("", "source-")
	if err != nil {
		return err
	}
	defer os.Remove(archive.Name())
	defer archive.Close()
	verifier := expected.Verifier()
	size, err := io.Copy(io.MultiWriter(archive, verifier), io.LimitReader(response.Body, maxArchive+1))
	switch {
	case err != nil:
		return fmt.Errorf("cannot fetch %s: %w", a.URL, err)
	case size > maxArchive:
		return fmt.Errorf("cannot fetch %s: %w of %d MiB", a.URL, ErrTooLarge, maxArchive>>20)
	case !verifier.Verified():
		return fmt.Errorf("cannot fetch %s: the content does not have the digest %s", a.URL, expected)
	}
	if _, err := archive.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := unpack(archive, to, b); err != nil {
		return fmt.Errorf("cannot unpack %s: %w", a.URL, err)
	}
	return nil
}

// sources are the unpacked sources of a generator.
type sources struct {
	dir   string
	roots map[string]*os.Root
}

// fetchAll unpacks sources, by alias. The caller closes the result.
func (s *storage) fetchAll(ctx context.Context, artifacts map[string]artifact) (*sources, error) {
	dir, err := os.MkdirTemp("", "generator-")
	if err != nil {
		return nil, err
	}
	fetched := &sources{dir: dir, roots: map[string]*os.Root{}}
	b := newBudget()
	for alias, a := range artifacts {
		root, err := subfolder(filepath.Join(dir, "source-"+alias))
		if err == nil {
			fetched.roots[alias] = root
			err = s.fetch(ctx, a, root, b)
		}
		if err != nil {
			return nil, errors.Join(err, fetched.close())
		}
	}
	return fetched, nil
}

func subfolder(dir string) (*os.Root, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(dir)
}

func (s *sources) close() error {
	for _, root := range s.roots {
		_ = root.Close()
	}
	return os.RemoveAll(s.dir)
}

// build executes an output's copy operations and stores the archive. The URL of the same content
// is always the same.
func (s *storage) build(from *sources, namespace, generator string, o output) (artifact, error) {
	staging, err := subfolder(filepath.Join(from.dir, "artifact-"+o.Name))
	if err != nil {
		return artifact{}, err
	}
	defer staging.Close()
	if err := (copier{from.roots, staging, newBudget()}).copyAll(o.Copy); err != nil {
		return artifact{}, err
	}
	dir := folder(namespace, o.Name)
	if err := s.root.MkdirAll(dir, 0o700); err != nil {
		return artifact{}, err
	}
	if _, err := s.root.Stat(path.Join(dir, generatorFile)); errors.Is(err, os.ErrNotExist) {
		if err := s.root.WriteFile(path.Join(dir, generatorFile), []byte(generator), 0o600); err != nil {
			return artifact{}, err
		}
	}
	partial := path.Join(dir, ".partial")
	file, err := s.root.Create(partial)
	if err != nil {
		return artifact{}, err
	}
	digester, checksum := digest.SHA256.Digester(), adler32.New()
	err = pack(staging, io.MultiWriter(file, digester.Hash(), checksum))
	info, statErr := file.Stat()
	if err := errors.Join(err, statErr, file.Close()); err != nil {
		return artifact{}, err
	}
	name := path.Join(dir, fmt.Sprintf("%d.tar.gz", checksum.Sum32())) // source-watcher has decimal checksums, too
	if err := s.root.Rename(partial, name); err != nil {
		return artifact{}, err
	}
	return artifact{
		URL: "http://" + s.host + "/" + name, Path: name, Size: info.Size(),
		Digest: digester.Digest().String(), Revision: "latest@" + digester.Digest().String(),
	}, nil
}

// keep removes the archives of a generator except some.
func (s *storage) keep(namespace, generator string, files map[string]bool) error {
	outputs, err := readDir(s.root, folder(namespace))
	if err != nil {
		return err
	}
	var errs []error
	for _, output := range outputs {
		dir := folder(namespace, output)
		maker, err := s.root.ReadFile(path.Join(dir, generatorFile))
		switch {
		case errors.Is(err, os.ErrNotExist): // another generator is making the folder
		case err != nil:
			errs = append(errs, err)
		case string(maker) == generator:
			errs = append(errs, s.keepIn(dir, files))
		}
	}
	return errors.Join(errs...)
}

// keepIn removes the archives of a folder except some, and the folder if it has none left.
func (s *storage) keepIn(dir string, files map[string]bool) error {
	archives, err := readDir(s.root, dir)
	if err != nil {
		return err
	}
	var errs []error
	kept := 0
	for _, archive := range archives {
		switch name := path.Join(dir, archive); {
		case files[name]:
			kept++
		case archive != generatorFile:
			errs = append(errs, s.root.Remove(name))
		}
	}
	if kept == 0 {
		errs = append(errs, s.root.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func readDir(root *os.Root, dir string) ([]string, error) {
	file, err := root.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return file.Readdirnames(-1)
}

// revisions sets the revision of an artifact and that of its origin as an output wants them.
func (o output) revisions(a *artifact, sources map[string]artifact) {
	if alias := strings.TrimPrefix(o.Revision, "@"); alias != "" {
		a.Revision = sources[alias].Revision
	}
	if alias := strings.TrimPrefix(o.OriginRevision, "@"); alias != "" {
		a.Metadata = map[string]string{originRevision: sources[alias].origin()}
	}
}
