package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxCustoms is the maximum number of labels and combinations of labels that are tried for a kind in a namespace.
const maxCustoms = 64

// customs are the labels and annotations that policies of the fleet demand of every object of a kind. A policy that refuses
// an object because it lacks a label stops no tenant, since a tenant chooses the labels of its objects. So the client repeats a
// refused request with the labels that the tenant's own objects have, or that the policies name: see [asRecommended].
//
// An attack must not lose the policy that it is about by a label that exempts objects from this policy without a word about
// it: [Scenario.exempt] tries those. So the labels are found with an ordinary object of the kind, and only if a policy refuses that one.
// The zero value knows no policies, and nil is valid.
type customs struct {
	// policies is the text of the fleet's policies, without Tenure's own.
	policies string
	// demands are the labels that policies name, by the name of the policy as a control.
	demands []exemption
	// tenants are the scenarios of all tenants, and admin reads their objects.
	tenants []*Scenario
	admin   client.Reader

	mu    sync.Mutex
	known map[objectsOf]*foundCustom
	owned map[string][]*unstructured.Unstructured
}

// objectsOf are the objects of a kind in a namespace.
type objectsOf struct {
	namespace string
	kind      schema.GroupKind
}

// custom are labels and annotations.
type custom struct{ labels, annotations map[string]string }

// foundCustom is what policies demand of the objects of a kind in a namespace.
type foundCustom struct {
	mu sync.Mutex
	// known is set when the API server has answered: an identity without the right to create such objects finds nothing.
	known bool
	custom
}

// readCustoms reads what the fleet's policies name.
func (c *customs) readCustoms(ctx context.Context, admin client.Reader, exemptions []exemption) error {
	read, err := readPolicies(ctx, admin)
	if err != nil {
		return err
	}
	var specs []any
	for _, p := range read.policies.Items {
		if !strings.HasPrefix(p.Name, admission.Prefix) {
			specs = append(specs, p.Spec)
		}
	}
	for _, kind := range kyvernoPolicies {
		policies, err := listOfKyverno(ctx, admin, kind)
		if err != nil {
			return err
		}
		for _, policy := range policies {
			specs = append(specs, policy.Object["spec"])
			rules, _, _ := unstructured.NestedSlice(policy.Object, "spec", "rules")
			c.demands = append(c.demands, exemptionsOf(kyvernoPolicy+policy.GetName(), false, marksOfPatterns(rules))...)
		}
	}
	for _, kind := range []string{"ValidatingPolicy", "NamespacedValidatingPolicy"} {
		policies, err := listOfKyverno(ctx, admin, schema.GroupVersionKind{Group: "policies.kyverno.io", Version: "v1", Kind: kind})
		if err != nil {
			return err
		}
		for _, policy := range policies {
			specs = append(specs, policy.Object["spec"])
		}
	}
	if len(specs) == 0 {
		return nil
	}
	text, err := json.Marshal(specs)
	if err != nil {
		return fmt.Errorf("cannot read the policies: %w", err)
	}
	for _, x := range exemptions {
		if x.untried == "" && x.key != nameMark && x.key != ownerMark {
			c.demands = append(c.demands, x)
		}
	}
	c.policies, c.admin = string(text), admin
	return nil
}

// marksOfPatterns returns the labels and annotations in the patterns of Kyverno's rules, wherever they are in a rule, with
// a value that fits the pattern.
func marksOfPatterns(rule any) []mark {
	var all []mark
	switch rule := rule.(type) {
	case []any:
		for _, element := range rule {
			all = append(all, marksOfPatterns(element)...)
		}
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(rule)) {
			switch strings.Trim(field, "=+<()") {
			case "match", "exclude", "preconditions", "context", "generate", "mutate":
				continue
			case "labels", "annotations":
				values, _ := rule[field].(map[string]any)
				for _, key := range slices.Sorted(maps.Keys(values)) {
					text, isText := values[key].(string)
					if strings.HasPrefix(key, "X(") || !isText {
						continue // the object must not have it
					}
					first, _, _ := strings.Cut(text, "|")
					first = strings.NewReplacer("?*", "x", "*", "x", "?", "x").Replace(strings.TrimSpace(first))
					all = append(all, mark{strings.Trim(key, "=+<^()"), first})
				}
			default:
				all = append(all, marksOfPatterns(rule[field])...)
			}
		}
	}
	return all
}

