package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// serverDocument lists the contents of an image with the modules of the built tenure-server.
func serverDocument(t *testing.T) (*spdxDocument, *buildinfo.BuildInfo) {
	t.Helper()
	info, err := buildinfo.ReadFile("../../bin/tenure-server")
	if err != nil {
		t.Fatalf("build it first with `make build`: %v", err)
	}
	s, b := tiny(t)
	for i := range b.platforms {
		b.platforms[i].info = info
	}
	return s.sbom(b, map[string]string{"github.com/spf13/cobra": "Apache-2.0"}), info
}

// TestSBOM checks a bill of materials against the rules of SPDX, and compares it with the
// build information in the program.
func TestSBOM(t *testing.T) {
	t.Parallel()
	d, info := serverDocument(t)
	for _, violation := range spdxViolations(encode(t, d)) {
		t.Error(violation)
	}
	listed := map[string]spdxPackage{}
	for _, p := range d.Packages {
		listed[p.Name+"@"+p.Version] = p
	}
	if len(info.Deps) < 20 {
		t.Fatalf("the program was built from %d modules", len(info.Deps))
	}
	for _, m := range info.Deps {
		if p := listed[m.Path+"@"+m.Version]; p.SourceInfo != "go.sum: "+m.Sum {
			t.Errorf("%s %s is listed as %+v", m.Path, m.Version, p)
		}
	}
	if p := listed["stdlib@"+info.GoVersion]; !strings.HasPrefix(p.Download, "https://go.dev/dl/go1.") {
		t.Errorf("the standard library is listed as %+v", p)
	}
	licences := map[string]string{}
	for _, p := range d.Packages {
		licences[p.Name] = p.Declared
	}
	if licences["github.com/spf13/cobra"] != "Apache-2.0" || licences["golang.org/x/net"] != noAssertion {
		t.Errorf("the licences are %v", licences)
	}
	again, _ := serverDocument(t)
	if diff := cmp.Diff(string(encode(t, d)), string(encode(t, again))); diff != "" {
		t.Errorf("the same image has two lists of contents (-first +second):\n%s", diff)
	}
}

func encode(t *testing.T, d *spdxDocument) []byte {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestSPDXRules breaks each rule once, so that TestSBOM cannot pass by reading nothing.
func TestSPDXRules(t *testing.T) {
	t.Parallel()
	d, _ := serverDocument(t)
	valid := encode(t, d)
	for _, tt := range []struct {
		want   string
		change func(d *spdxDocument)
	}{
		{"spdxVersion", func(d *spdxDocument) { d.Version = "2.3" }},
		{"dataLicense", func(d *spdxDocument) { d.DataLicense = "MIT" }},
		{"documentNamespace", func(d *spdxDocument) { d.Namespace += "#x" }},
		{"created", func(d *spdxDocument) { d.Creation.Created = "today" }},
		{"creator", func(d *spdxDocument) { d.Creation.Creators = []string{"somebody"} }},
		{"SPDXID", func(d *spdxDocument) { d.Packages[1].ID = "SPDXRef-a/b" }},
		{"twice", func(d *spdxDocument) { d.Packages[1].ID = d.Packages[2].ID }},
		{"name", func(d *spdxDocument) { d.Packages[1].Name = "" }},
		{"downloadLocation", func(d *spdxDocument) { d.Packages[1].Download = "somewhere" }},
		{"licence", func(d *spdxDocument) { d.Packages[1].Declared = "BSD" }},
		{"licence", func(d *spdxDocument) { d.Packages[1].Concluded = "" }},
		{"checksum", func(d *spdxDocument) { d.Packages[0].Checksums[0].Value = "abc" }},
		{"purl", func(d *spdxDocument) { d.Packages[1].ExternalRefs[0].Locator = "golang/x" }},
		{"relationship", func(d *spdxDocument) { d.Relationships[1].Type = "OWNS" }},
		{"relationship", func(d *spdxDocument) { d.Relationships[1].Related = "SPDXRef-None" }},
		{"DESCRIBES", func(d *spdxDocument) { d.Relationships = d.Relationships[1:] }},
	} {
		var d spdxDocument
		if err := json.Unmarshal(valid, &d); err != nil {
			t.Fatal(err)
		}
		tt.change(&d)
		if got := spdxViolations(encode(t, &d)); !slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, tt.want) }) {
			t.Errorf("a document with a wrong %s has the violations %q", tt.want, got)
		}
	}
}

