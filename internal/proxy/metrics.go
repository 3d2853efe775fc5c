package proxy

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests   *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	refusals   *prometheus.CounterVec
	identities *prometheus.CounterVec
	watches    prometheus.Gauge
}

// newMetrics returns registered metrics. A client cannot choose the value of any label.
func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_proxy_requests_total",
			Help: "Number of requests by how they were answered (passed, filtered, reviewed, refused) and by status code.",
		}, []string{"answer", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "tenure_proxy_request_duration_seconds",
			Help:    "Duration of requests by how they were answered, without watches, upgrades and logs.",
			Buckets: []float64{.001, .002, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60},
		}, []string{"answer"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_proxy_refusals_total",
			Help: "Number of requests that the proxy itself has refused by reason.",
		}, []string{"reason"}),
		identities: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenure_proxy_identity_lookups_total",
			Help: "Number of lookups of the user of a token (all), and of those lookups that asked the API server (asked).",
		}, []string{"lookup"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tenure_proxy_watches",
			Help: "Number of watches that are open.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.durations, m.refusals, m.identities, m.watches} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) lookup(any bool) {
	if any {
		m.identities.WithLabelValues("all").Inc()
		return
	}
	m.identities.WithLabelValues("asked").Inc()
}

func (m *metrics) request(answer string, code int, took time.Duration, long bool) {
	m.requests.WithLabelValues(answer, strconv.Itoa(code)).Inc()
	if !long {
		m.durations.WithLabelValues(answer).Observe(took.Seconds())
	}
}
