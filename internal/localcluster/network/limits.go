package network

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// limits are the proxies that a container names in its environment. Its process uses the network's
// proxy all the same, which passes a request on to a proxy in the container's Pod, and refuses it if
// nothing listens there.
type limits struct {
	HTTP, HTTPS, No string
	// PodIP is the address of the container's Pod.
	PodIP string
}

// limitsOf returns the proxies in a container's environment. Nil means that the container limits nothing: it
// names no proxy, or only proxies on other hosts, which are outside of the cluster.
func limitsOf(vars map[string]string, podIP string) *limits {
	get := func(name string) string {
		if value, set := vars[name]; set {
			return value
		}
		return vars[strings.ToLower(name)]
	}
	l := &limits{HTTP: get("HTTP_PROXY"), HTTPS: get("HTTPS_PROXY"), No: get("NO_PROXY"), PodIP: podIP}
	if !inPod(l.HTTP) && !inPod(l.HTTPS) {
		return nil
	}
	return l
}

// inPod reports whether a proxy is on the loopback addresses of a Pod, where only the Pod itself can
// serve it.
func inPod(proxy string) bool {
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

// proxyFor returns the proxy in the container's Pod through which the container reaches an address, given as scheme
// and host:port, or nil if it reaches the address without one.
func (l *limits) proxyFor(scheme, address string) (*url.URL, error) {
	if l == nil {
		return nil, nil
	}
	config := httpproxy.Config{HTTPProxy: l.HTTP, HTTPSProxy: l.HTTPS, NoProxy: l.No}
	proxy, err := config.ProxyFunc()(&url.URL{Scheme: scheme, Host: address})
	if err != nil || proxy == nil || !inPod(proxy.String()) {
		return nil, err
	}
	return proxy, nil
}

// through returns the address on this machine, as host:port, of the proxy in the container's Pod through which the
// container reaches an address without TLS, or "" if it reaches the address without one. It returns an error if nothing
// listens at the proxy.
func (n *Network) through(ctx context.Context, l *limits, address string) (string, error) {
	proxy, err := l.proxyFor("http", address)
	if err != nil || proxy == nil {
		return "", err
	}
	n.mu.RLock()
	resolver := n.resolver
	n.mu.RUnlock()
	if port, err := strconv.Atoi(proxy.Port()); err == nil && resolver != nil && l.PodIP != "" {
		if answer, err := resolver.Resolve(ctx, l.PodIP, port); err == nil && answer.Address != "" {
			return answer.Address, nil
		}
	}
	return "", unserved("HTTP", proxy)
}

// refuseTLS returns an error for an address, as host:port, that a container reaches with TLS through a proxy in its
// Pod: no program of the local cluster is such a proxy.
func (l *limits) refuseTLS(address string) error {
	proxy, err := l.proxyFor("https", address)
	if err != nil || proxy == nil {
		return err
	}
	return unserved("HTTPS", proxy)
}

func unserved(scheme string, proxy *url.URL) error {
	return fmt.Errorf("nothing listens at the proxy %s, which %s_PROXY names: only the hosts in NO_PROXY can be reached", proxy.Host, scheme)
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
