package network

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// testPod is the address of the Pod of a container that names proxies.
const testPod = "198.18.0.7"

// TestLimits asks for a mapped host and a Service with the environment of containers that name proxies.
func TestLimits(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.Handle("files.example.com", "", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	n.Handle("kms.example.com", "", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	const closed, elsewhere = "http://127.0.0.1:9", "http://proxy.example.com:3128"
	for _, tc := range []struct {
		reason, url string
		vars        map[string]string
		refused     string
	}{
		{"no proxy", "https://files.example.com/a", nil, ""},
		{"a proxy where nothing listens", "https://files.example.com/a", map[string]string{"HTTPS_PROXY": closed}, "nothing listens at the proxy 127.0.0.1:9, which HTTPS_PROXY names"},
		{"in lower case", "https://files.example.com/a", map[string]string{"https_proxy": closed}, "which HTTPS_PROXY names"},
		{"for the other scheme", "http://files.example.com/a", map[string]string{"HTTPS_PROXY": closed}, ""},
		{"without TLS", "http://files.example.com/a", map[string]string{"HTTP_PROXY": closed}, "which HTTP_PROXY names"},
		{"a host without the proxy", "https://kms.example.com/a", map[string]string{"HTTPS_PROXY": closed, "NO_PROXY": "a.example.com,kms.example.com"}, ""},
		{"a host that ends like one without the proxy", "https://files.example.com/a", map[string]string{"HTTPS_PROXY": closed, "NO_PROXY": "s.example.com"}, "which HTTPS_PROXY names"},
		{"every host without the proxy", "https://files.example.com/a", map[string]string{"HTTPS_PROXY": closed, "NO_PROXY": "*"}, ""},
		{"a proxy on the loopback by its name", "https://files.example.com/a", map[string]string{"HTTPS_PROXY": "localhost:9"}, "nothing listens"},
		{"a proxy on the loopback of IPv6", "https://files.example.com/a", map[string]string{"HTTPS_PROXY": "http://[::1]:9"}, "nothing listens"},
		{"a proxy on another host", "https://files.example.com/a", map[string]string{"HTTPS_PROXY": elsewhere}, ""},
		{"two proxies", "http://files.example.com/a", map[string]string{"HTTPS_PROXY": closed, "HTTP_PROXY": elsewhere}, ""},
	} {
		response, body, err := n.getWith(tc.vars, tc.url)
		switch {
		case err != nil:
			body = err.Error()
		case response.StatusCode == http.StatusOK:
			body = ""
		}
		if tc.refused == "" && body != "" || !strings.Contains(body, tc.refused) {
			t.Errorf("%s: %s answers %q, want %q", tc.reason, tc.url, body, tc.refused)
		}
	}
}

// TestProxyInPod asks for a host through a proxy that another container of the same Pod serves.
func TestProxyInPod(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	var asked []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Proxy-Authorization"))
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(proxy.Close)
	n.SetServices(resolverFunc(func(host string, port int) (Answer, error) {
		if host == testPod && port == 9080 {
			return Answer{Address: strings.TrimPrefix(proxy.URL, "http://")}, nil
		}
		return Answer{}, ErrNoEndpoint
	}))
	n.Handle("files.example.com", "", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tc := range []struct {
		url, proxy string
		status     int
	}{
		{"http://files.example.com/a", "http://127.0.0.1:9080", http.StatusTeapot},
		{"http://nowhere.example.com:8080/a?b=c", "http://127.0.0.1:9080", http.StatusTeapot},
		{"http://files.example.com/a", "http://127.0.0.1:9081", http.StatusBadGateway},
		{"http://files.example.com/a", "", http.StatusOK},
	} {
		response, body, err := n.getWith(map[string]string{"HTTP_PROXY": tc.proxy}, tc.url)
		if err != nil || response.StatusCode != tc.status {
			t.Errorf("%s through %q: %v, %s, %v; want the status %d", tc.url, tc.proxy, response, body, err, tc.status)
		}
	}
	if want := []string{"GET http://files.example.com/a ", "GET http://nowhere.example.com:8080/a?b=c "}; !slices.Equal(asked, want) {
		t.Errorf("the proxy in the Pod was asked %q, want %q", asked, want)
	}
	// With TLS there is no way through it.
	if _, _, err := n.getWith(map[string]string{"HTTPS_PROXY": "http://127.0.0.1:9080"}, "https://files.example.com/a"); err == nil || !strings.Contains(err.Error(), "which HTTPS_PROXY names") {
		t.Errorf("with TLS: %v", err)
	}
}

// TestLimitsAreKept asks with credentials that no environment has.
func TestLimitsAreKept(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	basic := func(user, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	proxy, err := url.Parse(n.env("HTTPS_PROXY"))
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := proxy.User.Password()
	for reason, credentials := range map[string]string{
		"nothing": "", "another scheme": "Bearer " + secret, "no secret": basic(proxyUser, ""), "another secret": basic(proxyUser, secret+"a"),
		"another user": basic("root", secret), "limits that are none": basic(proxyUser+limitsMark+"!", secret), "empty limits": basic(proxyUser+limitsMark, secret),
	} {
		if limits, ok := n.authorize(credentials); ok {
			t.Errorf("%s: accepted, with the limits %v", reason, limits)
		}
	}
	if limits, ok := n.authorize(basic(proxyUser, secret)); !ok || limits != nil {
		t.Errorf("the credentials of Env: got %v, %v", limits, ok)
	}
}

// FuzzLimits checks that limits survive the way through credentials: they refuse the same hosts before and after.
func FuzzLimits(f *testing.F) {
	n := &Network{secret: "secret"}
	f.Add("http://127.0.0.1:9", "a.example.com,.b", "a.example.com")
	f.Add("[::1]:1", "*", "b")
	f.Fuzz(func(t *testing.T, proxy, without, host string) {
		if !utf8.ValidString(proxy + without) {
			return // Kubernetes stores text in UTF-8
		}
		vars := map[string]string{"HTTPS_PROXY": proxy, "NO_PROXY": without}
		before := limitsOf(vars, testPod)
		after, ok := n.authorize("Basic " + base64.StdEncoding.EncodeToString([]byte(before.user()+":"+n.secret)))
		if !ok || (before == nil) != (after == nil) {
			t.Fatalf("the limits %v became %v", before, after)
		}
		one, two := before.refuseTLS(host+":443"), after.refuseTLS(host+":443")
		if (one == nil) != (two == nil) {
			t.Fatalf("the limits decide %v, and %v after the way through credentials", one, two)
		}
	})
}
