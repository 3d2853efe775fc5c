package manager

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const movesTenant = `
{apiVersion: v1, kind: Namespace, metadata: {name: moves-home, labels: {capsule.clastix.io/tenant: moves}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: gitops, namespace: moves-home, annotations: {tenure.dev/kubeconfig: "true"}}}
---
{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: moves}, spec: {owners: [{kind: ServiceAccount, namespace: moves-home, name: gitops}]}}
`

// proxyMoves: a manager that is started with another address of the proxy writes it into
// the kubeconfigs that are there. What is in them before stays good.
func proxyMoves(t *testing.T, admin client.Client, direct, lowest *rest.Config, o Options) {
	t.Helper()
	trust(t, admin, direct, "")
	create(t, admin, movesTenant)
	var before string
	for _, address := range []string{"https://proxy-1.example.com:9001", "https://proxy-2.example.com:9443"} {
		o.ProxyURL = address
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, lowest, o) }()
		secret := issued(t, admin, "moves-home", before)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager for %s: %v", address, err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
		if err != nil || config.Host != address || string(config.CAData) != string(direct.CAData) {
			t.Fatalf("the kubeconfig leads to %v, want %s: %v", config, address, err)
		}
		if before != "" {
			old, err := clientcmd.RESTConfigFromKubeConfig([]byte(before))
			if err != nil {
				t.Fatal(err)
			}
			still := rest.CopyConfig(direct)
			still.CertData, still.KeyData, still.BearerToken = nil, nil, old.BearerToken
			if who, err := whoIs(t.Context(), still); err != nil || who != "system:serviceaccount:moves-home:gitops" {
				t.Errorf("the token from before the move is of %q: %v", who, err)
			}
		}
		before = string(secret.Data["kubeconfig"])
	}
}
