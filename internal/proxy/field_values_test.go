package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestSpacesAroundValues checks that the proxy refuses an impersonated user or group with spaces
// around it. HTTP/2 keeps the spaces, and the request to the API server loses them, so that the
// two would read different groups.
func TestSpacesAroundValues(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var arrived []string
	s := facing(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		arrived = append(arrived, r.Header.Values("Impersonate-Group")...)
	}, Options{})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	for _, tc := range []struct {
		reason, user, group string
		code                int
	}{
		{"a group", "bob", "team", http.StatusOK},
		{"a space inside", "bob", "my team", http.StatusOK},
		{"masters and a space", "bob", "system:masters ", http.StatusBadRequest},
		{"a tab and masters", "bob", "\tsystem:masters", http.StatusBadRequest},
		{"a user and a space", "bob ", "team", http.StatusBadRequest},
		{"only a space", " ", "team", http.StatusBadRequest},
	} {
		r := s.request(t, http.MethodGet, "/api/v1/namespaces/a/pods", "ann")
		r.Header.Set("Impersonate-User", tc.user)
		r.Header.Set("Impersonate-Group", tc.group)
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if body := readAll(response); response.StatusCode != tc.code || response.ProtoMajor != 2 {
			t.Errorf("%s: want %d over HTTP/2, got %s %s %s", tc.reason, tc.code, response.Proto, response.Status, body)
		}
		response.Body.Close()
	}
	if want := []string{"team", "my team"}; !slices.Equal(arrived, want) {
		t.Errorf("want the groups %q at the API server, got %q", want, arrived)
	}
}

// TestNamesInCertificates checks that the proxy refuses a certificate whose names the header of a
// request cannot hold unchanged.
func TestNamesInCertificates(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, name, group string
		want                string
	}{
		{"a user", "ann", "team", ""},
		{"masters", "ann", "system:masters", "system:masters"},
		{"masters and a space", "ann", "system:masters ", "space"},
		{"a space and masters", "ann", " system:masters", "space"},
		{"a user and a space", "ann ", "team", "space"},
		{"a line", "ann\nImpersonate-Group: x", "team", "space"},
		{"an empty group", "ann", "", "space"},
		{"nobody", "", "team", "Unauthorized"},
		{"the anonymous user", "system:anonymous", "team", "Unauthorized"},
	} {
		_, err := userOfCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: tc.name, Organization: []string{"x", tc.group}}})
		if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want an error with %q, got %v", tc.reason, tc.want, err)
		}
	}
}

// TestUpgradeOption checks that the proxy reads the header Connection as the transport to the API
// server does.
func TestUpgradeOption(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]bool{"upgrade": true, " Upgrade\t, close": true, "\u00a0upgrade": false, "\u2003Upgrade": false} {
		r := &http.Request{Header: http.Header{"Connection": {option}, "Upgrade": {"websocket"}}}
		if got := isUpgrade(r); got != want {
			t.Errorf("%q: want %t, got %t", option, want, got)
		}
		if err := checkHops(r); (err == nil) != want {
			t.Errorf("%q: got %v", option, err)
		}
	}
}
