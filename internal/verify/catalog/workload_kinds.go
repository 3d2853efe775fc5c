package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-dev/tenure/internal/discovery"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// workload is a kind of objects from which a controller of Kubernetes creates Pods.
type workload struct {
	apiVersion, kind string
	// controller is the service account in kube-system that creates the Pods.
	controller string
	// spec returns the object's spec for a template and the labels of its Pods.
	spec func(template map[string]any, labels map[string]any) map[string]any
}

// workloads are all such kinds.
var workloads = []workload{
	{"apps/v1", "Deployment", "replicaset-controller", selecting},
	{"apps/v1", "ReplicaSet", "replicaset-controller", selecting},
	{"apps/v1", "StatefulSet", "statefulset-controller", selecting},
	{"apps/v1", "DaemonSet", "daemon-set-controller", selecting},
	{"v1", "ReplicationController", "replication-controller", func(template, labels map[string]any) map[string]any {
		return map[string]any{"selector": labels, "template": template}
	}},
	{"batch/v1", "Job", "job-controller", func(template, _ map[string]any) map[string]any { return once(template) }},
	{"batch/v1", "CronJob", "job-controller", func(template, _ map[string]any) map[string]any {
		return map[string]any{"schedule": "0 0 1 1 *", "jobTemplate": map[string]any{"spec": once(template)}}
	}},
}

func selecting(template, labels map[string]any) map[string]any {
	return map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": template}
}

func once(template map[string]any) map[string]any {
	pod, _, _ := unstructured.NestedMap(template, "spec")
	pod["restartPolicy"] = "Never"
	return map[string]any{"template": map[string]any{"metadata": template["metadata"], "spec": pod}}
}

// of returns an object of the kind that creates Pods like a given Pod.
func (w workload) of(pod *unstructured.Unstructured) *unstructured.Unstructured {
	return w.withLabels(pod, map[string]any{"tenure-attack": pod.GetName()})
}

// withLabels is [workload.of] with the given labels of the Pods, by which the object selects them.
func (w workload) withLabels(pod *unstructured.Unstructured, labels map[string]any) *unstructured.Unstructured {
	spec, _, _ := unstructured.NestedMap(pod.Object, "spec")
	metadata := map[string]any{"labels": labels}
	if annotations, found, _ := unstructured.NestedMap(pod.Object, "metadata", "annotations"); found {
		metadata["annotations"] = annotations
	}
	template := map[string]any{"metadata": metadata, "spec": spec}
	return object(w.apiVersion, w.kind, pod.GetNamespace(), pod.GetName(), map[string]any{"spec": w.spec(template, labels)})
}

// runsPods returns an attack that runs Pods. It sends the requests, of which the first are for the Pods,
// and then tries every kind of workload with each Pod: a tenant that may create a Deployment needs no right
// to Pods, and a policy may check only the Pods that people create, or only some kinds of workloads. If the
// API server accepts the workload, the account of the controller creates the Pod.
func runsPods(pods []func(*Scenario) *unstructured.Unstructured, direct ...request) func(context.Context, *Scenario) Finding {
	return func(ctx context.Context, e *Scenario) Finding {
		f := requests(direct...)(ctx, e)
		denied := map[string]bool{}
		for i, make := range pods {
			if f.Outcome == Stopped {
				f = e.byWorkloads(ctx, f, make(e), direct[i].what, denied)
			}
		}
		return f
	}
}

// byWorkloads tries a Pod in every kind of workload except the denied kinds, to which it adds the kinds
// that the tenant may not create at all. It returns the finding f with the further controls, or another
// finding if they do not stop the attack.
func (e *Scenario) byWorkloads(ctx context.Context, f Finding, pod *unstructured.Unstructured, what string, denied map[string]bool) Finding {
	for _, w := range workloads {
		if denied[w.kind] {
			continue
		}
		plain := hardenedPod("plain", nil)(e)
		err := aboutAttack(ctx, e.tryExempt(ctx, w.of(pod), e.tryIntact), func(ctx context.Context) error { return e.tryIntact(ctx, w.of(plain)) })
		refused := judge(err, "")
		var marked *markedError
		switch {
		case err == nil, errors.As(err, &marked):
			err = e.podOfController(ctx, w, pod, plain)
			if err == nil && marked != nil {
				err = marked
			}
			refused = judge(err, fmt.Sprintf("it could %s, by a %s whose controller makes the Pod", what, w.kind))
		case refused.Control == rbac || refused.Control == notInstalled:
			denied[w.kind] = true
			continue
		case strings.HasPrefix(refused.Control, quotaControl):
			return notProven("a quota that is used up proves nothing: " + refused.Message)
		case classOf(refused.Control) == byPolicies:
			// A policy that refuses every such workload may demand what the attack does not know. Then its Pod decides.
			if own := e.tryCreate(ctx, w.of(plain)); refusedByPolicy(own) {
				if err = e.podOfController(ctx, w, pod, plain); judge(err, "").Outcome == GotThrough {
					return notProven(fmt.Sprintf("the tenant cannot run a plain %s either, and no control refuses the Pod that its controller would make: %s", w.kind, firstLine(own.Error())))
				}
				refused = judge(err, "")
			}
		}
		if refused = byAnotherRule(ctx, err, refused); refused.Outcome != Stopped {
			return refused
		}
		f = f.and(refused)
	}
	return f
}

