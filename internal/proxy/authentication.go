package proxy

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
)

// withAuthentication finds out who sent a request, from its credential.
func (p *Proxy) withAuthentication(next http.Handler) http.Handler {
	return handler(func(w *recorder, r *http.Request, c *requestCall) error {
		c.caller = c.credential.certificateUser
		if c.caller == nil {
			who, err := p.authenticate(r.Context(), c)
			if err != nil {
				return err
			}
			c.caller = who
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// authenticate returns the user of a token. It limits the long-running requests that wait for a
// review of their token, because each unknown token causes a request to the API server and
// withInFlightLimit does not count long-running requests.
func (p *Proxy) authenticate(ctx context.Context, c *requestCall) (user.Info, error) {
	if !c.longRunning() {
		return p.reviews.user(ctx, c.credential.token)
	}
	if !p.entering.take("", 1) {
		return nil, tooMany("in-flight", "the proxy has too many requests, try again later")
	}
	defer p.entering.giveBack("", 1)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return p.reviews.user(ctx, c.credential.token)
}

const (
	// tokenTTL and invalidTTL are how long the results of valid and invalid tokens are
	// cached. A revoked token is accepted for at most tokenTTL.
	tokenTTL, invalidTTL = 10 * time.Second, time.Second
	// impersonationTTL is how long a right to impersonate is cached.
	impersonationTTL = 5 * time.Second
	// impersonations is the maximum number of cached rights to impersonate.
	impersonations = 4096
	// maxReview is the maximum size of the answer to a review, in bytes.
	maxReview = 1 << 20
	// maxImpersonated is the maximum number of rights to impersonate that one request may
	// need. The proxy sends one access review to the API server for each right.
	maxImpersonated = 64
)

const (
	selfReviewPath   = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	accessReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

// reviews asks the API server about callers. It sends each review with the caller's own token, so that
// the proxy needs no right for it and the API server alone decides.
type reviews struct {
	host   *url.URL
	client http.RoundTripper // has no credentials of its own
	tokens authenticator.Token
	rights *utilcache.LRUExpireCache
	count  func(hit bool)
	now    func() time.Time
	// accept refuses users without an identity: see rejectAnonymous.
	accept func(user.Info) (user.Info, error)
}

func newReviews(host *url.URL, client http.RoundTripper, count func(hit bool)) *reviews {
	v := &reviews{host: host, client: client, rights: utilcache.NewLRUExpireCache(impersonations), count: count, now: time.Now, accept: rejectAnonymous}
	// The cache stores hashes of tokens under a random key, and sends one review for
	// concurrent requests with the same token.
	v.tokens = tokencache.New(authenticator.TokenFunc(v.reviewToken), false, tokenTTL, invalidTTL)
	return v
}

// errDenied reports that the API server answered a review with 401 or 403.
var errDenied = errors.New("the API server does not accept the token")

// reviewToken asks the API server for the user of a token.
func (v *reviews) reviewToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	v.count(false)
	answer := &authenticationv1.SelfSubjectReview{}
	err := v.post(ctx, token, selfReviewPath, &authenticationv1.SelfSubjectReview{}, answer)
	if errors.Is(err, errDenied) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	info := answer.Status.UserInfo
	extra := map[string][]string{}
	for key, values := range info.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &bearer{
		Info:    &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra},
		expires: expiry(token),
	}}, true, nil
}

// bearer is the user of a token, with the expiry of the token.
type bearer struct {
	user.Info
	// expires is the expiry in the token, in seconds since 1970; 0 if the token has none.
	expires float64
}

// expired reports whether the token has expired since the API server reviewed it.
func (b *bearer) expired(now time.Time) bool {
	return b.expires > 0 && float64(now.Unix()) >= b.expires
}

// user returns the user of a token, or a refusal if the token is not valid.
func (v *reviews) user(ctx context.Context, token string) (user.Info, error) {
	v.count(true) // counts every lookup; reviewToken counts the cache misses
	answer, ok, err := v.tokens.AuthenticateToken(ctx, token)
	if err != nil {
		return nil, unavailable(err)
	}
	if !ok {
		return nil, unauthorized("token")
	}
	who := answer.User
	if b, ok := who.(*bearer); ok {
		if b.expired(v.now()) {
			return nil, unauthorized("token")
		}
		who = b.Info
	}
	return v.accept(who)
}

// rejectAnonymous refuses a user without a name and the anonymous user.
func rejectAnonymous(who user.Info) (user.Info, error) {
	if who.GetName() == "" || who.GetName() == user.Anonymous || slices.Contains(who.GetGroups(), user.AllUnauthenticated) {
		return nil, unauthorized("anonymous")
	}
	return who, nil
}

// expiry returns the claim exp of a token, in seconds since 1970; 0 if the token has none.
// The claim is not verified: the proxy uses it only to refuse a token.
func expiry(token string) float64 {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return 0
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return 0
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return 0
	}
	return claims.Expires
}

// userOfCertificate returns the user of a client certificate, by the API server's rules.
func userOfCertificate(certificate *x509.Certificate) (user.Info, error) {
	subject := certificate.Subject
	if slices.Contains(subject.Organization, user.SystemPrivilegedGroup) {
		return nil, forbidden("masters", "the proxy does not impersonate group %s", user.SystemPrivilegedGroup)
	}
	names := subject.Organization
	if subject.CommonName != "" { // rejectAnonymous refuses it
		names = append(slices.Clone(names), subject.CommonName)
	}
	// The API server gets the names in headers.
	if slices.ContainsFunc(names, func(name string) bool { return !isFieldValue(name) }) {
		return nil, forbidden("certificate", "the user or a group of the certificate is empty, or has a control character or a space at its begin or end")
	}
	return rejectAnonymous(&user.DefaultInfo{Name: subject.CommonName, Groups: append(slices.Clone(subject.Organization), user.AllAuthenticated)})
}

// expiryOfChains returns the time until which one of the chains of a certificate is valid.
func expiryOfChains(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		first := chain[0].NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(first) {
				first = c.NotAfter
			}
		}
		if first.After(last) {
			last = first
		}
	}
	return last
}

