package catalog

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func forbidden(message string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New(message))
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		err     error
		outcome Outcome
		control string
	}{
		"accepted":   {"what was accepted got through", nil, GotThrough, ""},
		"rbac":       {"a refusal by RBAC", forbidden(`User "x" cannot create resource "things" in API group "" at the cluster scope`), Stopped, "RBAC"},
		"escalation": {"a refusal to grant more than one has", forbidden(`user "x" is attempting to grant RBAC permissions not currently held`), Stopped, "RBAC (escalation)"},
		"mutation":   {"a policy that changes objects refuses those that it cannot change", forbidden(`policy 'clamp' with binding 'b' denied request: expression 'x' resulted in error: no such key`), Stopped, "policy clamp"},
		"policy":     {"a policy is named", forbidden(`ValidatingAdmissionPolicy 'git-sources' with binding 'b' denied request: no`), Stopped, "policy git-sources"},
		"security":   {"Pod Security is named with its level", forbidden(`violates PodSecurity "restricted:latest": privileged`), Stopped, "Pod Security restricted:latest"},
		"webhook":    {"a webhook is named", forbidden(`admission webhook "tenants.example.com" denied the request: no`), Stopped, "webhook tenants.example.com"},
		"kyverno":    {"the policy is named, and not the webhook for all of them", apierrors.NewBadRequest("admission webhook \"validate.kyverno.svc-fail\" denied the request: \n\nresource Kustomization/team/x was blocked due to the following policies \n\naccounts:\n  name-an-account: 'validation error: no'\n"), Stopped, "Kyverno policy accounts"},
		"image":      {"an image that nothing can verify here proves nothing", apierrors.NewBadRequest("admission webhook \"mutate.kyverno.svc-fail\" denied the request: \n\nresource Pod/team/x was blocked due to the following policies \n\nsigned:\n  signed: 'failed to verify image ghcr.io/acme/x:1: tuf-repo-cdn.sigstore.dev is not mapped'\n"), NotProven, ""},
		"expression": {"so is a policy with expressions", apierrors.NewBadRequest(`admission webhook "vpol.validate.kyverno.svc-fail" denied the request: Policy names failed: no`), Stopped, "Kyverno policy names"},
		"quota":      {"a quota is named", forbidden(`exceeded quota: bounds, requested: pods=1`), Stopped, "quota bounds"},
		"unknown":    {"a refusal by nobody we know proves nothing", forbidden("because"), NotProven, ""},
		"outage":     {"an outage is no control", apierrors.NewServiceUnavailable("cannot create resource"), NotProven, ""},
		"connection": {"nor is a connection that broke", errors.New("cannot create resource: connection refused"), NotProven, ""},
		"no kind":    {"a kind that is not there is no door", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Canary"}}, Stopped, "not installed"},
		"missing":    {"what does not exist cannot be attacked", apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "x"), NotProven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := judge(tc.err, "it could")
			if got.Outcome != tc.outcome || got.Control != tc.control {
				t.Errorf("%s: got %q by %q, want %q by %q", tc.reason, got.Outcome, got.Control, tc.outcome, tc.control)
			}
		})
	}
}

func TestAnswerOf(t *testing.T) {
	t.Parallel()
	object := func(generation int64, condition map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{condition}}}}
		u.SetGeneration(generation)
		return u
	}
	for _, tc := range []struct {
		reason string
		u      *unstructured.Unstructured
		ready  string
		final  bool
	}{
		{"no condition is no answer", &unstructured.Unstructured{Object: map[string]any{}}, "", false},
		{"at work", object(1, map[string]any{"type": "Ready", "status": "Unknown", "observedGeneration": int64(1)}), "Unknown", false},
		{"an answer to an older object", object(2, map[string]any{"type": "Ready", "status": "True", "observedGeneration": int64(1)}), "True", false},
		{"a dependency may still become ready", object(1, map[string]any{"type": "Ready", "status": "False", "reason": "DependencyNotReady", "observedGeneration": int64(1)}), "False", false},
		{"a chart that is being made may still be", object(1, map[string]any{"type": "Ready", "status": "False", "reason": "SourceNotReady", "observedGeneration": int64(1)}), "False", false},
		{"ready", object(1, map[string]any{"type": "Ready", "status": "True", "observedGeneration": int64(1)}), "True", true},
		{"failed", object(1, map[string]any{"type": "Ready", "status": "False", "reason": "BuildFailed", "observedGeneration": int64(1)}), "False", true},
	} {
		got, final := readyCondition(tc.u)
		if string(got.ready) != tc.ready || final != tc.final {
			t.Errorf("%s: got %q, final %t, want %q, %t", tc.reason, got.ready, final, tc.ready, tc.final)
		}
	}
}

// Every attack can be read about, and its file has its name.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, a := range Catalogue() {
		if seen[a.Key()] {
			t.Errorf("%s is in the catalogue twice", a.Key())
		}
		seen[a.Key()] = true
		if a.Title == "" || len(a.Controls) == 0 || a.Fix.Advice == "" || a.Run == nil || a.Via == "" {
			t.Errorf("%s is not complete", a.Key())
		}
		if a.Files != nil && !a.Deep {
			t.Errorf("%s needs the tenant's repository and so Flux's answer: it is deep", a.Key())
		}
	}
}

// The documentation of the catalogue is what the catalogue says.
func TestDocument(t *testing.T) {
	t.Parallel()
	written, err := os.ReadFile("../../../docs/reference/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Document(), string(written)); diff != "" {
		t.Errorf("docs/reference/attacks.md is not up to date, run make generate (-want +got):\n%s", diff)
	}
}

func FuzzControlOf(f *testing.F) {
	f.Add("ValidatingAdmissionPolicy 'x' denied")
	f.Add("cannot create resource")
	f.Fuzz(func(t *testing.T, message string) {
		if control, ok := controlOf(message); ok && strings.TrimSpace(control) == "" {
			t.Errorf("%q was stopped by a control without a name", message)
		}
	})
}
