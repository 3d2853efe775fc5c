package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Each policy that refuses or changes an object may exempt it by a mark of its own.
func TestExempt(t *testing.T) {
	t.Parallel()
	const (
		denied = "ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: no"
		team   = "example.com/team"
	)
	makes := func(value, label string) func(*Scenario) *unstructured.Unstructured {
		return func(e *Scenario) *unstructured.Unstructured {
			u := object("v1", "ConfigMap", e.Namespace, name("x"), map[string]any{"data": map[string]any{"key": value, "other": "sent"}})
			if label != "" {
				u.SetLabels(map[string]string{team: label})
			}
			return u
		}
	}
	attack := func(u *unstructured.Unstructured) bool {
		value, _, _ := unstructured.NestedString(u.Object, "data", "key")
		return value == "forbidden"
	}
	set := func(u *unstructured.Unstructured, field, value string) error {
		return unstructured.SetNestedField(u.Object, value, "data", field)
	}
	// refusing is a policy that refuses the attack's object without a label.
	refusing := func(policy, label string) func(*unstructured.Unstructured) error {
		return func(u *unstructured.Unstructured) error {
			if attack(u) && u.GetLabels()[label] == "" {
				return forbidden(fmt.Sprintf(denied, policy))
			}
			return nil
		}
	}
	always := func(u *unstructured.Unstructured) error { return set(u, "other", "changed") }
	clamps := func(u *unstructured.Unstructured) error {
		if attack(u) {
			return set(u, "key", "allowed")
		}
		return nil
	}
	var many []mark
	for i := range maxMarks {
		many = append(many, mark{fmt.Sprintf("label-%d", i), "true"})
	}
	a, b := exemptionsOf("policy a", false, []mark{{"a", "true"}}), exemptionsOf("policy b", false, []mark{{"b", "true"}})
	for _, tc := range []struct {
		reason string
		// policies change or refuse the object, in their order.
		policies   []func(*unstructured.Unstructured) error
		exemptions []exemption
		// onCreate is set if the policies that refuse do not match UPDATE.
		onCreate bool
		label    string
		want     Outcome
		says     string
	}{
		{"one policy exempts by a label", []func(*unstructured.Unstructured) error{refusing("a", "a")}, a, false, "", GotThrough, "the label or annotation a=true"},
		{"two policies exempt by a label each", []func(*unstructured.Unstructured) error{refusing("a", "a"), refusing("b", "b")}, append(b, a...), false, "", GotThrough, "a=true and the label or annotation b=true"},
		{"the second policy exempts nothing", []func(*unstructured.Unstructured) error{refusing("a", "a"), refusing("b", "none")}, append(b, a...), false, "", Stopped, "policy a"},
		{"another policy changes what does not matter", []func(*unstructured.Unstructured) error{always, refusing("a", "a")}, a, false, "", GotThrough, "a=true"},
		{"another policy changes what the attack is about", []func(*unstructured.Unstructured) error{refusing("a", "a"), clamps}, a, false, "", Stopped, "policy a"},
		{"another policy changes what does not matter, and the refusing one does not match UPDATE", []func(*unstructured.Unstructured) error{always, refusing("a", "none")}, nil, true, "", GotThrough, "by a change"},
		{"the last of many labels exempts the object", []func(*unstructured.Unstructured) error{refusing("a", "label-255")}, exemptionsOf("policy a", false, many), false, "", GotThrough, "label-255=true"},
		{"the policy has more labels than are tried", []func(*unstructured.Unstructured) error{refusing("a", "a")}, append(exemptionsOf("policy a", false, many), a...), false, "", NotProven, "257 labels"},
		{"another policy has many labels", []func(*unstructured.Unstructured) error{refusing("b", "none")}, append(exemptionsOf("policy a", false, many), a...), false, "", Stopped, "policy b"},
		{"the policy looks at options of the request", []func(*unstructured.Unstructured) error{refusing("a", "none")}, []exemption{{policy: "policy a", untried: "policy a looks at options"}}, false, "", NotProven, "looks at options"},
		{"another policy looks at options of the request", []func(*unstructured.Unstructured) error{refusing("b", "none")}, []exemption{{policy: "policy a", untried: "policy a looks at options"}}, false, "", Stopped, "policy b"},
		{"a mark would replace the label that the attack is about", []func(*unstructured.Unstructured) error{func(u *unstructured.Unstructured) error {
			if u.GetLabels()[team] == "other" {
				return forbidden(fmt.Sprintf(denied, "a"))
			}
			return nil
		}}, exemptionsOf("policy a", false, []mark{{team, "own"}}), false, "other", Stopped, "policy a"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			admit := func(o client.Object, changed bool) error {
				u, _ := o.(*unstructured.Unstructured)
				for _, policy := range tc.policies {
					if err := policy(u); err != nil && (!changed || !tc.onCreate) {
						return err
					}
				}
				return nil
			}
			e := newFakeEnv(interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if err := admit(o, false); err != nil {
						return err
					}
					return c.Create(ctx, o, opts...)
				},
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
					return admit(o, true)
				},
			})
			e.inFull, e.mutates, e.exemptions = true, true, tc.exemptions
			f := requests(request{what: "do it", aimed: creating(makes("forbidden", tc.label), makes("allowed", "")), own: creating(makes("allowed", ""))})(t.Context(), e)
			if f.Outcome != tc.want || !strings.Contains(f.Control+f.Evidence+f.Reason, tc.says) {
				t.Errorf("got %+v, want %s with %q", f, tc.want, tc.says)
			}
			if f.InFull != (tc.want != Stopped) {
				t.Errorf("InFull is %t: the tenants of the same shape must get the finding if it depends on marks", f.InFull)
			}
		})
	}
}

