package catalog

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
)

func addRedirectedProxy(register func(...Attack)) {
	register(Attack{
		ID: "I13", Via: Proxy,
		Kinds:      []string{},
		Title:      "redirects the proxy to another server with an address or a host in the request",
		Controls:   []string{"the proxy, which connects only to its API server"},
		References: []string{"CVE-2022-24817"},
		Fix:        Fix{Advice: proxyAdvice + ": nothing in a request says where it is passed on to"},
		Run:        leadsElsewhere,
	})
}

// leadsElsewhere starts a server outside of the cluster and checks whether the proxy sends a request to it.
func leadsElsewhere(ctx context.Context, e *Scenario) Finding {
	if e.proxyEndpoint == nil || e.outside == nil {
		return onProxy(nil)(ctx, e)
	}
	path := "/" + name("i13-proxy")
	var came atomic.Bool
	e.outside.Handle(sinkHost, path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		came.Store(true)
		_, _ = io.WriteString(w, "{}")
	}))
	defer e.outside.Forget(sinkHost, path)
	there := func(context.Context, rawResponse) (bool, error) { return came.Load(), nil }
	f := onProxy(func(_ context.Context, c *proxyClient) ([]rawRequest, error) {
		return []rawRequest{
			{what: "lead the proxy to a server of its choice by a whole address", path: "//" + sinkHost + path, token: c.token, breach: there},
			{what: "lead the proxy to a server of its choice by the header Host", path: path, token: c.token, header: [][2]string{{"Host", sinkHost}}, breach: there},
			{what: "lead the proxy to a server of its choice by the header X-Forwarded-Host", path: path, token: c.token, header: [][2]string{{"X-Forwarded-Host", sinkHost}, {"Forwarded", "host=" + sinkHost + ";proto=https"}}, breach: there},
		}, nil
	})(ctx, e)
	switch {
	case came.Load():
		return gotThrough("it could lead the proxy to a server of its choice")
	case f.Outcome == Stopped && f.Control != notInstalled:
		f.Control = byProxy // whatever the server that got the request instead answered
	}
	return f
}
