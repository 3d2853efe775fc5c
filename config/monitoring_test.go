package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// operate returns the page about operation, which lists metrics and alerts.
func operate(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/how-to/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// monitoring reads a file of config/monitoring.
func monitoring(t *testing.T, name string, into any) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatal(err)
	}
	return content
}

// TestAlerts compares the PrometheusRule with the alerts of the documentation: the expressions, and
// how long they have to hold.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr, For string }
			}
		}
	}
	monitoring(t, "rules.yaml", &rules)
	var got, want []string
	for _, group := range rules.Spec.Groups {
		for _, rule := range group.Rules {
			got = append(got, strings.TrimSuffix(rule.For, "m")+" minutes: "+rule.Expr)
		}
	}
	row := regexp.MustCompile("(?m)^\\|[^|]*\\| (\\d+ minutes) \\| `([^`]+)`")
	for _, cells := range row.FindAllStringSubmatch(operate(t), -1) {
		want = append(want, cells[1]+": "+cells[2])
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 5 {
		t.Errorf("alerts, -documentation +PrometheusRule:\n%s", diff)
	}
}

// TestMonitoredMetrics checks that the documentation has each of Tenure's metrics in the alerts and
// the dashboard, and that the dashboard shows each documented one. TestMetricsDocumented of the
// programs compares the documentation with their metrics.
func TestMonitoredMetrics(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| `(tenure_\\w+)` \\|")
	var documented []string
	for _, cells := range row.FindAllStringSubmatch(operate(t), -1) {
		documented = append(documented, cells[1])
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	content := monitoring(t, "dashboard.json", &dashboard)
	if !json.Valid(content) || len(dashboard.Panels) == 0 {
		t.Error("the dashboard is no JSON, or has no panels")
	}
	metric := regexp.MustCompile(`\btenure_\w+`)
	var shown []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, name := range metric.FindAllString(target.Expr, -1) {
				shown = append(shown, strings.TrimSuffix(name, "_bucket"))
			}
		}
	}
	slices.Sort(shown)
	slices.Sort(documented)
	if diff := cmp.Diff(documented, slices.Compact(shown)); diff != "" || len(documented) < 8 {
		t.Errorf("metrics, -documentation +dashboard:\n%s", diff)
	}
	var ignored map[string]any
	for _, name := range metric.FindAllString(string(monitoring(t, "rules.yaml", &ignored)), -1) {
		if !slices.Contains(documented, name) {
			t.Errorf("an alert reads %s, which the documentation lacks", name)
		}
	}
}

// TestScraped checks that the PodMonitor selects the Pods of the manager and of the proxy, and that
// these have the port.
func TestScraped(t *testing.T) {
	t.Parallel()
	var monitor struct {
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct{ Port string }
		}
	}
	monitoring(t, "podmonitor.yaml", &monitor)
	for _, name := range []string{"manager", "proxy"} {
		content, err := os.ReadFile(filepath.Join(name, "deployment.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(content), "\n---\n")
		var deployment struct {
			Spec struct {
				Template struct {
					Metadata struct{ Labels map[string]string }
					Spec     struct {
						Containers []struct{ Ports []struct{ Name string } }
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(first), &deployment); err != nil {
			t.Fatal(err)
		}
		pod := deployment.Spec.Template
		for key, value := range monitor.Spec.Selector.MatchLabels {
			if pod.Metadata.Labels[key] != value {
				t.Errorf("the PodMonitor does not select the Pods of the %s", name)
			}
		}
		if !slices.Contains(pod.Spec.Containers[0].Ports, struct{ Name string }{monitor.Spec.PodMetricsEndpoints[0].Port}) {
			t.Errorf("the %s has no port %s", name, monitor.Spec.PodMetricsEndpoints[0].Port)
		}
	}
}
