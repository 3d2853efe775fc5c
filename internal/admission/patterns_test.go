package admission_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// allowed is what matchesAny says in CEL, written without regular expressions:
// the address is read by hand, then the pattern is walked along it.
func allowed(pattern, address string) bool {
	return len(address) <= 256 && plain(address) &&
		(walk(pattern, address) || walk(pattern, strings.TrimSuffix(address, "/")))
}

const lower, digits = "abcdefghijklmnopqrstuvwxyz", "0123456789"

// plain reports whether an address consists of a scheme, an optional user, a host, an optional port and a
// path of plain names, without any encoding.
func plain(address string) bool {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || strings.Contains(address, "..") || !strings.Contains(" http https ssh oci ", " "+scheme+" ") {
		return false
	}
	host, path, _ := strings.Cut(rest, "/")
	user, after, hasUser := strings.Cut(host, "@")
	if hasUser {
		if user == "" || strings.Trim(user, lower+digits+"_-") != "" {
			return false
		}
		host = after
	}
	host, port, hasPort := strings.Cut(host, ":")
	if hasPort && (port == "" || len(port) > 5 || strings.Trim(port, digits) != "") {
		return false
	}
	if host == "" || strings.ContainsAny(host[:1], ".-") || !only(host, lower+digits+".-") {
		return false
	}
	if path == "" {
		return true
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(path, "/"), "/") {
		if name == "" || !only(name, lower+strings.ToUpper(lower)+digits+"._~-") {
			return false
		}
	}
	return true
}

func only(s, alphabet string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(alphabet, r) }) < 0
}

// walk reports whether a pattern matches a whole text.
func walk(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case strings.HasPrefix(pattern, "/**"):
		if !strings.HasPrefix(text, "/") {
			return false
		}
		for i := 2; i <= len(text); i++ {
			if walk(pattern[len("/**"):], text[i:]) {
				return true
			}
		}
		return false
	case pattern[0] == '*':
		for i := 0; i <= len(text); i++ {
			if walk(pattern[1:], text[i:]) {
				return true
			}
			if i < len(text) && text[i] == '/' {
				return false
			}
		}
		return false
	}
	return text != "" && text[0] == pattern[0] && walk(pattern[1:], text[1:])
}

