package catalog

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/process/pki"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func addProxyAuthentication(register func(...Attack)) {
	register(Attack{
		ID: "I14", Via: Proxy, Owners: OwnersAccounts,
		Kinds:      []string{},
		Title:      "is accepted by the proxy without an identity, as another user or as system:masters, by headers that are missing, forged or removed on the way",
		Controls:   []string{"the proxy, which refuses a request without exactly one proven identity, and applies or refuses each header about identities"},
		References: []string{"CVE-2022-23652", "CVE-2023-48312"},
		Fix:        Fix{Advice: proxyAdvice + ": a request without exactly one valid credential goes nowhere, and no header about identities is dropped"},
		Run: onProxy(func(ctx context.Context, c *proxyClient) ([]rawRequest, error) {
			uids, err := c.victimUIDs(ctx)
			if err != nil {
				return nil, err
			}
			all := c.impersonating()
			all = append(all, c.frontProxied(c.showsBeyondRights(seesNamespace(c.scenario.Victim.Namespace), uids...))...)
			tokens, err := c.badTokens(ctx)
			if err != nil {
				return nil, err
			}
			all = append(all, tokens...)
			certified, err := selfCertified()
			return append(append(all, c.websockets()...), certified), err
		}),
	})
}

// seesNamespace returns the right to get a namespace.
func seesNamespace(name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: "get", Resource: "namespaces", Namespace: name, Name: name}
}

// impersonating returns requests with identity headers that a proxy and an API server may parse
// differently. Each request names another identity than the caller's, so the proxy must refuse it.
func (c *proxyClient) impersonating() []rawRequest {
	const user, group, masters = "Impersonate-User", "Impersonate-Group", "system:masters"
	self, foreign := c.who.User(), "system:serviceaccounts:"+c.scenario.Victim.Namespace
	var all []rawRequest
	for _, k := range []struct {
		what   string
		header [][2]string
	}{
		{"be in system:masters", [][2]string{{user, self}, {group, masters}}},
		{"be in system:masters as the last of several groups", [][2]string{{user, self}, {group, "system:serviceaccounts"}, {group, masters}}},
		{"be in system:masters as the first of several groups", [][2]string{{user, self}, {group, masters}, {group, "system:serviceaccounts"}}},
		{"be in system:masters as one of a list", [][2]string{{user, self}, {group, "system:serviceaccounts, " + masters}}},
		{"be in system:masters without being anybody", [][2]string{{group, masters}}},
		{"be in system:masters by a header in lower case", [][2]string{{user, self}, {"impersonate-group", masters}}},
		{"be in system:masters by a header in upper case", [][2]string{{user, self}, {"IMPERSONATE-GROUP", masters}}},
		{"be in system:masters by a header with an underscore", [][2]string{{user, self}, {"Impersonate_Group", masters}}},
		{"be another tenant's by a group", [][2]string{{user, self}, {group, foreign}}},
		{"be an administrator", [][2]string{{user, "system:admin"}}},
		{"be a part of the control plane", [][2]string{{user, "system:kube-controller-manager"}}},
		{"be two users at a time", [][2]string{{user, self}, {user, "system:admin"}}},
		{"have a header about its identity that nobody knows passed over", [][2]string{{"Impersonate-Role", "cluster-admin"}}},
		{"have an empty impersonation passed over", [][2]string{{user, ""}}},
		{"have an impersonation of somebody with less passed over", [][2]string{{user, "tenure-attack-nobody"}}},
		{"have its impersonation taken off by the header Connection", [][2]string{{user, "tenure-attack-nobody"}, {"Connection", user}}},
		{"have its impersonation taken off by a header connection among others", [][2]string{{user, "tenure-attack-nobody"}, {"connection", "keep-alive, " + strings.ToLower(user)}}},
		{"have its token taken off by the header Connection", [][2]string{{"Connection", "Authorization"}}},
	} {
		all = append(all,
			rawRequest{what: k.what + ", in a list", path: namespacesPath, token: c.token, header: k.header},
			rawRequest{what: k.what + ", in a review", method: http.MethodPost, path: reviewPath, body: reviewBody, token: c.token, header: k.header})
	}
	return all
}

// frontProxied returns requests with the headers in which a front proxy names the caller. The
// proxy must ignore them in a client's request.
func (c *proxyClient) frontProxied(shows func(context.Context, rawResponse) (bool, error)) []rawRequest {
	header := [][2]string{{"X-Remote-User", "system:admin"}, {"x-remote-group", "system:masters"}, {"X-Remote-Extra-Scopes", "all"}, {"X-Forwarded-User", "system:admin"}}
	const what = "be somebody else by the headers of a front proxy"
	return []rawRequest{
		{what: what + ", in a list", path: namespacesPath, token: c.token, header: header, breach: shows},
		{what: what + ", in a review", method: http.MethodPost, path: reviewPath, body: reviewBody, token: c.token, header: header, breach: c.isSomebodyElse},
	}
}

