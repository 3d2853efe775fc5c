package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addOverwrittenGuardrails(register func(...Attack)) {
	attack := Attack{
		ID: "A5", Via: API, Owners: OwnersWithin,
		Kinds:      append([]string{"CronJob", "Namespace"}, everyGuardrail...),
		Title:      "overwrites the platform's objects in its namespace by server-side apply with force, deletes them with all objects of their kind or with the namespace, or keeps them out with a ResourceQuota; or has a controller make objects that count as the platform's",
		Controls:   []string{"RBAC", "policy on platform-managed objects"},
		References: []string{"MTB CPI-2"},
		Fix:        Fix{Advice: "give the tenant's role no write verb on roles, role bindings, resource quotas, limit ranges, network policies and namespaces, or refuse these requests for the platform's objects with a ValidatingAdmissionPolicy, as the rule tenure-managed does, and ResourceQuotas of the tenant that count what the platform applies, as tenure-quotas does", Rights: true},
		Slow:       true,
		Run: func(ctx context.Context, e *Scenario) Finding {
			objects, err := e.guardrails(ctx)
			if err != nil {
				return notProven(firstLine(err.Error()))
			}
			if len(objects) == 0 {
				return e.nothingThere(ctx, noGuardrails, "the platform has put nothing into namespace "+e.Namespace)
			}
			namespaces, err := e.deliveredNamespaces(ctx)
			if err != nil {
				return notProven(firstLine(err.Error()))
			}
			profile, err := e.profile(ctx)
			if err != nil {
				return notProven(firstLine(err.Error()))
			}
			return overwrites(ctx, e, objects, namespaces, profile)
		},
	}
	register(attack)
	attack.Kind, attack.Owners, attack.Kinds = "ServiceAccount", OwnersNever, []string{"ServiceAccount"}
	attack.Title = "overwrites the service account that the platform created for it, by server-side apply with force"
	attack.Fix = Fix{Advice: "give the tenant's role no write verb on serviceaccounts, or refuse changes of the platform's accounts with a ValidatingAdmissionPolicy", Rights: true}
	attack.Run = func(ctx context.Context, e *Scenario) Finding {
		account := object("v1", "ServiceAccount", e.Account.Namespace, e.Account.Name, nil)
		return requests(overwriting("overwrite the account that Flux applies its objects as", account))(ctx, e)
	}
	register(attack)
}

// nothingThere returns the finding of an attack without an existing target: stopped, if another request
// shows that the tenant's identity works.
func (e *Scenario) nothingThere(ctx context.Context, control, message string) Finding {
	if err := identityWorks(ctx, e); err != nil {
		return notProven("the tenant cannot do anything here: " + firstLine(err.Error()))
	}
	return stopped(control, message)
}

// overwrites tries each of the objects, and the deletion of each of the namespaces. With a TenancyProfile,
// which is nil if there is none, it tries to get objects with the platform's labels.
func overwrites(ctx context.Context, e *Scenario, objects, namespaces []unstructured.Unstructured, profile *v1alpha1.TenancyProfile) Finding {
	var all []request
	for _, u := range objects {
		all = append(all, overwriting(fmt.Sprintf("overwrite %s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName()), &u), emptying(u))
	}
	if slices.ContainsFunc(objects, func(u unstructured.Unstructured) bool { return u.GetKind() == "NetworkPolicy" }) {
		all = append(all, passedOver(), keptOut())
	}
	if profile != nil && len(profile.Spec.PlatformNamespaces) > 0 {
		all = append(all, forgedTemplate(profile.Spec.PlatformNamespaces[0]))
	}
	for _, namespace := range namespaces {
		all = append(all, request{
			what: fmt.Sprintf("delete Namespace %s, which the platform's repository delivers, with the platform's objects in it", namespace.GetName()),
			aimed: func(ctx context.Context, e *Scenario) error {
				return e.As.Delete(ctx, namespace.DeepCopy(), client.DryRunAll)
			},
		})
	}
	return requests(all...)(ctx, e)
}

// passedOver returns the request for a NetworkPolicy with an annotation that makes Flux skip it: Flux would
// then not apply a policy of the platform with the same name.
func passedOver() request {
	policy := func(annotations map[string]string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := object("networking.k8s.io/v1", "NetworkPolicy", e.Namespace, name("a5"), map[string]any{"spec": map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"tenure.dev/attack": "a5"}}}})
			u.SetAnnotations(annotations)
			return u
		}
	}
	return request{
		what:  "keep out a network policy that the platform applies later, by an object of the same name over which Flux passes",
		aimed: creating(policy(map[string]string{"kustomize.toolkit.fluxcd.io/ssa": "Ignore"})),
		own:   creating(policy(nil)),
	}
}

// keptOut returns the request for a ResourceQuota of no NetworkPolicies, which counts those of the platform too.
func keptOut() request {
	quota := func(counted string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			return object("v1", "ResourceQuota", e.Namespace, name("a5"), map[string]any{"spec": map[string]any{"hard": map[string]any{counted: "0"}}})
		}
	}
	return request{
		what:  "keep out the network policies that the platform applies later, by a ResourceQuota of its own",
		aimed: creating(quota("count/networkpolicies.networking.k8s.io")),
		own:   creating(quota("requests.example.com/tenure-attack")),
	}
}

