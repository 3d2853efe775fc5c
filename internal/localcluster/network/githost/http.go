package githost

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/cgi"
	"net/url"
	"regexp"
	"strings"
)

// protocolVersion is the form of the Git-Protocol header (gitprotocol-v2(5)) that is
// passed on to git.
var protocolVersion = regexp.MustCompile(`^version=[0-2]$`)

// endpoints are the requests of smart HTTP (gitprotocol-http(5)).
var endpoints = []struct{ method, suffix string }{
	{http.MethodGet, "/info/refs"},
	{http.MethodPost, "/git-upload-pack"},
	{http.MethodPost, "/git-receive-pack"},
}

// ServeHTTP serves the repository at the request's host and path, with or without
// .git, over smart HTTP. It serves a private repository only to requests with its
// credentials: see [Host.Protect]. For a repository that is not mapped it returns
// 404 and names the flag that would map it.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, e := range endpoints {
		path, ok := strings.CutSuffix(r.URL.Path, e.suffix)
		if !ok {
			continue
		}
		repo, err := h.lookup(r.Host, path)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusNotFound)
		case r.Method != e.method:
			w.Header().Set("Allow", e.method)
			http.Error(w, "only "+e.method+" is served here", http.StatusMethodNotAllowed)
		default:
			repo.serveHTTP(w, r, e.suffix)
		}
		return
	}
	// The client is a browser, or uses git's old protocol, which reads files.
	if _, err := h.lookup(r.Host, r.URL.Path); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	http.Error(w, "this is a Git repository: use git clone", http.StatusNotFound)
}

// lookup returns a mapped repository. It compares addresses and opens no file.
func (h *Host) lookup(host, path string) (*repository, error) {
	a, ok := requestAddress(host, path)
	if !ok {
		return nil, fmt.Errorf("%q is not the path of a repository", path)
	}
	if repo := h.repository(a); repo != nil {
		return repo, nil
	}
	return nil, fmt.Errorf("%s is not mapped (use %s)", a, a.flag())
}

// serveHTTP passes a request to git http-backend (git-http-backend(1)), with only
// the headers that http-backend needs.
func (r *repository) serveHTTP(w http.ResponseWriter, req *http.Request, endpoint string) {
	ctx := req.Context()
	query := url.Values{}
	service := strings.TrimPrefix(endpoint, "/")
	if req.Method == http.MethodGet {
		service = req.URL.Query().Get("service")
		query.Set("service", service)
	}
	if !services[service] {
		http.Error(w, "only smart HTTP is served: use a newer git", http.StatusForbidden)
		return
	}
	if !r.host.askHTTP(w, req, r, service) {
		return
	}
	clean := &http.Request{
		Method: req.Method, URL: &url.URL{Path: endpoint, RawQuery: query.Encode()},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Host: r.address.host, RemoteAddr: "127.0.0.1:0", Header: http.Header{},
		Body: req.Body, ContentLength: req.ContentLength,
	}
	if clean.ContentLength == 0 {
		clean.Body = http.NoBody
	}
	for _, name := range []string{"Content-Type", "Content-Encoding", "Accept"} {
		if value := req.Header.Get(name); value != "" {
			clean.Header.Set(name, value)
		}
	}
	env := append([]string{}, r.host.git.env...)
	env = append(env, "GIT_PROJECT_ROOT="+r.path, "GIT_HTTP_EXPORT_ALL=1")
	if version := req.Header.Get("Git-Protocol"); protocolVersion.MatchString(version) {
		env = append(env, "GIT_PROTOCOL="+version)
	}
	complaints := &logWriter{log: r.host.log, repository: r.address.String()}
	handler := cgi.Handler{
		Path: r.host.git.program, Args: []string{"http-backend"}, Dir: r.dir, Env: env,
		Logger: log.New(complaints, "", 0), Stderr: complaints,
	}
	handler.ServeHTTP(w, clean.WithContext(ctx))
	if service == receivePack && req.Method == http.MethodPost {
		r.pushed()
	}
}

// pushed announces the changes of a push. It uses no context of the client, which
// may have hung up.
func (r *repository) pushed() {
	changes, err := r.absorb(context.Background())
	if err != nil {
		r.host.log.Error("cannot follow a push", "repository", r.address.String(), "error", err)
	}
	r.host.feed.send(changes...)
}
