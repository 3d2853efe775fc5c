package verify

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

func TestJUnit(t *testing.T) {
	t.Parallel()
	j := judgement{baseline: baseline.Baseline{{Kind: baseline.Through, ID: "X1", Tenant: "b", Reason: "we know", Expires: day(1)}}}
	var out bytes.Buffer
	if err := one(j, layered()).writeJUnit(&out); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(out.String(), '\x1b') {
		t.Error("what a tenant wrote is not cleaned")
	}
	var back junitSuites
	if err := xml.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if root, _, _ := strings.Cut(out.String(), "<testsuite "); strings.Contains(root, "skipped=") {
		t.Errorf("the schema junit-10 of Jenkins has no number of skipped tests of all suites: %s", root)
	}
	got := map[string][5]int{"": {back.Tests, back.Failures, back.Errors, 0, len(back.Suites)}}
	for _, s := range back.Suites {
		got[s.Name] = [5]int{s.Tests, s.Failures, s.Errors, s.Skipped, len(s.Cases)}
	}
	want := map[string][5]int{
		"": {10, 1, 3, 0, 3},
		// Complete, and not ready.
		"clusters/staging": {2, 0, 1, 0, 2},
		// One attack got through, one is not proven, one was stopped, and one is not installed.
		"clusters/staging a": {4, 1, 1, 1, 4},
		// The same, with the attack that got through accepted.
		"clusters/staging b": {4, 0, 1, 2, 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tests, failures, errors, skipped, and how many there really are (-want +got):\n%s", diff)
	}
	for _, c := range back.Suites[1].Cases {
		switch {
		case strings.HasPrefix(c.Name, "X1-api "):
			if c.Failure == nil || c.Failure.Type != "got through" || !strings.Contains(c.Failure.Text, "fix: do something") {
				t.Errorf("a failure says what to do: %+v", c)
			}
		case strings.HasPrefix(c.Name, "X2-api "):
			if c.Error == nil || c.Error.Message != "nothing to try it on" {
				t.Errorf("an error says why: %+v", c)
			}
		case strings.HasPrefix(c.Name, "X5-api "):
			if c.Skipped == nil || !strings.Contains(c.Skipped.Message, "not installed, so nothing was tried: no") {
				t.Errorf("what is not installed is no success: %+v", c)
			}
		case !strings.Contains(c.Output, "stopped by RBAC: no; a layer is missing: policy on it"):
			t.Errorf("what was stopped says by what: %+v", c)
		}
	}
}

// TestJUnitIsNeverGreenByAccident checks that every problem of a run yields a failed test or
// an error.
func TestJUnitIsNeverGreenByAccident(t *testing.T) {
	t.Parallel()
	for reason, f := range map[string]findings{
		"no tenants":         {path: "p"},
		"assumed parts":      assumed(),
		"nothing to attack":  attacked(catalog.NotInstalled),
		"the run broke off":  {path: "p", err: errors.New("etcd ended")},
		"one is not proven":  attacked(catalog.NotProven),
		"the fleet is not":   {path: "p", failures: layered().failures, attacks: attacked(catalog.Stopped).attacks},
		"one of two expired": attacked(catalog.GotThrough),
	} {
		var out bytes.Buffer
		if err := one(judgement{}, f).writeJUnit(&out); err != nil {
			t.Fatal(err)
		}
		var back junitSuites
		if err := xml.Unmarshal(out.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		if back.Failures+back.Errors == 0 {
			t.Errorf("%s: no failure and no error:\n%s", reason, out.String())
		}
	}
}

// assumed returns the findings of a run whose attacks are all stopped, and in which objects are assumed to be ready.
func assumed() findings {
	f := attacked(catalog.Stopped)
	f.doubtful, f.assumed = true, []string{"HelmRelease/a/a"}
	return f
}

// TestSARIFIsNeverEmptyByAccident checks that each run without a verdict has a result or is unsuccessful.
func TestSARIFIsNeverEmptyByAccident(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		findings findings
		empty    bool
	}{
		"safe":              {attacked(catalog.Stopped), true},
		"no tenants":        {findings{path: "p"}, false},
		"assumed parts":     {assumed(), false},
		"nothing to attack": {attacked(catalog.NotInstalled), false},
		"the run broke off": {findings{path: "p", err: errors.New("etcd ended")}, false},
		"one is not proven": {attacked(catalog.NotProven), false},
	} {
		log, text := sarif(t, one(judgement{}, tc.findings), catalogue(tc.findings))
		checkSARIF(t, log)
		if run := log.Runs[0]; (len(run.Results) == 0 && run.Invocations[0].Successful) != tc.empty {
			t.Errorf("%s: no result of a successful run: %t, want %t:\n%s", reason, !tc.empty, tc.empty, text)
		}
	}
}

func catalogue(f findings) []catalog.Attack {
	var all []catalog.Attack
	for _, r := range f.attacks.Results {
		if !slices.ContainsFunc(all, func(a catalog.Attack) bool { return a.Key() == r.Attack.Key() }) {
			all = append(all, r.Attack)
		}
	}
	return all
}

func sarif(t *testing.T, r report, attacks []catalog.Attack) (sarifLog, string) {
	t.Helper()
	var out bytes.Buffer
	if err := r.writeSARIF(&out, attacks); err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	decoder := json.NewDecoder(&out)
	text := out.String()
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&log); err != nil {
		t.Fatal(err)
	}
	return log, text
}

