package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestRunsPods checks that a tenant gets a Pod through a workload of any kind that it may create if the
// controller may create the Pod, even if a control refuses the Pod to the tenant itself.
func TestRunsPods(t *testing.T) {
	t.Parallel()
	privileged := pod(map[string]any{}, map[string]any{"privileged": true})
	for _, w := range workloads {
		for row, tc := range map[string]struct {
			reason string
			// pods refuses Pods to the tenant, others refuses the other kinds of
			// workloads, and controllers refuses Pods to controllers. plain is set if others refuses plain
			// workloads too.
			pods, others, controllers error
			allowed, plain            bool
			want                      Outcome
			control                   string
		}{
			"no right":           {"RBAC refuses everything", errRefused, errRefused, nil, false, false, Stopped, rbac},
			"one kind":           {"the role has one kind of workloads", errRefused, errRefused, nil, true, false, GotThrough, ""},
			"role and policy":    {"and a policy on Pods stops its controller", errRefused, errRefused, errPolicy, true, false, Stopped, rbac + ", policy p"},
			"policy":             {"a policy refuses Pods and all workloads", errPolicy, errPolicy, nil, false, false, Stopped, "policy p"},
			"policy on the rest": {"a policy leaves out one kind of workloads, and the Pods of controllers", errPolicy, errPolicy, nil, true, false, GotThrough, ""},
			"policy on all Pods": {"a policy on Pods looks at the Pods of controllers", errPolicy, errPolicy, errPolicy, true, false, Stopped, "policy p"},
			"policy on labels":   {"a policy refuses every workload, and none refuses its Pods", errRefused, errPolicy, nil, false, true, NotProven, ""},
			"policies":           {"a policy refuses every workload, and another one its Pods", errRefused, errPolicy, errPolicy, false, true, Stopped, rbac + ", policy p"},
			"outage":             {"an outage is no control", errPolicy, errPolicy, errors.New("connection refused"), true, false, NotProven, ""},
		} {
			e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				var err error
				switch kind := o.GetObjectKind().GroupVersionKind().Kind; {
				case kind == "Pod":
					err = tc.pods
				case kind != "ConfigMap" && (kind != w.kind || !tc.allowed) && (o.GetName() != name("plain") || tc.plain):
					err = tc.others
				}
				if err != nil {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, o.GetName(), err)
				}
				return c.Create(ctx, o, opts...)
			}})
			if tc.controllers != nil {
				for account := range e.controllers {
					refused := error(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", tc.controllers))
					if tc.want == NotProven {
						refused = tc.controllers
					}
					e.controllers[account] = interceptor.NewClient(e.Admin, refusing(refused, name("w3")))
				}
			}
			f := runsPods([]func(*Scenario) *unstructured.Unstructured{privileged}, request{what: "run a Pod", aimed: creating(privileged)})(t.Context(), e)
			if f.Outcome != tc.want || f.Control != tc.control {
				t.Errorf("%s, %s: %s: want %s by %q, got %s by %q: %s", w.kind, row, tc.reason, tc.want, tc.control, f.Outcome, f.Control, f.Reason)
			}
		}
	}
}

// A container that is added to a running Pod is a container. Without the right to add one, no
// Pod is made.
func TestDebugging(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		answer  error
		want    Outcome
		control string
	}{
		"no right": {"RBAC refuses the subresource", errRefused, Stopped, rbac},
		"policy":   {"a policy refuses the container", errPolicy, Stopped, "policy p"},
		"accepted": {"the API server accepts the container", nil, GotThrough, ""},
	} {
		var made []string
		e := newFakeEnv(interceptor.Funcs{})
		e.As = interceptor.NewClient(e.Admin, interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, o client.Object, _ ...client.SubResourceUpdateOption) error {
			p, ok := o.(*corev1.Pod)
			if subresource != "ephemeralcontainers" || !ok || !*p.Spec.EphemeralContainers[0].SecurityContext.Privileged {
				t.Errorf("%s: not a privileged ephemeral container: %s %v", name, subresource, o)
			}
			there := c.Get(ctx, client.ObjectKeyFromObject(o), &corev1.Pod{})
			switch {
			case errors.Is(tc.answer, errRefused):
			case there != nil:
				return there
			default:
				made = append(made, o.GetName())
			}
			if tc.answer == nil {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), tc.answer)
		}})
		f := judge(debugging(t.Context(), e), "it could")
		if f.Outcome != tc.want || f.Control != tc.control {
			t.Errorf("%s: %s: want %s by %q, got %s by %q: %s", name, tc.reason, tc.want, tc.control, f.Outcome, f.Control, f.Reason)
		}
		if wanted := !errors.Is(tc.answer, errRefused); wanted != (len(made) == 1) {
			t.Errorf("%s: Pods made: %q", name, made)
		}
		pods := &corev1.PodList{}
		if err := e.Admin.List(t.Context(), pods); err != nil || len(pods.Items) > 0 {
			t.Errorf("%s: a Pod is left behind (%v)", name, err)
		}
	}
}

// errRefused is a refusal in the words of RBAC.
var errRefused = &refusedError{}

type refusedError struct{}

// errPolicy is a refusal in the words of a policy.
var errPolicy = errors.New("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no")

func (*refusedError) Error() string { return `User "team" cannot create resource "any"` }

// A policy on the Pods of controllers, or on the workloads, may exempt those with a label. The controller chooses the end
// of a Pod's name.
func TestExemptPodsOfControllers(t *testing.T) {
	t.Parallel()
	privileged := pod(map[string]any{}, map[string]any{"privileged": true})
	refused := forbidden(errPolicy.Error())
	for _, tc := range []struct {
		reason string
		mark   mark
		// pods is set if the policy refuses Pods, and otherwise it refuses the workloads.
		pods bool
		want Outcome
	}{
		{"a label of the Pod exempts it", mark{"skip", "true"}, true, GotThrough},
		{"the beginning of the Pod's name exempts it", mark{nameMark, "free-*"}, true, GotThrough},
		{"the end of the Pod's name exempts it", mark{nameMark, "*-free"}, true, Stopped},
		{"a label of the workload exempts it", mark{"skip", "true"}, false, GotThrough},
		{"the end of the workload's name exempts it", mark{nameMark, "*-free"}, false, GotThrough},
	} {
		exempt := func(o client.Object) bool {
			return o.GetLabels()["skip"] != "" || strings.Contains(o.GetName(), "free")
		}
		e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch kind := o.GetObjectKind().GroupVersionKind().Kind; {
			case kind == "Pod":
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, o.GetName(), errRefused)
			case kind != "ConfigMap" && !tc.pods && !exempt(o):
				return refused
			}
			return c.Create(ctx, o, opts...)
		}})
		for account := range e.controllers {
			e.controllers[account] = interceptor.NewClient(e.Admin, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if tc.pods && !exempt(o) {
					return refused
				}
				return nil
			}})
		}
		e.inFull, e.exemptions = true, exemptionsOf("policy p", false, []mark{tc.mark})
		f := runsPods([]func(*Scenario) *unstructured.Unstructured{privileged}, request{what: "run a Pod", aimed: creating(privileged)})(t.Context(), e)
		if f.Outcome != tc.want {
			t.Errorf("%s: got %+v, want %s", tc.reason, f, tc.want)
		}
	}
}
