// Package caller makes sure that only the API server calls the webhooks. An API server
// does not identify itself to a webhook, unless its operator gives it a client
// certificate, which managed clusters do not. So the path of a webhook ends with a
// secret. Only the webhook configurations, which tenants cannot read, and the Secret of
// the webhooks' certificate hold it.
//
// An API server that cannot reach a webhook writes the path into the error for its user.
// So each replica creates a new path when it starts, and replaces a path that has been in
// use for an hour.
package caller

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tenure-dev/tenure/internal/process"
)

const (
	// interval is the time between two reads of the Secret. retry is the time until the next attempt after
	// a failure.
	interval, retry = time.Minute, 2 * time.Second
	// rotation is the time for which the API server calls a path. overlap is the time for which replicas
	// accept the path after that: longer than a replica or an API server needs to learn the next path.
	rotation, overlap = time.Hour, 2 * interval
	// lookAgain is the minimum time between two reads of the Secret that unknown paths
	// cause, and lookTimeout the maximum time of such a read.
	lookAgain, lookTimeout = time.Second, 5 * time.Second
	// key is the key of the paths in the Secret.
	key = "paths"
)

// path is a secret path.
type path struct {
	Secret string `json:"secret"`
	// Since is the time when the path was created, and Until the time when replicas stop accepting it; zero
	// means never.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
}

// Keeper rotates the paths, and accepts requests that use them. It runs in each replica.
type Keeper struct {
	// Client reads and writes through the API server, without a cache.
	Client client.Client
	// Namespace and Secret name the Secret with the paths, which must exist.
	Namespace, Secret string
	// Publish writes the path that the API server calls into the webhook configurations. The Keeper calls
	// it after each read of the Secret.
	Publish func(ctx context.Context, secret string) error
	// Now returns the time.
	Now func() time.Time

	mu    sync.Mutex
	known []path
	read  time.Time
	once  sync.Once
	first chan struct{}
}

// Published returns a channel that is closed after the first path is in the webhook configurations.
func (k *Keeper) Published() <-chan struct{} {
	k.once.Do(func() { k.first = make(chan struct{}) })
	return k.first
}

// NeedLeaderElection returns false: each replica needs the paths.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Start keeps the paths up to date until the context ends. It logs errors and retries, and always returns
// nil.
func (k *Keeper) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx).WithName("caller")
	for started := false; ; {
		wait := interval
		if err := k.keep(ctx, !started); err != nil {
			log.Error(err, "the webhooks may not be called", "secret", k.Secret)
			wait = retry
		} else {
			if !started {
				k.Published()
				close(k.first)
			}
			started = true
		}
		if !process.Pause(ctx, wait) {
			return nil
		}
	}
}

// keep updates the Secret and then the webhook configurations, in this order, so that
// replicas accept each path that the API server calls.
func (k *Keeper) keep(ctx context.Context, renew bool) error {
	for {
		secret := &corev1.Secret{}
		paths, err := k.get(ctx, secret)
		if err != nil {
			return err
		}
		now := k.Now()
		if !renew && len(paths) > 0 && now.Sub(paths[0].Since) < rotation {
			return k.Publish(ctx, paths[0].Secret)
		}
		paths = slices.DeleteFunc(paths, func(p path) bool { return !p.Until.IsZero() && now.After(p.Until) })
		if len(paths) > 0 && paths[0].Until.IsZero() {
			paths[0].Until = now.Add(overlap)
		}
		paths = slices.Insert(paths, 0, path{Secret: strings.ToLower(rand.Text()), Since: now})
		value, err := json.Marshal(paths) //nolint:gosec // it is written into the Secret that keeps it
		if err != nil {
			return fmt.Errorf("cannot write the paths of the webhooks: %w", err)
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = value
		err = k.Client.Update(ctx, secret)
		if err == nil {
			k.set(paths)
			return k.Publish(ctx, paths[0].Secret)
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("cannot write the paths of the webhooks into Secret %s/%s: %w", k.Namespace, k.Secret, err)
		}
	}
}

// get returns the paths in the Secret, or an error if it cannot read the Secret. If it cannot parse the
// paths, it returns none, and the caller creates new ones.
func (k *Keeper) get(ctx context.Context, secret *corev1.Secret) ([]path, error) {
	if err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Secret}, secret); err != nil {
		return nil, fmt.Errorf("cannot read the paths of the webhooks in Secret %s/%s: %w", k.Namespace, k.Secret, err)
	}
	var paths []path
	if err := json.Unmarshal(secret.Data[key], &paths); err != nil {
		return nil, nil //nolint:nilerr // an empty Secret, or one that somebody changed
	}
	k.set(paths)
	return paths, nil
}

func (k *Keeper) set(paths []path) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known, k.read = slices.Clone(paths), k.Now()
}

// accepts reports whether callers may use a path, and whether the keeper should read the
// Secret again because it may have a newer path.
func (k *Keeper) accepts(secret string) (accepted, unsure bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Now()
	for _, p := range k.known {
		if subtle.ConstantTimeCompare([]byte(p.Secret), []byte(secret)) == 1 && p.Secret != "" {
			return p.Until.IsZero() || now.Before(p.Until), false
		}
	}
	if now.Sub(k.read) < lookAgain {
		return false, false
	}
	k.read = now
	return false, true
}

// errUnknown is the error for a caller that did not prove to be the API server.
var errUnknown = errors.New("not found")

// Only returns a handler that passes a request on if its path is the prefix with a valid secret,
// and rejects all other requests.
func (k *Keeper) Only(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret, ok := strings.CutPrefix(r.URL.Path, prefix+"/")
		accepted, unsure := false, false
		if ok {
			accepted, unsure = k.accepts(secret)
		}
		if unsure {
			// The read continues if the client leaves. Otherwise a client that always leaves would use up the reads, and
			// the replica would not find out about a new path for a minute.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), lookTimeout)
			defer cancel()
			if _, err := k.get(ctx, &corev1.Secret{}); err == nil {
				accepted, _ = k.accepts(secret)
			}
		}
		if !accepted {
			http.Error(w, errUnknown.Error(), http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
	})
}
