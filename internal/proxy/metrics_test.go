package proxy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// registered collects the names of metrics.
type registered struct {
	prometheus.Registerer

	names []string
}

func (r *registered) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 10)
	c.Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		r.names = append(r.names, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	return nil
}

// TestMetricsDocumented compares the metrics of the proxy with docs/how-to/operate.md.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "operate.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(tenure_proxy_[a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		want = append(want, row[1])
	}
	var got registered
	if _, err := newMetrics(&got); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got.names)
	if !slices.Equal(want, got.names) {
		t.Errorf("the page documents %v, the proxy has %v", want, got.names)
	}
}
