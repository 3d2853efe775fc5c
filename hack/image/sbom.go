package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// The types of SPDX 2.3: https://spdx.github.io/spdx-spec/v2.3/.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID           string          `json:"SPDXID"`
		Name         string          `json:"name"`
		Version      string          `json:"versionInfo,omitempty"`
		Download     string          `json:"downloadLocation"`
		Analyzed     bool            `json:"filesAnalyzed"`
		Concluded    string          `json:"licenseConcluded"`
		Declared     string          `json:"licenseDeclared"`
		Copyright    string          `json:"copyrightText"`
		Supplier     string          `json:"supplier,omitempty"`
		Purpose      string          `json:"primaryPackagePurpose,omitempty"`
		SourceInfo   string          `json:"sourceInfo,omitempty"`
		Checksums    []spdxChecksum  `json:"checksums,omitempty"`
		ExternalRefs []spdxReference `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxReference struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	spdxMediaType = "application/spdx+json"
	spdxPredicate = "https://spdx.dev/Document"
	noAssertion   = "NOASSERTION"
)

// sbom returns the bill of materials of the image: the images for the architectures, and the
// modules in their programs, with the licences that their sources declare.
func (s *source) sbom(b *built, licences map[string]string) *spdxDocument {
	name := s.program + " " + s.version
	d := &spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		// The digest makes the namespace unique, and the same for the same image.
		Namespace: sourceURL + "/spdx/" + url.PathEscape(s.program+"-"+s.version) + "-" + b.digest.Hex,
		Creation:  spdxCreation{Created: s.created.UTC().Format(time.RFC3339), Creators: []string{"Organization: Tenure", "Tool: tenure-hack-image"}},
	}
	index := s.imagePackage("SPDXRef-Index", s.repository, b.digest.Hex, "")
	d.Packages = append(d.Packages, index)
	d.relate(d.ID, "DESCRIBES", index.ID)
	packages := map[string]spdxPackage{}
	for _, p := range b.platforms {
		image := s.imagePackage("SPDXRef-Image-linux-"+p.arch, s.repository+" (linux/"+p.arch+")", p.digest.Hex, p.arch)
		d.Packages = append(d.Packages, image)
		d.relate(image.ID, "VARIANT_OF", index.ID)
		main, rest := s.modulePackages(p.info, licences)
		packages[main.ID] = main
		d.relate(image.ID, "CONTAINS", main.ID)
		for _, m := range rest {
			packages[m.ID] = m
			d.relate(image.ID, "CONTAINS", m.ID)
			d.relate(main.ID, "DEPENDS_ON", m.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(packages)) {
		d.Packages = append(d.Packages, packages[id])
	}
	return d
}

// relate adds a relationship unless it exists.
func (d *spdxDocument) relate(element, kind, related string) {
	r := spdxRelationship{element, kind, related}
	if !slices.Contains(d.Relationships, r) {
		d.Relationships = append(d.Relationships, r)
	}
}

// imagePackage describes the image for an architecture, or the index without an architecture.
func (s *source) imagePackage(id, name, digest, arch string) spdxPackage {
	repository := s.repository
	query := url.Values{"repository_url": {repository}, "tag": {s.tag()}}
	if arch != "" {
		query.Set("arch", arch)
	}
	base := repository[strings.LastIndex(repository, "/")+1:]
	return spdxPackage{
		ID: id, Name: name, Version: s.version, Download: noAssertion,
		Concluded: noAssertion, Declared: licence, Copyright: noAssertion,
		Supplier: "Organization: Tenure", Purpose: "CONTAINER",
		Checksums:    []spdxChecksum{{"SHA256", digest}},
		ExternalRefs: []spdxReference{packageURL("pkg:oci/" + base + "@sha256%3A" + digest + "?" + query.Encode())},
	}
}

// modulePackages returns the module of the program, and the modules and the standard library
// that it is linked with.
func (s *source) modulePackages(info *buildinfo.BuildInfo, licences map[string]string) (main spdxPackage, rest []spdxPackage) {
	main = modulePackage(debug.Module{Path: info.Main.Path, Version: s.version}, licence)
	main.Purpose, main.Supplier = "APPLICATION", "Organization: Tenure"
	if s.revision != "" {
		main.Download = "git+" + sourceURL + "@" + s.revision
	}
	library := modulePackage(debug.Module{Path: "stdlib", Version: info.GoVersion}, "BSD-3-Clause")
	library.Download = "https://go.dev/dl/" + goRelease(info.GoVersion) + ".src.tar.gz"
	library.ExternalRefs = []spdxReference{packageURL("pkg:golang/stdlib@" + strings.TrimPrefix(goRelease(info.GoVersion), "go"))}
	rest = []spdxPackage{library}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		rest = append(rest, modulePackage(*m, licences[m.Path]))
	}
	return main, rest
}

// goRelease returns a version of Go without the names of experiments.
func goRelease(version string) string {
	release, _, _ := strings.Cut(version, " ")
	return release
}

// unsafeID matches the characters that an SPDX identifier must not contain.
var unsafeID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// modulePackage describes a module of Go.
func modulePackage(m debug.Module, declared string) spdxPackage {
	if declared == "" {
		declared = noAssertion
	}
	p := spdxPackage{
		// A path can differ from another one in a character that an identifier cannot have.
		ID:   "SPDXRef-Module-" + unsafeID.ReplaceAllStringFunc(m.Path+"-"+m.Version, func(c string) string { return fmt.Sprintf("-%x-", c) }),
		Name: m.Path, Version: m.Version, Download: noAssertion,
		Concluded: noAssertion, Declared: declared, Copyright: noAssertion, Purpose: "LIBRARY",
		ExternalRefs: []spdxReference{packageURL("pkg:golang/" + strings.ToLower(m.Path) + "@" + url.QueryEscape(m.Version))},
	}
	if m.Sum != "" {
		p.Download = "https://proxy.golang.org/" + escapePath(m.Path) + "/@v/" + escapePath(m.Version) + ".zip"
		// The hash covers the module's tree, so it is not a checksum of a file.
		p.SourceInfo = "go.sum: " + m.Sum
	}
	return p
}

func packageURL(locator string) spdxReference {
	return spdxReference{"PACKAGE-MANAGER", "purl", locator}
}

var upper = regexp.MustCompile(`[A-Z]`)

// escapePath escapes a path for the module proxy: https://go.dev/ref/mod#module-proxy.
func escapePath(path string) string {
	return upper.ReplaceAllStringFunc(path, func(c string) string { return "!" + strings.ToLower(c) })
}

// licences returns the licences that the modules of the program declare, by module path. It
// leaves out modules with an unknown licence.
func (s *source) licences(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, arch := range s.architectures {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}\t{{.Dir}}{{end}}", s.pkg)
		cmd.Dir, cmd.Env = s.root, environment("linux", arch)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("cannot list the modules: %w\n%s", err, said.String())
		}
		for line := range strings.Lines(string(out)) {
			path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if _, known := found[path]; known || dir == "" {
				continue
			}
			if found[path], err = licenceIn(dir); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// licenceNames matches the names of licence files.
var licenceNames = regexp.MustCompile(`(?i)^(licen[sc]e|copying)([.-].*)?$`)

// licenceIn returns the licences of the files in a module's folder as an SPDX expression, or
// "" if one of them is unknown.
func licenceIn(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("cannot read a module: %w", err)
	}
	var found []string
	for _, e := range entries {
		if e.IsDir() || !licenceNames.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", fmt.Errorf("cannot read a licence: %w", err)
		}
		names := licencesOf(string(text))
		if len(names) == 0 {
			return "", nil
		}
		found = append(found, names...)
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " AND "), nil
}

// licenceTexts are phrases that a licence has and the others do not.
var licenceTexts = []struct {
	id  string
	all []string
}{
	{"Apache-2.0", []string{"apache license", "version 2.0, january 2004"}},
	{"Apache-2.0", []string{"licensed under the apache license, version 2.0"}},
	{"CC0-1.0", []string{"cc0 1.0 universal"}},
	{"MPL-2.0", []string{"mozilla public license", "version 2.0"}},
	{"MIT", []string{"permission is hereby granted, free of charge", "the above copyright notice and this permission notice"}},
	{"ISC", []string{"permission to use, copy, modify, and", "distribute this software for any purpose with or without fee"}},
	{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "endorse or promote products"}},
	{"BSD-2-Clause", []string{"redistribution and use in source and binary forms"}},
}

// licencesOf returns the licences whose text is in a file.
func licencesOf(text string) []string {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	var found []string
	for _, l := range licenceTexts {
		if slices.ContainsFunc(l.all, func(phrase string) bool { return !strings.Contains(text, phrase) }) {
			continue
		}
		// Its text is also the beginning of the licence with three clauses.
		if l.id == "BSD-2-Clause" && slices.Contains(found, "BSD-3-Clause") {
			continue
		}
		found = append(found, l.id)
	}
	return found
}

// documents returns the bill of materials and the provenance.
func (s *source) documents(ctx context.Context, b *built, builder string) ([]document, error) {
	licences, err := s.licences(ctx)
	if err != nil {
		return nil, err
	}
	sbom, err := json.Marshal(s.sbom(b, licences))
	if err != nil {
		return nil, fmt.Errorf("cannot write the list of contents: %w", err)
	}
	predicate, err := json.Marshal(s.provenance(b, builder))
	if err != nil {
		return nil, fmt.Errorf("cannot write the provenance: %w", err)
	}
	stated, err := statement(b.digest, s.repository, provenancePredicate, predicate)
	if err != nil {
		return nil, fmt.Errorf("cannot write the provenance: %w", err)
	}
	return []document{
		{file: "sbom.spdx.json", mediaType: spdxMediaType, predicate: spdxPredicate, content: sbom, says: sbom},
		{file: "provenance.intoto.json", mediaType: statementMIME, predicate: provenancePredicate, content: stated, says: predicate},
	}, nil
}
