package catalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// ruleStatus returns the rules of a Capsule Tenant that are in force in the tenant's namespace.
func ruleStatus(t *testing.T, rules string) *unstructured.Unstructured {
	t.Helper()
	u := object("capsule.clastix.io/v1beta2", "RuleStatus", "team", "capsule-managed-rules", nil)
	var list []any
	if err := yaml.Unmarshal([]byte(rules), &list); err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = map[string]any{"rules": list}
	return u
}

// W15 creates what the rules refuse, and says so if they refuse nothing that it knows.
func TestAgainstCapsuleRules(t *testing.T) {
	t.Parallel()
	const image = "{enforce: {action: deny, workloads: {registries: [{exact: ['bad.example.com/a:1']}]}}}"
	for name, tc := range map[string]struct {
		reason, rules string
		limits        v1alpha1.Posture
		refused       string
		outcome       Outcome
		want          string
	}{
		"images":      {"no policy reads the rules of images", "[" + image + "]", v1alpha1.Posture{}, "nothing", GotThrough, "run an image that the rules refuse"},
		"no images":   {"the policy refuses the image", "[" + image + "]", v1alpha1.Posture{}, "bad.example.com", Stopped, "policy p"},
		"all":         {"a policy that refuses every Pod says nothing about the rule", "[" + image + "]", v1alpha1.Posture{}, "Pod", NotProven, "to its own objects"},
		"listed":      {"no image of the tenant is in the list", "[{enforce: {action: allow, workloads: {registries: [{exp: '^good[.]example[.]com/'}]}}}]", v1alpha1.Posture{}, "nothing", GotThrough, "run an image"},
		"types":       {"no policy reads the rules of Services", "[" + image + ", {enforce: {action: allow, services: {types: [ClusterIP]}}}]", v1alpha1.Posture{}, "bad.example.com", GotThrough, "make a Service of a type"},
		"hosts":       {"no policy reads the rules of hosts", "[{enforce: {action: deny, ingress: {types: [Ingress], hostnames: [{exact: [bad.example.com]}]}}}]", v1alpha1.Posture{}, "nothing", GotThrough, "have a host"},
		"routes":      {"the policy leaves out routes", "[{enforce: {action: deny, ingress: {types: [Ingress, HTTPRoute], hostnames: [{exact: [bad.example.com]}]}}}]", v1alpha1.Posture{}, "host:bad.example.com", GotThrough, "by an HTTPRoute"},
		"limited":     {"the tenant's limits refuse the image already", "[" + image + "]", v1alpha1.Posture{Workloads: v1alpha1.Workloads{Images: &v1alpha1.Images{}}}, "nothing", Stopped, noCapsuleRules},
		"others":      {"the rule is for somebody else", "[{audience: [{kind: User, name: bob}], enforce: {action: deny, workloads: {registries: [{exp: .*}]}}}]", v1alpha1.Posture{}, "nothing", Stopped, noCapsuleRules},
		"audit":       {"an audit refuses nothing", "[{enforce: {action: audit, workloads: {registries: [{exp: .*}]}}}]", v1alpha1.Posture{}, "nothing", Stopped, noCapsuleRules},
		"not decoded": {"rules that cannot be read", "[{enforce: {action: deny, workloads: 7}}]", v1alpha1.Posture{}, "nothing", Stopped, noCapsuleRules},
		"none":        {"without rules there is nothing to try", "[]", v1alpha1.Posture{}, "nothing", Stopped, noCapsuleRules},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newFakeEnv(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if strings.Contains(fmt.Sprint(o), tc.refused) {
					return forbidden("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no")
				}
				return c.Create(ctx, o, opts...)
			}}, ruleStatus(t, tc.rules))
			e.limits = tc.limits
			f := againstCapsuleRules(t.Context(), e)
			if text := fmt.Sprint(f.Evidence, f.Control, f.Reason); f.Outcome != tc.outcome || !strings.Contains(text, tc.want) {
				t.Errorf("%s: got %+v, want %v with %q", tc.reason, f, tc.outcome, tc.want)
			}
		})
	}
	t.Run("not installed", func(t *testing.T) {
		t.Parallel()
		e := newFakeEnv(interceptor.Funcs{})
		if f := againstCapsuleRules(t.Context(), e); f.Outcome != Stopped || f.Control != noCapsuleRules {
			t.Errorf("without Capsule: got %+v", f)
		}
	})
}
