package manager

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// TestMetricsDocumented compares the metrics of the manager with docs/how-to/operate.md.
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
	for _, row := range regexp.MustCompile("(?m)^\\| `(tenure_[a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if !regexp.MustCompile(`^tenure_proxy_`).MatchString(row[1]) {
			want = append(want, row[1])
		}
	}
	descriptions := make(chan *prometheus.Desc, 10)
	for _, metric := range []prometheus.Collector{profileValid, tenants, tenantNamespaces} {
		metric.Describe(descriptions)
	}
	close(descriptions)
	var got []string
	for d := range descriptions {
		got = append(got, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("the page documents %v, the manager has %v", want, got)
	}
}
