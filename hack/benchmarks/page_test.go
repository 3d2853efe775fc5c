package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const output = `goos: linux
pkg: example.com/load
cpu: Example
BenchmarkPods-2   	       1	        1.240 ratio(max=1.2)	      1300 tenure/s
BenchmarkProxy/clients=8-2         	       1	         0.9000 rate-ratio(min=0.6)	     12.50 ns/op
PASS
`

func TestUpdate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := update(file, strings.NewReader(output)); err != nil {
		t.Fatal(err)
	}
	if err := update(file, strings.NewReader("BenchmarkPods 1 1.1 ratio(max=1.2)\n")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Pods\n", "| ratio | 1.1 | at most 1.2 |\n",
		"## Proxy\n", "| clients=8: rate-ratio | 0.9 | at least 0.6 |\n", "| clients=8: ns/op | 12.5 |  |\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the page has no %q:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "tenure/s") {
		t.Errorf("figures of an earlier run of the same benchmark stayed:\n%s", got)
	}
}

func TestMissed(t *testing.T) {
	t.Parallel()
	all, err := read(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	if !all["Pods"][0].missed || all["Proxy"][0].missed {
		t.Errorf("missed bounds: %+v", all)
	}
}

func TestNothingMeasured(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := update(file, strings.NewReader("FAIL\n")); err == nil {
		t.Error("a run without results was taken")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a run without results wrote the page")
	}
}
