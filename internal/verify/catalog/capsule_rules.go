package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/internal/capsule"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func addCapsuleRules(register func(...Attack)) {
	register(Attack{
		ID: "W15", Via: API, Owners: OwnersWithin,
		Kinds:      []string{"HTTPRoute", "Ingress", "Pod", "Service"},
		Title:      "creates what the rules of its Capsule Tenant refuse: images, types of Services and hosts",
		Controls:   []string{"policies that read the RuleStatus of the namespace"},
		References: []string{"Capsule: rules of a Tenant"},
		Fix:        Fix{Advice: "install the policies of config/capsule, with tenure profile --capsule, and leave the label " + v1beta2.LabelRules + " on the tenant's namespaces"},
		Run:        againstCapsuleRules,
	})
}

// againstCapsuleRules creates, for each kind, the first object that the rules of the namespace refuse. The
// positive control is an object of the same kind that the rules allow.
func againstCapsuleRules(ctx context.Context, e *Scenario) Finding {
	rules, err := e.capsuleRules(ctx)
	if err != nil {
		return notProven("cannot read the rules of the Capsule Tenant: " + firstLine(err.Error()))
	}
	if rules == nil {
		return e.nothingThere(ctx, noCapsuleRules, "no Capsule Tenant has rules for namespace "+e.Namespace)
	}
	var all []request
	for _, kind := range e.ruledObjects(rules) {
		var refused, allowed func(*Scenario) *unstructured.Unstructured
		for _, object := range kind.objects {
			r := capsule.Request{User: e.who.user, Groups: append([]string{"system:authenticated"}, e.who.groups...), Object: object(e)}
			switch refuses := len(capsule.Refusals(rules, r)) > 0; {
			case refuses && refused == nil:
				refused = object
			case !refuses && allowed == nil:
				allowed = object
			}
		}
		if refused == nil {
			continue
		}
		r := request{what: kind.what, aimed: creating(refused)}
		if allowed != nil {
			r.aimed, r.own = creating(refused, allowed), creating(allowed)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return e.nothingThere(ctx, noCapsuleRules, "the rules of the Capsule Tenant refuse no image, type of Service and host that the attack knows")
	}
	return requests(all...)(ctx, e)
}

// capsuleRules returns the rules of a Capsule Tenant that are in force in the namespace, or nil if there
// are none.
func (e *Scenario) capsuleRules(ctx context.Context) (*v1beta2.RuleStatusStatus, error) {
	u := object(v1beta2.GroupVersion.String(), "RuleStatus", e.Namespace, v1beta2.RulesName, nil)
	err := e.Admin.Get(ctx, keyOf(u), u)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rules := &v1beta2.RuleStatus{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, rules); err != nil {
		return nil, err
	}
	if len(rules.Status.Rules) == 0 {
		return nil, nil
	}
	return &rules.Status, nil
}

// ruledKind holds objects of a kind, some of which the rules may refuse. Tenure's own rules and the limits
// of the tenant allow all of them.
type ruledKind struct {
	what    string
	objects []func(*Scenario) *unstructured.Unstructured
}

// ruledObjects returns the objects of the attack, with values of the attack's own and with the exact values
// in the rules.
func (e *Scenario) ruledObjects(rules *v1beta2.RuleStatusStatus) []ruledKind {
	pods := ruledKind{what: "run an image that the rules refuse"}
	for _, image := range e.ruledValues(rules, e.limits.Workloads.Images == nil, fmt.Sprint(e.container()["image"]), "workloads", "registries") {
		pods.objects = append(pods.objects, func(e *Scenario) *unstructured.Unstructured {
			u := hardenedPod("w15", nil)(e)
			container := u.Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
			container["image"] = image
			return u
		})
	}
	services := ruledKind{what: "make a Service of a type that the rules refuse"}
	types := []string{"ClusterIP", "LoadBalancer"}
	if limits := e.limits.Network.Services; limits != nil && len(limits.Types) > 0 {
		types = limits.Types
	}
	for _, kind := range types {
		spec := map[string]any{"type": kind, "ports": []any{map[string]any{"port": int64(443)}}, "selector": map[string]any{"app": "canary"}}
		switch kind {
		case "LoadBalancer":
			spec["allocateLoadBalancerNodePorts"] = false
		case "ExternalName":
			spec = map[string]any{"type": kind, "externalName": "w15.tenure-canary.example"}
		}
		services.objects = append(services.objects, func(e *Scenario) *unstructured.Unstructured {
			return object("v1", "Service", e.Namespace, name("w15"), map[string]any{"spec": spec})
		})
	}
	ingresses, routes := ruledKind{what: "have a host that the rules refuse"}, ruledKind{what: "have a host that the rules refuse, by an HTTPRoute"}
	for _, host := range e.ruledValues(rules, e.limits.Network.Hosts == nil, ownHost(e), "ingress", "hostnames") {
		ingresses.objects = append(ingresses.objects, func(e *Scenario) *unstructured.Unstructured {
			u := ingress(func(*Scenario) string { return host })(e)
			u.SetName(name("w15"))
			return u
		})
		routes.objects = append(routes.objects, func(e *Scenario) *unstructured.Unstructured {
			return object(gatewayAPI+"v1", "HTTPRoute", e.Namespace, name("w15"), map[string]any{"spec": hostnames(host)})
		})
	}
	return []ruledKind{pods, services, ingresses, routes}
}

// ruledValues returns a value that the tenant's limits allow. If the limits do not restrict such values, it
// also returns the exact values in a list of the rules.
func (e *Scenario) ruledValues(rules *v1beta2.RuleStatusStatus, unlimited bool, own string, part, list string) []string {
	values := []string{own}
	for i := range rules.Rules {
		var rule map[string]any
		if !unlimited || json.Unmarshal(rules.Rules[i].Raw, &rule) != nil {
			continue
		}
		entries, _, _ := unstructured.NestedSlice(rule, "enforce", part, list)
		for _, entry := range entries {
			fields, _ := entry.(map[string]any)
			exact, _, _ := unstructured.NestedStringSlice(fields, "exact")
			values = append(values, slices.DeleteFunc(exact, func(v string) bool { return v == "" || strings.Contains(v, "*") })...)
		}
	}
	return values
}
