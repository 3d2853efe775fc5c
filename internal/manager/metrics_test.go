package manager

import (
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testmetrics"
)

// TestMetricsDocumented compares the metrics of the manager with docs/how-to/operate.md.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	managers := func(metric string) bool { return !strings.HasPrefix(metric, "tenure_proxy_") }
	testmetrics.Documented(t, managers, profileValid, tenants, tenantNamespaces)
}
