package artifactproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// serve returns an HTTP client behind a proxy, and the address of the server, which answers with the path and
// the headers of a request.
func serve(t *testing.T) (client *http.Client, proxyURL, server string) {
	t.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %d", r.Method, r.URL, len(r.Header))
	}))
	t.Cleanup(backend.Close)
	server = strings.TrimPrefix(backend.URL, "http://")
	handler, err := New([]string{server}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(handler)
	t.Cleanup(front.Close)
	address, err := url.Parse(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	// The environment of a test may name proxies, and Go uses none for loopback.
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(address), DisableCompression: true}}, front.URL, server
}

func TestArtifacts(t *testing.T) {
	client, _, server := serve(t)
	digest := strings.Repeat("ab", 32)
	for path, want := range map[string]int{
		"/gitrepository/dev-team/apps/" + commit + ".tar.gz":          200,
		"/ocirepository/dev-team/apps/sha256:" + digest + ".tar.gz":   200,
		"/ocirepository/dev-team/apps/" + digest + ".tar.gz":          200,
		"/bucket/dev-team/my.bucket/" + digest + ".tar.gz":            200,
		"/externalartifact/dev-team/apps/" + digest + ".tar.gz":       200,
		"/externalartifact/dev-team/apps/3141592653.tar.gz":           200,
		"/gitrepository/dev-team/apps/" + digest + digest + ".tar.gz": 200,
		"": Refused, "/": Refused, "/gitrepository": Refused, "/gitrepository/": Refused, "/gitrepository/dev-team/": Refused,
		"/gitrepository/dev-team/apps/":                                       Refused,
		"/gitrepository/dev-team/apps/latest.tar.gz":                          Refused,
		"/gitrepository/dev-team/apps/" + commit[:12] + ".tar.gz":             Refused,
		"/gitrepository/dev-team/apps/" + commit + ".tar.gz.lock":             Refused,
		"/gitrepository/dev-team/apps/" + commit + ".tar.gz/":                 Refused,
		"/gitrepository/dev-team/apps/" + commit + ".tar.gz?a=b":              Refused,
		"/gitrepository/dev-team/../ops/" + commit + ".tar.gz":                Refused,
		"/gitrepository/dev-team/%2e%2e/" + commit + ".tar.gz":                Refused,
		"/gitrepository/dev-team/ap%70s/" + commit + ".tar.gz":                Refused,
		"/gitrepository/dev-team%2fapps/x/" + commit + ".tar.gz":              Refused,
		"/gitrepository/dev-team/apps/" + commit[:39] + "%67.tar.gz":          Refused,
		"//gitrepository/dev-team/apps/" + commit + ".tar.gz":                 Refused,
		"/ocirepository/dev-team/apps/sha256:latest.tar.gz":                   Refused,
		"/gitrepository/dev-team/apps/3141592653.tar.gz":                      Refused,
		"/externalartifact/dev-team/apps/latest.tar.gz":                       Refused,
		"/externalartifact/dev-team/apps/31415926535.tar.gz":                  Refused,
		"/ocirepository/dev-team/apps/sha256:.tar.gz":                         Refused,
		"/ocirepository/dev-team/apps/sha256%3A" + digest + ".tar.gz":         Refused,
		"/helmchart/dev-team/apps/apps-1.0.0.tgz":                             Refused,
		"/helmchart/dev-team/apps/" + digest + ".tar.gz":                      Refused,
		"/helmrepository/dev-team/apps/index-" + digest + ".yaml":             Refused,
		"/debug/pprof/profile?seconds=600":                                    Refused,
		"/gitrepository/dev-team/apps/" + strings.ToUpper(commit) + ".tar.gz": Refused,
	} {
		response, err := client.Get("http://" + server + path)
		if err != nil {
			t.Fatal(path, err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want {
			t.Errorf("%s: %d, want %d (%s, %v)", path, response.StatusCode, want, body, err)
		}
		if fromServer := strings.HasPrefix(string(body), "GET /"); fromServer != (want == 200) {
			t.Errorf("%s: the server answered: %t, want %t", path, fromServer, want == 200)
		}
	}
}

// TestOtherRequests sends requests that are no GET of a known server through a proxy.
func TestOtherRequests(t *testing.T) {
	client, proxy, server := serve(t)
	path := "/gitrepository/dev-team/apps/" + commit + ".tar.gz"
	for _, c := range []struct{ method, url string }{
		{http.MethodPost, "http://" + server + path},
		{http.MethodHead, "http://" + server + path},
		{http.MethodDelete, "http://" + server + path},
		{http.MethodGet, "http://evil.example.com" + path},
		{http.MethodGet, "http://evil.example.com:80" + path},
		{http.MethodGet, "http://127.0.0.1:1" + path},
	} {
		request, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(c, err)
		}
		_ = response.Body.Close()
		if response.StatusCode != Refused {
			t.Errorf("%v: %s", c, response.Status)
		}
	}
	host := strings.TrimPrefix(proxy, "http://")
	for _, line := range []string{
		"CONNECT " + server + " HTTP/1.1\r\nHost: " + server,
		"GET " + path + " HTTP/1.1\r\nHost: " + server,
		"GET https://" + server + path + " HTTP/1.1\r\nHost: " + server,
		"GET http://" + server + "@evil.example.com" + path + " HTTP/1.1\r\nHost: " + server,
		"GET http://evil.example.com" + path + " HTTP/1.1\r\nHost: " + server,
		"GET http://user:password@" + server + path + " HTTP/1.1\r\nHost: " + server,
	} {
		if status := raw(t, host, line); status < 400 || status >= 500 {
			t.Errorf("%s: %d", line, status)
		}
	}
	// The Host header does not choose the server, but the address.
	if status := raw(t, host, "GET http://"+server+path+" HTTP/1.1\r\nHost: evil.example.com"); status != 200 {
		t.Errorf("another Host header: %d", status)
	}
}

func raw(t *testing.T, address, request string) int {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(conn, request+"\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(request, err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func TestServers(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, servers := range [][]string{nil, {""}, {"http://source-controller"}, {"a/b"}, {"a b"}, {"user@host"}, {"host:port"}} {
		if _, err := New(servers, log); err == nil {
			t.Errorf("%q: no error", servers)
		}
	}
	allowed := []string{canonical("Source-Controller.flux-system.svc.cluster.local.")}
	for host, want := range map[string]bool{
		"source-controller.flux-system.svc.cluster.local.":      true,
		"source-controller.flux-system.svc.cluster.local":       true,
		"source-controller.flux-system.svc.cluster.local.:80":   true,
		"SOURCE-CONTROLLER.flux-system.svc.cluster.local":       true,
		"source-controller.flux-system.svc.cluster.local:9440":  false,
		"source-controller.flux-system.svc":                     false,
		"source-controller":                                     false,
		"notification-controller.flux-system.svc.cluster.local": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/gitrepository/a/b/"+commit+".tar.gz", nil)
		if why := refusal(r, allowed); (why == "") != want {
			t.Errorf("%s: %q, want to pass: %t", host, why, want)
		}
	}
}

// TestRun ends a proxy while it answers a request.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	began, proceed := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-proceed
		_, _ = io.WriteString(w, "whole")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := Run(ctx, address, slow, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "cannot listen at "+address) {
		t.Errorf("an address in use: %v", err)
	}
	_ = listener.Close()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, address, slow, slog.New(slog.DiscardHandler)) }()
	answer := make(chan string, 1)
	go func() {
		for {
			response, err := http.Get("http://" + address) //nolint:noctx // the test ends it
			if err != nil {
				if ctx.Err() != nil {
					answer <- err.Error()
					return
				}
				continue
			}
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			answer <- string(body)
			return
		}
	}()
	<-began
	cancel()
	close(proceed)
	if got := <-answer; got != "whole" {
		t.Errorf("the answer is %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzRefusal checks that what passes is an artifact's address.
func FuzzRefusal(f *testing.F) {
	f.Add("http://source-controller/gitrepository/a/b/" + commit + ".tar.gz")
	f.Add("http://source-controller:80/gitrepository/a/../" + commit + ".tar.gz")
	f.Fuzz(func(t *testing.T, address string) {
		u, err := url.Parse(address)
		if err != nil {
			return
		}
		r := &http.Request{Method: http.MethodGet, URL: u, Host: u.Host}
		if refusal(r, []string{"source-controller"}) != "" {
			return
		}
		parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/")
		if u.Port() != "" && u.Port() != "80" || !strings.EqualFold(strings.TrimSuffix(u.Hostname(), "."), "source-controller") || len(parts) != 4 ||
			strings.Contains(address, "latest") && !strings.Contains(parts[1]+parts[2], "latest") || strings.ContainsAny(address, "?#@%") && u.Fragment == "" {
			t.Errorf("%q passes", address)
		}
		for _, part := range parts {
			if part == "" || part == "." || part == ".." {
				t.Errorf("%q passes", address)
			}
		}
	})
}

// BenchmarkArtifact fetches an artifact of 10 MiB, directly and through the proxy.
func BenchmarkArtifact(b *testing.B) {
	artifact := make([]byte, 10<<20)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(artifact) }))
	b.Cleanup(backend.Close)
	handler, err := New([]string{strings.TrimPrefix(backend.URL, "http://")}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	front := httptest.NewServer(handler)
	b.Cleanup(front.Close)
	address, err := url.Parse(front.URL)
	if err != nil {
		b.Fatal(err)
	}
	for name, proxy := range map[string]func(*http.Request) (*url.URL, error){"direct": nil, "proxied": http.ProxyURL(address)} {
		b.Run(name, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{Proxy: proxy}}
			b.SetBytes(int64(len(artifact)))
			for b.Loop() {
				response, err := client.Get(backend.URL + "/gitrepository/a/b/" + commit + ".tar.gz")
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, response.Body); err != nil || n != int64(len(artifact)) {
					b.Fatal(n, err)
				}
				_ = response.Body.Close()
			}
		})
	}
}