func TestSARIF(t *testing.T) {
	t.Parallel()
	j := judgement{baseline: baseline.Baseline{{Kind: baseline.Through, ID: "X1", Tenant: "b", Reason: "we know", Expires: day(1)}}}
	f := layered()
	log, text := sarif(t, one(j, f), catalogue(f))
	checkSARIF(t, log)
	var got []string
	for _, r := range log.Runs[0].Results {
		line := r.Level + " " + r.RuleID + " " + r.Message.Text
		for _, s := range r.Suppressions {
			line += " [" + s.Justification + "]"
		}
		got = append(got, line)
	}
	want := []string{
		"warning not-ready clusters/staging: Kustomization/a/a is not ready: broken",
		"error X1-api clusters/staging: tenant a tries got through: it could scroll; fix: do something",
		"warning X2-api clusters/staging: tenant a tries not proven: not proven: nothing to try it on",
		"warning X2-api clusters/staging: tenant b tries not proven: not proven: nothing to try it on",
		"error X1-api clusters/staging: tenant b tries got through: it could scroll; fix: do something [accepted until 2026-11-22: we know]",
		"note X3-api clusters/staging: tenant a tries stopped: stopped by RBAC; one layer is missing: policy on it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the results (-want +got):\n%s", diff)
	}
	notes := log.Runs[0].Invocations[0].Notifications
	if len(notes) != 2 || notes[0] != (sarifNotification{levelNote, sarifText{Text: "clusters/staging: tenant a tries not installed: not installed: no (X5-api)"}}) {
		t.Errorf("what is not installed is a notification, not a result: %+v", notes)
	}
	if !log.Runs[0].Invocations[0].Successful {
		t.Error("a run that was carried out is successful, whatever it found")
	}
	f.attacks.Results[0].Took, f.took = 0, 0
	for i := range f.attacks.Results {
		f.attacks.Results[i].Finding.Evidence = "in other words"
	}
	again, _ := sarif(t, one(j, f), catalogue(f))
	for i, r := range again.Runs[0].Results {
		if diff := cmp.Diff(log.Runs[0].Results[i].Fingerprints, r.Fingerprints); diff != "" {
			t.Errorf("the fingerprint of the same finding changes (-before +after):\n%s", diff)
		}
	}
	f.err = errors.New("etcd ended")
	broken, _ := sarif(t, one(j, f), catalogue(f))
	if i := broken.Runs[0].Invocations[0]; i.Successful || len(i.Notifications) != 3 || i.Notifications[0].Message.Text != "clusters/staging: etcd ended" {
		t.Errorf("a run that broke off says so: %+v\n%s", i, text)
	}
}

// TestSARIFCatalogue checks that the complete catalogue yields a valid file.
func TestSARIFCatalogue(t *testing.T) {
	t.Parallel()
	log, _ := sarif(t, report{}, catalog.Catalogue())
	checkSARIF(t, log)
	if got, want := len(log.Runs[0].Tool.Driver.Rules), len(catalog.Catalogue())+2; got != want {
		t.Errorf("%d rules, want one for each attack and two for the fleet, %d", got, want)
	}
}

// checkSARIF checks the demands of the SARIF 2.1.0 schema and GitHub's documentation on the
// parts that we write.
func checkSARIF(t *testing.T, log sarifLog) {
	t.Helper()
	if log.Version != "2.1.0" || !strings.Contains(log.Schema, "sarif") || len(log.Runs) != 1 {
		t.Fatalf("not a SARIF 2.1.0 file of one run: %+v", log)
	}
	run := log.Runs[0]
	if run.Tool.Driver.Name == "" || run.Results == nil || len(run.Invocations) != 1 {
		t.Errorf("a run has a tool with a name, results and an invocation: %+v", run)
	}
	ids := map[string]bool{}
	for _, r := range run.Tool.Driver.Rules {
		if r.ID == "" || ids[r.ID] {
			t.Errorf("rule %q has no name of its own", r.ID)
		}
		ids[r.ID] = true
		if r.ShortDescription.Text == "" || r.FullDescription.Text == "" || r.Help.Text == "" || len(r.ShortDescription.Text) > 1024 || len(r.Properties.Tags) > 20 {
			t.Errorf("rule %s has descriptions and help of a bounded length: %+v", r.ID, r)
		}
		// The schema requires unique tags.
		if tags := slices.Sorted(slices.Values(r.Properties.Tags)); len(slices.Compact(tags)) != len(r.Properties.Tags) {
			t.Errorf("rule %s has a tag twice: %q", r.ID, r.Properties.Tags)
		}
	}
	fingerprints := map[string]bool{}
	for _, r := range run.Results {
		if r.RuleIndex >= len(run.Tool.Driver.Rules) || run.Tool.Driver.Rules[r.RuleIndex].ID != r.RuleID {
			t.Errorf("a result's index is not that of its rule: %+v", r)
		}
		if !slices.Contains([]string{levelError, levelWarning, levelNote}, r.Level) || r.Message.Text == "" || strings.ContainsAny(r.Message.Text, "\n\x1b") {
			t.Errorf("a result has one of three levels and a message of one line: %+v", r)
		}
		if len(r.Locations) != 1 || r.Locations[0].Physical.Region.StartLine < 1 {
			t.Fatalf("a result is at a line, counted from 1: %+v", r)
		}
		if file := r.Locations[0].Physical.Artifact.URI; file == "" || strings.HasPrefix(file, "/") || strings.Contains(file, "..") || strings.ContainsAny(file, " \\") {
			t.Errorf("a result is at a file of the repository: %q", file)
		}
		if hash := r.Fingerprints["primaryLocationLineHash"]; hash == "" || fingerprints[hash] {
			t.Errorf("a result has a fingerprint of its own: %+v", r)
		}
		fingerprints[r.Fingerprints["primaryLocationLineHash"]] = true
		for _, s := range r.Suppressions {
			if s.Kind != "external" && s.Kind != "inSource" || s.Status != "accepted" {
				t.Errorf("a suppression of no kind that the schema knows: %+v", s)
			}
		}
	}
}
