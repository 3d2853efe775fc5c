package local

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
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

// texts is a list of texts. In the file, a list of one text may be a single text.
type texts []string

// errTexts reports a value of the field path that is no text and no list of texts.
var errTexts = errors.New("path has to be a text or a list of texts")

// UnmarshalJSON reads a text or a list of texts.
func (t *texts) UnmarshalJSON(raw []byte) error {
	if strings.HasPrefix(string(raw), `"`) {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return errTexts
	}
	*t = list
	return nil
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

// explainFolder adds the way out to the error of a fleet whose folder does not exist.
func explainFolder(err error) error {
	if errors.Is(err, layout.ErrNotFound) {
		return ui.WithHint(err, "name the folder of the platform's repository with --fleet DIR")
	}
	return err
}

// ReadFile reads the file of a folder, and returns an empty File for a folder without one. It returns an error if dir does not exist or is a file, if the folder has both names of the file, or if the file cannot be read or parsed.
func ReadFile(dir string) (File, error) {
	f := File{dir: dir}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return f, explainFolder(fmt.Errorf("cannot read the fleet: %w: %s", layout.ErrNotFound, dir))
	}
	if err == nil && !info.IsDir() {
		return f, fmt.Errorf("cannot read the fleet: %s is a file: name the folder of the platform's repository", dir)
	}
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

// ParseFile parses the content of a fleet's file. It returns an error for an unknown field, a value of
// another type, and a second YAML document.
func ParseFile(content []byte) (File, error) {
	var f File
	err := yaml.UnmarshalStrict(content, &f)
	var typeErr *json.UnmarshalTypeError
	switch {
	case errors.Is(err, errTexts):
		err = errTexts
	case errors.As(err, &typeErr):
		err = fmt.Errorf("%s has to be %s, and not %s", cmp.Or(typeErr.Field, "the file"), plainType(typeErr.Type), typeErr.Value)
	case err == nil && documents.Match(content):
		err = errors.New("it has more than one YAML document, of which only the first would count: keep one")
	}
	if err != nil {
		return f, ui.WithHint(fmt.Errorf("cannot read the fleet's file: %w", err),
			"it has the names of flags: fleet, path, map, private, apply, crds, assume, assume-unmapped, fake-secrets, timeout, tenants, platform")
	}
	return f, nil
}

// documents matches the content of a file between two YAML documents: a separator after a line with a field.
var documents = regexp.MustCompile(`(?s)(?:^|\n)[\w-][^\n]*\n(?:.*\n)?---\s`)

// plainType names a type of the fields of [File].
func plainType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of texts"
	case reflect.Map:
		return "addresses with a text each, as ADDRESS: FILE"
	case reflect.Struct:
		return "fields with values"
	}
	return "a text"
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
	if err != nil || timeout <= 0 {
		return fmt.Errorf("timeout of %s is %q: write a duration such as 10m", filepath.Join(file.dir, FileName), file.Timeout)
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
