package manager

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tenure-dev/tenure/internal/manager/profile"
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
