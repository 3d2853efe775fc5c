package localcluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/ocihost"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// encrypted matches a value that SOPS has encrypted, and its type.
var encrypted = regexp.MustCompile(`^ENC\[.*type:(\w+)\]$`)

// variable matches a variable of postBuild without a default.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// fakeEncrypted replaces the encrypted values in the served files of the mapped folders,
// unless the admin applies a key by hand.
func (c *Cluster) fakeEncrypted(ctx context.Context) error {
	if !c.opts.FakeSecrets || c.hasKey() {
		return nil
	}
	takers, uses := c.takers(), c.credentialUses()
	for _, m := range c.opts.Maps {
		if m.Kind == network.KindOCI {
			address, err := ocihost.ParseAddress(m.URL)
			if err != nil {
				return err
			}
			if err := c.fakeFolder(m, takers, uses, func(name string, content []byte) error {
				_, err := c.OCI.Overlay(address, map[string][]byte{name: content})
				return err
			}); err != nil {
				return err
			}
		}
		if m.Kind != network.KindGit {
			continue
		}
		branch := m.Branch
		if branch == "" && c.Fleet != nil && m.Dir == c.Fleet.Dir {
			branch = c.Fleet.Sync.Branch
		}
		if branch == "" {
			continue // a work tree with branches of its own
		}
		if err := c.fakeFolder(m, takers, uses, func(name string, content []byte) error { return c.Git.Overlay(ctx, m.URL, branch, name, content) }); err != nil {
			return err
		}
	}
	return nil
}

// hasKey reports whether the admin applies a key for decryption by hand.
func (c *Cluster) hasKey() bool {
	for _, u := range c.objects.manual {
		for _, field := range []string{"data", "stringData"} {
			data, _ := u.Object[field].(map[string]any)
			for key := range data {
				if strings.HasSuffix(key, ".agekey") || strings.HasSuffix(key, ".asc") {
					return true
				}
			}
		}
	}
	return false
}

// namedFiles is the number of encrypted files that a report names.
const namedFiles = 3

// fakeFolder replaces the encrypted values of a mapped folder with overlay, by files. takers are
// those of [Cluster.takers], and uses those of [Cluster.credentialUses].
func (c *Cluster) fakeFolder(m network.Map, takers [][]byte, uses map[string][]flux.SecretUse, overlay func(name string, content []byte) error) error {
	var inObjects, inSecrets []string
	err := eachFile(m.Dir, func(name string, content []byte) error {
		faked, ok := fakeSOPS(name, content)
		switch {
		case !ok:
			return nil
		case feedsObjects(name, content, takers):
			inObjects = append(inObjects, name)
		default:
			inSecrets = append(inSecrets, name)
		}
		faked, err := c.fakeCredentials(name, faked, uses)
		if err != nil {
			return err
		}
		return overlay(name, faked)
	})
	if err != nil {
		return fmt.Errorf("cannot replace the encrypted values of %s: %w", m.URL, err)
	}
	add := func(what string, files []string, content bool) {
		if len(files) == 0 {
			return
		}
		slices.Sort(files)
		count := "1 encrypted file"
		if len(files) > 1 {
			count = fmt.Sprintf("%d encrypted files", len(files))
		}
		c.addFake(Fake{Content: content, Text: fmt.Sprintf("%s in %s of %s, such as %s; their content is not proven: give the key with --apply",
			what, count, m.URL, strings.Join(files[:min(len(files), namedFiles)], ", "))})
	}
	add("values", inObjects, true)
	add("Secrets", inSecrets, false)
	return nil
}

// feedsObjects reports whether the encrypted values of a file may get into objects of the fleet
// other than Secrets: another object of the file is encrypted, or a Secret that one of the takers
// names. Flux decrypts the objects of a file one by one, and takes those without SOPS's field as they are.
func feedsObjects(name string, content []byte, takers [][]byte) bool {
	if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" && ext != ".json" {
		return true
	}
	return slices.ContainsFunc(documentsOf(content), func(doc map[string]any) bool {
		if doc["sops"] == nil {
			return false
		}
		metadata, _ := doc["metadata"].(map[string]any)
		secret, _ := metadata["name"].(string)
		return doc["kind"] != "Secret" || slices.ContainsFunc(takers, func(text []byte) bool { return bytes.Contains(text, []byte(secret)) })
	})
}

// takers returns the files of the mapped folders in which objects of Flux take values or variables
// from Secrets.
func (c *Cluster) takers() [][]byte {
	var all [][]byte
	for _, m := range c.opts.Maps {
		// A folder that cannot be read is reported when it is served.
		_ = eachFile(m.Dir, func(_ string, content []byte) error {
			if bytes.Contains(content, []byte("valuesFrom")) || bytes.Contains(content, []byte("substituteFrom")) {
				all = append(all, content)
			}
			return nil
		})
	}
	return all
}

// credentialUses returns the uses of Secrets as credentials or keys in the manifests of the mapped
// folders, by the name of the Secret: kustomize may change the namespace.
func (c *Cluster) credentialUses() map[string][]flux.SecretUse {
	all := map[string][]flux.SecretUse{}
	for _, m := range c.opts.Maps {
		// A folder that cannot be read is reported when it is served.
		_ = eachFile(m.Dir, func(name string, content []byte) error {
			if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" || !bytes.Contains(content, []byte("secretRef")) {
				return nil
			}
			for _, object := range documentsOf(content) {
				for _, use := range flux.SecretUses(&unstructured.Unstructured{Object: object}) {
					if !use.Purpose.IsContent() {
						all[use.Name] = append(all[use.Name], use)
					}
				}
			}
			return nil
		})
	}
	return all
}

