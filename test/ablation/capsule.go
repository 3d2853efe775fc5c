package ablation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/capsule/v1beta2"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// capsuleRules are rules of a Capsule Tenant that refuse an object for each policy of [capsuleRule].
const capsuleRules = `{"status":{"rules":[
{"enforce":{"action":"deny","workloads":{"registries":[{"exact":["images.tenure-canary.example/w15:1"]}]}}},
{"enforce":{"action":"deny","services":{"types":["ClusterIP","LoadBalancer"]}}},
{"enforce":{"action":"deny","ingress":{"types":["Ingress"],"hostnames":[{"exact":["w15.tenure-canary.example"]}]}}}]}}`

// capsuleRule returns the control that is one policy of the rules of Capsule Tenants. While it is removed,
// the tenant's namespace has such rules, which the fleet lacks.
func capsuleRule(name string) Control {
	c := Control{Name: "policy " + admission.Prefix + "capsule-" + name, Away: "the tenant's namespace gets rules of a Capsule Tenant and the policies that read them, without the binding of this policy"}
	c.remove = func(ctx context.Context, t *target) (func(context.Context) error, error) {
		added, err := capsuleObjects(t.account.Namespace, c.Name)
		gone := func(ctx context.Context) error {
			errs := []error{t.labelRules(ctx, "null")}
			for _, u := range slices.Backward(added) {
				errs = append(errs, client.IgnoreNotFound(t.admin.Delete(ctx, u)))
			}
			t.unsettled = true
			return errors.Join(errs...)
		}
		if err != nil {
			return gone, err
		}
		for _, u := range added {
			if err := poll(ctx, fmt.Sprintf("%T %s to be created", u, u.GetName()), func() (bool, error) {
				err := t.admin.Create(ctx, u.DeepCopyObject().(client.Object))
				return err == nil || apierrors.IsAlreadyExists(err), err
			}); err != nil {
				return gone, err
			}
		}
		rules := rulesIn(t.account.Namespace)
		err = errors.Join(t.admin.Status().Patch(ctx, rules, client.RawPatch("application/merge-patch+json", []byte(capsuleRules))), t.labelRules(ctx, `"true"`))
		t.unsettled = true
		return gone, errors.Join(err, t.capsuleRulesInForce(ctx))
	}
	return c
}

// rulesIn returns an empty RuleStatus of a namespace.
func rulesIn(namespace string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(v1beta2.GroupVersion.String())
	u.SetKind("RuleStatus")
	u.SetNamespace(namespace)
	u.SetName(v1beta2.RulesName)
	return u
}

// capsuleObjects returns the kind RuleStatus, the policies and bindings of the rules without the binding of
// one policy, and a RuleStatus in a namespace.
func capsuleObjects(namespace, without string) ([]client.Object, error) {
	crds, err := flux.ReadObjects(config.CapsuleCRDs())
	if err != nil {
		return nil, err
	}
	var all []client.Object
	for _, u := range crds {
		if strings.HasPrefix(u.GetName(), "rulestatuses.") {
			all = append(all, u)
		}
	}
	policies, bindings := admission.CapsuleRules()
	for i := range policies {
		if slices.Contains([]string{"pods", "services", "hosts"}, strings.TrimPrefix(policies[i].Name, admission.Prefix+"capsule-")) {
			all = append(all, &policies[i])
		}
	}
	for i := range bindings {
		there := slices.ContainsFunc(all, func(o client.Object) bool { return o.GetName() == bindings[i].Spec.PolicyName })
		if there && "policy "+bindings[i].Spec.PolicyName != without {
			all = append(all, &bindings[i])
		}
	}
	return append(all, rulesIn(namespace)), nil
}

// labelRules gives the tenant's namespace the label that binds the policies of the rules, or removes the label.
func (t *target) labelRules(ctx context.Context, value string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.account.Namespace}}
	return t.admin.Patch(ctx, namespace, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+v1beta2.LabelRules+`":`+value+`}}}`)))
}

// capsuleRulesInForce waits until the API server has the parameters of all bound policies: until then, the
// policies refuse every request.
func (t *target) capsuleRulesInForce(ctx context.Context) error {
	for _, o := range []client.Object{
		&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "images.tenure-canary.example/w15:1"}}}},
		&corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}}},
	} {
		o.SetNamespace(t.account.Namespace)
		o.SetName(sentinel + "-rules")
		if err := poll(ctx, "the policies of Capsule's rules to have their parameters", func() (bool, error) {
			err := t.admin.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
			text := fmt.Sprint(err)
			return !strings.Contains(text, "failed to configure policy") && !strings.Contains(text, "no params found"), err
		}); err != nil {
			return err
		}
	}
	return nil
}
