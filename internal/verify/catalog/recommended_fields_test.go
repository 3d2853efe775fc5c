package catalog

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A policy that demands the fields that Flux recommends stops no attack, and another policy stops it also behind such a
// policy.
func TestAsRecommended(t *testing.T) {
	t.Parallel()
	const demands = "ValidatingAdmissionPolicy 'demands' with binding 'b' denied request: set spec.wait"
	const forbids = "ValidatingAdmissionPolicy 'forbids' with binding 'b' denied request: no foreign source"
	answer := func(u *unstructured.Unstructured) error {
		_, waits, _ := unstructured.NestedBool(u.Object, "spec", "wait")
		_, retries, _ := unstructured.NestedInt64(u.Object, "spec", "install", "remediation", "retries")
		foreign, _, _ := unstructured.NestedString(u.Object, "spec", "sourceRef", "namespace")
		switch {
		case !waits && !retries:
			return forbidden(demands)
		case foreign != "":
			return forbidden(forbids)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		reason string
		object *unstructured.Unstructured
		want   string
	}{
		"Kustomization":  {"the repeated request has the field", (&Scenario{Namespace: "team"}).suspended("x", nil), ""},
		"HelmRelease":    {"so has the one of a HelmRelease, in spec.install", (&Scenario{Namespace: "team"}).suspendedRelease("x", nil), ""},
		"another policy": {"the first policy hides it", (&Scenario{Namespace: "team"}).suspended("x", func(spec map[string]any) { spec["sourceRef"].(map[string]any)["namespace"] = "flux-system" }), forbids},
		"another kind":   {"no field is recommended", configMap("team", "x"), demands},
		"a field that is set": {"an attack may be about the value", (&Scenario{Namespace: "team"}).suspended("x", func(spec map[string]any) {
			for field, value := range recommendedFields["Kustomization"] {
				spec[field] = value
			}
			delete(spec, "wait")
			spec["timeout"] = "24h"
		}), ""},
	} {
		e := newFakeEnv(interceptor.Funcs{})
		c := interceptor.NewClient(interceptor.NewClient(e.Admin, interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				return answer(o.(*unstructured.Unstructured))
			},
			Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
				return answer(o.(*unstructured.Unstructured))
			},
			Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
				return answer(o.(*unstructured.Unstructured))
			},
		}), asRecommended(nil))
		before := tc.object.DeepCopy()
		unstructured.RemoveNestedField(before.Object, "spec")
		for verb, request := range map[string]func(*unstructured.Unstructured) error{
			"create": func(u *unstructured.Unstructured) error { return c.Create(t.Context(), u) },
			"update": func(u *unstructured.Unstructured) error { return c.Update(t.Context(), u) },
			"patch":  func(u *unstructured.Unstructured) error { return c.Patch(t.Context(), u, client.MergeFrom(before)) },
		} {
			u := tc.object.DeepCopy()
			got := ""
			if err := request(u); err != nil {
				got = err.Error()
			}
			want := tc.want
			if want != "" {
				want = apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", forbiddenText(tc.want)).Error()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %s: %s (-want +got):\n%s", name, verb, tc.reason, diff)
			}
			if timeout, _, _ := unstructured.NestedString(u.Object, "spec", "timeout"); name == "a field that is set" && timeout != "24h" {
				t.Errorf("%s, %s: the timeout is %q", name, verb, timeout)
			}
		}
	}
}

type forbiddenText string

func (f forbiddenText) Error() string { return string(f) }