// post sends a review with the caller's token and decodes the answer.
func (v *reviews) post(ctx context.Context, token, path string, review, answer runtime.Object) error {
	body, err := runtime.Encode(protobufCodec, review)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, v.host.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	request.Header.Set("User-Agent", agent)
	response, err := v.client.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxReview))
	switch {
	case err != nil:
		return err
	case response.StatusCode == http.StatusUnauthorized, response.StatusCode == http.StatusForbidden:
		return errDenied
	case response.StatusCode != http.StatusCreated:
		return fmt.Errorf("a review was answered with %s", response.Status)
	}
	return runtime.DecodeInto(protobufCodec, content, answer)
}

// credential is the credential of a request: a token or a client certificate, never both.
type credential struct {
	// token is a bearer token, from the header Authorization or from the subprotocols of a
	// websocket.
	token string
	// bearer is true if the token was in the header Authorization. The proxy passes the
	// subprotocols of a websocket on unchanged.
	bearer bool
	// certificateUser is the user of a verified client certificate; nil if there is a token.
	certificateUser user.Info
	// expires is the expiry of the client certificate.
	expires time.Time
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
		who, err := userOfCertificate(r.TLS.VerifiedChains[0][0])
		if err != nil {
			return credential{}, err
		}
		expires := expiryOfChains(r.TLS.VerifiedChains)
		if time.Now().After(expires) { // a connection can last longer than its certificate
			return credential{}, unauthorized("certificate")
		}
		found = append(found, credential{certificateUser: who, expires: expires})
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
			if strings.EqualFold(textproto.TrimString(option), "upgrade") {
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
			switch strings.ToLower(textproto.TrimString(option)) {
			case "", "close", "keep-alive", "upgrade":
			default:
				return badRequest("hops", "the header Connection must not name other headers")
			}
		}
	}
	return nil
}
