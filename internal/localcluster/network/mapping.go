package network

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
)

// Kind says as what a mapped folder is served.
type Kind string

// The kinds of mapped folders.
const (
	KindGit  Kind = "Git repository"
	KindHelm Kind = "Helm repository"
	KindOCI  Kind = "OCI artifact"
)

// Map says where an outside address is found on this machine. It is the value
// of --map.
type Map struct {
	Kind Kind
	// URL is the address as the fleet writes it.
	URL string
	// Branch is the branch as which a plain folder is served; empty for a
	// Git work tree, whose own branches are served.
	Branch string
	// Dir is the folder, as an absolute path.
	Dir string
}

// ErrMap says that a value of --map cannot be used.
var ErrMap = errors.New("cannot use --map")

// ParseMap reads URL[#BRANCH]=DIR and looks at the folder to see what it is: with
// #BRANCH any folder, served as that branch of a Git repository; with oci:// an
// OCI artifact; the top of a Git work tree; or a folder of Helm charts, that is
// one with a Chart.yaml, with subfolders that have one, or with *.tgz files.
//
// The value is split at the first = behind the address's path begins, so that
// folders may have = in their names and addresses may not.
func ParseMap(value string) (Map, error) {
	address, dir, ok := strings.Cut(value, "=")
	if !ok || address == "" || dir == "" {
		return Map{}, fmt.Errorf("%w %q: it must be URL[#BRANCH]=DIR, such as https://github.com/acme/dev-team=../dev-team", ErrMap, value)
	}
	m := Map{}
	var hasBranch bool
	m.URL, m.Branch, hasBranch = strings.Cut(address, "#")
	if hasBranch && m.Branch == "" {
		return Map{}, fmt.Errorf("%w %q: # is followed by no branch", ErrMap, value)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Map{}, fmt.Errorf("%w %q: %w", ErrMap, value, err)
	}
	m.Dir = abs
	info, err := os.Stat(abs)
	if err != nil {
		return Map{}, fmt.Errorf("%w %q: %w", ErrMap, value, err)
	}
	if !info.IsDir() {
		return Map{}, fmt.Errorf("%w %q: %s is not a folder", ErrMap, value, dir)
	}
	if m.Kind, err = m.kind(); err != nil {
		return Map{}, fmt.Errorf("%w %q: %w", ErrMap, value, err)
	}
	return m, m.checkURL(value)
}

func (m Map) kind() (Kind, error) {
	switch {
	case strings.HasPrefix(m.URL, "oci://"):
		return KindOCI, nil
	case m.Branch != "":
		return KindGit, nil
	case exists(m.Dir, ".git"):
		return KindGit, nil
	case isCharts(m.Dir):
		return KindHelm, nil
	}
	return "", fmt.Errorf("%s is neither the top of a Git work tree nor a folder of Helm charts; to serve it as a branch of a Git repository, write %s#main=%s", m.Dir, m.URL, m.Dir)
}

func (m Map) checkURL(value string) error {
	if m.Kind == KindGit {
		if _, err := githost.Address(m.URL); err != nil {
			return fmt.Errorf("%w %q: %w", ErrMap, value, err)
		}
		return nil
	}
	u, err := url.Parse(m.URL)
	if err != nil || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci") {
		return fmt.Errorf("%w %q: %s is not an address of a %s", ErrMap, value, m.URL, m.Kind)
	}
	return nil
}

func isCharts(dir string) bool {
	if exists(dir, "Chart.yaml") {
		return true
	}
	for _, pattern := range []string{"*/Chart.yaml", "*.tgz"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			return true
		}
	}
	return false
}

func exists(elements ...string) bool {
	_, err := os.Stat(filepath.Join(elements...))
	return err == nil
}