// A patch that was written as text is sent once: it has no object to which fields could be added.
func TestTextPatchSentOnce(t *testing.T) {
	t.Parallel()
	e, sent := newFakeEnv(interceptor.Funcs{}), 0
	c := interceptor.NewClient(interceptor.NewClient(e.Admin, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			sent++
			return forbidden(errPolicy.Error())
		},
	}), asRecommended(nil))
	err := c.Patch(t.Context(), e.suspended("x", nil), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`)))
	if !refusedByPolicy(err) || sent != 1 {
		t.Errorf("sent %d times: %v", sent, err)
	}
}

// What a policy demands of every container refuses the Pod of an attack, but no Pod that a tenant would write: an attack by
// another field then gets through.
func TestNodeTakeoverBehindPodPolicy(t *testing.T) {
	t.Parallel()
	var attack Attack
	addNodeTakeover(func(all ...Attack) {
		for _, a := range all {
			if a.Via == API {
				attack = a
			}
		}
	})
	for name, tc := range map[string]struct {
		reason string
		// labels is set if the policy demands a label.
		labels bool
		want   Outcome
	}{
		"hardened": {"the policy demands a profile and no privileges, and admits the node's file system", false, GotThrough},
		"labels":   {"the policy refuses the tenant's own Pod too", true, NotProven},
	} {
		e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			u, ok := o.(*unstructured.Unstructured)
			if !ok || u.GetKind() != "Pod" {
				return c.Create(ctx, o, opts...)
			}
			profile, _, _ := unstructured.NestedString(u.Object, "spec", "securityContext", "seccompProfile", "type")
			for _, field := range []string{"containers", "initContainers"} {
				containers, _, _ := unstructured.NestedSlice(u.Object, "spec", field)
				for _, container := range containers {
					escalates, set, _ := unstructured.NestedBool(container.(map[string]any), "securityContext", "allowPrivilegeEscalation")
					if !set || escalates || profile == "" || tc.labels && u.GetLabels()["team"] == "" {
						return forbidden(errPolicy.Error())
					}
				}
			}
			return nil
		}})
		if f := attack.Run(t.Context(), e); f.Outcome != tc.want {
			t.Errorf("%s: %s: want %s, got %s: %s%s", name, tc.reason, tc.want, f.Outcome, f.Reason, f.Control)
		}
	}
}

// kustomize-controller passes on the API server's answer about a source that does not exist.
func TestKustomizationSourceMissing(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		`GitRepository.source.toolkit.fluxcd.io "tenure-attack-s1" not found`:                         true,
		`Source 'OCIRepository/flux-system/tenure-attack-s1' not found`:                               true,
		`kustomization path not found: stat /tmp/kustomization-1/tenure-attack/nowhere: no such file`: false,
		`can't access 'GitRepository/flux-system/x', cross-namespace references have been blocked`:    false,
	} {
		if got := kustomizationSourceMissing.MatchString(message); got != want {
			t.Errorf("%s: missing is %t, want %t", message, got, want)
		}
	}
}

// A commit delivers the first Pod that the API server accepts, also as a workload.
func TestFindTakeover(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		refuses func(spec map[string]any) bool
		runsBy  *workload
		want    int
	}{
		"no policy":             {"the first is accepted", func(map[string]any) bool { return false }, nil, 0},
		"privileged containers": {"the next one has none", func(spec map[string]any) bool { return spec["securityContext"] == nil }, nil, 1},
		"the node's processes":  {"the last one mounts its files", func(spec map[string]any) bool { return spec["securityContext"] == nil || spec["hostPID"] == true }, nil, 2},
		"everything":            {"the first is as good as any", func(map[string]any) bool { return true }, nil, 0},
		"a workload":            {"its controller makes the Pod", func(spec map[string]any) bool { return spec["securityContext"] == nil }, &workloads[0], 1},
	} {
		refuse := func(content map[string]any) error {
			spec, _, _ := unstructured.NestedMap(content, "spec")
			if template, found, _ := unstructured.NestedMap(content, "spec", "template", "spec"); found {
				spec = template
			}
			if tc.refuses(spec) {
				return forbidden(errPolicy.Error())
			}
			return nil
		}
		e := newFakeEnv(interceptor.Funcs{Apply: func(_ context.Context, _ client.WithWatch, u runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(u)
			if err != nil {
				return err
			}
			return refuse(content)
		}})
		e.runsBy = tc.runsBy
		if got := e.findTakeover(t.Context()); got != tc.want {
			t.Errorf("%s: %s: want %d, got %d", name, tc.reason, tc.want, got)
		}
	}
}
