package admission_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestMain fails if a rule covers a request that no test of the package shows to be refused.
func TestMain(m *testing.M) {
	code := testcluster.Main(m)
	if code == 0 && wholeRun() {
		code = refusals.check()
	}
	os.Exit(code)
}

// wholeRun reports whether go test runs all tests of the package.
func wholeRun() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list", "test.bench"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// refusals holds the requests of all tests that a rule refused.
var refusals = recorder{seen: map[admission.Request]bool{}}

type recorder struct {
	sync.Mutex
	seen map[admission.Request]bool
}

// check prints the requests that a rule covers and that no test shows to be refused, and
// returns the exit code.
func (r *recorder) check() int {
	code := 0
	for _, request := range admission.Requests() {
		if admission.Unrefused(request) == "" && !r.shown(request) {
			fmt.Fprintf(os.Stderr, "no test shows that %s refuses the %s of %s: add a refused request to the tables of the package, or a breach to everyrequest_test.go\n", request.Rule, request.Operation, request.Resource)
			code = 1
		}
	}
	return code
}

func (r *recorder) shown(request admission.Request) bool {
	prefix, all := strings.CutSuffix(request.Resource, "*")
	if !all {
		return r.seen[request]
	}
	for seen := range r.seen {
		if seen.Rule == request.Rule && seen.Operation == request.Operation && strings.HasPrefix(seen.Resource, prefix) {
			return true
		}
	}
	return false
}

// wrap returns a transport that records refusals.
func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil || response.StatusCode < 400 {
			return response, err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
		r.record(request, string(body))
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

var (
	named      = regexp.MustCompile(`\(rule (tenure-[a-z-]+)\)`)
	policy     = regexp.MustCompile(`ValidatingAdmissionPolicy '(tenure-[a-z-]+?)(?:-own)?'`)
	operations = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "update", http.MethodDelete: "delete"}
)

// record records the rules that a refusal names. A server-side apply may be a create or an
// update, and shows neither.
func (r *recorder) record(request *http.Request, body string) {
	if strings.Contains(request.Header.Get("Content-Type"), "apply-patch") {
		return
	}
	rules := named.FindAllStringSubmatch(body, -1)
	if rules == nil {
		rules = policy.FindAllStringSubmatch(body, -1)
	}
	if rules == nil {
		return // other refusals have paths without a resource, too
	}
	resource := resourceOf(request.URL.Path)
	r.Lock()
	defer r.Unlock()
	for _, rule := range rules {
		r.seen[admission.Request{Rule: rule[1], Resource: resource, Operation: operationOf(request.Method, resource)}] = true
	}
}

func operationOf(method, resource string) string {
	if strings.HasSuffix(resource, "/exec") {
		return "connect"
	}
	return operations[method]
}

// resourceOf returns the resource of a path of the API server.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group := ""
	if parts[0] == "apis" {
		group, parts = parts[1], parts[1:]
	}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "finalize" && parts[2] != "status" {
		parts = parts[2:]
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + strings.Join(parts[2:], "/")
	}
	return admission.ResourceName(resource, group)
}
