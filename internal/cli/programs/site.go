package programs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// headerTimeout bounds the wait for the beginning of an answer. The context bounds the download.
const headerTimeout = 30 * time.Second

// site is a folder on a web server.
type site struct {
	url    string
	client *http.Client
}

// newSite checks the address of a folder.
func newSite(address string) (*site, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch programs: %w", err)
	}
	if err := secure(u); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = headerTimeout
	return &site{url: strings.TrimSuffix(address, "/"), client: &http.Client{
		Transport: transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 5 {
				return fmt.Errorf("more than 5 redirects")
			}
			return secure(r.URL)
		},
	}}, nil
}

// secure refuses addresses without TLS, except those of this machine.
func secure(u *url.URL) error {
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "https" && u.Host != "" || u.Scheme == "http" && ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("cannot fetch programs from %s: the address has to begin with https://", u.Redacted())
}

func (s *site) open(ctx context.Context, name string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s answers %s", s, answer.Status)
	}
	return answer.Body, nil
}

func (s *site) String() string {
	u, err := url.Parse(s.url)
	if err != nil {
		return "the server"
	}
	return u.Redacted()
}