// complete returns a copy of an object that a policy refused, with the labels and annotations that policies demand of every
// such object and that it lacks; nil if there are none. request sends an object, as a dry run.
func (c *customs) complete(ctx context.Context, u *unstructured.Unstructured, refusal error, request func(client.Object) error) *unstructured.Unstructured {
	if c == nil || c.policies == "" || strings.HasPrefix(controlThatRefused(refusal), policyControl+admission.Prefix) {
		return nil
	}
	// A label that the object has for its attack remains.
	full := u.DeepCopy()
	if found := c.of(ctx, u, request); found == nil || !found.addTo(full) {
		return nil
	}
	return full
}

// of returns what policies demand of the objects of a kind in a namespace, which it finds out once.
func (c *customs) of(ctx context.Context, u *unstructured.Unstructured, request func(client.Object) error) *custom {
	e := c.tenantOf(u.GetNamespace())
	if e == nil {
		return nil
	}
	at := objectsOf{u.GetNamespace(), u.GroupVersionKind().GroupKind()}
	c.mu.Lock()
	if c.known == nil {
		c.known = map[objectsOf]*foundCustom{}
	}
	if c.known[at] == nil {
		c.known[at] = &foundCustom{}
	}
	found := c.known[at]
	c.mu.Unlock()
	found.mu.Lock()
	defer found.mu.Unlock()
	if !found.known {
		owned := c.ownObjects(ctx, e)
		candidates := c.shown(owned, u)
		probe := e.ordinaryOf(ctx, u)
		if probe == nil {
			probe = u
		} else {
			// Of an object of an attack, a label that only a policy names may be the exemption from this policy.
			candidates = append(candidates, c.named(e, owned)...)
		}
		found.custom, found.known = find(probe, candidates, request)
	}
	return &custom{found.labels, found.annotations}
}

// find tries candidates until no policy refuses an object for the lack of a label, and returns what helped. A candidate helps
// if the API server accepts the object, or a policy refuses it with another message. known is false if neither the API server
// accepts the object nor a policy refuses it.
func find(probe *unstructured.Unstructured, candidates []custom, request func(client.Object) error) (found custom, known bool) {
	send := func(with custom) error {
		u := probe.DeepCopy()
		with.addTo(u)
		if err := request(u); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}
	refusal, tries := send(found), 0
	known = refusal == nil || refusedByPolicy(refusal)
	for helped := true; helped && refusedByPolicy(refusal); {
		helped = false
		for _, candidate := range candidates {
			next := custom{maps.Clone(found.labels), maps.Clone(found.annotations)}
			if !next.take(candidate) {
				continue
			}
			if tries++; tries > maxCustoms {
				return found, known
			}
			err := send(next)
			if helped = err == nil || (apierrors.IsForbidden(err) || refusedByPolicy(err)) && err.Error() != refusal.Error(); helped {
				found, refusal = next, err
				break
			}
		}
	}
	return found, known
}

// take adds the labels and annotations of another custom, and reports whether this changes anything.
func (c *custom) take(other custom) bool {
	changed := false
	for _, pair := range []struct {
		into *map[string]string
		from map[string]string
	}{{&c.labels, other.labels}, {&c.annotations, other.annotations}} {
		for key, value := range pair.from {
			if old, there := (*pair.into)[key]; !there || old != value {
				if *pair.into == nil {
					*pair.into = map[string]string{}
				}
				(*pair.into)[key], changed = value, true
			}
		}
	}
	return changed
}

