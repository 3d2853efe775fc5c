package lockdown

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installedGroup is a row of the check: the objects that this version installs.
type installedGroup struct {
	name, good string
	objects    []*unstructured.Unstructured
}

// validatingBinding is the kind of the bindings of the rules.
var validatingBinding = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"}

// proxyName is the name of the proxy's Deployment.
const proxyName = "tenure-proxy"

// installed compares the rules, the webhooks, the roles and the kinds in the cluster with
// the ones that this version installs, field by field.
func (c Cluster) installed(ctx context.Context) ([]Result, error) {
	deployments, err := c.list(ctx, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	policies, err := c.list(ctx, mutatingPolicy)
	if err != nil && !meta.IsNoMatchError(err) {
		return nil, err
	}
	bindings, err := c.list(ctx, validatingBinding)
	if err != nil {
		return nil, err
	}
	jobs, err := c.list(ctx, schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"}, client.InNamespace(c.Namespace))
	if err != nil {
		return nil, err
	}
	expected, err := c.expected(deployments, parts{
		defaults: hasName(policies, defaultsName), warn: slices.ContainsFunc(bindings, warnsOfObjects), check: hasName(jobs, checkName),
	})
	if err != nil {
		return nil, err
	}
	there := &present{cluster: c, kinds: map[schema.GroupVersionKind][]*unstructured.Unstructured{}}
	if none, err := there.none(ctx, expected); none || err != nil {
		return []Result{failed("Tenure", "not installed: the cluster has none of its rules, webhooks, roles and kinds").advise(c.rulesAdvice("", ""))}, err
	}
	var results []Result
	for _, group := range grouped(expected) {
		found, err := there.compare(ctx, group)
		if err != nil {
			return results, err
		}
		results = append(results, found)
	}
	return results, nil
}

// parts are the optional parts of an installation that no Deployment shows.
type parts struct {
	// defaults is the policy that fills in defaults, and check the CronJob.
	defaults, check bool
	// warn are the rules that deny in warn mode, which the cluster needs.
	warn bool
}

// expected returns the objects that this version installs, including the optional parts
// for which the cluster has Deployments, and the others that it has or needs.
func (c Cluster) expected(deployments []*unstructured.Unstructured, optional parts) ([]*unstructured.Unstructured, error) {
	manager, err := managerManifests(c.Namespace, "", "")
	if err != nil {
		return nil, err
	}
	rights := &component{Namespace: c.Namespace}
	manifests := []string{string(config.Policies()), manager, string(config.Roles()), string(config.CRDs())}
	for _, d := range deployments {
		rights.Tokens = rights.Tokens || slices.Contains(valuesOf(arguments(d), gates+"ObjectLevelWorkloadIdentity"), "true")
		switch {
		case d.GetName() == proxyName:
			manifests = append(manifests, proxyManifests(c.Namespace, managerImage(manager), nil))
		case d.GetName() == managerName && slices.Contains(valuesOf(arguments(d), "--capsule"), "true"):
			manifests = append(manifests, string(config.CapsulePolicies()), string(config.CapsuleRoles()), string(config.CapsuleCRDs()))
		}
	}
	if slices.ContainsFunc(deployments, isShard) {
		manifests = append(manifests, string(config.Shards()))
	}
	if optional.warn {
		manifests = append(manifests, string(config.WarnPolicies()))
	}
	if optional.defaults {
		manifests = append(manifests, string(config.Defaults()))
	}
	if optional.check {
		manifests = append(manifests, checkJobManifests(c.Namespace, managerImage(manager), false))
	}
	if c.operated {
		// The chart leaves the rights of Flux to flux-operator.
		return readInstalled(manifests)
	}
	ofFlux, err := rights.render("rights.yaml")
	if err != nil {
		return nil, err
	}
	return readInstalled(append(manifests, ofFlux))
}

// isShard reports whether a Deployment is a controller of a shard.
func isShard(d *unstructured.Unstructured) bool {
	return d.GetAnnotations()["sharding.fluxcd.io/role"] == "shard"
}

// readInstalled returns the objects in the manifests that decide about requests: policies,
// webhooks, roles and CRDs.
func readInstalled(manifests []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, m := range manifests {
		objects, err := flux.ReadObjects([]byte(m))
		if err != nil {
			return nil, fmt.Errorf("cannot read the objects that this version installs: %w", err)
		}
		for _, o := range objects {
			switch group := o.GroupVersionKind().Group; group {
			case "admissionregistration.k8s.io", "rbac.authorization.k8s.io", "apiextensions.k8s.io":
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// grouped returns a row for each policy with its bindings and for each webhook
// configuration, and one row each for the roles and for the kinds.
func grouped(objects []*unstructured.Unstructured) []installedGroup {
	var policies, others []installedGroup
	roles, kinds := installedGroup{name: "roles", good: "as installed"}, installedGroup{name: "kinds", good: "as installed"}
	bindings := map[string][]*unstructured.Unstructured{}
	for _, o := range objects {
		switch kind := o.GetKind(); {
		case strings.HasSuffix(kind, "AdmissionPolicyBinding"):
			policy, _, _ := unstructured.NestedString(o.Object, "spec", "policyName")
			bindings[policy] = append(bindings[policy], o)
		case kind == "ValidatingAdmissionPolicy":
			policies = append(policies, installedGroup{o.GetName(), "denies", []*unstructured.Unstructured{o}})
		case kind == "MutatingAdmissionPolicy":
			policies = append(policies, installedGroup{o.GetName(), "as installed", []*unstructured.Unstructured{o}})
		case kind == kindCRD:
			kinds.objects = append(kinds.objects, o)
		case strings.HasSuffix(kind, "WebhookConfiguration"):
			others = append(others, installedGroup{"webhook " + o.GetName(), "as installed", []*unstructured.Unstructured{o}})
		default:
			roles.objects = append(roles.objects, o)
		}
	}
	for i, p := range policies {
		policies[i].objects = append(p.objects, bindings[p.name]...)
	}
	return append(append(policies, others...), roles, kinds)
}

// present holds the objects in the cluster, by kind. It reads a kind on first use.
type present struct {
	cluster Cluster
	kinds   map[schema.GroupVersionKind][]*unstructured.Unstructured
}

// find returns the object in the cluster with the kind and the name of another object, or
// nil if there is none.
func (p *present) find(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind := o.GroupVersionKind()
	if _, read := p.kinds[kind]; !read {
		objects, err := p.cluster.list(ctx, kind)
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, err
		}
		p.kinds[kind] = objects
	}
	i := slices.IndexFunc(p.kinds[kind], func(other *unstructured.Unstructured) bool {
		return other.GetName() == o.GetName() && other.GetNamespace() == o.GetNamespace()
	})
	if i < 0 {
		return nil, nil
	}
	return p.kinds[kind][i], nil
}

// none reports whether the cluster has none of the objects.
func (p *present) none(ctx context.Context, objects []*unstructured.Unstructured) (bool, error) {
	for _, o := range objects {
		if is, err := p.find(ctx, o); is != nil || err != nil {
			return false, err
		}
	}
	return true, nil
}

// maxDifferences is the maximum number of differences in one row of the check.
const maxDifferences = 6

// compare compares the objects of a group.
func (p *present) compare(ctx context.Context, group installedGroup) (Result, error) {
	var wrong, warning []string
	for i, want := range group.objects {
		is, err := p.find(ctx, want)
		if err != nil {
			return Result{}, err
		}
		if is == nil && i == 0 && strings.HasSuffix(want.GetKind(), "AdmissionPolicy") {
			// The bindings of a missing policy do not matter.
			return failed(group.name, ObjectName(want)+" is missing").advise(p.cluster.rulesAdvice("", "")).about(ObjectName(want)), nil
		}
		if is == nil {
			wrong = append(wrong, ObjectName(want)+" is missing")
			continue
		}
		if warnsOnly(is) && admission.MayWarn(want.GetLabels()[admission.LabelComponent]) {
			warning = append(warning, want.GetName())
			is = is.DeepCopy()
			_ = unstructured.SetNestedField(is.Object, asMap(want.Object["spec"])["validationActions"], "spec", "validationActions")
		}
		if found := differences(want, is); len(found) > 0 && !narrowed(want, is) {
			wrong = append(wrong, ObjectName(want)+": "+strings.Join(found, "; "))
		}
	}
	objects := wrong
	if n := len(wrong); n > maxDifferences {
		objects = slices.Clone(wrong[:maxDifferences])
		wrong = append(wrong[:maxDifferences], fmt.Sprintf("and %d more objects", n-maxDifferences))
	}
	switch {
	case len(wrong) > 0:
		return failed(group.name, strings.Join(wrong, "; ")).advise(p.cluster.rulesAdvice("", "")).about(objects...), nil
	case len(warning) > 0 && !p.cluster.Warn:
		return failed(group.name, "only warns, and refuses nothing ("+strings.Join(warning, ", ")+")").advise(p.cluster.rulesAdvice("--mode enforce", "mode: enforce")).about(prefixed(validatingBinding.Kind+" ", warning)...), nil
	case len(warning) > 0:
		return good(group.name, "only warns, as configured, and refuses nothing"), nil
	}
	return good(group.name, group.good), nil
}

// ObjectName returns the kind, namespace and name of an object, as messages name it.
func ObjectName(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// warnsOnly reports whether an object is a binding as the profile writes it in warn mode.
func warnsOnly(o *unstructured.Unstructured) bool {
	actions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "validationActions")
	slices.Sort(actions)
	return o.GetKind() == validatingBinding.Kind && slices.Equal(actions, []string{"Audit", "Warn"})
}

// warnsOfObjects reports whether an object is a binding of the rules about objects that does not
// deny. Those of these rules that must deny in warn mode then need policies of their own.
func warnsOfObjects(o *unstructured.Unstructured) bool {
	actions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "validationActions")
	return o.GetLabels()[admission.LabelComponent] == admission.ComponentObjects && !slices.Contains(actions, "Deny")
}

// narrowed reports whether an object is the role for the kinds that the proxy shows, from
// which a platform admin may remove rules.
func narrowed(want, is *unstructured.Unstructured) bool {
	if want.GetKind() != "ClusterRole" || want.GetName() != "tenure-proxy-kinds" {
		return false
	}
	is = is.DeepCopy()
	if len(minus(asList(is.Object["rules"]), asList(want.Object["rules"]))) > 0 {
		return false
	}
	is.Object["rules"] = want.Object["rules"]
	return len(differences(want, is)) == 0
}
