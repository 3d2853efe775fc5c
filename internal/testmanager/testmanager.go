// Package testmanager runs the manager in the process of a test, with the rights that
// it has in a cluster.
package testmanager

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-dev/tenure/internal/server/manager"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Run starts the manager, with the layer for Capsule and without the webhook, until the
// process ends: other tests share it. It has a token of its own account, whose rights
// have to be there, since who is impersonated would not show what impersonation takes.
// Run returns the manager's configuration, and where the error is found with which it
// has ended.
func Run(t *testing.T, admin *rest.Config) (own *rest.Config, ended *atomic.Value) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts("flux-system").CreateToken(t.Context(), "tenure-manager", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own = rest.AnonymousClientConfig(admin)
	own.BearerToken = token.Status.Token
	ended = &atomic.Value{}
	go func() {
		err := manager.Run(context.Background(), own, manager.Options{
			MetricsAddr: "0", HealthAddr: "0", WebhookAddr: "0", Namespace: "flux-system", Instance: "test", Capsule: true,
		})
		ended.Store(fmt.Sprint(err))
	}()
	return own, ended
}
