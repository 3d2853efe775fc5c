package ablation

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// flag returns the control that is a flag of a Flux controller.
func flag(controller, name string) Control {
	return arguments("flag "+name+" of "+controller, "the argument is removed from the controller's Deployment", controller, func(args []string) []string {
		return slices.DeleteFunc(args, hasFlag(name))
	})
}

// unset returns the control that is the value of a flag of a Flux controller.
func unset(controller, name string) Control {
	off := name + "=false"
	if name == "--default-service-account" {
		off = name + "="
	}
	return arguments("value of flag "+name+" of "+controller, "the argument is "+off, controller, func(args []string) []string {
		return append(slices.DeleteFunc(args, hasFlag(name)), off)
	})
}

// arguments returns a control that is removed by a change of a controller's arguments.
func arguments(name, away, controller string, change func([]string) []string) Control {
	return inContainer(name, away, controller, func(c *corev1.Container) { c.Args = change(c.Args) })
}

// noWayOut returns the control that limits the hosts to which kustomize-controller connects.
func noWayOut() Control {
	return inContainer("HTTPS_PROXY of kustomize-controller", "the variables with proxies are removed from the controller's Deployment", "kustomize-controller", func(c *corev1.Container) {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return strings.HasSuffix(e.Name, "_PROXY") })
	})
}

// gitProtocols returns the control that keeps git of kustomize-controller from SSH.
func gitProtocols() Control {
	return inContainer("GIT_ALLOW_PROTOCOL of kustomize-controller", "the variable is removed from the controller's Deployment", "kustomize-controller", func(c *corev1.Container) {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "GIT_ALLOW_PROTOCOL" })
	})
}

// artifactsWithoutProxy removes the control that kustomize-controller reaches source-controller through the artifact proxy
// alone.
func artifactsWithoutProxy() Control {
	return inContainer("HTTP_PROXY of kustomize-controller", "source-controller is added to NO_PROXY of the controller's Deployment", "kustomize-controller", func(c *corev1.Container) {
		for i := range c.Env {
			if c.Env[i].Name == "NO_PROXY" {
				c.Env[i].Value += ",.svc.cluster.local.:80"
			}
		}
	})
}

// inContainer returns a control that is removed by a change of a controller's container.
func inContainer(name, away, controller string, change func(*corev1.Container)) Control {
	return Control{
		Name: name,
		Away: away,
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			key := client.ObjectKey{Namespace: t.opts.Attack.Platform, Name: controller}
			var before *corev1.Container
			set := func(ctx context.Context, edit func(*corev1.Container)) error {
				d := &appsv1.Deployment{}
				if err := t.admin.Get(ctx, key, d); err != nil {
					return err
				}
				old := d.DeepCopy()
				edit(&d.Spec.Template.Spec.Containers[0])
				if err := t.admin.Patch(ctx, d, client.MergeFrom(old)); err != nil {
					return err
				}
				return t.rolledOut(ctx, key)
			}
			restore := func(ctx context.Context) error {
				if before == nil {
					return nil
				}
				return set(ctx, func(c *corev1.Container) { c.Args, c.Env = before.Args, before.Env })
			}
			err := set(ctx, func(c *corev1.Container) {
				before = c.DeepCopy()
				change(c)
			})
			return restore, err
		},
	}
}

// hasFlag returns a function that reports whether an argument sets a flag.
func hasFlag(name string) func(arg string) bool {
	return func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return flag == name
	}
}

// rolledOut waits until a Deployment has only the Pods of its current spec: an old controller could still
// answer.
func (t *target) rolledOut(ctx context.Context, key client.ObjectKey) error {
	return poll(ctx, key.Name+" to be restarted", func() (bool, error) {
		d := &appsv1.Deployment{}
		if err := t.admin.Get(ctx, key, d); err != nil {
			return false, err
		}
		s := d.Status
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != *d.Spec.Replicas || s.AvailableReplicas != *d.Spec.Replicas || s.Replicas != *d.Spec.Replicas {
			return false, nil
		}
		pods := &corev1.PodList{}
		if err := t.admin.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return false, err
		}
		return len(pods.Items) == int(*d.Spec.Replicas), nil
	})
}

// policy returns a control that is a ValidatingAdmissionPolicy with a binding of the same
// name.
func policy(name string) Control {
	return Control{
		Name: "policy " + name,
		Away: "its ValidatingAdmissionPolicyBinding is deleted",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			b := &admissionv1.ValidatingAdmissionPolicyBinding{}
			nothing := func(context.Context) error { return nil }
			if err := t.admin.Get(ctx, client.ObjectKey{Name: name}, b); err != nil {
				return nothing, err
			}
			if err := t.admin.Delete(ctx, b); err != nil {
				return nothing, err
			}
			restore := func(ctx context.Context) error {
				again := &admissionv1.ValidatingAdmissionPolicyBinding{
					ObjectMeta: metav1.ObjectMeta{Name: b.Name, Labels: b.Labels, Annotations: b.Annotations}, Spec: b.Spec,
				}
				t.unsettled = true
				return t.admin.Create(ctx, again)
			}
			t.unsettled = true
			return restore, nil
		},
	}
}

