package flux

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// ErrRemoteBase reports a kustomization with a remote base. [Build] refuses it, since kustomize
// would fetch it from the network with the user's git.
var ErrRemoteBase = errors.New("the remote base is not fetched: it has no folder")

// remoteAddress matches the addresses that kustomize fetches: by git, or a file by HTTP.
var remoteAddress = regexp.MustCompile(`^(?:[a-z][a-z0-9+.-]*:|[^/\s]+@[^/\s]+:|(?:www\.)?[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)+/.*(?:\?|//|\.git|/[^/]+/[^/]+))`)

// RemoteBase is an entry of a kustomization that is on another host.
type RemoteBase struct {
	// File is the file of the kustomization, Field its list, and Address the entry.
	File, Field, Address string
}

// remoteLists are the lists of a kustomization whose entries can be remote.
var remoteLists = []string{"resources", "components", "bases", "crds"}

// RemoteBases returns the remote bases of the kustomization in the folder dir, and of the local
// bases that it names. Entries that exist as files are local. It reads nothing outside of root.
func RemoteBases(root, dir string) []RemoteBase {
	var found []RemoteBase
	seen := map[string]bool{}
	var visit func(folder string)
	visit = func(folder string) {
		folder = filepath.Clean(folder)
		rel, err := filepath.Rel(root, folder)
		if err != nil || !filepath.IsLocal(rel) || seen[folder] {
			return
		}
		seen[folder] = true
		file, lists := readKustomization(folder)
		for _, field := range remoteLists {
			for _, entry := range lists[field] {
				local := filepath.Join(folder, filepath.FromSlash(entry))
				info, err := os.Stat(local)
				switch {
				case err == nil && info.IsDir():
					visit(local)
				case err != nil && remoteAddress.MatchString(entry):
					found = append(found, RemoteBase{file, field, entry})
				}
			}
		}
	}
	visit(dir)
	return found
}

// readKustomization returns the file and the lists of a folder's kustomization. A file that
// cannot be read has none: the build reports it.
func readKustomization(folder string) (file string, lists map[string][]string) {
	name, content, err := KustomizationFile(os.DirFS(folder), ".")
	if err != nil {
		return "", nil
	}
	file = filepath.Join(folder, name)
	fields := map[string]any{}
	if yaml.Unmarshal(content, &fields) != nil {
		return file, nil
	}
	lists = map[string][]string{}
	for _, field := range remoteLists {
		entries, _ := fields[field].([]any)
		for _, entry := range entries {
			if text, ok := entry.(string); ok {
				lists[field] = append(lists[field], text)
			}
		}
	}
	return file, lists
}

// checkRemote returns an error for a kustomization with remote bases.
func checkRemote(root, dir string) error {
	bases := RemoteBases(root, dir)
	if len(bases) == 0 {
		return nil
	}
	var texts []string
	for _, base := range bases {
		file, err := filepath.Rel(root, base.File)
		if err != nil {
			file = base.File
		}
		text := fmt.Sprintf("%s in %s", base.Address, filepath.ToSlash(file))
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return fmt.Errorf("%w: %s: copy it into the repository, or serve it with %s where the command has this option", ErrRemoteBase, strings.Join(texts, ", "), MapFlags(bases))
}

// MapFlags returns the flags --map that serve the bases: a file at the address of a manifest, and a
// folder as the branch of a repository.
func MapFlags(bases []RemoteBase) string {
	var flags []string
	for _, base := range bases {
		flag := "--map URL#BRANCH=DIR"
		if url, _, ref, ok := base.Git(); base.IsFile() {
			flag = "--map " + base.Address + "=FILE"
		} else if ok {
			flag = fmt.Sprintf("--map '%s#%s=DIR'", url, cmp.Or(ref, "main"))
		}
		if !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return strings.Join(flags, " ")
}

// IsFile reports whether the base is one manifest, which kustomize fetches by HTTP.
func (b RemoteBase) IsFile() bool {
	_, rest, ok := strings.Cut(b.Address, "://")
	return ok && strings.HasPrefix(b.Address, "http") && !strings.ContainsAny(rest, "?#") && !strings.Contains(rest, "//") &&
		slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(rest))
}

// Replace puts another entry in the place of the remote base. It returns an error if the
// kustomization file cannot be read, parsed or written.
func (b RemoteBase) Replace(entry string) error {
	content, err := os.ReadFile(b.File)
	if err != nil {
		return fmt.Errorf("cannot replace a remote base: %w", err)
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(content, &fields); err != nil {
		return fmt.Errorf("cannot replace a remote base: %w", err)
	}
	entries, _ := fields[b.Field].([]any)
	for i, e := range entries {
		if e == b.Address {
			entries[i] = entry
		}
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("cannot replace a remote base: %w", err)
	}
	if err := os.WriteFile(b.File, out, 0o600); err != nil {
		return fmt.Errorf("cannot replace a remote base: %w", err)
	}
	return nil
}

// remoteDepth limits how often remote bases may have remote bases.
const remoteDepth = 5

// FetchedBases is the folder with the copies of [FetchBases].
const FetchedBases = ".remote"

// FetchBase writes a remote base into the new folder dir, and returns the path of its folder or file in it,
// or "" if it cannot be had.
type FetchBase func(base RemoteBase, dir string) (path string, err error)

// FetchBases puts copies into [FetchedBases] of root in the place of the remote bases of the folder
// dir, and of their remote bases. [Build] reports those that fetch cannot get. FetchBases changes
// the kustomizations below root. It returns the error of fetch, or an error of reading or writing
// the files.
func FetchBases(root, dir string, fetch FetchBase) error {
	copies := filepath.Join(root, FetchedBases)
	for range remoteDepth {
		fetched := false
		for _, base := range RemoteBases(root, dir) {
			existing, err := os.ReadDir(copies)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cannot fetch a remote base: %w", err)
			}
			target, err := fetch(base, filepath.Join(copies, strconv.Itoa(len(existing)+1)))
			if err != nil {
				return fmt.Errorf("cannot fetch the remote base %s: %w", base.Address, err)
			}
			if target == "" {
				continue
			}
			entry, err := filepath.Rel(filepath.Dir(base.File), target)
			if err != nil {
				return fmt.Errorf("cannot fetch a remote base: %w", err)
			}
			if err := base.Replace(filepath.ToSlash(entry)); err != nil {
				return err
			}
			fetched = true
		}
		if !fetched {
			return nil
		}
	}
	return nil
}

// gitBase splits the address of a base in a Git repository.
var gitBase = regexp.MustCompile(`^(?:git::)?((?:https?://|ssh://)?[^/?]+/[^/?]+/[^/?]+?)(?:\.git)?(?://?([^?]*))?(?:\?(.*))?$`)

// Git returns the repository, the folder and the branch or tag of a base in a Git repository.
func (b RemoteBase) Git() (url, folder, ref string, ok bool) {
	match := gitBase.FindStringSubmatch(b.Address)
	if match == nil {
		return "", "", "", false
	}
	url = match[1]
	if !strings.Contains(url, "://") {
		url = "https://" + url
	}
	for _, option := range strings.Split(match[3], "&") {
		if value, found := strings.CutPrefix(option, "ref="); found {
			ref = value
		} else if value, found := strings.CutPrefix(option, "version="); found {
			ref = value
		}
	}
	return url, match[2], ref, true
}
