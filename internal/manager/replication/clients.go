package replication

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/tenure-dev/tenure/internal/tenancy/replication"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxClients is the maximum number of cached clients.
const maxClients = 1024

// Impersonators makes clients that act as service accounts by impersonation. They
// share one connection and one rate limit, and do not read from a cache.
type Impersonators struct {
	config *rest.Config
	mapper apimeta.RESTMapper

	mu   sync.Mutex
	made map[replication.Account]client.Client
}

// NewImpersonators returns Impersonators for a configuration whose user may impersonate the
// accounts.
func NewImpersonators(config *rest.Config, mapper apimeta.RESTMapper) *Impersonators {
	config = rest.CopyConfig(config)
	if config.RateLimiter == nil && config.QPS > 0 {
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	}
	return &Impersonators{config: config, mapper: mapper, made: map[replication.Account]client.Client{}}
}

// As returns a client that impersonates a service account. It returns an error for an invalid name
// of a service account, so that it never impersonates other users.
func (i *Impersonators) As(account replication.Account) (client.Client, error) {
	if problem := replication.WrongAccount(account); problem != "" {
		return nil, fmt.Errorf("%s/%s cannot be a service account: %s", account.Namespace, account.Name, problem)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if c, ok := i.made[account]; ok {
		return c, nil
	}
	config := rest.CopyConfig(i.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + account.Namespace + ":" + account.Name}
	var transport *http.Client
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot act as account %s/%s: %w", account.Namespace, account.Name, err)
	}
	// Objects are read and written untyped.
	c, err := client.New(config, client.Options{HTTPClient: transport, Mapper: i.mapper, Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("cannot act as account %s/%s: %w", account.Namespace, account.Name, err)
	}
	if len(i.made) >= maxClients {
		clear(i.made)
	}
	i.made[account] = c
	return c, nil
}