// shapes are addresses of all shapes. Most of them try to mislead a pattern.
var shapes = []string{
	"https://git.example.com/acme/app", "https://git.example.com/acme/app/", "https://git.example.com/acme/app.git",
	"https://git.example.com/acme", "https://git.example.com/acme/", "https://git.example.com/acme//app", "https://git.example.com/acme/team/app",
	"https://git.example.com/ACME/app", "https://GIT.example.com/acme/app", "HTTPS://git.example.com/acme/app",
	"https://git.example.com./acme/app", "https://.git.example.com/acme/app", "https://git..example.com/acme/app",
	"https://git.example.com:443/acme/app", "https://git.example.com:/acme/app", "https://git.example.com:123456/acme/app", "https://git.example.com:44a/acme/app",
	"https://user@git.example.com/acme/app", "https://user:word@git.example.com/acme/app", "https://@git.example.com/acme/app",
	"https://git.example.com@evil.example.net/acme/app", "https://git@evil.example.net/acme/app", "https://evil.example.net/https://git.example.com/acme/app",
	"https://evil.example.net#git.example.com/acme/app", "https://evil.example.net?git.example.com/acme/app", "https://git.example.com/acme/app?x=1", "https://git.example.com/acme/app#x",
	"https://git.example.com\\@evil.example.net/acme/app", "https://git.example.com/acme/%2e%2e/other", "https://git.example.com/acme/../other", "https://git.example.com/acme/./app",
	"https://git.example.com/acme/app\n", "https://git.example.com/acme/app\nhttps://x", "\nhttps://git.example.com/acme/app", "https://git.example.com/acme/app ", " https://git.example.com/acme/app", "https://git.example.com/acme/a\tb",
	"https://git.example.com/acme/\u00e4pp", "https://git.ex\u0430mple.com/acme/app", "https://git\u3002example.com/acme/app", "https://git.example.com\u2044acme/app", "https://git.example.com/acme/\u202eppa",
	"https://[::1]/acme/app", "https://[fe80::1%25eth0]:443/acme/app", "https://127.0.0.1/acme/app", "https://2130706433/acme/app", "https://0x7f.1/acme/app",
	"ssh://git@git.example.com/acme/app", "ssh://git@git.example.com:22/acme/app", "ssh://git@git.example.com:acme/app", "git@git.example.com:acme/app", "ssh://git.example.com/acme/app", "ssh://-oProxyCommand=x/acme/app",
	"oci://registry.example.com/acme/app", "oci://registry.example.com/acme/app:tag", "oci://registry.example.com/acme/app@sha256:0", "oci://registry.example.com",
	"http://git.example.com/acme/app", "file:///acme/app", "git://git.example.com/acme/app", "ftp://git.example.com/acme/app", "https:/git.example.com/acme/app", "https:///acme/app", "https://", "https", "",
	"https://gitxexample.com/acme/app", "https://a.git.example.com/acme/app", "https://git.example.com.evil.example.net/acme/app", "https://git-evil.example.com/acme/app", "https://git-a@b.example.com/acme/app",
	"https://git.example.com/acme/*", "https://*.example.com/acme/app", "https://git.example.com/**", "https://git.example.com/acme/~", "https://git.example.com/acme/a_b-c.d~e",
	"https://git.example.com/" + strings.Repeat("a", 232), "https://git.example.com/" + strings.Repeat("a", 233), "https://git.example.com/" + strings.Repeat("a/", 400),
}

var patterns = []string{
	"https://git.example.com/acme/*", "https://git.example.com/acme/**", "https://git.example.com/**", "https://git.example.com", "https://git.example.com/",
	"https://git.example.com/acme/app", "https://git.example.com/*/app", "https://git.example.com/a*/*p", "https://git.example.com/acme/*.git",
	"https://git.example.com/*/*", "https://git.example.com:443/**", "https://*.example.com/acme/*", "https://*.example.com/**", "https://git-*.example.com/acme/*", "https://git.*.com/**",
	"ssh://git@git.example.com/acme/**", "ssh://git@git.example.com:22/**", "oci://registry.example.com/acme/*", "oci://registry.example.com", "oci://registry.example.com/**", "http://git.example.com/**",
}

// TestPatterns checks that the comparisons in CEL, in Go and in the manager agree, for the patterns and
// addresses above and for random ones made of their parts.
func TestPatterns(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	probe := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "pattern-probe", Groups: []string{"system:masters"}})
	makeProbe(t, admin)
	var matched, compared int
	compare := func(pattern string, addresses []string) {
		t.Helper()
		got := ask(t, probe, pattern, addresses)
		want := make([]byte, len(addresses))
		for i, address := range addresses {
			compared++
			want[i] = '0'
			if allowed(pattern, address) {
				matched++
				want[i] = '1'
			}
			if i < len(got) && got[i] != want[i] {
				t.Errorf("pattern %s, address %q: CEL says %c, Go %c", pattern, address, got[i], want[i])
			}
			if tenancy.MatchesAddress([]v1alpha1.AddressPattern{v1alpha1.AddressPattern(pattern)}, address) != (want[i] == '1') {
				t.Errorf("pattern %s, address %q: the manager does not say %c", pattern, address, want[i])
			}
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("pattern %s (-want +got):\n%s", pattern, diff)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"https://", "ssh://", "git@", "git", ".", "example", ".com", "/", "acme", "app", "*", "-", ":22", "@", "%", "..", "A", "~", "\n"}
	for _, pattern := range patterns {
		compare(pattern, shapes)
		var made []string
		for range 100 {
			address := strings.NewReplacer("**", "x/y", "*", "z").Replace(pattern)
			for range random.IntN(3) {
				at := random.IntN(len(address) + 1)
				address = address[:at] + pieces[random.IntN(len(pieces))] + address[min(len(address), at+random.IntN(3)):]
			}
			made = append(made, address)
		}
		compare(pattern, made)
	}
	t.Logf("%d of %d addresses match", matched, compared)
	if matched < 100 {
		t.Errorf("only %d addresses match: the comparison says little", matched)
	}
}

