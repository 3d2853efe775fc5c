package manager

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tenure-dev/tenure/test/fixtures/testmetrics"
)

// TestMetricsDocumented compares the metrics of the manager with docs/how-to/operate.md.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	managers := func(metric string) bool { return !strings.HasPrefix(metric, "tenure_proxy_") }
	testmetrics.Documented(t, managers, profileValid, tenants, tenantNamespaces)
}

// TestMetricsServer reads the metrics, and sends a header that is too large.
func TestMetricsServer(t *testing.T) {
	t.Parallel()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrlmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	if err := addMetrics(t.Context(), mgr, address); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	status := func(header string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Large", header)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if small, large := status("x"), status(strings.Repeat("x", 64<<10)); small != http.StatusOK || large != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d, and %d with a header of 64 KiB", small, large)
	}
}
