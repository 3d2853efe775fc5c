package proxy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

func parseAll(texts ...string) ([]labels.Selector, error) {
	var all []labels.Selector
	for _, text := range texts {
		s, err := labels.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func TestUnion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		of     []string
		want   string
		none   bool
	}{
		{"one selector is itself", []string{"a=b,c"}, "a=b,c", false},
		{"values of one label are put together", []string{"pool=a", "pool in (b,c)", "pool=b"}, "pool in (a,b,c)", false},
		{"also beside others that are the same", []string{"os=linux,pool=a", "os=linux,pool=b"}, "os=linux,pool in (a,b)", false},
		{"everything holds all others", []string{"pool=a", "", "disk=ssd"}, "", false},
		{"a wider one holds a narrower one", []string{"pool=a,disk=ssd", "pool"}, "pool", false},
		{"two labels cannot be asked for", []string{"pool=a", "disk=ssd"}, "", true},
		{"nor what a label is and is not", []string{"pool=a", "pool!=b"}, "", true},
		{"nor two labels that differ in two values", []string{"pool=a,disk=ssd", "pool=b,disk=hdd"}, "", true},
		{"what merges first can be put into another", []string{"pool=a", "disk=ssd,pool=b", "pool=b"}, "pool in (a,b)", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			selectors, err := parseAll(tc.of...)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := union(selectors)
			if ok == tc.none || ok && got.String() != tc.want {
				t.Errorf("%s: got %q %v, want %q", strings.Join(tc.of, " or "), got, ok, tc.want)
			}
		})
	}
	if got, ok := union([]labels.Selector{labels.Nothing()}); !ok || got.Matches(labels.Set{}) || got.Matches(labels.Set{"a": "b"}) {
		t.Errorf("what selects nothing adds nothing: got %q", got)
	}
}

// FuzzUnion checks that the union of three selectors selects exactly the objects that any
// of them selects.
func FuzzUnion(f *testing.F) {
	for _, seed := range [][3]string{
		{"a=x", "a=y", "b"}, {"a in (x,y)", "a=y,b=x", "a!=x"}, {"!a", "a", ""}, {"a=x,b=y", "a=y,b=y", "a=x,b=x"}, {"a notin (x)", "a notin (x,y)", "a>1"}, {"a=,b", "a", "a in (,x)"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		selectors, err := parseAll(a, b, c)
		if err != nil {
			return // the API server rejects such a selector
		}
		got, ok := union(selectors)
		if !ok {
			return
		}
		query := map[string][]string{"labelSelector": {"a"}}
		if err := narrow(query, Selection{Labels: got}); err != nil {
			return
		}
		parsed, err := parseAll(query["labelSelector"][0])
		if err != nil {
			t.Fatalf("%q is sent as what no API server lets in: %v", got, err)
		}
		sent := parsed[0]
		values := []string{"", "x", "y", "1", "2"}
		for _, s := range selectors {
			requirements, _ := s.Requirements()
			for _, r := range requirements {
				values = append(values, r.Values().UnsortedList()...)
			}
		}
		check := func(set labels.Set) {
			want := selectors[0].Matches(set) || selectors[1].Matches(set) || selectors[2].Matches(set)
			if got.Matches(set) != want {
				t.Errorf("%q or %q or %q is %q: %v is selected: %v, want %v", a, b, c, got, set, got.Matches(set), want)
			}
			if sent.Matches(set) && !want {
				t.Errorf("%q or %q or %q is sent as %q, which selects %v", a, b, c, sent, set)
			}
		}
		check(labels.Set{})
		for _, first := range values {
			check(labels.Set{"a": first})
			check(labels.Set{"b": first})
			for _, second := range values {
				check(labels.Set{"a": first, "b": second})
			}
		}
	})
}
