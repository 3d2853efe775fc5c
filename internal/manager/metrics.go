package manager

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/internal/manager/profile"
	"github.com/tenure-dev/tenure/internal/process/httpserver"
)

// Metrics of the last reconciliation of the profile, in addition to controller-runtime's.
var (
	profileValid = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tenure_profile_valid",
		Help: "1 when there is a TenancyProfile that can be in force, otherwise 0.",
	})
	tenants = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tenure_tenants",
		Help: "Number of tenants that have a namespace.",
	})
	tenantNamespaces = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tenure_tenant_namespaces",
		Help: "Number of namespaces of tenants by whether the TenancyProfile is in force there: in-force, failed, pending.",
	}, []string{"state"})
)

func init() {
	metrics.Registry.MustRegister(profileValid, tenants, tenantNamespaces)
}

// addMetrics serves the metrics at an address, and nothing for "0". Flux's network policies let every Pod of the
// cluster reach this port, and controller-runtime's own server has no bounds for such clients. addMetrics returns an error if it
// cannot listen at the address.
func addMetrics(ctx context.Context, mgr ctrlmanager.Manager, address string) error {
	if address == "0" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("cannot serve the metrics: %w", err)
	}
	paths := http.NewServeMux()
	paths.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	return mgr.Add(&ctrlmanager.Server{
		Name: "metrics", Server: httpserver.New(ctx, paths), Listener: httpserver.Limit(listener), ShutdownTimeout: new(shutdownTimeout),
	})
}

// count sets the metrics.
func count(c profile.Counts) {
	valid := 0.0
	if c.Valid {
		valid = 1
	}
	profileValid.Set(valid)
	tenants.Set(float64(c.Tenants))
	tenantNamespaces.WithLabelValues("in-force").Set(float64(c.InForce))
	tenantNamespaces.WithLabelValues("failed").Set(float64(c.Failed))
	tenantNamespaces.WithLabelValues("pending").Set(float64(c.Namespaces - c.InForce - c.Failed))
}
