package verify

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// The format that Jenkins, GitLab and others read as JUnit's. It has no specification, and
// libraries for it add less to encoding/xml than these types. The plugin xUnit of Jenkins refuses
// what its schema (junit-10.xsd) lacks, such as the number of skipped tests of all suites.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	Time    string      `xml:"time,attr"`
	Failure *junitWords `xml:"failure,omitempty"`
	Error   *junitWords `xml:"error,omitempty"`
	Skipped *junitWords `xml:"skipped,omitempty"`
	Output  string      `xml:"system-out,omitempty"`
}

type junitWords struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes a suite for each tenant and one for the fleet itself. An attack that
// got through is a failure. An unproven attack is an error, not skipped: CI shows skipped
// tests as harmless, and this run is not green either. Accepted risks, and attacks on
// parts that are not installed, are skipped.
func (r report) writeJUnit(w io.Writer) error {
	all := junitSuites{Name: "tenure verify", Time: fmt.Sprintf("%.3f", r.Seconds)}
	for _, c := range r.Clusters {
		all.Suites = append(all.Suites, c.fleetSuite())
		for _, t := range c.Tenants {
			suite := junitSuite{Name: c.Path + " " + t.Name}
			took := 0.0
			for _, a := range c.Attacks {
				if a.Tenant == t.Name {
					suite.add(a.testCase(c.Path))
					took += a.Seconds
				}
			}
			suite.Time = fmt.Sprintf("%.3f", took)
			all.Suites = append(all.Suites, suite)
		}
	}
	for _, s := range all.Suites {
		all.Tests, all.Failures, all.Errors = all.Tests+s.Tests, all.Failures+s.Failures, all.Errors+s.Errors
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *junitSuite) add(c junitCase) {
	s.Cases = append(s.Cases, c)
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
}

// fleetSuite returns a suite that reports whether the cluster could be judged. The suite also
// exists for a judged cluster, since CI does not notice a missing suite.
func (c clusterReport) fleetSuite() junitSuite {
	s := junitSuite{Name: c.Path, Time: fmt.Sprintf("%.3f", c.Seconds)}
	test := func(name, trouble string) {
		made := junitCase{Class: c.Path, Name: name, Time: "0.000"}
		if trouble != "" {
			made.Error = words("not judged", trouble)
		}
		s.add(made)
	}
	test("the run is complete", c.Error)
	if why := c.unjudged(); why != "" {
		name := "the fleet can be judged"
		if len(c.Tenants) == 0 {
			name = "the fleet has tenants"
		}
		test(name, why)
	}
	var broken []string
	for _, n := range c.NotReady {
		broken = append(broken, n.Object+": "+n.Reason)
	}
	test("the fleet is ready", strings.Join(slices.Concat(broken, c.Lacking, c.Unmapped), "\n"))
	return s
}

func (a attackMade) testCase(clusterPath string) junitCase {
	c := junitCase{
		Class: clusterPath + "." + a.Tenant, Name: a.Key + " " + a.Title, Time: fmt.Sprintf("%.3f", a.Seconds),
	}
	switch {
	case a.Accepted != nil && a.Outcome == string(catalog.NotProven):
		c.Skipped = words("", "not proven: "+a.Reason+"; accepted "+a.Accepted.String())
	case a.Accepted != nil:
		c.Skipped = words("", "accepted "+a.Accepted.String())
	case a.Outcome == string(catalog.GotThrough):
		c.Failure = words("got through", a.sentence())
	case a.Outcome == string(catalog.NotProven):
		c.Error = words("not proven", a.Reason)
	case a.Outcome == string(catalog.NotInstalled):
		c.Skipped = words("", "not installed, so nothing was tried: "+a.Message)
	default:
		c.Output = ui.Clean("stopped by " + a.Control + ": " + a.Message)
		if len(a.Missing) > 0 {
			c.Output += ui.Clean("; a layer is missing: " + strings.Join(a.Missing, ", "))
		}
	}
	return c
}

// words has the message twice: some readers show the attribute, some the text.
func words(kind, message string) *junitWords {
	first, _, _ := strings.Cut(message, "\n")
	return &junitWords{Message: ui.Clean(first), Type: kind, Text: message}
}
