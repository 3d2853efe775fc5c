package promrules_test

import (
	"encoding/json"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const monitoring = "../../config/monitoring"

// groups returns the groups of the PrometheusRule, parsed and validated as Prometheus reads its own
// rule files.
func groups(t *testing.T) *rulefmt.RuleGroups {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(monitoring, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	parsed, errs := rulefmt.Parse(spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if parsed == nil || len(parsed.Groups) == 0 {
		t.Fatal("there are no rules")
	}
	return parsed
}

// TestAlerts evaluates each alert every minute, on series that should fire and on others.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const manager, check = `{job="flux-system/tenure",pod="tenure-manager-a"}`, `{namespace="flux-system",cronjob="tenure-check"}`
	tests := map[string][]struct {
		reason, series string
		// fires are the minutes after the start at which the alert fires, of those in which it is
		// looked at.
		at, fires []int
	}{
		"TenureNoValidProfile": {
			{"no profile, from the start", "tenure_profile_valid" + manager + " 0x30", []int{4, 6}, []int{6}},
			{"a valid one", "tenure_profile_valid" + manager + " 1x30", []int{6, 20}, nil},
			{"none for a moment", "tenure_profile_valid" + manager + " 1x5 0x2 1x20", []int{6, 8, 14}, nil},
			{"a manager that is gone is another alert's", "other 1x30", []int{20}, nil},
		},
		"TenureProfileNotInForce": {
			{"a namespace that fails", `tenure_tenant_namespaces{state="failed"} 1x30`, []int{9, 11}, []int{11}},
			{"all are in force", "tenure_tenant_namespaces{state=\"in-force\"} 9x30\ntenure_tenant_namespaces{state=\"failed\"} 0x30", []int{20}, nil},
			{"a new one that waits a little", "tenure_tenant_namespaces{state=\"pending\"} 0x5 1x3 0x20", []int{7, 15, 20}, nil},
		},
		"TenureManagerGone": {
			{"it ends", "tenure_profile_valid" + manager + " 1x5 _x30", []int{5, 18, 25}, []int{25}},
			{"one replica of two ends", "tenure_profile_valid" + manager + " 1x5 _x30\ntenure_profile_valid{job=\"flux-system/tenure\",pod=\"tenure-manager-b\"} 1x35", []int{25, 30}, nil},
		},
		"TenureReconciliationsFail": {
			{"ten a minute", `controller_runtime_reconcile_errors_total{job="flux-system/tenure",controller="namespace"} 0+10x60`, []int{10, 20}, []int{20}},
			{"one in ten minutes", `controller_runtime_reconcile_errors_total{job="flux-system/tenure",controller="namespace"} 0x9 1x9 2x40`, []int{20, 40}, nil},
			{"of another program", `controller_runtime_reconcile_errors_total{job="flux-system/other",controller="x"} 0+100x60`, []int{40}, nil},
		},
		"TenureProxyRefuses": {
			{"two a second", `tenure_proxy_refusals_total{reason="inflight"} 0+120x30`, []int{4, 8}, []int{8}},
			{"one a minute", `tenure_proxy_refusals_total{reason="inflight"} 0+1x30`, []int{20}, nil},
		},
		"TenureLockdownDiffers": {
			{
				"the last Job failed, until one succeeds",
				"kube_cronjob_status_last_schedule_time" + check + " 3600x59 7200x59 10800x60\nkube_cronjob_status_last_successful_time" + check + " 3660x121 10860x60",
				[]int{50, 65, 75, 110, 125, 140}, []int{75, 110},
			},
			{"none ever succeeded", "kube_cronjob_status_last_schedule_time" + check + " 3600x60", []int{5, 12}, []int{12}},
			{"another CronJob fails", `kube_cronjob_status_last_schedule_time{namespace="x",cronjob="backup"} 3600x60`, []int{50}, nil},
			{"there is no CronJob", "other 1x60", []int{50}, nil},
		},
	}
	for _, group := range groups(t).Groups {
		for _, rule := range group.Rules {
			if len(tests[rule.Alert]) == 0 {
				t.Errorf("alert %s has no test", rule.Alert)
			}
			for _, tt := range tests[rule.Alert] {
				t.Run(rule.Alert+"/"+tt.reason, func(t *testing.T) {
					t.Parallel()
					if fired := evaluate(t, rule, tt.series, tt.at); !slices.Equal(fired, tt.fires) {
						t.Errorf("it fires after %v minutes, want %v of %v", fired, tt.fires, tt.at)
					}
				})
			}
		}
	}
}

// evaluate evaluates an alert every minute, and returns the given minutes at which it fires.
func evaluate(t *testing.T, rule rulefmt.Rule, series string, at []int) []int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(series, "\n", "\n  "))
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	t.Cleanup(func() { _ = engine.Close() })
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	var fired []int
	for minute := range slices.Max(at) + 1 {
		when := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
		if _, err := alert.Eval(t.Context(), 0, when, rules.EngineQueryFunc(engine, storage), &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
		fires := false
		for _, active := range alert.ActiveAlerts() {
			fires = fires || active.State == rules.StateFiring
			if active.Annotations.Get("summary") == "" {
				t.Errorf("the alert has no summary: %v", active.Annotations)
			}
		}
		if fires && slices.Contains(at, minute) {
			fired = append(fired, minute)
		}
	}
	return fired
}

// TestDashboard parses the query of each panel.
func TestDashboard(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(monitoring, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(target.Expr); err != nil {
				t.Errorf("panel %s: %v", panel.Title, err)
			}
		}
	}
	if queries < 8 {
		t.Errorf("the dashboard has %d queries", queries)
	}
}
