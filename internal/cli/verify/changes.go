package verify

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
)

// contents are the hashes of what Flux may apply from folders, by folder.
type contents map[string][sha256.Size]byte

// readContents reads the files from which Flux applies objects, in the fleet's folder and in the mapped folders. A
// folder that cannot be read has the hash of what can be.
func readContents(fleet string, maps []network.Map) contents {
	all := contents{}
	for _, m := range append(slices.Clone(maps), network.Map{Dir: fleet}) {
		dir, err := filepath.Abs(m.Dir)
		if _, read := all[dir]; err != nil || read {
			continue
		}
		all[dir] = hashOf(os.DirFS(dir))
	}
	return all
}

// hashOf returns the hash of the names and the contents of the files in a folder that Flux may apply. Other files, such as the
// log of this command, do not count; the command writes its reports after the comparison.
func hashOf(folder fs.FS) (sum [sha256.Size]byte) {
	hash := sha256.New()
	_ = fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // Flux cannot read it either
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink != 0: // Git has the link itself, and the walk reads its target if that is in the folder
			target, _ := fs.ReadLink(folder, name)
			fmt.Fprintf(hash, "%q -> %q\n", name, target)
		case d.Type().IsRegular() && applied(d.Name()):
			if content, err := fs.ReadFile(folder, name); err == nil {
				fmt.Fprintf(hash, "%q %x\n", name, sha256.Sum256(content))
			}
		}
		return nil
	})
	hash.Sum(sum[:0])
	return sum
}

// applied reports whether Flux may apply what a file holds: manifests, patches, templates and packed charts.
func applied(name string) bool {
	return flux.IsKustomizationFile(name) || slices.Contains([]string{".yaml", ".yml", ".json", ".tpl", ".tgz"}, filepath.Ext(name))
}

// changed returns an error that names the folders with other contents than before.
func (c contents) changed(before contents) error {
	var dirs []string
	for dir, hash := range c {
		if before[dir] != hash {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	slices.Sort(dirs)
	return fmt.Errorf("files in %s changed during the attacks, and the cluster followed, so that the results are about no one state of the fleet: run the command again, and change the files after it", strings.Join(dirs, ", "))
}