// A Kustomization whose account a policy sets on creation is changed back although another policy changes a field of it
// each time.
func TestUndoChangeBesideAnotherPolicy(t *testing.T) {
	t.Parallel()
	clamp := func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "7m", "spec", "interval")
	}
	e := newFakeEnv(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == "Kustomization" {
				clamp(u)
				if account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName"); account == "" {
					_ = unstructured.SetNestedField(u.Object, "team", "spec", "serviceAccountName")
				}
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, _ client.Patch, opts ...client.PatchOption) error {
			clamp(o.(*unstructured.Unstructured))
			var options client.PatchOptions
			options.ApplyOptions(opts)
			if len(options.DryRun) > 0 {
				return nil
			}
			return c.Update(ctx, o)
		},
	})
	e.mutates = true
	u := e.suspended("x", withoutAccount)
	if err := e.createOrChange(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if err := e.Admin.Get(t.Context(), keyOf(u), u); err != nil {
		t.Fatal(err)
	}
	if account, _, _ := unstructured.NestedString(u.Object, "spec", "serviceAccountName"); account != "" {
		t.Errorf("the Kustomization still has the account %s", account)
	}
}

// A policy that refuses with an unusual status code refuses nevertheless.
func TestStatusOfPolicies(t *testing.T) {
	t.Parallel()
	const policy, webhook = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no", `admission webhook "p" denied the request: no`
	for _, tc := range []struct {
		reason  string
		message string
		code    int32
		want    Outcome
	}{
		{"a policy may choose the code 413", policy, 413, Stopped},
		{"a webhook may choose any code", webhook, 401, Stopped},
		{"the API server cannot ask the webhook", `failed calling webhook "p": connection refused`, 500, NotProven},
	} {
		err := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Message: tc.message, Code: tc.code}}
		if f := judge(err, "it could do it"); f.Outcome != tc.want {
			t.Errorf("%s: got %+v", tc.reason, f)
		}
	}
	if f := judge(errors.New("cannot read the answer: "+policy), ""); f.Outcome != NotProven {
		t.Errorf("an error that only quotes a policy: got %+v", f)
	}
}

// A webhook without an answer says nothing about the identity, which the API server then shows in another way.
func TestIdentityWorks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		refuse error
		user   string
		works  bool
	}{
		{"the API server accepts the tenant's object", nil, "", true},
		{"the tenant has no right to it", forbidden(`User "team" cannot create resource "configmaps"`), "team", true},
		{"a webhook does not answer", apierrors.NewInternalError(errors.New(`failed calling webhook "p": connection refused`)), "team", true},
		{"a webhook does not answer, and the identity is another one", apierrors.NewInternalError(errors.New(`failed calling webhook "p": connection refused`)), "other", false},
		{"the API server fails", apierrors.NewInternalError(errors.New("etcdserver: no leader")), "team", false},
	} {
		e := newFakeEnv(interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if review, ok := o.(*authenticationv1.SelfSubjectReview); ok {
				review.Status.UserInfo.Username = tc.user
				return nil
			}
			return tc.refuse
		}})
		e.who.user = "team"
		if err := identityWorks(t.Context(), e); (err == nil) != tc.works {
			t.Errorf("%s: got %v", tc.reason, err)
		}
	}
}