// forgedTemplate returns the request for a CronJob whose Jobs get the labels of the objects that a sync of a
// namespace of the platform applied. The Jobs would count as the platform's, and take the place of its
// workloads in the TenantParameters.
func forgedTemplate(platform string) request {
	cronJob := func(labels map[string]any) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			pod, _, _ := unstructured.NestedMap(hardenedPod("a5", map[string]any{"restartPolicy": "Never"})(e).Object, "spec")
			return object("batch/v1", "CronJob", e.Namespace, name("a5"), map[string]any{"spec": map[string]any{
				"schedule": "@yearly", "suspend": true,
				"jobTemplate": map[string]any{
					"metadata": map[string]any{"labels": labels},
					"spec":     map[string]any{"template": map[string]any{"spec": pod}},
				},
			}})
		}
	}
	return request{
		what:  "have Jobs that count as the platform's, by labels in the template of a CronJob",
		aimed: creating(cronJob(map[string]any{"kustomize.toolkit.fluxcd.io/name": "tenants", "kustomize.toolkit.fluxcd.io/namespace": platform})),
		own:   creating(cronJob(map[string]any{"tenure.dev/attack": "a5"})),
	}
}

// overwriting returns a dry run that takes over an object.
func overwriting(what string, u *unstructured.Unstructured) request {
	return request{
		what:  what,
		aimed: func(ctx context.Context, e *Scenario) error { return e.tryApply(ctx, u) },
		own: func(ctx context.Context, e *Scenario) error {
			return e.tryApply(ctx, configMap(e.Namespace, name("a5")))
		},
	}
}

// tryApply asks the API server whether the tenant could take over an object.
func (e *Scenario) tryApply(ctx context.Context, u *unstructured.Unstructured) error {
	mine := object(u.GetAPIVersion(), u.GetKind(), u.GetNamespace(), u.GetName(), nil)
	mine.SetLabels(map[string]string{"tenure-attack": "a5"})
	return e.As.Apply(ctx, client.ApplyConfigurationFromUnstructured(mine), client.ForceOwnership, client.FieldOwner("tenure-attack"), client.DryRunAll)
}

// guardrails returns the platform's limiting objects in the tenant's namespace: objects with the tenant's
// label, and objects that a sync of another namespace applied.
func (e *Scenario) guardrails(ctx context.Context) ([]unstructured.Unstructured, error) {
	var found []unstructured.Unstructured
	for _, kind := range []struct{ version, kind string }{
		{"v1", "ResourceQuota"},
		{"v1", "LimitRange"},
		{"networking.k8s.io/v1", "NetworkPolicy"},
		{"rbac.authorization.k8s.io/v1", "RoleBinding"},
		{"rbac.authorization.k8s.io/v1", "Role"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind.version)
		list.SetKind(kind.kind + "List")
		if err := e.Admin.List(ctx, list, client.InNamespace(e.Namespace)); err != nil {
			return nil, fmt.Errorf("cannot list the objects of kind %s: %w", kind.kind, err)
		}
		for _, u := range list.Items {
			// The manager adds and removes its own right with the objects that it replicates: I15.
			if role, _, _ := unstructured.NestedString(u.Object, "roleRef", "name"); role == tenancy.ReplicatorRole {
				continue
			}
			if e.platforms(u.GetLabels()) {
				found = append(found, u)
			}
		}
	}
	return found, nil
}

// deliveredNamespaces returns the tenant's namespaces that a sync of another namespace applied.
func (e *Scenario) deliveredNamespaces(ctx context.Context) ([]unstructured.Unstructured, error) {
	var delivered []unstructured.Unstructured
	for _, name := range e.Tenant.Namespaces {
		namespace := object("v1", "Namespace", "", name, nil)
		err := e.Admin.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read Namespace %s: %w", name, err)
		}
		if from := flux.AppliedFrom(namespace.GetLabels()); from != "" && !slices.Contains(e.Tenant.Namespaces, from) {
			delivered = append(delivered, *namespace)
		}
	}
	return delivered, nil
}

// Kyverno's labels of an object that a policy generated: the name of the policy, and its namespace if it is no ClusterPolicy.
const (
	generatedBy     = "generate.kyverno.io/policy-name"
	generatedByFrom = "generate.kyverno.io/policy-namespace"
)

// platforms reports whether an object with these labels belongs to the platform.
func (e *Scenario) platforms(labels map[string]string) bool {
	if labels[generatedBy] != "" {
		return !slices.Contains(e.Tenant.Namespaces, labels[generatedByFrom])
	}
	if namespace := flux.AppliedFrom(labels); namespace != "" {
		return !slices.Contains(e.Tenant.Namespaces, namespace)
	}
	_, labelled := tenancy.TenantOf(labels)
	return labelled
}
