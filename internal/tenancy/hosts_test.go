package tenancy

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
)

func TestCompareHosts(t *testing.T) {
	t.Parallel()
	list := func(expression string, patterns ...v1alpha1.ValuePattern) *v1alpha1.AllowedNames {
		return &v1alpha1.AllowedNames{Expression: expression, Allowed: patterns}
	}
	for reason, tc := range map[string]struct {
		one, other *v1alpha1.AllowedNames
		want       Comparison
		entries    string
	}{
		"no list is not compared":             {nil, list("", "*"), Separate, ""},
		"nothing has nothing in common":       {list(""), list("", "*"), Separate, ""},
		"the same name":                       {list("", "a.example.com"), list("", "a.example.com"), Overlapping, "a.example.com and a.example.com"},
		"two names":                           {list("", "a.example.com"), list("", "b.example.com"), Separate, ""},
		"a name within a pattern":             {list("", "a.example.com"), list("", "*.example.com"), Overlapping, "a.example.com and *.example.com"},
		"a pattern within a pattern":          {list("", "*.shop.example.com"), list("", "*.example.com"), Overlapping, "*.shop.example.com and *.example.com"},
		"two patterns":                        {list("", "*.shop.example.com"), list("", "*.billing.example.com"), Separate, ""},
		"patterns that cross":                 {list("", "shop*"), list("", "*.example.com"), Overlapping, "shop* and *.example.com"},
		"the second entry":                    {list("", "x.example.com", "*.example.com"), list("", "a.example.com"), Overlapping, "*.example.com and a.example.com"},
		"an expression and its name":          {list("^shop[.]"), list("", "shop.example.com"), Overlapping, "expression ^shop[.] and shop.example.com"},
		"an expression and another name":      {list("", "billing.example.com"), list("^shop[.]"), Separate, ""},
		"an expression and a pattern":         {list("^shop[.]"), list("", "*.example.com"), NotComparable, "expression ^shop[.] and *.example.com"},
		"two expressions":                     {list("^shop[.]"), list("^s"), NotComparable, "expression ^shop[.] and expression ^s"},
		"the same expression":                 {list("^shop[.]"), list("^shop[.]"), Overlapping, "expression ^shop[.] and expression ^shop[.]"},
		"what overlaps outweighs what may do": {list("^shop[.]", "a"), list("^s", "a"), Overlapping, "a and a"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			if got, entries := CompareHosts(tc.one, tc.other); got != tc.want || entries != tc.entries {
				t.Errorf("got %v, %q, want %v, %q", got, entries, tc.want, tc.entries)
			}
			if got, _ := CompareHosts(tc.other, tc.one); got != tc.want {
				t.Errorf("in the other order: got %v, want %v", got, tc.want)
			}
		})
	}
}

// FuzzPatternsOverlap compares the decision with regular expressions: all names of up to four
// letters are matched with both patterns.
func FuzzPatternsOverlap(f *testing.F) {
	for _, seed := range [][2]string{{"a*", "*b"}, {"*", ""}, {"ab", "a*b"}, {"*a*", "b"}, {"a*a", "a"}} {
		f.Add(seed[0], seed[1])
	}
	names := []string{""}
	for last := names; len(last[0]) < 4; {
		var next []string
		for _, name := range last {
			next = append(next, name+"a", name+"b")
		}
		names, last = append(names, next...), next
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.Trim(a+b, "ab*") != "" || len(strings.ReplaceAll(a+b, "*", "")) > 4 {
			return // A common name may be longer than those below.
		}
		matches := func(pattern string) *regexp.Regexp {
			return regexp.MustCompile("^" + strings.ReplaceAll(pattern, "*", ".*") + "$")
		}
		one, other, want := matches(a), matches(b), false
		for _, name := range names {
			want = want || one.MatchString(name) && other.MatchString(name)
		}
		if got := patternsOverlap(a, b); got != want {
			t.Errorf("%q and %q: got %v, want %v", a, b, got, want)
		}
		if patternsOverlap(b, a) != want {
			t.Errorf("%q and %q: another result in the other order", a, b)
		}
	})
}