// addTo adds the labels and annotations that an object lacks, also to the template of a workload's Pods and to what Flux
// creates for a HelmRelease, and reports whether it lacked any.
func (c custom) addTo(u *unstructured.Unstructured) bool {
	added := false
	places := [][]string{{"metadata"}}
	for _, template := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		if _, found, _ := unstructured.NestedSlice(u.Object, append(slices.Clone(template), "spec", "containers")...); found {
			places = append(places, append(template, "metadata"))
		}
	}
	if _, found, _ := unstructured.NestedMap(u.Object, "spec", "chart", "spec"); found && u.GetKind() == string(flux.HelmRelease) {
		places = append(places, []string{"spec", "chart", "metadata"})
	}
	for _, place := range places {
		for field, values := range map[string]map[string]string{"labels": c.labels, "annotations": c.annotations} {
			at := append(slices.Clone(place), field)
			have, _, err := unstructured.NestedStringMap(u.Object, at...)
			if err != nil || len(values) == 0 {
				continue // an attack may be about malformed labels
			}
			all := maps.Clone(values)
			maps.Copy(all, have)
			if len(all) > len(have) && unstructured.SetNestedStringMap(u.Object, all, at...) == nil {
				added = true
			}
		}
	}
	return added
}

// tenantOf returns the scenario of the tenant with a namespace; for a namespace of no tenant, that of any.
func (c *customs) tenantOf(namespace string) *Scenario {
	for _, e := range c.tenants {
		if slices.Contains(e.Tenant.Namespaces, namespace) {
			return e
		}
	}
	if len(c.tenants) == 0 {
		return nil
	}
	return c.tenants[0]
}

// ordinaryOf returns an ordinary object of the kind and in the namespace of an object, as a tenant would write it; nil for a kind of which
// a tenant has none.
func (e *Scenario) ordinaryOf(ctx context.Context, u *unstructured.Unstructured) *unstructured.Unstructured {
	var own *unstructured.Unstructured
	pod := hardenedPod("own", nil)(e)
	switch kind := u.GroupVersionKind().GroupKind(); kind {
	case schema.GroupKind{Kind: "Pod"}:
		own = pod
	case schema.GroupKind{Kind: "ConfigMap"}:
		own = configMap(e.Namespace, name("own"))
	default:
		for _, w := range workloads {
			if w.kind == kind.Kind && strings.HasPrefix(w.apiVersion, kind.Group) {
				own = w.of(pod)
			}
		}
	}
	if own == nil && strings.HasSuffix(u.GroupVersionKind().Group, ".fluxcd.io") {
		own = e.ordinary(ctx, u.GetKind())
	}
	if own == nil {
		return nil
	}
	if full := withRecommendedFields(own); full != nil {
		own = full
	}
	own.SetNamespace(u.GetNamespace())
	return own
}

// customaryKinds are the kinds of which a tenant's own objects show what is customary.
var customaryKinds = []schema.GroupVersionKind{
	flux.Kustomization.GroupVersionKind(), flux.HelmRelease.GroupVersionKind(), flux.GitRepository.GroupVersionKind(),
	flux.OCIRepository.GroupVersionKind(), flux.HelmRepository.GroupVersionKind(),
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "batch", Version: "v1", Kind: "CronJob"}, {Group: "batch", Version: "v1", Kind: "Job"},
	{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"},
}

