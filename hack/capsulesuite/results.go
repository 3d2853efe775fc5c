package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// outcome is the result of a case.
type outcome int

const (
	// notReached cases follow a failed one in an ordered group.
	notReached outcome = iota
	passed
	failed
	// skipped cases are left out by the suite itself, such as for a kind that the cluster does not serve.
	skipped
)

// testCase names a case: its file and line, and its text as Ginkgo's filters read it. Cases of a loop have all of them in
// common.
type testCase struct {
	file string
	line int
	text string
}

type results map[testCase]outcome

// read reads a report of Ginkgo. It leaves out the cases that a filter left out: these are skipped
// without a message. Of cases with the same name, a failed one counts. It returns an error for a report without a suite.
func read(report []byte) (results, error) {
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			LeafNodeLocation           struct {
				FileName   string
				LineNumber int
			}
			State   string
			Failure struct{ Message string }
		}
	}
	if err := json.Unmarshal(report, &suites); err != nil {
		return nil, err
	}
	if len(suites) == 0 {
		return nil, errors.New("the report is empty, so the tests did not start: see the log beside it")
	}
	found := results{}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			if spec.LeafNodeType != "It" || spec.State == "skipped" && spec.Failure.Message == "" {
				continue
			}
			name := testCase{filepath.Base(spec.LeafNodeLocation.FileName), spec.LeafNodeLocation.LineNumber, strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")}
			if found[name] == failed {
				continue // another case with this name
			}
			switch {
			case spec.State == "passed":
				found[name] = passed
			case strings.Contains(spec.Failure.Message, "ordered container failed"):
				found[name] = notReached
			case spec.State == "skipped" || spec.State == "pending":
				found[name] = skipped
			default:
				found[name] = failed
			}
		}
	}
	return found, nil
}

// add adds the results of a further round. The first result of a case counts.
func (r results) add(found results) {
	for name, o := range found {
		if r[name] == notReached {
			r[name] = o
		}
	}
}

// remaining returns regular expressions for the files with cases that the last round did not reach, and for the
// failed cases of these files. It returns empty ones if each case was reached.
func (r results) remaining(last results) (files, without string) {
	names, cases := map[string]bool{}, map[string]bool{}
	for name, o := range last {
		if o == notReached && r[name] == notReached {
			names[regexp.QuoteMeta(name.file)] = true
		}
	}
	for name, o := range r {
		if o == failed && names[regexp.QuoteMeta(name.file)] {
			cases[regexp.QuoteMeta(name.text)] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "|"), strings.Join(slices.Sorted(maps.Keys(cases)), "|")
}

// table returns the number of cases of each file by their result.
func (r results) table() string {
	counts := map[string]*[4]int{}
	var total [4]int
	for name, o := range r {
		if counts[name.file] == nil {
			counts[name.file] = &[4]int{}
		}
		counts[name.file][o]++
		total[o]++
	}
	row := func(name string, c [4]int) string {
		return fmt.Sprintf("| %s | %d | %d | %d | %d |\n", name, c[passed], c[failed], c[skipped], c[notReached])
	}
	out := "| File | Passed | Failed | Skipped by the suite | Not reached |\n|---|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		out += row(name, *counts[name])
	}
	return out + row("all", total)
}
