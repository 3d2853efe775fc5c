package verify

import (
	"bytes"
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
)

// htmlOf returns the report as HTML text and as a parsed document.
func htmlOf(t *testing.T, r report) (string, *html.Node) {
	t.Helper()
	var out bytes.Buffer
	if err := r.writeHTML(&out); err != nil {
		t.Fatal(err)
	}
	node, err := html.Parse(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), node
}

// textOf returns the visible text of a node.
func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.Data != "style" {
			b.WriteString(" " + d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestHTML(t *testing.T) {
	t.Parallel()
	j := judgement{baseline: baseline.Baseline{
		{Kind: baseline.Through, ID: "X1", Tenant: "b", Reason: "we know", By: "Ann", Expires: day(1)},
		{Kind: baseline.Unproven, ID: "X2", Tenant: "b", Reason: "its host is elsewhere", By: "Ben", Expires: day(1)},
		{Kind: baseline.Through, ID: "X9", Tenant: "b", Reason: "we knew", Expires: day(1)},
	}}
	f := layered()
	f.patch = "--- a/x\n+++ b/x\n"
	_, node := htmlOf(t, one(j, f))
	text := textOf(node)
	for _, want := range []string{
		"tenure verify: ✗ unsafe", "clusters/staging: ✗ unsafe", "? not ready: broken Kustomization/a/a", "! requested: https://git.example.com/a: not mapped",
		"✗ got through: a tenant tries got through X1-api", "Evidence as a, through the API: it could scroll", "Fix do something", "See CVE-1 Try it yourself, as a, through the API kubectl create --as=a -f - <<'E' kind: Pod E", "--- a/x",
		"? not proven: nothing to try it on As a:", "! accepted, got through: a tenant tries got through X1-api As b; by Ann until 2026-11-22: we know",
		"! accepted, not proven: a tenant tries not proven X2-api As b; by Ben until 2026-11-22: its host is elsewhere",
		"A tenant tries stopped X3-api : as a, stopped only by: RBAC; missing: policy on it", "Attack a b",
		"tries got through, through the API X1-api ✗ got through ! accepted got through", "tries not installed, through the API X5-api · not installed · not installed",
		"tries stopped, through the API X3-api ✓ stopped by RBAC ✓ stopped by RBAC", "a ! cluster-admin a", "like a, without waiting for Flux",
		"Tried Stopped Got through Not proven Accepted Not installed 8 2 1 1 2 2", "no X5-api", "remove the entry (X9)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

// TestHTMLFindings checks that an attack is one finding, although its evidence or its fix differs between tenants.
func TestHTMLFindings(t *testing.T) {
	t.Parallel()
	_, node := htmlOf(t, one(judgement{}, differing()))
	text := textOf(node)
	want := "✗ got through: a tenant tries got through X1-api Evidence as a, through the API: it read a Secret as b, through the API: it read a ConfigMap Fix do something Evidence as c, through the API: it read all Fix give c less"
	if !strings.Contains(text, want) || strings.Count(text, "✗ got through:") != 1 || strings.Count(text, "Patch for this alone") != 1 {
		t.Errorf("the page does not say %q once, with one patch:\n%s", want, text)
	}
}

// TestHTMLProblems checks that the page has each problem, also if it is the only one.
func TestHTMLProblems(t *testing.T) {
	t.Parallel()
	for want, set := range map[string]func(*clusterReport){
		"! missing: the group x":   func(c *clusterReport) { c.Lacking = []string{"the group x"} },
		"! depends: a waits for b": func(c *clusterReport) { c.Dependencies = []string{"a waits for b"} },
		"? not tried: a may write": func(c *clusterReport) { c.OtherKinds = []otherKinds{{"b.example.com", []string{"b"}, []string{"a"}}} },
		"? assumed: a":             func(c *clusterReport) { c.Assumed = []string{"a"} },
		"? simulated: a":           func(c *clusterReport) { c.Simulated = []string{"a"} },
	} {
		r := one(judgement{}, attacked(catalog.Stopped))
		set(&r.Clusters[0])
		if _, node := htmlOf(t, r); !strings.Contains(textOf(node), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestHTMLEscapes checks that the page escapes all text from tenants and fleets.
func TestHTMLEscapes(t *testing.T) {
	t.Parallel()
	for _, hostile := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style><script>alert(1)</script>`, `'-alert(1)-'`,
		`</title><svg onload=alert(1)>`, `javascript:alert(1)`, `{{.}}`, `<!--`, "\u202e\x1b]8;;http://evil\x07",
	} {
		f := attacked(catalog.GotThrough, catalog.NotProven, catalog.NotInstalled, catalog.Stopped)
		f.path, f.patch, f.unmapped, f.err = hostile, hostile, []string{hostile}, errors.New(hostile)
		for i := range f.attacks.Tenants {
			tenant := &f.attacks.Tenants[i]
			tenant.Name, tenant.Namespaces, tenant.Roles = hostile+tenant.Name, []string{hostile}, []string{hostile}
		}
		for i := range f.attacks.Results {
			r := &f.attacks.Results[i]
			r.Tenant, r.Patch = hostile+r.Tenant, hostile
			r.Finding.Control, r.Finding.Message, r.Finding.Evidence, r.Finding.Reason = hostile, hostile, hostile, hostile
			r.Finding.Missing, r.Attack.Title, r.Attack.References, r.Attack.Fix.Advice = []string{hostile}, hostile, []string{hostile}, hostile
		}
		j := judgement{baseline: baseline.Baseline{{Kind: baseline.Unproven, ID: "X2", Tenant: "*", Reason: hostile, By: hostile, Expires: day(1)}}}
		_, node := htmlOf(t, one(j, f))
		checkPage(t, hostile, node)
	}
}

// checkPage checks that a page loads nothing, runs no script, and is readable with a screen
// reader.
func checkPage(t *testing.T, of string, node *html.Node) {
	t.Helper()
	level, ids := 0, map[string]bool{}
	for n := range node.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if slices.Contains([]string{"script", "img", "svg", "link", "iframe", "object", "form", "base", "video"}, n.Data) {
			t.Errorf("%q: the page has an element %s", of, n.Data)
		}
		attributes := map[string]string{}
		for _, a := range n.Attr {
			attributes[a.Key] = a.Val
			if strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "style" || a.Key == "href" && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("%q: <%s %s=%q>", of, n.Data, a.Key, a.Val)
			}
		}
		if id := attributes["id"]; id != "" && ids[id] {
			t.Errorf("%q: the id %s is there twice", of, id)
		}
		ids[attributes["id"]] = true
		if n.Data == "th" && attributes["scope"] == "" || n.Data == "html" && attributes["lang"] == "" {
			t.Errorf("%q: <%s> does not say what it is for", of, n.Data)
		}
		if heading := regexp.MustCompile(`^h([1-6])$`).FindStringSubmatch(n.Data); heading != nil {
			now := int(heading[1][0] - '0')
			if now > level+1 {
				t.Errorf("%q: a heading of level %d follows one of level %d", of, now, level)
			}
			level = now
		}
	}
}

// TestHTMLAsksNobody checks that the page, including its style, refers to no external address.
func TestHTMLAsksNobody(t *testing.T) {
	t.Parallel()
	f := attacked(catalog.GotThrough, catalog.Stopped)
	content, node := htmlOf(t, one(judgement{}, f))
	checkPage(t, "a report", node)
	if strings.Contains(content, "url(") || strings.Contains(content, "@import") || strings.Contains(content, "http") && !strings.Contains(content, "http-equiv") {
		t.Error("the page's style asks for something")
	}
	if !strings.Contains(content, `content="default-src 'none'; style-src 'unsafe-inline'`) {
		t.Error("the page does not forbid all requests")
	}
}

// TestHTMLContrast checks the contrast of text in both colour schemes: WCAG 2.2, 1.4.3 demands
// 4.5 to 1.
func TestHTMLContrast(t *testing.T) {
	t.Parallel()
	schemes := regexp.MustCompile(`:root \{[^}]*\}`).FindAllString(htmlReport, -1)
	if len(schemes) != 2 {
		t.Fatalf("%d colour schemes, want light and dark", len(schemes))
	}
	for _, scheme := range schemes {
		colours := map[string]float64{}
		for _, m := range regexp.MustCompile(`--(\w+): #(\w{2})(\w{2})(\w{2})`).FindAllStringSubmatch(scheme, -1) {
			colours[m[1]] = luminance(t, m[2:])
		}
		for _, text := range []string{"text", "faint", "good", "bad", "open"} {
			for _, background := range []string{"page", "box", "head"} {
				light, dark := max(colours[text], colours[background]), min(colours[text], colours[background])
				if ratio := (light + 0.05) / (dark + 0.05); ratio < 4.5 {
					t.Errorf("%s on %s has a contrast of %.1f to 1: %s", text, background, ratio, scheme)
				}
			}
		}
	}
}

// luminance returns the relative luminance of a colour as defined in WCAG 2.2.
func luminance(t *testing.T, hexes []string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hexes[i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			sum += weight * c / 12.92
			continue
		}
		sum += weight * math.Pow((c+0.055)/1.055, 2.4)
	}
	return sum
}

// TestHTMLFails checks that a failed write of the page returns an error.
func TestHTMLFails(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	_ = reader.Close()
	if err := one(judgement{}, attacked(catalog.Stopped)).writeHTML(writer); err == nil {
		t.Error("nobody reads it, and nobody is told")
	}
}
