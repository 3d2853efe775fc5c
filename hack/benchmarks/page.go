package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

const (
	top = `# Benchmarks

<!-- Made by "make bench". Do not edit. -->

` + "`make bench` measures these figures and writes this page; `make bench BENCH=PodCreate` measures\n" +
		"one benchmark. The comment above each benchmark in `test/load` says what it measures and how. A\n" +
		"ratio compares two measurements of one run, because the speed of machines varies. A missed bound\n" +
		"is bold.\n"
	heading = "\n## "
)

// figure is one measured value.
type figure struct {
	name, value, bound string
	missed             bool
}

// results are the figures of each benchmark, by the name of the benchmark without "Benchmark".
type results map[string][]figure

// read reads the output of `go test -bench`. It returns an error if the output cannot be read
// or a line of a benchmark is malformed.
func read(output io.Reader) (results, error) {
	all := results{}
	reader := benchfmt.NewReader(output, "standard input")
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, record
		case *benchfmt.Result:
			function, variant, _ := strings.Cut(cores.ReplaceAllString(string(record.Name), ""), "/")
			for _, v := range record.Values {
				all[function] = append(all[function], newFigure(variant, v))
			}
		}
	}
	return all, reader.Err()
}

var (
	// cores is the number of processors that go test appends to the name of a benchmark.
	cores = regexp.MustCompile(`-\d+$`)
	// limit is the bound in the unit of a figure, such as "ratio(max=1.2)".
	limit = regexp.MustCompile(`^(.*)\((max|min)=([0-9.]+)\)$`)
)

func newFigure(variant string, v benchfmt.Value) figure {
	value, unit := v.Value, v.Unit
	if v.OrigUnit != "" {
		value, unit = v.OrigValue, v.OrigUnit
	}
	f := figure{name: unit, value: strconv.FormatFloat(value, 'g', 4, 64)}
	if value >= 1000 {
		f.value = strconv.FormatFloat(value, 'f', 0, 64)
	}
	if m := limit.FindStringSubmatch(unit); m != nil {
		bound, _ := strconv.ParseFloat(m[3], 64)
		f.name, f.bound = m[1], map[string]string{"max": "at most ", "min": "at least "}[m[2]]+m[3]
		f.missed = m[2] == "max" && value > bound || m[2] == "min" && value < bound
	}
	if variant != "" {
		f.name = variant + ": " + f.name
	}
	return f
}

// page holds the sections of the page, by the name of the benchmark.
type page map[string]string

func parse(text string) page {
	p := page{}
	parts := strings.Split(text, heading)
	for _, section := range parts[1:] {
		name, body, _ := strings.Cut(section, "\n")
		p[name] = strings.TrimSpace(body)
	}
	return p
}

// add replaces the sections of the benchmarks that ran.
func (p page) add(all results, where string) {
	for function, figures := range all {
		var out strings.Builder
		fmt.Fprintf(&out, "Measured at %s.\n\n| Figure | Value | Bound |\n|---|---:|---|\n", where)
		for _, f := range figures {
			value := f.value
			if f.missed {
				value = "**" + value + "**"
			}
			fmt.Fprintf(&out, "| %s | %s | %s |\n", f.name, value, f.bound)
		}
		p[function] = strings.TrimSpace(out.String())
	}
}

func (p page) String() string {
	out := strings.Builder{}
	out.WriteString(top)
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&out, "%s%s\n\n%s\n", heading, name, p[name])
	}
	return out.String()
}
