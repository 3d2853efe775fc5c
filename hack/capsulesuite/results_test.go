package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResults(t *testing.T) {
	t.Parallel()
	const (
		first = `[{"SpecReports": [
			{"LeafNodeType": "BeforeSuite", "LeafNodeLocation": {"FileName": "/src/suite_test.go"}, "State": "passed"},
			{"ContainerHierarchyTexts": ["owners"], "LeafNodeText": "act (1)", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/owner_test.go"}, "State": "passed"},
			{"ContainerHierarchyTexts": ["owners"], "LeafNodeText": "act (2)", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/owner_test.go"}, "State": "timedout", "Failure": {"Message": "it is so"}},
			{"ContainerHierarchyTexts": ["owners"], "LeafNodeText": "act (3)", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/owner_test.go"}, "State": "skipped", "Failure": {"Message": "Spec skipped because an earlier spec in an ordered container failed"}},
			{"LeafNodeText": "hosts", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/ingress_test.go"}, "State": "skipped", "Failure": {"Message": "not served"}},
			{"LeafNodeText": "names", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/name_test.go", "LineNumber": 1}, "State": "failed"},
			{"LeafNodeText": "names", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/name_test.go", "LineNumber": 1}, "State": "passed"},
			{"LeafNodeText": "names", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/name_test.go", "LineNumber": 2}, "State": "passed"},
			{"LeafNodeText": "pools", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/pool_test.go"}, "State": "skipped"}]}]`
		second = `[{"SpecReports": [
			{"ContainerHierarchyTexts": ["owners"], "LeafNodeText": "act (1)", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/owner_test.go"}, "State": "failed"},
			{"ContainerHierarchyTexts": ["owners"], "LeafNodeText": "act (3)", "LeafNodeType": "It", "LeafNodeLocation": {"FileName": "/src/owner_test.go"}, "State": "passed"}]}]`
	)
	all := results{}
	type next struct{ Files, Without string }
	for _, round := range []struct {
		report string
		want   next
	}{{first, next{`owner_test\.go`, `owners act \(2\)`}}, {second, next{}}} {
		found, err := read([]byte(round.report))
		if err != nil {
			t.Fatal(err)
		}
		all.add(found)
		files, without := all.remaining(found)
		if diff := cmp.Diff(round.want, next{files, without}); diff != "" {
			t.Errorf("the next round (-want +got):\n%s", diff)
		}
	}
	const want = `| File | Passed | Failed | Skipped by the suite | Not reached |
|---|---|---|---|---|
| ingress_test.go | 0 | 0 | 1 | 0 |
| name_test.go | 1 | 1 | 0 | 0 |
| owner_test.go | 2 | 1 | 0 | 0 |
| all | 3 | 2 | 1 | 0 |
`
	if diff := cmp.Diff(want, all.table()); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
	if _, err := read([]byte("[]")); err == nil {
		t.Error("a report without a suite, of tests that did not start, is no error")
	}
}