// badTokens returns requests without a valid credential.
func (c *proxyClient) badTokens(ctx context.Context) ([]rawRequest, error) {
	elsewhere, err := c.scenario.tokenOf(ctx, c.who, authenticationv1.TokenRequestSpec{Audiences: []string{"https://elsewhere.example.com"}})
	if err != nil {
		return nil, err
	}
	ended, err := c.endedToken(ctx)
	if err != nil {
		return nil, err
	}
	head, signature := c.token[:strings.LastIndex(c.token, ".")+1], []byte(c.token[strings.LastIndex(c.token, ".")+1:])
	signature[0] ^= 1 // another letter of base64, or a character outside of base64
	encode := base64.RawURLEncoding.EncodeToString
	unsigned := encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(`{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:kube-system:default"}`)) + "."
	bearer := func(value string) [][2]string { return [][2]string{{"Authorization", value}} }
	var all []rawRequest
	for _, k := range []struct {
		what, token string
		header      [][2]string
	}{
		{"call without a token", "", nil},
		{"call with an empty token", "", bearer("Bearer ")},
		{"call with no token but the word Bearer", "", bearer("Bearer")},
		{"call with a password", "", bearer("Basic " + base64.StdEncoding.EncodeToString([]byte("admin:admin")))},
		{"call with a token that nobody has made", "nobodys", nil},
		{"call with a token whose signature is another", head + string(signature), nil},
		{"call with a token that is not signed", unsigned, nil},
		{"call with a token for another audience", elsewhere, nil},
		{"call with a token that has ended", ended, nil},
		{"call with two tokens", c.token, bearer("Bearer " + ended)},
		{"call as system:anonymous", "", [][2]string{{"Impersonate-User", "system:anonymous"}, {"Impersonate-Group", "system:masters"}}},
	} {
		for _, path := range []string{namespacesPath, "/version"} {
			all = append(all, rawRequest{what: k.what + ", with GET " + path, path: path, token: k.token, header: k.header})
		}
	}
	return all, nil
}

// endedToken returns a token of the victim that is no longer valid, because the object to which it was
// bound is deleted. An expired token is no option: the minimum lifetime is ten minutes.
func (c *proxyClient) endedToken(ctx context.Context) (string, error) {
	e := c.scenario
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Victim.Namespace, GenerateName: name("i14-")}}
	if err := e.Admin.Create(ctx, secret); err != nil {
		return "", fmt.Errorf("cannot create the Secret to which the token is bound: %w", err)
	}
	token, err := e.tokenOf(ctx, discovery.Account{Namespace: e.Victim.Namespace, Name: e.Victim.Account}, authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID},
	})
	if deleteErr := e.Admin.Delete(context.WithoutCancel(ctx), secret); err == nil && deleteErr != nil {
		err = fmt.Errorf("cannot end a token: %w", deleteErr)
	}
	return token, err
}

// websockets returns requests to upgrade to a WebSocket, with the token among the subprotocols.
func (c *proxyClient) websockets() []rawRequest {
	const prefix, protocol = "base64url.bearer.authorization.k8s.io.", "base64.binary.k8s.io"
	encode := base64.RawURLEncoding.EncodeToString
	var all []rawRequest
	for _, k := range []struct{ what, token, protocols string }{
		{"open a websocket without a token", "", protocol},
		{"open a websocket with an empty token", "", prefix + ", " + protocol},
		{"open a websocket with a token that nobody has made", "", prefix + encode([]byte("nobodys")) + ", " + protocol},
		{"open a websocket with two tokens", c.token, prefix + encode([]byte("nobodys")) + ", " + protocol},
		{"open a websocket with the same token twice", "", prefix + encode([]byte(c.token)) + ", " + prefix + encode([]byte(c.token)) + ", " + protocol},
	} {
		all = append(all, rawRequest{what: k.what, path: "/api/v1/namespaces?watch=true&timeoutSeconds=1", token: k.token, header: [][2]string{
			{"Connection", "Upgrade"}, {"Upgrade", "websocket"}, {"Sec-Websocket-Version", "13"}, {"Sec-Websocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="},
			{"Sec-Websocket-Protocol", k.protocols},
		}})
	}
	return all
}

// selfCertified returns a request with a self-signed client certificate that names an administrator.
func selfCertified() (rawRequest, error) {
	authority, err := pki.NewAuthority("tenure-attack")
	if err != nil {
		return rawRequest{}, err
	}
	pair, err := authority.Issue(pki.Request{CommonName: "system:admin", Organizations: []string{"system:masters"}})
	if err != nil {
		return rawRequest{}, err
	}
	certificate, err := pair.TLS()
	return rawRequest{what: "be an administrator by a certificate of its own making", path: namespacesPath, certificate: &certificate}, err
}
