package catalog

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func addFlaggerWebhooks(register func(...Attack)) {
	flagger := func(kind string, spec func(*Scenario) map[string]any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("flagger.app/v1beta1", kind, e.Namespace, name("n6"), map[string]any{"spec": spec(e)})
		}
	}
	canary := func(service, analysis func(*Scenario) map[string]any) func(*Scenario) *unstructured.Unstructured {
		return flagger("Canary", func(e *Scenario) map[string]any {
			spec := map[string]any{
				"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name("n6")},
				"service":   map[string]any{"port": int64(80)},
				"analysis":  map[string]any{"interval": "60m", "threshold": int64(1), "iterations": int64(1)},
			}
			for field, more := range map[string]func(*Scenario) map[string]any{"service": service, "analysis": analysis} {
				if more == nil {
					continue
				}
				for key, value := range more(e) {
					spec[field].(map[string]any)[key] = value
				}
			}
			return spec
		})
	}
	inside := func(e *Scenario) string { return "http://source-controller." + e.Platform + ".svc.cluster.local/" }
	own := canary(nil, nil)
	metrics := func(address func(*Scenario) string) func(*Scenario) *unstructured.Unstructured {
		return flagger("MetricTemplate", func(e *Scenario) map[string]any {
			return map[string]any{"provider": map[string]any{"type": "prometheus", "address": address(e)}, "query": "up"}
		})
	}
	identity := flagger("MetricTemplate", func(*Scenario) map[string]any {
		return map[string]any{"provider": map[string]any{"type": "cloudwatch", "region": "eu-west-1"}, "query": "[]"}
	})
	register(Attack{
		ID: "N6", Via: API,
		Kinds:      []string{"AlertProvider", "Canary", "MetricTemplate"},
		Title:      "has Flagger call an address within the cluster, use its own cloud identity, or take another tenant's host or gateway",
		Controls:   []string{"policy on the addresses, identities, hosts and gateways of Flagger's objects", "no such kinds for tenants"},
		References: []string{"Flagger: webhooks, metric templates"},
		Fix:        Fix{Advice: "leave Flagger's kinds out of the tenant's role, or limit the addresses of webhooks and metric servers, the types of metric servers, hosts and gateways to a list with a ValidatingAdmissionPolicy"},
		Run: func(ctx context.Context, e *Scenario) Finding {
			var first Finding
			for _, t := range []struct {
				aimed, own func(*Scenario) *unstructured.Unstructured
			}{
				{canary(nil, func(e *Scenario) map[string]any {
					return map[string]any{"webhooks": []any{map[string]any{"name": "canary", "type": "rollout", "url": inside(e)}}}
				}), own},
				{metrics(inside), own},
				{identity, own},
				{canary(func(e *Scenario) map[string]any {
					return map[string]any{"gateways": []any{e.Victim.Namespace + "/canary"}, "hosts": []any{"*"}}
				}, nil), own},
				{canary(func(e *Scenario) map[string]any {
					return map[string]any{"gatewayRefs": []any{map[string]any{"name": "canary", "namespace": e.Victim.Namespace}}, "hosts": []any{"canary." + e.Victim.Namespace + ".svc.cluster.local"}}
				}, nil), own},
			} {
				f := onFlagger(t.aimed, t.own)(ctx, e)
				if f.Outcome != Stopped {
					return f
				}
				if first.Outcome == "" {
					first = f
				}
			}
			return first
		},
	})
}
