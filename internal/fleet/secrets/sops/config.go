package sops

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// ConfigFile is the file of a repository that names the recipients of its encrypted files.
const ConfigFile = ".sops.yaml"

// ErrUnsupported reports that a rule has keys that this package does not support.
var ErrUnsupported = errors.New("only age and OpenPGP keys are supported: write the file yourself and encrypt it with `sops encrypt --in-place`")

// Keys are the recipients of a creation rule.
type Keys struct {
	// File is the .sops.yaml.
	File string
	// Age are recipients, PGP fingerprints.
	Age, PGP []string
}

// rule is a creation rule. Keys of other kinds are read only to detect them.
type rule struct {
	PathRegex string `json:"path_regex"`
	group
	ShamirThreshold int     `json:"shamir_threshold"`
	KeyGroups       []group `json:"key_groups"`
}

type group struct {
	Age     any `json:"age"`
	PGP     any `json:"pgp"`
	KMS     any `json:"kms"`
	GCPKMS  any `json:"gcp_kms"`
	HCKMS   any `json:"hckms"`
	AzureKV any `json:"azure_keyvault"`
	Vault   any `json:"hc_vault"`
	Transit any `json:"hc_vault_transit_uri"`
	Merge   any `json:"merge"`
}

// FindKeys searches for the .sops.yaml of a file, in the file's folder and the folders above
// it, and returns the keys of the first rule that matches the file, like the sops command. The
// error is fs.ErrNotExist if there is none.
func FindKeys(repository fs.FS, file string) (Keys, error) {
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		name := path.Join(dir, ConfigFile)
		raw, err := fs.ReadFile(repository, name)
		if err == nil {
			relative := file
			if dir != "." {
				relative = strings.TrimPrefix(file, dir+"/")
			}
			return findRule(raw, name, relative)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return Keys{}, fmt.Errorf("cannot read %s: %w", name, err)
		}
		if dir == "." {
			return Keys{}, fmt.Errorf("cannot find the keys for %s: there is no %s: %w", file, ConfigFile, fs.ErrNotExist)
		}
	}
}

func findRule(raw []byte, name, file string) (Keys, error) {
	var config struct {
		CreationRules []rule `json:"creation_rules"`
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return Keys{}, fmt.Errorf("cannot parse %s: %w", name, err)
	}
	for i, r := range config.CreationRules {
		expression, err := regexp.Compile(r.PathRegex)
		if err != nil {
			return Keys{}, fmt.Errorf("cannot parse path_regex of rule %d in %s: %w", i+1, name, err)
		}
		if !expression.MatchString(file) {
			continue
		}
		keys, err := r.keys()
		if err != nil {
			return Keys{}, fmt.Errorf("cannot use rule %d in %s: %w", i+1, name, err)
		}
		keys.File = name
		return keys, nil
	}
	return Keys{}, fmt.Errorf("cannot find the keys for %s: no rule in %s matches it: %w", file, name, fs.ErrNotExist)
}

func (r rule) keys() (Keys, error) {
	groups := r.KeyGroups
	if len(groups) == 0 {
		groups = []group{r.group}
	}
	if len(groups) > 1 {
		return Keys{}, fmt.Errorf("the key is shared between %d groups: %w", len(groups), ErrUnsupported)
	}
	g := groups[0]
	for _, other := range []any{g.KMS, g.GCPKMS, g.HCKMS, g.AzureKV, g.Vault, g.Transit, g.Merge} {
		if other != nil && other != "" {
			return Keys{}, ErrUnsupported
		}
	}
	var keys Keys
	var err error
	if keys.Age, err = words(g.Age); err != nil {
		return Keys{}, fmt.Errorf("cannot read age: %w", err)
	}
	if keys.PGP, err = words(g.PGP); err != nil {
		return Keys{}, fmt.Errorf("cannot read pgp: %w", err)
	}
	if len(keys.Age)+len(keys.PGP) == 0 {
		return Keys{}, ErrNoRecipient
	}
	return keys, nil
}

// words reads a list, or a text with commas.
func words(value any) ([]string, error) {
	var texts []string
	switch value := value.(type) {
	case nil:
	case string:
		texts = strings.Split(value, ",")
	case []any:
		for _, v := range value {
			text, ok := v.(string)
			if !ok {
				return nil, fmt.Errorf("%v is no text", v)
			}
			texts = append(texts, text)
		}
	default:
		return nil, fmt.Errorf("%v is neither a text nor a list", value)
	}
	var found []string
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			found = append(found, text)
		}
	}
	return found, nil
}
