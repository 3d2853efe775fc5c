package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/proxy/budget"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stalling is a body that stops before its last byte.
type stalling struct {
	left    int
	stalled func()
	ctx     context.Context
}

// Read implements io.Reader.
func (s *stalling) Read(p []byte) (int, error) {
	if s.left == 0 {
		s.stalled()
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	}
	n := min(len(p), s.left)
	copy(p, strings.Repeat(" ", n))
	s.left -= n
	return n, nil
}

// memoryLimit returns the memory limit of the proxy's Deployment, in bytes.
func memoryLimit(t *testing.T) uint64 {
	t.Helper()
	objects, err := flux.ReadObjects(config.Proxy())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			limit, _, _ := unstructured.NestedString(c.(map[string]any), "resources", "limits", "memory")
			if bytes, err := resource.ParseQuantity(limit); err == nil {
				return uint64(bytes.Value())
			}
		}
	}
	t.Fatal("the proxy's Deployment has no limit of memory")
	return 0
}

// inUse returns the memory of the process after a garbage collection, in bytes.
func inUse() uint64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapInuse + memory.StackInuse
}

// usedByTest returns the memory that the clients and the server of the test use for a
// number of watches, without a proxy between them.
func usedByTest(t *testing.T, address string, watches int) uint64 {
	t.Helper()
	before := inUse()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var bodies sync.Map
	group := errgroup.Group{}
	group.SetLimit(50)
	for i := range watches {
		group.Go(func() error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/?watch=true", nil)
			if err != nil {
				return err
			}
			response, err := transport.RoundTrip(r)
			if err == nil {
				bodies.Store(i, response.Body)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	used := inUse()
	cancel()
	bodies.Range(func(_, body any) bool {
		_ = body.(io.Closer).Close()
		return true
	})
	return used - min(used, before)
}

// TestMemory checks that the proxy stays within the memory of its container, with four
// users with a hundred slow requests each and ten users with a thousand watches each. It
// measures the memory of the test's clients and server for as many watches without the
// proxy, and subtracts it; their memory for the slow requests counts. The test is not
// parallel, because the memory of other tests would count.
func TestMemory(t *testing.T) { //nolint:paralleltest // see above
	const slowUsers, slowRequests, watchers, watches = 4, 100, 10, 1000
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	t.Cleanup(upstream.Close)
	own := usedByTest(t, upstream.URL, watchers*watches)
	s := fronting(t, upstream, Options{})
	s.proxy.timeouts.body = time.Hour // longer than the test
	ctx, cancel := context.WithCancel(t.Context())
	var open sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		open.Wait()
	})

	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	var stalled, refused atomic.Int64
	for i := range slowUsers * slowRequests {
		open.Go(func() {
			var once sync.Once
			body := &stalling{left: maxAccessReview - 1, ctx: ctx, stalled: func() { once.Do(func() { stalled.Add(1) }) }}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+accessReviewPath, body)
			if err != nil {
				t.Error(err)
				return
			}
			r.ContentLength = maxAccessReview
			r.Header.Set("Authorization", fmt.Sprintf("Bearer slow-%d", i%slowUsers))
			response, err := transport.RoundTrip(r)
			switch {
			case err == nil:
				defer response.Body.Close()
				if response.StatusCode != http.StatusTooManyRequests {
					t.Errorf("a slow request: got %s", response.Status)
				}
				refused.Add(1)
			case !errors.Is(err, context.Canceled):
				// The proxy answers before it has read the body, and the client may not see
				// the answer.
				refused.Add(1)
			}
		})
	}
	limits := budget.Default()
	testwait.For(t, "the slow requests to be held or refused", patience, func() (bool, string) {
		taken := s.proxy.memory.Taken()
		return stalled.Load() == slowUsers*slowRequests && taken >= slowUsers*slowRequests*(maxAccessReview-1),
			fmt.Sprint(stalled.Load(), " stalled, ", refused.Load(), " refused, ", taken, " bytes taken")
	})

	streams := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	watch := func(user string) (int, error) {
		r := s.request(t, http.MethodGet, "/api/v1/namespaces/a/pods?watch=true", user)
		response, err := streams.RoundTrip(r.WithContext(ctx))
		if err != nil {
			return 0, err
		}
		open.Go(func() {
			<-ctx.Done()
			_ = response.Body.Close()
		})
		return response.StatusCode, nil
	}
	group := errgroup.Group{}
	group.SetLimit(50)
	for i := range watchers * watches {
		group.Go(func() error {
			if code, err := watch(fmt.Sprintf("watcher-%d", i%watchers)); err != nil || code != http.StatusOK {
				return fmt.Errorf("watch %d: got %d, %w", i, code, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if code, err := watch("another"); err != nil || code != http.StatusTooManyRequests {
		t.Errorf("one watch more: got %d, %v", code, err)
	}
	if taken := s.proxy.memory.Taken(); taken > limits.All {
		t.Errorf("%d bytes are taken, of %d", taken, limits.All)
	}
	used, limit := inUse(), memoryLimit(t)
	used -= min(used, own)
	t.Logf("%d MiB of %d MiB are used, and %d MiB by the test itself; %d requests stalled, %d refused", used>>20, limit>>20, own>>20, stalled.Load(), refused.Load())
	if used > limit {
		t.Errorf("%d bytes are used, of %d", used, limit)
	}
}