// ownObjects returns the tenant's own objects, with its namespaces. A kind that cannot be read shows nothing.
func (c *customs) ownObjects(ctx context.Context, e *Scenario) []*unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all, found := c.owned[e.Tenant.Name]; found {
		return all
	}
	var all []*unstructured.Unstructured
	for _, namespace := range e.Tenant.Namespaces {
		for _, kind := range customaryKinds {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if c.admin.List(ctx, list, client.InNamespace(namespace)) != nil {
				continue
			}
			for i := range list.Items {
				if u := &list.Items[i]; !strings.HasPrefix(u.GetName(), name("")) {
					all = append(all, u)
				}
			}
		}
	}
	for i := range e.namespaces {
		if ns := &e.namespaces[i]; slices.Contains(e.Tenant.Namespaces, ns.Name) {
			u := object("v1", "Namespace", "", ns.Name, nil)
			u.SetLabels(ns.Labels)
			u.SetAnnotations(ns.Annotations)
			all = append(all, u)
		}
	}
	if c.owned == nil {
		c.owned = map[string][]*unstructured.Unstructured{}
	}
	c.owned[e.Tenant.Name] = all
	return all
}

// inPolicies returns the labels or annotations whose keys the fleet's policies name.
func (c *customs) inPolicies(of map[string]string) map[string]string {
	of = maps.Clone(of)
	maps.DeleteFunc(of, func(key, _ string) bool {
		return !strings.Contains(c.policies, key) || key == corev1.LastAppliedConfigAnnotation
	})
	return of
}

// shown returns the labels that the tenant's own objects show for an object: those of each object of its kind, and those of
// all objects together, of which the first count.
func (c *customs) shown(owned []*unstructured.Unstructured, u *unstructured.Unstructured) []custom {
	var all []custom
	var together custom
	for _, own := range owned {
		one := custom{c.inPolicies(own.GetLabels()), c.inPolicies(own.GetAnnotations())}
		if own.GroupVersionKind().GroupKind() == u.GroupVersionKind().GroupKind() {
			all = append(all, custom{maps.Clone(one.labels), maps.Clone(one.annotations)})
		}
		one.take(together)
		together = one
	}
	return append(all, together)
}

// named returns the labels that the fleet's policies name, one at a time: with the values that they have at the tenant's
// objects, with the tenant's namespace, and with the values that the policies name.
func (c *customs) named(e *Scenario, owned []*unstructured.Unstructured) []custom {
	values := map[string][]string{}
	var keys []string
	add := func(key, value string) {
		if values[key] == nil {
			keys = append(keys, key)
		}
		if len(validation.IsValidLabelValue(value)) == 0 && !slices.Contains(values[key], value) {
			values[key] = append(values[key], value)
		}
	}
	for _, d := range c.demands {
		if len(validation.IsQualifiedName(d.key)) > 0 {
			continue
		}
		for _, own := range owned {
			if value, found := own.GetLabels()[d.key]; found {
				add(d.key, value)
			}
		}
		add(d.key, e.Namespace)
		add(d.key, d.value)
	}
	var all []custom
	// The first value of each key comes before the second value of any.
	for i := 0; ; i++ {
		more := false
		for _, key := range keys {
			if i < len(values[key]) {
				more = true
				one := map[string]string{key: values[key][i]}
				all = append(all, custom{labels: one, annotations: one})
			}
		}
		if !more {
			return all
		}
	}
}

// asCustomary returns an object for a file in the tenant's repository, with the labels that policies demand of it.
func (e *Scenario) asCustomary(u *unstructured.Unstructured) *unstructured.Unstructured {
	if e.customs == nil || e.customs.policies == "" {
		return u
	}
	// The request finds out what policies demand. Its answer does not matter: the attack sends the object itself.
	ctx, cancel := context.WithTimeout(context.Background(), fluxPatience)
	defer cancel()
	probe := u.DeepCopy()
	if probe.GetNamespace() == "" {
		probe.SetNamespace(e.Namespace)
	}
	_ = e.As.Create(ctx, probe.DeepCopy(), client.DryRunAll)
	e.customs.mu.Lock()
	found := e.customs.known[objectsOf{probe.GetNamespace(), u.GroupVersionKind().GroupKind()}]
	e.customs.mu.Unlock()
	if found == nil {
		return u
	}
	found.mu.Lock()
	defer found.mu.Unlock()
	u = u.DeepCopy()
	found.addTo(u)
	return u
}
