package githost

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// address identifies a repository by its location, not by the protocol or the user.
// https://github.com/acme/fleet.git and git@github.com:acme/fleet have the same
// address.
type address struct {
	// host is lower case. It contains a port only if the URL has a port that is not
	// the default of its scheme.
	host string
	// path has no leading or trailing slash and no final .git.
	path string
}

func (a address) String() string { return a.host + "/" + a.path }

// flag returns the command line flag that maps the address.
func (a address) flag() string { return "--map https://" + a.String() + "=DIR" }

// Address returns the canonical form of a repository's URL: host and path, without
// scheme, user, default port, slashes at the ends and .git. Callers compare it to
// find the Flux sources that a [Change] concerns.
//
// It accepts https, http and ssh URLs and the scp-like form git@host:org/repo. It returns an
// error for any other text.
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

// requestAddress returns the address of a request. It drops a default port of any
// scheme, because only the network that terminated the connection knows the scheme.
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

// cleanPath returns the path's segments joined by single slashes, without a final
// .git. The result never becomes a file name. As a second line of defence, cleanPath
// still refuses segments and characters that file systems treat specially.
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