var (
	spdxID       = regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	spdxCreator  = regexp.MustCompile(`^(Person|Organization|Tool): \S`)
	spdxDownload = regexp.MustCompile(`^(NOASSERTION|NONE|(git\+)?https://[^\s]+)$`)
	spdxPurl     = regexp.MustCompile(`^pkg:[a-z]+/[^\s@?#]+@[^\s@?#]+(\?[^\s#]+)?$`)
	// Identifiers of https://spdx.org/licenses that modules of ours have.
	spdxLicences = []string{noAssertion, "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}
	spdxRelation = []string{"DESCRIBES", "CONTAINS", "DEPENDS_ON", "VARIANT_OF"}
	spdxPurposes = []string{"", "APPLICATION", "CONTAINER", "LIBRARY"}
)

// spdxViolations returns where a document breaks the rules of SPDX 2.3, clauses 6, 7, 11 and
// annex D of https://spdx.github.io/spdx-spec/v2.3/.
func spdxViolations(text []byte) []string {
	var d spdxDocument
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return []string{err.Error()}
	}
	var violations []string
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	if d.Version != "SPDX-2.3" || d.DataLicense != "CC0-1.0" || d.ID != "SPDXRef-DOCUMENT" || d.Name == "" {
		report("spdxVersion, dataLicense, SPDXID or name: %s, %s, %s, %q", d.Version, d.DataLicense, d.ID, d.Name)
	}
	if u, err := url.Parse(d.Namespace); err != nil || !u.IsAbs() || strings.Contains(d.Namespace, "#") {
		report("documentNamespace: %q", d.Namespace)
	}
	if _, err := time.Parse("2006-01-02T15:04:05Z", d.Creation.Created); err != nil {
		report("created: %q", d.Creation.Created)
	}
	if len(d.Creation.Creators) == 0 || slices.ContainsFunc(d.Creation.Creators, func(c string) bool { return !spdxCreator.MatchString(c) }) {
		report("creator: %q", d.Creation.Creators)
	}
	ids := map[string]bool{d.ID: true}
	for _, p := range d.Packages {
		if ids[p.ID] {
			report("SPDXID %s: it is there twice", p.ID)
		}
		ids[p.ID] = true
		violations = append(violations, packageViolations(p)...)
	}
	describes := 0
	for _, r := range d.Relationships {
		if !ids[r.Element] || !ids[r.Related] || !slices.Contains(spdxRelation, r.Type) {
			report("relationship: %+v", r)
		}
		if r.Element == d.ID && r.Type == "DESCRIBES" {
			describes++
		}
	}
	if describes == 0 {
		report("the document DESCRIBES nothing")
	}
	return violations
}

func packageViolations(p spdxPackage) []string {
	var violations []string
	report := func(what string) { violations = append(violations, fmt.Sprintf("%s of %+v", what, p)) }
	if !spdxID.MatchString(p.ID) {
		report("SPDXID")
	}
	if p.Name == "" || strings.ContainsAny(p.Name+p.Version, "\r\n") {
		report("name or version")
	}
	if !spdxDownload.MatchString(p.Download) {
		report("downloadLocation")
	}
	if p.Analyzed || !slices.Contains(spdxPurposes, p.Purpose) || p.Copyright == "" {
		report("files, purpose or copyright")
	}
	for _, expression := range []string{p.Concluded, p.Declared} {
		for _, id := range strings.Split(expression, " AND ") {
			if !slices.Contains(spdxLicences, id) {
				report("licence")
			}
		}
	}
	for _, c := range p.Checksums {
		if c.Algorithm != "SHA256" || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(c.Value) {
			report("checksum")
		}
	}
	for _, r := range p.ExternalRefs {
		if r.Category != "PACKAGE-MANAGER" || r.Type != "purl" || !spdxPurl.MatchString(r.Locator) {
			report("purl")
		}
	}
	return violations
}

// TestModuleIDs checks that modules have different identifiers even if their names differ only
// in a character that identifiers cannot contain.
func TestModuleIDs(t *testing.T) {
	t.Parallel()
	a, b := modulePackage(debug.Module{Path: "example.com/a_b", Version: "v1.0.0"}, ""), modulePackage(debug.Module{Path: "example.com/a/b", Version: "v1.0.0"}, "")
	if a.ID == b.ID {
		t.Errorf("two modules have the identifier %s", a.ID)
	}
}

// TestLicences reads licences as modules have them.
func TestLicences(t *testing.T) {
	t.Parallel()
	const (
		apache = "Apache License\n  Version 2.0, January 2004\n"
		mit    = "Permission is hereby granted, free of charge, to any person\nThe above copyright notice and this permission notice shall"
		bsd2   = "Redistribution and use in source and binary forms, with or without\nmodification"
		bsd3   = bsd2 + "\nNeither the name may be used to endorse or promote products derived"
	)
	for _, tt := range []struct {
		reason string
		files  map[string]string
		want   string
	}{
		{"one licence", map[string]string{"LICENSE": apache}, "Apache-2.0"},
		{"another name", map[string]string{"COPYING.md": mit}, "MIT"},
		{"two licences in one file", map[string]string{"LICENSE.txt": mit + apache}, "Apache-2.0 AND MIT"},
		{"two files", map[string]string{"LICENSE": bsd3, "LICENSE.apache": apache}, "Apache-2.0 AND BSD-3-Clause"},
		{"two clauses", map[string]string{"LICENCE": bsd2}, "BSD-2-Clause"},
		{"one that is not known makes the whole unknown", map[string]string{"LICENSE": mit, "LICENSE.2": "all rights reserved"}, ""},
		{"a source file is no licence", map[string]string{"README.md": mit, "license.go": mit}, ""},
		{"nothing", nil, ""},
	} {
		dir := t.TempDir()
		for name, content := range tt.files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := licenceIn(dir); err != nil || got != tt.want {
			t.Errorf("%s: got %q, %v, want %q", tt.reason, got, err, tt.want)
		}
	}
}

// TestProvenance reads the statement about a build.
func TestProvenance(t *testing.T) {
	t.Parallel()
	s, b := tiny(t)
	got := s.provenance(b, "https://ci.example.com/runner")
	want := provenance{Definition: buildDefinition{
		Type: buildType,
		External: map[string]any{
			"repository": "registry.example.com/tiny", "version": "v0.1.0", "package": "./cmd/tiny", "architectures": []string{"amd64", "arm64"},
		},
		Internal: map[string]any{
			"ldflags": s.ldflags(), "sourceDateEpoch": int64(1700000000), "go": b.platforms[0].info.GoVersion,
		},
		Dependencies: []resolvedResource{{"git+" + sourceURL + "@" + s.revision, map[string]string{"gitCommit": s.revision}}},
	}}
	want.Details.Builder.ID = "https://ci.example.com/runner"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the provenance differs (-want +got):\n%s", diff)
	}
}
