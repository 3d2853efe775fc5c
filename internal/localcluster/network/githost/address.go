package githost

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// address is what identifies a repository: where it is, not how it is reached.
// https://github.com/acme/fleet.git and git@github.com:acme/fleet are one.
type address struct {
	// host is lower case; it keeps a port only when the URL names one that
	// is not its scheme's default.
	host string
	// path has no leading or trailing slash and no .git at its end.
	path string
}

func (a address) String() string { return a.host + "/" + a.path }

// flag is what a user adds to the command line to map the address.
func (a address) flag() string { return "--map https://" + a.String() + "=DIR" }

// Address returns the form of a repository's URL that is the same for every way
// of writing it: host and path, without scheme, user, default port, slashes at
// the ends and .git. With it a [Change] finds the Flux sources that it concerns.
//
// It accepts https, http and ssh URLs and the scp-like form git@host:org/repo.
func Address(raw string) (string, error) {
	a, err := parseAddress(raw)
	if err != nil {
		return "", err
	}
	return a.String(), nil
}

func parseAddress(raw string) (address, error) {
	wrong := func(why string) (address, error) {
		return address{}, fmt.Errorf("cannot use %q as the address of a repository: %s", raw, why)
	}
	if !strings.Contains(raw, "://") {
		before, path, ok := strings.Cut(raw, ":")
		if !ok || strings.Contains(before, "/") {
			return wrong("it needs a scheme (https://host/path) or the form git@host:path")
		}
		raw = "ssh://" + before + "/" + strings.TrimLeft(path, "/")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return wrong("it is not a URL")
	}
	ports := map[string]string{"https": "443", "http": "80", "ssh": "22"}
	port, known := ports[u.Scheme]
	switch {
	case !known:
		return wrong("the scheme must be https, http or ssh")
	case u.Hostname() == "":
		return wrong("it names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return wrong("it must not have a query or a fragment")
	}
	host := u.Host
	if u.Port() == port {
		host = strings.TrimSuffix(host, ":"+port)
	}
	path, ok := cleanPath(u.Path)
	if !ok {
		return wrong("it needs a path without . and .. and control characters")
	}
	host, ok = cleanHost(host)
	if !ok {
		return wrong("it needs the name or address of a host")
	}
	return address{host: host, path: path}, nil
}

// requestAddress is the address that a request is for. The port that a client
// reached is dropped when it is a default one: which of them it was, is known
// only to the network that terminated the connection.
func requestAddress(host, path string) (address, bool) {
	if name, port, err := net.SplitHostPort(host); err == nil && (port == "443" || port == "80" || port == "22") {
		host = name
		if strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	host, hostOK := cleanHost(host)
	path, pathOK := cleanPath(path)
	return address{host: host, path: path}, hostOK && pathOK
}

var hostForm = regexp.MustCompile(`^([a-z0-9_]([a-z0-9._-]*[a-z0-9_-])?|\[[0-9a-f:.]+\])(:[0-9]+)?$`)

func cleanHost(host string) (string, bool) {
	host = strings.ToLower(host)
	if !strings.HasPrefix(host, "[") {
		name, port, ok := strings.Cut(host, ":")
		host = strings.TrimSuffix(name, ".")
		if ok {
			host += ":" + port
		}
	}
	return host, hostForm.MatchString(host)
}

// cleanPath returns the path's segments joined by single slashes, without .git
// at the end. The result never becomes a name on disk; refusing what a file
// system would treat specially is a second fence.
func cleanPath(path string) (string, bool) {
	var segments []string
	for segment := range strings.SplitSeq(path, "/") {
		switch segment {
		case "":
			continue
		case ".", "..":
			return "", false
		}
		segments = append(segments, segment)
	}
	clean := strings.TrimSuffix(strings.Join(segments, "/"), ".git")
	if clean == "" || strings.HasSuffix(clean, "/") {
		return "", false
	}
	for _, r := range clean {
		if r < ' ' || r == 0x7f || r == '\\' {
			return "", false
		}
	}
	return clean, true
}
