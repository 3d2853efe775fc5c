package catalog

import (
	"context"
	"net/http"
)

func addImpersonationProxy(register func(...Attack)) {
	register(Attack{
		ID: "I8", Via: Proxy, Owners: OwnersAccounts,
		Kinds:    []string{"ServiceAccount/token"},
		Title:    "acts as another account at the proxy, by impersonation or with a new token of that account",
		Controls: []string{"the proxy, which uses the caller's rights", "RBAC"},
		Fix:      Fix{Advice: proxyAdvice + ": whoever asks to be somebody else needs the right impersonate of their own, for all of what they ask to be"},
		Run:      onProxy(actingAsVictim),
	})
}

// proxyAdvice is the advice for all attacks that a proxy lets through although the API server would stop
// them.
const proxyAdvice = "lead tenants to the proxy as config/proxy installs it, and let nothing that stands before or behind it pass requests on with rights of its own"

func actingAsVictim(_ context.Context, c *proxyClient) ([]rawRequest, error) {
	v := c.scenario.Victim
	victim := "system:serviceaccount:" + v.Namespace + ":" + v.Account
	own := "/api/v1/namespaces/" + v.Namespace
	as := func(header ...[2]string) func(what, path string) rawRequest {
		return func(what, path string) rawRequest {
			return rawRequest{what: what, path: path, token: c.token, header: header}
		}
	}
	return []rawRequest{
		as([2]string{"Impersonate-User", victim})("list namespaces as an account of another tenant", namespacesPath),
		as([2]string{"Impersonate-User", victim})("read a Secret as an account of another tenant", own+"/secrets/"+v.Secret),
		as([2]string{"Impersonate-User", c.who.User()}, [2]string{"Impersonate-Group", "system:serviceaccounts:" + v.Namespace})("be in the group of another tenant's accounts", namespacesPath),
		{
			what: "make a token for an account of another tenant", method: http.MethodPost, token: c.token,
			path: own + "/serviceaccounts/" + v.Account + "/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`,
		},
	}, nil
}