// makeProbe makes a policy that answers, to one user, which addresses match. Both
// come in a TenancyProfile: the patterns where patterns are, the addresses in the
// reasons of its exemptions, which may hold anything.
func makeProbe(t *testing.T, admin client.Client) {
	t.Helper()
	const name = "pattern-probe"
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "probe", Expression: "request.userInfo.username == 'pattern-probe'"}},
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"tenure.dev"}, APIVersions: []string{"*"}, Resources: []string{"tenancyprofiles"}},
			}}}},
			Validations: []admissionregistrationv1.Validation{{
				Expression:        "false",
				MessageExpression: "'<' + object.spec.exemptions.map(e, " + admission.MatchesAny("e.reason", "object.spec.tenants.sources.git") + " ? '1' : '0').join('') + '>'",
			}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := admin.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

var answer = regexp.MustCompile(`<([01]*)>`)

// ask returns a 0 or 1 for each address.
func ask(t *testing.T, probe client.Client, pattern string, addresses []string) string {
	t.Helper()
	var said string
	testwait.For(t, "the probe to answer", patience, func() (bool, string) {
		profile := &unstructured.Unstructured{}
		profile.SetAPIVersion("tenure.dev/v1alpha1")
		profile.SetKind("TenancyProfile")
		if err := probe.Get(t.Context(), client.ObjectKey{Name: "default"}, profile); err != nil {
			return false, err.Error()
		}
		var reasons []any
		for _, address := range addresses {
			if address == "" {
				address = "none" // a reason is not empty
			}
			reasons = append(reasons, map[string]any{"rule": "x", "namespace": "x", "kind": "x", "name": "x", "reason": address})
		}
		spec := map[string]any{"exemptions": reasons, "tenants": map[string]any{"sources": map[string]any{"git": []any{pattern}}}}
		profile.Object["spec"] = spec
		err := probe.Update(t.Context(), profile, client.DryRunAll)
		found := answer.FindStringSubmatch(fmt.Sprint(err))
		if found == nil {
			return false, fmt.Sprint(err)
		}
		said = found[1]
		return true, ""
	})
	return said
}

// TestPatternsRefused checks that the API server refuses a profile with an invalid pattern.
func TestPatternsRefused(t *testing.T) {
	t.Parallel()
	admin, _, _ := cluster(t)
	for _, tc := range []struct{ reason, pattern, want string }{
		{"an address of its own", "https://git.example.com/acme/*", ""},
		{"everything below, in the middle", "https://git.example.com/**/app", "** at its end only"},
		{"everything below, of a name", "https://git.example.com/acme**", "** at its end only"},
		{"three stars", "https://git.example.com/***", "** at its end only"},
		{"any host", "https://*/acme", "no * in the last label"},
		{"any top-level domain", "https://git.example.*/acme", "no * in the last label"},
		{"dots", "https://git.example.com/../x", "no .."},
		{"a regular expression", "https://git.example.com/(a|b)", "should match"},
		{"a line break", "https://git.example.com/a\nb", "should match"},
		{"513 characters", "https://git.example.com/" + strings.Repeat("a", 489), "Too long"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			u := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: tools}}")
			u.Object["spec"] = map[string]any{"tenant": "x", "tenants": map[string]any{"sources": map[string]any{"git": []any{tc.pattern}}}}
			check(t, admin.Create(t.Context(), u, client.DryRunAll), tc.want)
		})
	}
}
