package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/helmhost"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
)

// Kind says how a mapped folder is served.
type Kind string

// The kinds of mapped folders.
const (
	KindGit  Kind = "Git repository"
	KindHelm Kind = "Helm repository"
	KindOCI  Kind = "OCI artifact"
	// KindFile is a manifest that a kustomization fetches by its address.
	KindFile Kind = "file"
)

// Map maps an outside address to a folder of this machine. It is the value of --map.
type Map struct {
	Kind Kind
	// URL is the address, as written in the fleet.
	URL string
	// Branch is the name under which a plain folder is served as a branch. It is
	// empty for a Git work tree, whose own branches are served.
	Branch string
	// Dir is the folder, or the file of a KindFile, as an absolute path.
	Dir string
}

// ErrMap reports that a value of --map cannot be used.
var ErrMap = errors.New("cannot use --map")

// ParseMap parses URL[#BRANCH]=DIR and derives the kind of the map. With oci:// it
// is an OCI artifact. With #BRANCH it is a branch of a Git repository, whatever the
// folder holds. Otherwise the folder must be the top of a Git work tree, or a folder
// of Helm charts: a folder with a Chart.yaml, with subfolders that have one, or with
// *.tgz files. The address of a manifest, which ends in .yaml, .yml or .json, may have a file.
//
// The first = splits the value, so that a folder's name may contain one; an address
// must contain %3D instead. The error is ErrMap.
func ParseMap(value string) (Map, error) {
	m, err := parseMap(value)
	if err != nil {
		return Map{}, fmt.Errorf("%w %q: %w", ErrMap, value, err)
	}
	return m, nil
}

func parseMap(value string) (Map, error) {
	address, dir, ok := strings.Cut(value, "=")
	if !ok || address == "" || dir == "" {
		return Map{}, errors.New("it must be URL[#BRANCH]=DIR, such as https://github.com/acme/dev-team=../dev-team")
	}
	m := Map{}
	var hasBranch bool
	m.URL, m.Branch, hasBranch = strings.Cut(address, "#")
	if hasBranch && !isBranch(m.Branch) {
		return Map{}, fmt.Errorf("%q behind # is not the name of a branch", m.Branch)
	}
	if strings.ContainsRune(dir, 0) {
		return Map{}, errors.New("the folder's name has a zero byte")
	}
	var err error
	if m.Dir, err = filepath.Abs(dir); err != nil {
		return Map{}, err
	}
	info, err := os.Stat(m.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Map{}, fmt.Errorf("there is no folder %s", m.Dir)
	}
	if err != nil {
		return Map{}, err
	}
	if !info.IsDir() {
		if hasBranch || !info.Mode().IsRegular() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(m.URL)) {
			return Map{}, fmt.Errorf("%s is not a folder", dir)
		}
		m.Kind = KindFile
		_, err = m.key()
		return m, err
	}
	if m.Kind, err = m.kind(); err != nil {
		return Map{}, err
	}
	_, err = m.key()
	return m, err
}

// isBranch reports whether a name is a valid branch name. It accepts only a part of
// the names that git-check-ref-format(1) accepts.
func isBranch(name string) bool {
	if name == "" || name == "@" || strings.ContainsAny(name, " ~^:?*[\\") || strings.Contains(name, "..") || strings.Contains(name, "@{") {
		return false
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment[0] == '.' || segment[0] == '-' || strings.HasSuffix(segment, ".") || strings.HasSuffix(segment, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError })
}

func (m Map) kind() (Kind, error) {
	switch {
	case strings.HasPrefix(m.URL, "oci://") && m.Branch != "":
		return "", fmt.Errorf("an OCI artifact has no branches; write its tag as %s:%s", m.URL, m.Branch)
	case strings.HasPrefix(m.URL, "oci://"):
		return KindOCI, nil
	case m.Branch != "":
		return KindGit, nil
	case exists(m.Dir, ".git"):
		return KindGit, nil
	case helmhost.HasCharts(m.Dir):
		return KindHelm, nil
	}
	return "", fmt.Errorf("%s is neither the top of a Git work tree nor a folder of Helm charts; to serve it as a branch of a Git repository, write %s#main=%s; a tag, a range of versions or a commit needs a Git work tree that has it", m.Dir, m.URL, m.Dir)
}

// Place returns the host, possibly with a port, and the path without a final slash
// where the folder is served. It fails if the address does not fit the kind.
func (m Map) Place() (host, path string, err error) {
	switch m.Kind {
	case KindGit:
		address, err := githost.Address(m.URL)
		if err != nil {
			return "", "", err
		}
		host, path, _ := strings.Cut(address, "/")
		return host, "/" + path, nil
	case KindOCI:
		address, err := ocihost.ParseAddress(m.URL)
		return address.Host, "/" + address.Repository, err
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.ForceQuery || strings.Contains(u.Path, "//") {
		return "", "", fmt.Errorf("%s is not the address of a %s: it must be https://host/path, without a query", m.URL, m.Kind)
	}
	return cleanHost(u.Host), strings.TrimRight(u.Path, "/"), nil
}

// Source returns the address as Flux's sources contain it. They have the tag of an
// OCI artifact in a separate field.
func (m Map) Source() string {
	if address, err := ocihost.ParseAddress(m.URL); m.Kind == KindOCI && err == nil {
		address.Tag = ""
		return address.String()
	}
	return m.URL
}

// key returns a text that must be unique among all maps. The text for a Helm
// repository contains no port, because a host is served on all of its ports.
func (m Map) key() (string, error) {
	host, path, err := m.Place()
	if err != nil {
		return "", err
	}
	switch m.Kind {
	case KindGit:
		return "git " + host + path + "#" + m.Branch, nil
	case KindOCI:
		address, err := ocihost.ParseAddress(m.URL)
		return address.String(), err
	}
	return string(m.Kind) + " " + hostOnly(host) + path, nil
}

// CheckMaps returns an error that names both folders if two maps have the same
// address: two branches of the same name, the same Helm repository or OCI artifact
// twice, or a Git and a Helm repository. The error is ErrMap.
func CheckMaps(maps []Map) error {
	taken := map[string]Map{}
	places := map[string]Map{}
	for _, m := range maps {
		key, err := m.key()
		if err != nil {
			return fmt.Errorf("%w %q: %w", ErrMap, m.URL, err)
		}
		if other, ok := taken[key]; ok {
			return fmt.Errorf("%w: both %s and %s are mapped to %s: drop one, or name different branches (URL#BRANCH=DIR)", ErrMap, other.Dir, m.Dir, m.URL)
		}
		taken[key] = m
		if m.Kind == KindOCI {
			continue
		}
		host, path, err := m.Place()
		if err != nil {
			return fmt.Errorf("%w %q: %w", ErrMap, m.URL, err)
		}
		place := hostOnly(host) + path
		if other, ok := places[place]; ok && other.Kind != m.Kind {
			return fmt.Errorf("%w: %s is mapped to %s as a %s and to %s as a %s: drop one", ErrMap, m.URL, other.Dir, other.Kind, m.Dir, m.Kind)
		}
		places[place] = m
	}
	return nil
}

func exists(elements ...string) bool {
	_, err := os.Stat(filepath.Join(elements...))
	return err == nil
}
