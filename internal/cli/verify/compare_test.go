package verify

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// reported returns a report of one cluster with the given outcomes of A1 by tenant.
func reported(outcomes map[string]catalog.Outcome) report {
	f := attacked()
	f.attacks.Tenants = nil
	for tenant, outcome := range outcomes {
		f.attacks.Results = append(f.attacks.Results, catalog.Result{
			Attack: catalog.Attack{ID: "A1", Via: catalog.API, Title: "a title", Fix: catalog.Fix{Advice: "set a flag"}}, Tenant: tenant,
			Finding: catalog.Finding{Outcome: outcome, Evidence: "it was seen", Reason: "no host"},
		})
	}
	return one(judgement{}, f)
}

func TestCompare(t *testing.T) {
	t.Parallel()
	before := reported(map[string]catalog.Outcome{
		"broke": catalog.Stopped, "fixed": catalog.GotThrough, "same": catalog.GotThrough, "unmapped": catalog.Stopped,
		"gone": catalog.GotThrough, "removed": catalog.Stopped,
	})
	now := reported(map[string]catalog.Outcome{
		"broke": catalog.GotThrough, "fixed": catalog.Stopped, "same": catalog.GotThrough, "unmapped": catalog.NotProven,
		"new": catalog.GotThrough, "quiet": catalog.Stopped, "removed": catalog.NotInstalled,
	})
	c := compare(before, now)
	tenants := func(all []difference) (names []string) {
		for _, d := range all {
			names = append(names, d.tenant+": "+d.before+" > "+d.now)
		}
		return names
	}
	got := map[string][]string{"worse": tenants(c.worse), "better": tenants(c.better), "others": tenants(c.others)}
	want := map[string][]string{
		"worse":  {"broke: stopped > got through", "new:  > got through", "unmapped: stopped > not proven"},
		"better": {"fixed: got through > stopped", "gone: got through > "},
		"others": {"quiet:  > stopped", "removed: stopped > not installed"},
	}
	if diff := cmp.Diff(want, got); diff != "" || c.same != 1 {
		t.Errorf("what changed, and %d as before (-want +got):\n%s", c.same, diff)
	}
	var out bytes.Buffer
	if err := now.writeMarkdown(&out, &before); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		commentMarker + "\n## ✗ tenure verify: unsafe\n", "- `clusters/staging`: **unsafe**, on the main branch `unsafe`. ",
		"### Worse than on the main branch (3)", "| `broke` in `clusters/staging` | stopped | **got through** | `A1-api` |",
		"| `new` in `clusters/staging` | not tried | **got through** | `A1-api` |", "- `A1-api` as `broke`: `it was seen`; fix: `set a flag`",
		"### Better than on the main branch (2)", "\n1 attack ended as on the main branch.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the comment does not say %q:\n%s", want, &out)
		}
	}
	out.Reset()
	if err := before.writeMarkdown(&out, &before); err != nil || !strings.Contains(out.String(), "Nothing changed against the main branch.") {
		t.Errorf("a report is as it is: %v\n%s", err, &out)
	}
}

// TestCompareIsQuoted checks that text of a tenant is never markup in a comment, which users
// with rights in the repository read, and that the size of the comment is limited.
func TestCompareIsQuoted(t *testing.T) {
	t.Parallel()
	hostile := "x` @acme/owners [a](https://evil) | <img src=x> <!-- \n\n# big"
	outcomes := map[string]catalog.Outcome{}
	for i := range 500 {
		outcomes[strings.Repeat(hostile, 20)+string(rune('a'+i%26))+strings.Repeat("y", i)] = catalog.GotThrough
	}
	now := reported(outcomes)
	for i := range now.Clusters[0].Attacks {
		now.Clusters[0].Attacks[i].Evidence = strings.Repeat(hostile, 100)
	}
	now.Clusters[0].Error = hostile
	before := reported(map[string]catalog.Outcome{hostile: catalog.Outcome(hostile)})
	before.Clusters[0].Path = hostile
	before.Clusters[0].Verdict = hostile
	var out bytes.Buffer
	if err := now.writeMarkdown(&out, &before); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 65536 {
		t.Errorf("a comment of %d bytes is refused by GitHub", out.Len())
	}
	for line := range strings.Lines(out.String()) {
		outside := ""
		for i, part := range strings.Split(line, "`") {
			if i%2 == 0 {
				outside += part
			}
		}
		if strings.Contains(outside, "@acme") || strings.Contains(outside, "evil") || strings.Contains(outside, "<img") || strings.Contains(outside, "big") || strings.Count(line, "`")%2 != 0 {
			t.Errorf("a line has markup of somebody else's: %q", line)
		}
	}
}

func TestReadReport(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "main.json")
	for content, want := range map[string]string{
		"": "is none", "{": "is none", `{"clusters": []}`: "no verdict and no clusters", `[]`: "is none",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readReport(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", content, err, want)
		}
	}
	var out bytes.Buffer
	if err := reported(map[string]catalog.Outcome{"a": catalog.Stopped}).writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := readReport(file); err != nil || r.Verdict == "" || len(r.Clusters) != 1 {
		t.Errorf("what verify writes can be read: %v", err)
	}
}
