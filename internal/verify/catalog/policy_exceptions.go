package catalog

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// exceptionFlags are the flags of Kyverno about exceptions from its policies.
type exceptionFlags struct {
	enabled bool
	// namespace is the namespace whose exceptions count, "*" for all of them. If it is empty, no exceptions of the group
	// kyverno.io count, and those of policies.kyverno.io from all namespaces.
	namespace string
}

// exceptionFlagsOf returns the flags of each Deployment of Kyverno's admission controller.
func exceptionFlagsOf(ctx context.Context, admin client.Reader) ([]exceptionFlags, error) {
	var deployments appsv1.DeploymentList
	if err := admin.List(ctx, &deployments); err != nil {
		return nil, fmt.Errorf("cannot read the flags of Kyverno: %w", err)
	}
	var all []exceptionFlags
	for _, d := range deployments.Items {
		i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			image, _, _ := strings.Cut(path.Base(c.Image), ":")
			return image == "kyverno"
		})
		if i < 0 {
			continue
		}
		var flags exceptionFlags
		args := d.Spec.Template.Spec.Containers[i].Args
		for i, arg := range args {
			flag, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			switch flag {
			case "enablePolicyException":
				enabled, err := strconv.ParseBool(value)
				flags.enabled = !given || err == nil && enabled
			case "exceptionNamespace":
				if !given && i+1 < len(args) {
					value = args[i+1]
				}
				flags.namespace = value
			}
		}
		all = append(all, flags)
	}
	return all, nil
}

// exceptsItself returns the requests with which the tenant would make an exception from each kind of Kyverno's policies
// that may refuse its objects, in the namespace whose exceptions count, and would change the exceptions there.
func (e *Scenario) exceptsItself(ctx context.Context) ([]request, error) {
	all, err := exceptionFlagsOf(ctx, e.Admin)
	if err != nil {
		return nil, err
	}
	var requests []request
	for _, flags := range all {
		if !flags.enabled {
			continue
		}
		namespace := flags.namespace
		if namespace == "*" || namespace == "" {
			namespace = e.Namespace
		}
		if flags.namespace != "" {
			of, err := e.exceptionsFrom(ctx, namespace, kyvernoPolicies, schema.GroupVersionKind{Group: "kyverno.io", Version: "v2", Kind: "PolicyException"}, func(policy unstructured.Unstructured) map[string]any {
				name := policy.GetName()
				if policy.GetNamespace() != "" {
					name = policy.GetNamespace() + "/" + name
				}
				return map[string]any{
					"exceptions": []any{map[string]any{"policyName": name, "ruleNames": []any{"*"}}},
					"match":      map[string]any{"any": []any{map[string]any{"resources": map[string]any{"kinds": []any{"*"}, "namespaces": []any{e.Namespace}}}}},
				}
			})
			if err != nil {
				return nil, err
			}
			requests = append(requests, of...)
		}
		of, err := e.exceptionsFrom(ctx, namespace, kyvernoExpressed, schema.GroupVersionKind{Group: "policies.kyverno.io", Version: "v1", Kind: "PolicyException"}, func(policy unstructured.Unstructured) map[string]any {
			return map[string]any{"policyRefs": []any{map[string]any{"name": policy.GetName(), "kind": policy.GetKind()}}}
		})
		if err != nil {
			return nil, err
		}
		requests = append(requests, of...)
	}
	return requests, nil
}

// kyvernoExpressed are the kinds of Kyverno's policies with expressions that may refuse or change objects.
var kyvernoExpressed = []schema.GroupVersionKind{
	{Group: "policies.kyverno.io", Version: "v1", Kind: "ValidatingPolicy"}, {Group: "policies.kyverno.io", Version: "v1", Kind: "MutatingPolicy"},
	{Group: "policies.kyverno.io", Version: "v1", Kind: "NamespacedValidatingPolicy"}, {Group: "policies.kyverno.io", Version: "v1", Kind: "NamespacedMutatingPolicy"},
}

// exceptionsFrom returns the requests for an exception in a namespace from the first policy of the kinds that refuses, and
// for changes of the exceptions that exist there. specOf returns the spec of the exception from a policy.
func (e *Scenario) exceptionsFrom(ctx context.Context, namespace string, policies []schema.GroupVersionKind, exception schema.GroupVersionKind, specOf func(unstructured.Unstructured) map[string]any) ([]request, error) {
	var refusing []unstructured.Unstructured
	for _, kind := range policies {
		of, err := listOfKyverno(ctx, e.Admin, kind)
		if err != nil {
			return nil, err
		}
		refusing = append(refusing, slices.DeleteFunc(of, func(policy unstructured.Unstructured) bool { return !refuses(policy) })...)
	}
	if len(refusing) == 0 {
		return nil, nil
	}
	apiVersion, kind := exception.ToAPIVersionAndKind()
	all := []request{{
		what: fmt.Sprintf("make an exception from Kyverno policy %s in namespace %s", refusing[0].GetName(), namespace),
		aimed: creating(func(*Scenario) *unstructured.Unstructured {
			return object(apiVersion, kind, namespace, name("i17"), map[string]any{"spec": specOf(refusing[0])})
		}),
	}}
	existing, err := listOfKyverno(ctx, e.Admin, exception)
	if err != nil {
		return nil, err
	}
	for _, u := range existing {
		if u.GetNamespace() == namespace {
			all = append(all, request{what: fmt.Sprintf("change PolicyException %s/%s of Kyverno", namespace, u.GetName()), aimed: merging(&u, `{"metadata":{"annotations":{"tenure-attack":"i17"}}}`)})
		}
	}
	return all, nil
}