// fakeCredentials replaces the data of Secrets that Flux reads as credentials or as keys for
// decryption: no program accepts any text as a private key. It does not change files without
// such a Secret, and so keeps their comments and their form.
func (c *Cluster) fakeCredentials(name string, content []byte, uses map[string][]flux.SecretUse) ([]byte, error) {
	if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" && ext != ".json" {
		return content, nil
	}
	var documents [][]byte
	changed := false
	for _, object := range documentsOf(content) {
		metadata, _ := object["metadata"].(map[string]any)
		secret, _ := metadata["name"].(string)
		if named := uses[secret]; object["kind"] == "Secret" && len(named) > 0 {
			data := map[string]string{}
			for _, use := range named {
				invented, err := c.invent(use)
				if err != nil {
					return nil, err
				}
				maps.Copy(data, invented)
			}
			delete(object, "data")
			object["stringData"] = data
			changed = true
		}
		out, err := yaml.Marshal(object)
		if err != nil {
			return nil, fmt.Errorf("cannot write the credentials of %s: %w", name, err)
		}
		documents = append(documents, out)
	}
	if !changed {
		return content, nil
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

// documentsOf returns the objects of a YAML file, without what is no object.
func documentsOf(content []byte) []map[string]any {
	var objects []map[string]any
	for _, doc := range flux.SplitYAML(content) {
		var object map[string]any
		if err := yaml.Unmarshal(doc, &object); err == nil && object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// maxSecretFile limits the size of the files that are read for encrypted values and variables.
const maxSecretFile = 1 << 20

// eachFile calls read with the small files of a folder, by their slash-separated path.
func eachFile(dir string, read func(name string, content []byte) error) error {
	return fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if info, err := d.Info(); err != nil || info.Size() > maxSecretFile {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		return read(name, content)
	})
}

// fakeSOPS returns a file of SOPS with invented values and without SOPS' metadata. It returns
// false for another file.
func fakeSOPS(name string, content []byte) ([]byte, bool) {
	if !bytes.Contains(content, []byte("ENC[")) {
		return nil, false
	}
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return fakeYAML(content)
	case ".env":
		return fakeEnv(content)
	}
	return nil, false
}

func fakeYAML(content []byte) ([]byte, bool) {
	var documents [][]byte
	found := false
	for _, object := range documentsOf(content) {
		if _, ok := object["sops"]; ok {
			found = true
			delete(object, "sops")
			object = fakeValue("", object, false).(map[string]any)
		}
		out, err := yaml.Marshal(object)
		if err != nil {
			return nil, false
		}
		documents = append(documents, out)
	}
	return bytes.Join(documents, []byte("---\n")), found
}

// fakeValue replaces the encrypted values in a value. In the data of a Secret they are base64.
func fakeValue(key string, value any, coded bool) any {
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			v[name] = fakeValue(name, child, coded || key == "" && name == "data" && v["kind"] == "Secret")
		}
	case []any:
		for i, child := range v {
			v[i] = fakeValue(key, child, coded)
		}
	case string:
		match := encrypted.FindStringSubmatch(strings.TrimSpace(v))
		switch {
		case match == nil:
			return v
		case match[1] == "int" || match[1] == "float":
			return int64(1)
		case match[1] == "bool":
			return true
		case coded:
			return base64.StdEncoding.EncodeToString([]byte(inventValue(key)))
		}
		return inventValue(key)
	}
	return value
}

func fakeEnv(content []byte) ([]byte, bool) {
	var lines []string
	found := false
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case strings.HasPrefix(key, "sops_"):
			found = true
		case encrypted.MatchString(value):
			lines = append(lines, key+"="+inventValue(key)+"\n")
		default:
			lines = append(lines, line)
		}
	}
	return []byte(strings.Join(lines, "")), found
}

// inventVariables returns a value for each variable of the mapped repositories that no ConfigMap
// defines.
func (c *Cluster) inventVariables() map[string]string {
	used, defined := map[string]bool{}, map[string]bool{}
	for _, m := range c.opts.Maps {
		if m.Kind != network.KindGit && (c.Fleet == nil || m.Dir != c.Fleet.Dir) {
			continue
		}
		// A folder that cannot be read is reported when it is served.
		_ = eachFile(m.Dir, func(name string, content []byte) error {
			if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" {
				return nil
			}
			for _, match := range variable.FindAllSubmatch(content, -1) {
				used[string(match[1])] = true
			}
			for _, key := range variablesOf(content) {
				defined[key] = true
			}
			return nil
		})
	}
	values := map[string]string{}
	for name := range used {
		if !defined[name] {
			values[name] = inventValue(name)
		}
	}
	return values
}

// variablesOf returns the keys of the ConfigMaps in a manifest.
func variablesOf(content []byte) []string {
	var keys []string
	for _, doc := range flux.SplitYAML(content) {
		var object struct {
			Kind string         `json:"kind"`
			Data map[string]any `json:"data"`
		}
		if yaml.Unmarshal(doc, &object) == nil && object.Kind == "ConfigMap" {
			for key := range object.Data {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
