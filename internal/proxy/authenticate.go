package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	tokencache "k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
)

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

// identities authenticates callers. It sends a review with the caller's own token, so that
// the proxy needs no right for it and the API server alone decides.
type identities struct {
	host   *url.URL
	client http.RoundTripper // has no credentials of its own
	tokens authenticator.Token
	rights *utilcache.LRUExpireCache
	count  func(hit bool)
	now    func() time.Time
	// accept refuses users without an identity: see named.
	accept func(user.Info) (user.Info, error)
}

func newIdentities(host *url.URL, client http.RoundTripper, count func(hit bool)) *identities {
	i := &identities{host: host, client: client, rights: utilcache.NewLRUExpireCache(impersonations), count: count, now: time.Now, accept: named}
	// The cache stores hashes of tokens under a random key, and sends one review for
	// concurrent requests with the same token.
	i.tokens = tokencache.New(authenticator.TokenFunc(i.review), false, tokenTTL, invalidTTL)
	return i
}

// errDenied reports that the API server answered a review with 401 or 403.
var errDenied = errors.New("the API server does not take the token")

// review asks the API server for the user of a token.
func (i *identities) review(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	i.count(false)
	answer := &authenticationv1.SelfSubjectReview{}
	err := i.ask(ctx, token, selfReviewPath, &authenticationv1.SelfSubjectReview{}, answer)
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

// who returns the user of a token, or a refusal if the token is not valid.
func (i *identities) who(ctx context.Context, token string) (user.Info, error) {
	i.count(true) // counts every lookup; review counts the cache misses
	answer, ok, err := i.tokens.AuthenticateToken(ctx, token)
	if err != nil {
		return nil, unavailable(err)
	}
	if !ok {
		return nil, unauthorized("token")
	}
	who := answer.User
	if b, ok := who.(*bearer); ok {
		if b.expired(i.now()) {
			return nil, unauthorized("token")
		}
		who = b.Info
	}
	return i.accept(who)
}

// named refuses a user without a name and the anonymous user.
func named(who user.Info) (user.Info, error) {
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

// certified returns the user of a client certificate, by the API server's rules.
func certified(certificate *x509.Certificate) (user.Info, error) {
	subject := certificate.Subject
	if slices.Contains(subject.Organization, user.SystemPrivilegedGroup) {
		return nil, forbidden("masters", "the proxy does not impersonate group %s", user.SystemPrivilegedGroup)
	}
	return named(&user.DefaultInfo{Name: subject.CommonName, Groups: append(slices.Clone(subject.Organization), user.AllAuthenticated)})
}

// mayBe checks that the user of the token may impersonate the user, each group, the UID
// and the extras. It caches the result for 5 s.
func (i *identities) mayBe(ctx context.Context, token string, who user.Info, as *impersonation) error {
	attributes, err := as.attributes()
	if err != nil {
		return err
	}
	key, err := json.Marshal([]any{who.GetName(), who.GetUID(), who.GetGroups(), who.GetExtra(), attributes})
	if err != nil {
		return unavailable(err)
	}
	sum := sha256.Sum256(key)
	if _, known := i.rights.Get(sum); known {
		return nil
	}
	for _, a := range attributes {
		answer := &authorizationv1.SelfSubjectAccessReview{}
		question := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		err := i.ask(ctx, token, accessReviewPath, question, answer)
		if errors.Is(err, errDenied) {
			return unauthorized("token")
		}
		if err != nil {
			return unavailable(err)
		}
		if !answer.Status.Allowed || answer.Status.Denied {
			return forbidden("impersonation", "User %q cannot impersonate resource %q in API group %q: %q", who.GetName(), a.Resource, a.Group, a.Name)
		}
	}
	i.rights.Add(sum, true, impersonationTTL)
	return nil
}

// attributes returns the rights that the impersonation needs, as
// k8s.io/apiserver/pkg/endpoints/filters/impersonation checks them.
func (as *impersonation) attributes() ([]authorizationv1.ResourceAttributes, error) {
	all := []authorizationv1.ResourceAttributes{{Verb: "impersonate", Resource: "users", Name: as.user}}
	if namespace, name, err := serviceaccount.SplitUsername(as.user); err == nil {
		all[0] = authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: name}
	}
	for _, g := range as.groups {
		all = append(all, authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "groups", Name: g})
	}
	const group = authenticationv1.GroupName
	if as.uid != "" {
		all = append(all, authorizationv1.ResourceAttributes{Verb: "impersonate", Group: group, Resource: "uids", Name: as.uid})
	}
	for escaped, values := range as.extra {
		key, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, badRequest("impersonation", "the header Impersonate-Extra-%s is not well escaped", escaped)
		}
		for _, v := range values {
			all = append(all, authorizationv1.ResourceAttributes{Verb: "impersonate", Group: group, Resource: "userextras", Subresource: key, Name: v})
		}
	}
	if len(all) > maxImpersonated {
		return nil, badRequest("impersonation", "the request impersonates %d things, which is more than %d", len(all), maxImpersonated)
	}
	slices.SortFunc(all, func(a, b authorizationv1.ResourceAttributes) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// ask posts a review with the caller's token and decodes the answer.
func (i *identities) ask(ctx context.Context, token, path string, question, answer runtime.Object) error {
	body, err := runtime.Encode(protobufCodec, question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.host.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
	request.Header.Set("Accept", runtime.ContentTypeProtobuf)
	request.Header.Set("User-Agent", agent)
	response, err := i.client.RoundTrip(request)
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

// callerOf returns the user of the credential of a request.
func (p *Proxy) callerOf(ctx context.Context, c *requestCall) (user.Info, error) {
	if c.caller == nil {
		c.caller = c.credential.certified
	}
	if c.caller != nil {
		return c.caller, nil
	}
	who, err := p.identities.who(ctx, c.credential.token)
	if err != nil {
		return nil, err
	}
	c.caller = who
	return who, nil
}

// identity returns the user of a request after impersonation. The proxy's answers depend on
// this user.
func (p *Proxy) identity(ctx context.Context, c *requestCall) (user.Info, error) {
	who, err := p.callerOf(ctx, c)
	if err != nil || c.as == nil {
		return who, err
	}
	if err := p.mayBe(ctx, c.credential.token, who, c.as); err != nil {
		return nil, err
	}
	c.acting, err = c.as.identity()
	return c.acting, err
}

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
