package tenancy

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// class returns a class with labels of the form name=value.
func class(name string, labels ...string) metav1.PartialObjectMetadata {
	c := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		c.Labels[key] = value
	}
	return c
}

func TestAllowedClasses(t *testing.T) {
	t.Parallel()
	classes := []metav1.PartialObjectMetadata{class("system-node-critical", "tier=gold"), class("low"), class("high", "tier=gold")}
	for _, tc := range []struct {
		reason, limits, kind string
		want                 []string
	}{
		{"no limit", `{}`, "StorageClass", []string{"high", "low", "system-node-critical"}},
		{"no limit of priorities", `{}`, "PriorityClass", []string{"high", "low"}},
		{"every priority", `workloads: {priorityClasses: {allowed: ["*"]}}`, "PriorityClass", []string{"high", "low", "system-node-critical"}},
		{"an expression", `workloads: {priorityClasses: {expression: "^(system|l)"}}`, "PriorityClass", []string{"low", "system-node-critical"}},
		{"labels", `workloads: {priorityClasses: {selector: {matchLabels: {tier: gold}}}}`, "PriorityClass", []string{"high"}},
		{"labels and names", `workloads: {runtimeClasses: {allowed: [l*, none], selector: {matchLabels: {tier: gold}}}}`, "RuntimeClass", []string{"high", "low", "system-node-critical"}},
		{"a limit that allows nothing", `storage: {classes: {}}`, "StorageClass", nil},
		{"an invalid selector", `storage: {classes: {selector: {matchExpressions: [{key: tier, operator: Is}]}}}`, "StorageClass", nil},
		{"a kind without limits", `{}`, "VolumeAttributesClass", nil},
	} {
		limits := &v1alpha1.Posture{}
		if err := yaml.UnmarshalStrict([]byte(tc.limits), limits); err != nil {
			t.Fatal(err)
		}
		kind := schema.GroupVersionKind{Kind: tc.kind}
		for _, k := range ClassKinds() {
			if k.Kind == tc.kind {
				kind = k
			}
		}
		if diff := cmp.Diff(tc.want, AllowedClasses(limits, kind, classes)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
	}
}

func TestSelectClasses(t *testing.T) {
	t.Parallel()
	leaving := class("leaving", "tier=gold")
	leaving.DeletionTimestamp = &metav1.Time{}
	*leaving.DeletionTimestamp = metav1.Now()
	cluster := map[string][]metav1.PartialObjectMetadata{
		"StorageClass":  {class("slow", "tier=bronze"), class("fast", "tier=gold"), class("best", "tier=gold", "zone=a"), leaving, class("plain")},
		"PriorityClass": {class("system-node-critical", "tier=gold"), class("high", "tier=gold")},
		"DeviceClass":   nil,
	}
	for i := range 2000 {
		cluster["GatewayClass"] = append(cluster["GatewayClass"], class(fmt.Sprintf("g%04d", 1999-i), "tier=gold"))
	}
	for i := range 1000 {
		cluster["IngressClass"] = append(cluster["IngressClass"], class(fmt.Sprintf("i%03d", i), "tier=gold"))
	}
	for reason, tc := range map[string]struct {
		limits  string
		want    *v1alpha1.SelectedClasses
		problem string
	}{
		"no selector selects nothing":                {limits: `storage: {classes: {allowed: [fast]}}`},
		"labels select, and the names are sorted":    {limits: `storage: {classes: {selector: {matchLabels: {tier: gold}}}}`, want: &v1alpha1.SelectedClasses{StorageClasses: []string{"best", "fast"}}},
		"expressions select":                         {limits: `storage: {classes: {selector: {matchExpressions: [{key: tier, operator: Exists}, {key: zone, operator: DoesNotExist}]}}}`, want: &v1alpha1.SelectedClasses{StorageClasses: []string{"fast", "slow"}}},
		"an empty selector selects all":              {limits: `storage: {classes: {selector: {}}}`, want: &v1alpha1.SelectedClasses{StorageClasses: []string{"best", "fast", "plain", "slow"}}},
		"no class of Kubernetes is selected":         {limits: `workloads: {priorityClasses: {selector: {}}}`, want: &v1alpha1.SelectedClasses{PriorityClasses: []string{"high"}}},
		"a kind without classes":                     {limits: `workloads: {deviceClasses: {selector: {}}, runtimeClasses: {selector: {}}}`, want: &v1alpha1.SelectedClasses{}},
		"an invalid selector selects nothing":        {limits: `storage: {classes: {selector: {matchExpressions: [{key: tier, operator: Is, values: [gold]}]}}}`, want: &v1alpha1.SelectedClasses{}, problem: `spec.storage.classes.selector is invalid: "Is" is not a valid label selector operator`},
		"an invalid selector leaves others in force": {limits: `{workloads: {priorityClasses: {selector: {matchLabels: {"a b": c}}}}, storage: {classes: {selector: {matchLabels: {zone: a}}}}}`, want: &v1alpha1.SelectedClasses{StorageClasses: []string{"best"}}, problem: "spec.workloads.priorityClasses.selector is invalid"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			limits := &v1alpha1.Posture{}
			if err := yaml.UnmarshalStrict([]byte(tc.limits), limits); err != nil {
				t.Fatal(err)
			}
			got, problem, err := SelectClasses(limits, func(kind schema.GroupVersionKind) ([]metav1.PartialObjectMetadata, error) {
				return cluster[kind.Kind], nil
			})
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if tc.problem == "" && problem != nil || tc.problem != "" && (problem == nil || !strings.Contains(problem.Error(), tc.problem)) {
				t.Errorf("got problem %v, want %q", problem, tc.problem)
			}
			if selects := SelectsClasses(limits.Workloads, limits.Network, limits.Storage); selects != (tc.want != nil) {
				t.Errorf("SelectsClasses() = %v", selects)
			}
		})
	}

	t.Run("many classes", func(t *testing.T) {
		t.Parallel()
		all := &v1alpha1.AllowedClasses{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}}
		limits := &v1alpha1.Posture{Network: v1alpha1.Network{IngressClasses: all, GatewayClasses: all}}
		got, problem, err := SelectClasses(limits, func(kind schema.GroupVersionKind) ([]metav1.PartialObjectMetadata, error) {
			return cluster[kind.Kind], nil
		})
		if err != nil || len(got.IngressClasses) != 1000 || len(got.GatewayClasses) != v1alpha1.MaxSelectedClasses || got.GatewayClasses[0] != "g0000" {
			t.Errorf("%v: %d ingress classes, %d gateway classes", err, len(got.IngressClasses), len(got.GatewayClasses))
		}
		const want = "the selector of network.gatewayClasses selects 2000 classes, of which only the first 1024 by name are allowed"
		if problem == nil || !strings.Contains(problem.Error(), want) {
			t.Errorf("got problem %v, want %q", problem, want)
		}
	})

	t.Run("classes that cannot be read", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("no connection")
		limits := &v1alpha1.Posture{Storage: v1alpha1.Storage{Classes: &v1alpha1.AllowedClasses{Selector: &metav1.LabelSelector{}}}}
		if got, _, err := SelectClasses(limits, func(schema.GroupVersionKind) ([]metav1.PartialObjectMetadata, error) { return nil, broken }); !errors.Is(err, broken) || got != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestEmptySelectors(t *testing.T) {
	t.Parallel()
	limits := &v1alpha1.Posture{}
	if err := yaml.UnmarshalStrict([]byte(`
workloads: {priorityClasses: {selector: {}}, runtimeClasses: {allowed: [gvisor]}, deviceClasses: {selector: {matchExpressions: [{key: tier, operator: Is}]}}}
network: {ingressClasses: {selector: {matchLabels: {tier: gold}}, allowed: [public]}}
storage: {classes: {selector: {matchLabels: {tier: gold}}}}
`), limits); err != nil {
		t.Fatal(err)
	}
	for reason, tc := range map[string]struct {
		selected *v1alpha1.SelectedClasses
		want     []string
	}{
		"nothing is selected; an invalid selector has a problem of its own": {nil, []string{"workloads.priorityClasses", "network.ingressClasses", "storage.classes"}},
		"one selector selects": {&v1alpha1.SelectedClasses{StorageClasses: []string{"fast"}}, []string{"workloads.priorityClasses", "network.ingressClasses"}},
		"all of them do":       {&v1alpha1.SelectedClasses{StorageClasses: []string{"fast"}, PriorityClasses: []string{"high"}, IngressClasses: []string{"public"}}, nil},
	} {
		if diff := cmp.Diff(tc.want, EmptySelectors(limits, tc.selected)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}
