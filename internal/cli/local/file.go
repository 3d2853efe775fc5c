package local

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/ui"
	"sigs.k8s.io/yaml"
)

// FileName is the file in a fleet's repository that keeps the flags. The hidden name is accepted
// as well.
const FileName, hiddenFileName = "tenure.yaml", ".tenure.yaml"

// File is the content of a fleet's file: the values of flags, under their names. Folders and
// files are relative to the folder of the file. A value that a flag gives replaces the value of
// the file; lists are added. The flag --online is missing on purpose: a change of the repository
// must not open the network.
type File struct {
	// Fleet is the folder of the platform's repository; the default is the file's own.
	Fleet string `json:"fleet"`
	// Path are the folders of clusters: a text or a list.
	Path texts `json:"path"`
	// Map and Private map addresses to folders and files of Secrets.
	Map     map[string]string `json:"map"`
	Private map[string]string `json:"private"`
	// Apply, CRDs and Assume are the lists of these flags.
	Apply  []string `json:"apply"`
	CRDs   []string `json:"crds"`
	Assume []string `json:"assume"`
	// AssumeUnmapped is --assume-unmapped.
	AssumeUnmapped bool `json:"assume-unmapped"`
	// FakeSecrets is --fake-secrets.
	FakeSecrets bool `json:"fake-secrets"`
	// Timeout is --timeout.
	Timeout string `json:"timeout"`
	// Tenants and Platform are selectors of namespaces.
	Tenants  []string `json:"tenants"`
	Platform []string `json:"platform"`

	// dir is the folder of the file.
	dir string
}

// texts is a list that may be written as one text.
type texts []string

// UnmarshalJSON reads a text or a list of texts.
func (t *texts) UnmarshalJSON(raw []byte) error {
	var list []string
	if strings.HasPrefix(string(raw), "[") {
		err := yaml.UnmarshalStrict(raw, &list)
		*t = list
		return err
	}
	var one string
	err := yaml.UnmarshalStrict(raw, &one)
	*t = texts{one}
	return err
}

// Choice returns the selectors of namespaces in the file of a fleet, if there is one, and those of
// the flags. It returns an error for a file that cannot be read, and for a text that is no selector.
func Choice(fleet string, tenants, platform []string) (discovery.Choice, error) {
	flags, err := discovery.NewChoice(tenants, platform)
	if err != nil || fleet == "" {
		return flags, err
	}
	file, err := ReadFile(fleet)
	if err != nil {
		return flags, err
	}
	choice, err := discovery.NewChoice(file.Tenants, file.Platform)
	if err != nil {
		return flags, fmt.Errorf("%s: %w", FileName, err)
	}
	return choice.With(flags), nil
}

// ReadFile reads the file of a folder. A folder without one has an empty file.
func ReadFile(dir string) (File, error) {
	f := File{dir: dir}
	name := ""
	for _, candidate := range []string{FileName, hiddenFileName} {
		_, err := os.Stat(filepath.Join(dir, candidate))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return f, fmt.Errorf("cannot read the fleet's file: %w", err)
		case name != "":
			return f, fmt.Errorf("%s has both %s and %s: keep one of them", dir, name, candidate)
		default:
			name = candidate
		}
	}
	if name == "" {
		return f, nil
	}
	file := filepath.Join(dir, name)
	content, err := os.ReadFile(file)
	if err != nil {
		return f, fmt.Errorf("cannot read the fleet's file: %w", err)
	}
	if !isSettings(content) {
		return f, nil
	}
	f, err = ParseFile(content)
	if err != nil {
		return f, fmt.Errorf("%s: %w", file, err)
	}
	f.dir = dir
	return f, nil
}

// ParseFile parses the content of a fleet's file.
func ParseFile(content []byte) (File, error) {
	var f File
	if err := yaml.UnmarshalStrict(content, &f); err != nil {
		return f, ui.WithHint(fmt.Errorf("cannot read the fleet's file: %w", err),
			"it has the names of flags: fleet, path, map, private, apply, crds, assume, assume-unmapped, fake-secrets, timeout, tenants, platform")
	}
	return f, nil
}

// isSettings reports whether a file of this name is no Kubernetes manifest: some fleets keep
// Tenure's own manifests in a file tenure.yaml.
func isSettings(content []byte) bool {
	var object struct {
		Kind string `json:"kind"`
	}
	return yaml.Unmarshal(content, &object) != nil || object.Kind == ""
}

// at returns a folder or file of the file's, relative to the working directory.
func (f File) at(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(f.dir, name)
}

// merge adds the file's values to the flags.
func (f *Flags) merge(file File) error {
	f.Cluster.Fleet = cmp.Or(f.Cluster.Fleet, atIfSet(file, file.Fleet))
	if f.Cluster.Path == "" && len(f.Paths) == 0 {
		f.choosePaths(file.Path)
	}
	for _, url := range slices.Sorted(maps.Keys(file.Map)) {
		f.maps = append(f.maps, url+"="+file.at(file.Map[url]))
	}
	for _, url := range slices.Sorted(maps.Keys(file.Private)) {
		f.private = append(f.private, url+"="+file.at(file.Private[url]))
	}
	for _, name := range file.Apply {
		f.Cluster.Apply = append(f.Cluster.Apply, file.at(name))
	}
	for _, name := range file.CRDs {
		f.Cluster.CRDs = append(f.Cluster.CRDs, file.at(name))
	}
	f.Cluster.Assume = append(f.Cluster.Assume, file.Assume...)
	f.Cluster.AssumeUnmapped = f.Cluster.AssumeUnmapped || file.AssumeUnmapped
	f.Cluster.FakeSecrets = f.Cluster.FakeSecrets || file.FakeSecrets
	f.Tenants, f.Platform = append(f.Tenants, file.Tenants...), append(f.Platform, file.Platform...)
	if file.Timeout == "" || f.timeoutSet() {
		return nil
	}
	timeout, err := time.ParseDuration(file.Timeout)
	if err != nil {
		return fmt.Errorf("timeout of %s: %w: write a duration such as 10m", filepath.Join(file.dir, FileName), err)
	}
	f.Timeout = timeout
	return nil
}

func atIfSet(file File, name string) string {
	if name == "" {
		return ""
	}
	return file.at(name)
}