// podOfController tries the Pod that the controller of a workload creates for the tenant, with the marks that exempt the
// Pod from a policy. The tenant chooses the labels and the annotations of the Pod, and the beginning of its name.
func (e *Scenario) podOfController(ctx context.Context, w workload, pod, plain *unstructured.Unstructured) error {
	var refusal error
	err := e.tryExempt(ctx, pod, func(ctx context.Context, u *unstructured.Unstructured) error {
		if !strings.HasSuffix(u.GetName(), pod.GetName()) {
			return refusal
		}
		err := e.createsIntact(ctx, w.controller, u)
		if refusal == nil {
			refusal = err
		}
		return err
	})
	return aboutAttack(ctx, err, func(ctx context.Context) error { return e.createsIntact(ctx, w.controller, plain) })
}

// podsAlsoByGit registers an attack through the API, and the same attack with a Pod in the tenant's
// repository. If the tenant may not create Pods, the repository contains a workload whose controller
// creates the Pod.
func podsAlsoByGit(register func(...Attack), pod func(*Scenario) *unstructured.Unstructured, a Attack) {
	register(a)
	a.Owners = OwnersNever
	canary := func(e *Scenario) *unstructured.Unstructured {
		if e.runsBy == nil {
			return pod(e)
		}
		return e.runsBy.idle(pod(e))
	}
	a = deliversManifests(a, "Pod", canary, ownConfigMap(strings.ToLower(a.ID)))
	run := a.Run
	a.Run = func(ctx context.Context, e *Scenario) Finding {
		f := run(ctx, e)
		if f.Outcome != GotThrough || e.runsBy == nil {
			return f
		}
		return judge(e.creates(ctx, e.runsBy.controller, pod(e)), f.Evidence+", and its controller can make the Pod")
	}
	register(a)
}

// idle returns an object of the kind for a Pod from which no controller creates a Pod.
func (w workload) idle(pod *unstructured.Unstructured) *unstructured.Unstructured {
	u := w.of(pod)
	spec, _ := u.Object["spec"].(map[string]any)
	switch w.kind {
	case "Job":
		spec["suspend"] = true
	case "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController":
		spec["replicas"] = int64(0)
	}
	return u
}

// findWorkload returns the first kind of workload that the tenant's rights let Flux apply. It returns nil
// if Flux may apply Pods, or none of these kinds.
func (e *Scenario) findWorkload(ctx context.Context) *workload {
	applies := func(u *unstructured.Unstructured) bool { return judge(e.applies(ctx, u), "").Control != rbac }
	pod := hardenedPod("kind", nil)(e)
	if applies(pod) {
		return nil
	}
	i := slices.IndexFunc(workloads, func(w workload) bool { return applies(w.of(pod)) })
	if i < 0 {
		return nil
	}
	return &workloads[i]
}

// applies tries to apply an object as Flux does, in a dry run.
func (e *Scenario) applies(ctx context.Context, u *unstructured.Unstructured) error {
	return e.As.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("tenure-attack"), client.DryRunAll)
}

// newControllers returns clients with the identities of the controllers of Kubernetes that
// create Pods.
func newControllers(config *rest.Config, with *customs) (map[string]client.Client, error) {
	clients := map[string]client.Client{}
	for _, w := range workloads {
		account := discovery.Account{Namespace: metav1.NamespaceSystem, Name: w.controller}
		c, err := asIdentity(config, identity{user: account.User(), groups: account.Groups(), controller: true}, with)
		if err != nil {
			return nil, fmt.Errorf("cannot act as %s: %w", account, err)
		}
		clients[w.controller] = c
	}
	return clients, nil
}
