package network

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// limits are the proxies that a container names in its environment. Its process uses the network's
// proxy all the same, which refuses what would go through a proxy of the container where
// nothing listens.
type limits struct{ HTTP, HTTPS, No string }

// limitsOf returns the proxies in a container's environment. Nil means that the container limits nothing: it
// names no proxy, or only proxies on other hosts, which are outside of the cluster.
func limitsOf(vars map[string]string) *limits {
	get := func(name string) string {
		if value, set := vars[name]; set {
			return value
		}
		return vars[strings.ToLower(name)]
	}
	l := &limits{HTTP: get("HTTP_PROXY"), HTTPS: get("HTTPS_PROXY"), No: get("NO_PROXY")}
	if !unserved(l.HTTP) && !unserved(l.HTTPS) {
		return nil
	}
	return l
}

// unserved reports whether a proxy is on the loopback addresses of a Pod, where only the Pod itself could
// serve it. No program of the local cluster does.
func unserved(proxy string) bool {
	if !strings.Contains(proxy, "://") {
		proxy = "http://" + proxy // as in httpproxy.Config
	}
	parsed, err := url.Parse(proxy)
	if err != nil {
		return false
	}
	ip := net.ParseIP(parsed.Hostname())
	return parsed.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// check returns an error for an address, as scheme and host:port, that only a proxy without a server would
// reach.
func (l *limits) check(scheme, address string) error {
	if l == nil {
		return nil
	}
	config := httpproxy.Config{HTTPProxy: l.HTTP, HTTPSProxy: l.HTTPS, NoProxy: l.No}
	proxy, err := config.ProxyFunc()(&url.URL{Scheme: scheme, Host: address})
	if err != nil || proxy == nil || !unserved(proxy.String()) {
		return err
	}
	return fmt.Errorf("nothing listens at the proxy %s, which %s_PROXY names: only the hosts in NO_PROXY can be reached", proxy.Host, strings.ToUpper(scheme))
}

// user returns the name with which a process with these limits uses the network's proxies.
func (l *limits) user() string {
	if l == nil {
		return proxyUser
	}
	encoded, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings can be encoded
	}
	return proxyUser + limitsMark + base64.RawURLEncoding.EncodeToString(encoded)
}

// limitsMark separates the name of a proxy's user from its limits.
const limitsMark = "."

// authorize returns the limits in the credentials (RFC 7617) of a client of the proxy, and false if these
// lack the secret of the proxies.
func (n *Network) authorize(credentials string) (*limits, bool) {
	encoded, basic := strings.CutPrefix(credentials, "Basic ")
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	user, password, _ := strings.Cut(string(decoded), ":")
	if !basic || err != nil || subtle.ConstantTimeCompare([]byte(password), []byte(n.secret)) != 1 {
		return nil, false
	}
	name, encoded, limited := strings.Cut(user, limitsMark)
	if name != proxyUser || !limited {
		return nil, name == proxyUser
	}
	l := &limits{}
	if decoded, err = base64.RawURLEncoding.DecodeString(encoded); err != nil || json.Unmarshal(decoded, l) != nil {
		return nil, false
	}
	return l, true
}