// sentinel is the name of a policy and of its binding, and the prefix of the names of the ConfigMaps that
// the policy forbids.
const sentinel = "tenure-ablation"

// policiesInForce waits until the API server enforces the current policies and bindings.
func (t *target) policiesInForce(ctx context.Context) error {
	err := catalog.AwaitPolicies(ctx, t.admin, sentinel)
	t.unsettled = t.unsettled && err != nil
	return err
}

// quotas returns the control of the tenant's ResourceQuotas.
func quotas() Control {
	return Control{
		Name: "quotas of the tenant's namespaces",
		Away: "they are deleted",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			var gone []corev1.ResourceQuota
			restore := func(ctx context.Context) error {
				var errs []error
				for _, q := range gone {
					again := &corev1.ResourceQuota{
						ObjectMeta: metav1.ObjectMeta{Namespace: q.Namespace, Name: q.Name, Labels: q.Labels, Annotations: q.Annotations}, Spec: q.Spec,
					}
					errs = append(errs, t.admin.Create(ctx, again), poll(ctx, "the quota to be counted", func() (bool, error) {
						err := t.admin.Get(ctx, client.ObjectKeyFromObject(again), again)
						return len(again.Status.Hard) == len(again.Spec.Hard), err
					}))
				}
				return errors.Join(errs...)
			}
			for _, name := range t.tenant.Namespaces {
				list := &corev1.ResourceQuotaList{}
				if err := t.admin.List(ctx, list, client.InNamespace(name)); err != nil {
					return restore, err
				}
				for _, q := range list.Items {
					// A part of a Tenant's quota has a finalizer of the manager.
					if err := errors.Join(t.admin.Delete(ctx, &q), t.withoutFinalizers(ctx, &q)); err != nil {
						return restore, err
					}
					gone = append(gone, q)
				}
			}
			if len(gone) == 0 {
				return restore, errors.New("there are none")
			}
			return restore, nil
		},
	}
}

// withoutFinalizers removes the finalizers of an object that is being deleted, if it has any.
func (t *target) withoutFinalizers(ctx context.Context, o client.Object) error {
	if len(o.GetFinalizers()) == 0 {
		return nil
	}
	return client.IgnoreNotFound(t.admin.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))
}

// awaited maps the namespace labels that affect admission to functions that wait until the API server has
// processed such a label, or its removal.
var awaited = map[string]func(ctx context.Context, t *target, labelled bool) error{
	"pod-security.kubernetes.io/enforce": func(ctx context.Context, t *target, labelled bool) error { return t.podsRefused(ctx, labelled) },
	v1alpha1.LabelFluxTenant: func(ctx context.Context, t *target, labelled bool) error {
		return t.selectedBy(ctx, v1alpha1.LabelFluxTenant, labelled)
	},
}

// label returns the control that is a label of the tenant's namespaces for admission.
func label(key string, await func(ctx context.Context, t *target, labelled bool) error) Control {
	return Control{
		Name: "label " + key,
		Away: "the label is removed from the tenant's namespaces",
		remove: func(ctx context.Context, t *target) (func(context.Context) error, error) {
			before := map[string]string{}
			restore := func(ctx context.Context) error {
				var errs []error
				for name, value := range before {
					errs = append(errs, t.labelNamespace(ctx, name, key, `"`+value+`"`))
				}
				return errors.Join(append(errs, await(ctx, t, true))...)
			}
			for _, name := range t.tenant.Namespaces {
				ns := &corev1.Namespace{}
				if err := t.admin.Get(ctx, client.ObjectKey{Name: name}, ns); err != nil {
					return restore, err
				}
				before[name] = ns.Labels[key]
				if err := t.labelNamespace(ctx, name, key, "null"); err != nil {
					return restore, err
				}
			}
			return restore, await(ctx, t, false)
		},
	}
}

func (t *target) labelNamespace(ctx context.Context, name, key, value string) error {
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+key+`":`+value+`}}}`))
	return t.admin.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch)
}

// podsRefused waits until the API server refuses a privileged Pod in the tenant's namespace, or accepts it.
func (t *target) podsRefused(ctx context.Context, refused bool) error {
	privileged := true
	// A quota of the namespace refuses a Pod without requests.
	little := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.home(), Name: sentinel},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: sentinel, Image: "images.example.com/any:1", SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			Resources: corev1.ResourceRequirements{Requests: little, Limits: little},
		}}},
	}
	return poll(ctx, "Pod Security to follow the label", func() (bool, error) {
		err := t.admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		if err == nil || apierrors.IsForbidden(err) {
			return refused == (err != nil), nil
		}
		return false, err
	})
}
