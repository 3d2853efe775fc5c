package proxy

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
)

// credential is the credential of a request: a token or a client certificate, never both.
type credential struct {
	// token is a bearer token, from the header Authorization or from the subprotocols of a
	// websocket.
	token string
	// bearer is true if the token was in the header Authorization. The proxy passes the
	// subprotocols of a websocket on unchanged.
	bearer bool
	// certified is the user of a verified client certificate; nil if there is a token.
	certified user.Info
}

const (
	protocolHeader = "Sec-Websocket-Protocol"
	// protocolPrefix begins a subprotocol that holds a token. A browser sends its token in
	// a subprotocol, because it cannot set headers.
	protocolPrefix = "base64url.bearer.authorization.k8s.io."
)

// readCredential returns the credential of a request, and a refusal unless the request has
// exactly one. The API server would treat a request without a usable credential as
// anonymous.
func readCredential(r *http.Request, certificates bool) (credential, error) {
	var found []credential
	switch values := r.Header.Values("Authorization"); {
	case len(values) > 1:
		return credential{}, badRequest("credentials", "the header Authorization is given %d times", len(values))
	case len(values) == 1:
		token, err := bearerToken(values[0])
		if err != nil {
			return credential{}, err
		}
		found = append(found, credential{token: token, bearer: true})
	}
	token, err := protocolToken(r)
	if err != nil {
		return credential{}, err
	}
	if token != "" {
		found = append(found, credential{token: token})
	}
	if certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		who, err := certified(r.TLS.VerifiedChains[0][0])
		if err != nil {
			return credential{}, err
		}
		found = append(found, credential{certified: who})
	}
	switch len(found) {
	case 0:
		return credential{}, unauthorized("anonymous")
	case 1:
		return found[0], nil
	}
	return credential{}, badRequest("credentials", "the request has more than one credential: give a token or a client certificate, and a token in one place")
}

// bearerToken returns the token in the value of a header Authorization. It accepts only the
// characters that a token may have, so that the API server cannot read another token, or
// none.
func bearerToken(value string) (string, error) {
	kind, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(kind, "Bearer") || token == "" {
		return "", unauthorized("anonymous")
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] >= 0x7f || token[i] == ',' {
			return "", unauthorized("token")
		}
	}
	return token, nil
}

// protocolToken returns the token among the subprotocols of a websocket, as
// k8s.io/apiserver/pkg/authentication/request/websocket reads it, and "" if there is none.
func protocolToken(r *http.Request) (string, error) {
	token, others := "", 0
	for _, value := range r.Header[protocolHeader] {
		for protocol := range strings.SplitSeq(value, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(protocol), protocolPrefix)
			if !ok {
				others++
				continue
			}
			decoded, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || len(decoded) == 0 || !utf8.Valid(decoded) {
				return "", unauthorized("token")
			}
			if token != "" {
				return "", badRequest("credentials", "the websocket has more than one token among its subprotocols")
			}
			token = string(decoded)
		}
	}
	if token == "" {
		return "", nil
	}
	// The API server accepts a token as a subprotocol of websockets only, and only beside
	// another subprotocol that it can answer with.
	if !isUpgrade(r) || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || others == 0 {
		return "", badRequest("credentials", "a token among the subprotocols needs a websocket and another subprotocol")
	}
	return token, nil
}

// isUpgrade reports whether a request asks to upgrade to another protocol.
func isUpgrade(r *http.Request) bool {
	if r.Header.Get("Upgrade") == "" {
		return false
	}
	for _, value := range r.Header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "upgrade") {
				return true
			}
		}
	}
	return false
}

// checkHops refuses a header Connection that names other headers. The next hop would remove
// these headers, and the request would mean something else without Impersonate-User.
func checkHops(r *http.Request) error {
	for _, value := range r.Header["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(option)) {
			case "", "close", "keep-alive", "upgrade":
			default:
				return badRequest("hops", "the header Connection must not name other headers")
			}
		}
	}
	return nil
}
