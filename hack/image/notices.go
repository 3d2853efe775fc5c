package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// noticesFile is the file with the licences of others in an archive and in the image.
const noticesFile = "THIRD_PARTY_LICENSES"

// linked are packages of a module whose programs are delivered.
type linked struct {
	module   string // folder, relative to the root
	packages []string
}

// deliveries are the programs by the name of their archive or image.
var deliveries = map[string][]linked{
	"tenure":        {{".", []string{"./cmd/tenure"}}},
	"tenure-server": {{".", []string{"./cmd/tenure-server"}}},
	programsName: {
		{".", []string{"./cmd/tenure", "./cmd/tenure-server"}}, {"cluster", []string{"."}}, {"sigstore", []string{"."}},
		{"cluster/flux", []string{
			"github.com/fluxcd/source-controller", "github.com/fluxcd/kustomize-controller", "github.com/fluxcd/helm-controller",
			"github.com/fluxcd/notification-controller", "github.com/fluxcd/image-reflector-controller", "github.com/fluxcd/image-automation-controller",
			"github.com/fluxcd/source-watcher/v2/cmd",
		}},
	},
}

// noticeNames matches the names of files with licences and notices.
var noticeNames = regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|unlicense)([.-].*)?$`)

// statedIn are the files with the licences of modules that have no licence file.
var statedIn = map[string]string{
	"github.com/alibabacloud-go/cr-20160607": "README.md", // Apache-2.0
}

// ownModule is the prefix of the modules of this repository.
const ownModule = "github.com/tenure-dev/tenure"

// notices returns the licences and notices of all modules that are linked into programs on Linux
// and macOS, and of Go. A module without a licence, and one under a licence that restricts the whole
// program, is an error.
func (s *source) notices(ctx context.Context, programs []linked) ([]byte, error) {
	texts := map[string][]string{} // modules by text
	licensed := map[string]string{}
	for _, l := range programs {
		for _, on := range []string{"linux", "darwin"} {
			if err := s.addNotices(ctx, l, on, texts, licensed); err != nil {
				return nil, err
			}
		}
	}
	golang, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "LICENSE")) //nolint:staticcheck // `go run` and `go test` set it
	if err != nil {
		return nil, fmt.Errorf("cannot read the licence of Go: %w", err)
	}
	texts[string(golang)] = append(texts[string(golang)], "Go")
	var without []string
	for module, licence := range licensed {
		if licence == "" {
			without = append(without, module)
		}
	}
	if len(without) > 0 {
		slices.Sort(without)
		return nil, errors.New("cannot deliver the programs: these modules have no licence file, or one that restricts the whole program: " + strings.Join(without, ", "))
	}
	var out bytes.Buffer
	out.WriteString("The programs contain the following software of others.\n")
	byModules := map[string]string{}
	for text, modules := range texts {
		slices.Sort(modules)
		key := strings.Join(slices.Compact(modules), "\n")
		byModules[key] += text + "\n"
	}
	for _, modules := range slices.Sorted(maps.Keys(byModules)) {
		fmt.Fprintf(&out, "\n%s\n%s\n%s\n\n%s", strings.Repeat("=", 80), modules, strings.Repeat("-", 80), byModules[modules])
	}
	return out.Bytes(), nil
}

// addNotices adds the licence texts of all modules that are linked on a system, and records for
// each module whether its kind of licence is known.
func (s *source) addNotices(ctx context.Context, l linked, on string, texts map[string][]string, licensed map[string]string) error {
	args := append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}\t{{$.Dir}}{{end}}"}, l.packages...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = filepath.Join(s.root, l.module), environment(on, "amd64")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("cannot list the modules of %s: %w\n%s", l.module, err, said.String())
	}
	read := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 4 || strings.HasPrefix(parts[0]+"/", ownModule+"/") {
			continue
		}
		module := parts[0] + " " + parts[1]
		if _, seen := licensed[module]; !seen {
			licensed[module] = ""
			if err := addStated(parts[0], parts[2], module, texts, licensed); err != nil {
				return err
			}
		}
		// A folder of the module may have a licence of its own.
		for dir := parts[3]; ; dir = filepath.Dir(dir) {
			if !read[dir] {
				read[dir] = true
				kind, err := readNotices(dir, module, texts)
				if err != nil {
					return err
				}
				if dir == parts[2] && licensed[module] == "" {
					licensed[module] = kind
				}
			}
			if dir == parts[2] || len(dir) < len(parts[2]) {
				break
			}
		}
	}
	return nil
}

// addStated adds the file with the licence of a module that has no licence file.
func addStated(path, dir, module string, texts map[string][]string, licensed map[string]string) error {
	file := statedIn[path]
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return fmt.Errorf("cannot read a licence: %w", err)
	}
	licensed[module], texts[string(text)] = "known", append(texts[string(text)], module)
	return nil
}

// readNotices adds the texts in a folder, and returns "known" if they have a licence that allows to
// deliver the program.
func readNotices(dir, module string, texts map[string][]string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("cannot read a module: %w", err)
	}
	kind := ""
	for _, e := range entries {
		if e.IsDir() || !noticeNames.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", fmt.Errorf("cannot read a licence: %w", err)
		}
		text := string(content)
		if !slices.Contains(texts[text], module) {
			texts[text] = append(texts[text], module)
		}
		if restricts(text) {
			return "", nil
		}
		if licenceNames.MatchString(e.Name()) && len(licencesOf(text)) > 0 {
			kind = "known"
		}
	}
	return kind, nil
}

// restricts reports whether a text is that of the GPL or the AGPL.
func restricts(text string) bool {
	head := strings.ToUpper(strings.Join(strings.Fields(text[:min(len(text), 400)]), " "))
	return strings.HasPrefix(head, "GNU GENERAL PUBLIC LICENSE") || strings.HasPrefix(head, "GNU AFFERO GENERAL PUBLIC LICENSE")
}

// writeNotices writes the licences for each archive and for the image into a folder.
func (s *source) writeNotices(ctx context.Context, dir string) error {
	for _, name := range slices.Sorted(maps.Keys(s.delivers)) {
		text, err := s.notices(ctx, s.delivers[name])
		if err != nil {
			return err
		}
		if err := publish(filepath.Join(dir, noticesFile+"."+name), text); err != nil {
			return err
		}
	}
	return nil
}
