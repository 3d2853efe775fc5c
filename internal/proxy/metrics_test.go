package proxy

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tenure-dev/tenure/test/fixtures/testmetrics"
)

// registry collects the collectors that are registered.
type registry struct {
	prometheus.Registerer

	collectors []prometheus.Collector
}

func (r *registry) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}

// TestMetricsDocumented compares the metrics of the proxy with docs/how-to/operate.md.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	var registered registry
	if _, err := newMetrics(&registered); err != nil {
		t.Fatal(err)
	}
	proxys := func(metric string) bool { return strings.HasPrefix(metric, "tenure_proxy_") }
	testmetrics.Documented(t, proxys, registered.collectors...)
}
