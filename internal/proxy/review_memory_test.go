package proxy

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestAliasesInReview checks that the proxy does not decode a review in YAML: the aliases of a
// small text can take thousands of times its memory.
func TestAliasesInReview(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	arrived := ""
	s := facing(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		arrived = string(content)
		w.WriteHeader(http.StatusTeapot)
	}, Options{})
	// Aliases of aliases repeat a text of 1 KiB. The plain values keep the share of aliases below the
	// limit of the YAML decoder.
	repeat := func(text string, n int) string { return "[" + strings.Repeat(text+",", n-1) + text + "]" }
	review := "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\n" +
		"spec: {resourceAttributes: {verb: list, resource: namespaces}}\n" +
		"plain: " + repeat("x", 2000) + "\ntext: &t " + strings.Repeat("y", 1<<10) + "\nlist: &l " + repeat("*t", 1000) + "\nlists: " + repeat("*l", 100) + "\n"
	if len(review) > maxAccessReview {
		t.Fatalf("the review has %d bytes", len(review))
	}
	for _, kind := range []string{"application/yaml", "application/json", ""} {
		r := s.request(t, http.MethodPost, accessReviewPath, "ann")
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(review)), int64(len(review))
		if kind != "" {
			r.Header.Set("Content-Type", kind)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, body, _ := s.raw(t, r)
		runtime.ReadMemStats(&after)
		t.Logf("%q: %d bytes of YAML take %d KiB", kind, len(review), (after.TotalAlloc-before.TotalAlloc)>>10)
		if code != http.StatusTeapot || arrived != review {
			t.Errorf("%q: want the API server's answer, got %d %s", kind, code, body)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 10<<20 {
			t.Errorf("%q: %d bytes of YAML take %d bytes", kind, len(review), taken)
		}
	}
}
