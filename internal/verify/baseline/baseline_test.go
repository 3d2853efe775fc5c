package baseline_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/internal/verify/baseline"
)

func day(s string) time.Time {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := baseline.Parse([]byte(`# accepted by the platform team
accepted:
- id: A1
  tenant: "*"
  reason: policies come with the next release
  expires: 2027-01-31
- {id: S1-api, tenant: dev-team, reason: shared base, by: Ann, expires: "2026-12-01"}
notProven:
- {id: A1, tenant: "*", reason: its host is not reachable here, by: Ann, expires: 2026-12-01}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := baseline.Baseline{
		{Kind: baseline.Through, ID: "A1", Tenant: "*", Reason: "policies come with the next release", Expires: day("2027-01-31")},
		{Kind: baseline.Through, ID: "S1-api", Tenant: "dev-team", Reason: "shared base", By: "Ann", Expires: day("2026-12-01")},
		{Kind: baseline.Unproven, ID: "A1", Tenant: "*", Reason: "its host is not reachable here", By: "Ann", Expires: day("2026-12-01")},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a day may be written with quotes and without (-want +got):\n%s", diff)
	}
}

func TestParseInvalid(t *testing.T) {
	t.Parallel()
	const good = "{id: A1, tenant: a, reason: r, expires: 2027-01-31}"
	for name, tc := range map[string]struct {
		reason, content string
		words           []string
	}{
		"NotYAML":      {"The line is named.", "accepted:\n- {id: A1\n", []string{"line"}},
		"List":         {"The form is shown.", "- " + good, []string{"accepted: ["}},
		"UnknownField": {"A slip of the pen must not accept nothing in silence.", "acepted: []", []string{`"acepted"`}},
		"NoList":       {"One entry alone is no list.", "accepted: " + good, []string{"a list"}},
		"Twice":        {"Of two keys one would be lost.", "accepted: []\naccepted: []", []string{"accepted", "already"}},
		"EntryField":   {"The entry is named, by number and ID.", "accepted: [" + good + ", {id: A2, until: 2027-01-31}]", []string{`entry 2 ("A2")`, `"until"`}},
		"Case":         {"Keys are exact.", "accepted: [{ID: A1, tenant: a, reason: r, expires: 2027-01-31}]", []string{"entry 1", `"ID"`}},
		"BadDate":      {"A date that never comes would never expire.", "accepted: [{id: A1, tenant: a, reason: r, expires: 2027-02-30}]", []string{`entry 1 ("A1")`, `"2027-02-30"`, "YYYY-MM-DD"}},
		"NoDate":       {"Nothing is accepted for ever.", "accepted: [{id: A1, tenant: a, reason: r}]", []string{"entry 1", "expires is missing"}},
		"NoReason":     {"A blank is no reason.", "accepted: [{id: A1, tenant: a, reason: ' ', expires: 2027-01-31}]", []string{"reason is missing"}},
		"NoTenant":     {"All tenants have to be meant.", "accepted: [{id: A1, reason: r, expires: 2027-01-31}]", []string{"tenant is missing"}},
		"Number":       {"A tenant that is called 1 is text.", "accepted: [{id: A1, tenant: 1, reason: r, expires: 2027-01-31}]", []string{"tenant must be text"}},
		"Same":         {"Which of the two holds would be a guess.", "accepted: [" + good + "," + good + "]", []string{"entry 2", "entry 1"}},
		"NoName":       {"What is not proven is accepted by somebody.", "notProven: [" + good + "]", []string{"entry 1", "notProven", "by is missing"}},
		"UnprovenList": {"One entry alone is no list here either.", "notProven: " + good, []string{"notProven must be a list"}},
		"NoEntry":      {"An entry is a mapping.", "accepted: [null]", []string{"entry 1", "id is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := baseline.Parse([]byte(tc.content))
			if !errors.Is(err, baseline.ErrInvalid) {
				t.Fatalf("%s: got %v, want ErrInvalid", tc.reason, err)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: the error does not say %q: %v", tc.reason, word, err)
				}
			}
		})
	}
}

func TestParseEmpty(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", "# nothing\n", "accepted:\n", "accepted: []\n", "{}\n"} {
		if got, err := baseline.Parse([]byte(content)); err != nil || len(got) != 0 {
			t.Errorf("%q accepts nothing: got %v, %v", content, got, err)
		}
	}
}

func TestExpired(t *testing.T) {
	t.Parallel()
	e := baseline.Entry{Expires: day("2027-01-31")}
	for _, tc := range []struct {
		reason, now string
		want        bool
	}{
		{"before", "2026-12-24T00:00:00Z", false},
		{"the last day counts whole", "2027-01-31T23:59:59Z", false},
		{"the day after", "2027-02-01T00:00:00Z", true},
		{"days are those of UTC", "2027-02-01T00:30:00+01:00", false},
	} {
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Expired(now); got != tc.want {
			t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	b := baseline.Baseline{
		{Kind: baseline.Through, ID: "A1", Tenant: "*", Expires: day("2026-01-01")},
		{Kind: baseline.Through, ID: "A1-api", Tenant: "a", Expires: day("2027-01-01")},
		{Kind: baseline.Through, ID: "S1-api-HelmRelease", Tenant: "a", Expires: day("2027-01-01")},
		{Kind: baseline.Unproven, ID: "S5", Tenant: "a", Expires: day("2027-01-01")},
	}
	for _, tc := range []struct {
		reason, id, key, tenant string
		want                    *baseline.Entry
	}{
		{"the one that holds longest", "A1", "A1-api", "a", &b[1]},
		{"all tenants", "A1", "A1-api", "b", &b[0]},
		{"all ways", "A1", "A1-git", "a", &b[0]},
		{"a key is exact", "S1", "S1-api", "a", nil},
		{"a key of a kind", "S1", "S1-api-HelmRelease", "a", &b[2]},
		{"what is not proven may not get through", "S5", "S5-api", "a", nil},
		{"no prefix of an ID", "A10", "A10-api", "b", nil},
	} {
		if diff := cmp.Diff(tc.want, b.Find(baseline.Through, tc.id, tc.key, tc.tenant)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// FuzzParse checks that Parse returns a baseline with complete entries, or ErrInvalid with a description,
// for every content of the file.
func FuzzParse(f *testing.F) {
	f.Add("accepted:\n- {id: A1, tenant: \"*\", reason: r, expires: 2027-01-31}\n")
	f.Add("notProven:\n- {id: S5, tenant: a, reason: r, by: b, expires: 2027-01-31}\n")
	f.Add("accepted: [null]")
	f.Add("accepted: {a: b}")
	f.Add("&a [*a]")
	f.Add("accepted: [{id: A1, expires: 0000-00-00}]")
	f.Fuzz(func(t *testing.T, content string) {
		b, err := baseline.Parse([]byte(content))
		if err != nil {
			if !errors.Is(err, baseline.ErrInvalid) || b != nil {
				t.Errorf("got %v and %v", b, err)
			}
			return
		}
		for _, e := range b {
			if e.ID == "" || e.Tenant == "" || e.Reason == "" || e.Kind == baseline.Unproven && e.By == "" {
				t.Errorf("an incomplete entry: %+v", e)
			}
			tenant := e.Tenant
			if tenant == baseline.AllTenants {
				tenant = "anybody"
			}
			if b.Find(e.Kind, e.ID, e.ID+"-api", tenant) == nil {
				t.Errorf("an entry that cannot be found: %+v", e)
			}
			if again, err := time.Parse(time.DateOnly, e.Until()); err != nil || !again.Equal(e.Expires) {
				t.Errorf("the day changes when it is written: %v", e)
			}
		}
	})
}
