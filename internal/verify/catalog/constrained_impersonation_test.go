package catalog

import (
	"context"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// roleRule returns a rule for one verb on one resource.
func roleRule(group, resource, verb string, names ...string) authorizationv1.ResourceRule {
	return authorizationv1.ResourceRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}
}

// TestConstrainedImpersonation checks which rules let a tenant act as others with the verbs of Kubernetes 1.36.
func TestConstrainedImpersonation(t *testing.T) {
	t.Parallel()
	const group = "authentication.k8s.io"
	powerful := func(name string) bool { return name == "root" }
	for name, tc := range map[string]struct {
		reason string
		rules  []authorizationv1.ResourceRule
		counts func(string) bool
		want   string
	}{
		"both":          {"the identity and the request", []authorizationv1.ResourceRule{roleRule(group, "serviceaccounts", "impersonate:serviceaccount"), roleRule("", "secrets", "impersonate-on:serviceaccount:list")}, powerful, "impersonate-on:serviceaccount:list secrets"},
		"identity only": {"without a request, the identity is of no use", []authorizationv1.ResourceRule{roleRule(group, "serviceaccounts", "impersonate:serviceaccount")}, nil, ""},
		"request only":  {"and no request without an identity", []authorizationv1.ResourceRule{roleRule("", "secrets", "impersonate-on:serviceaccount:list")}, nil, ""},
		"another mode":  {"the request belongs to another mode", []authorizationv1.ResourceRule{roleRule(group, "serviceaccounts", "impersonate:serviceaccount"), roleRule("", "secrets", "impersonate-on:user-info:list")}, nil, ""},
		"all verbs":     {"the tenant may do this itself", []authorizationv1.ResourceRule{roleRule(group, "serviceaccounts", "impersonate:serviceaccount"), roleRule("", "configmaps", "*")}, nil, ""},
		"a weak user":   {"a user without rights", []authorizationv1.ResourceRule{roleRule(group, "users", "impersonate:user-info", "guest"), roleRule("", "secrets", "impersonate-on:user-info:get")}, powerful, ""},
		"a strong user": {"a user with rights", []authorizationv1.ResourceRule{roleRule(group, "users", "impersonate:user-info", "root"), roleRule("", "secrets", "impersonate-on:user-info:get")}, powerful, "impersonate:user-info users.authentication.k8s.io root"},
		"a node":        {"each node has rights", []authorizationv1.ResourceRule{roleRule(group, "nodes", "impersonate:arbitrary-node", "worker"), roleRule("", "pods", "impersonate-on:arbitrary-node:list")}, powerful, "nodes.authentication.k8s.io worker"},
	} {
		if got := constrainedBy(tc.rules, tc.counts); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s, %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
	attack := attackOf(t, "I8-api")
	e := withRulesAlone(VictimNamespace, []authorizationv1.ResourceRule{roleRule(group, "nodes", "impersonate:arbitrary-node"), roleRule("", "pods", "impersonate-on:arbitrary-node:list")})
	if f := attack.Run(t.Context(), e); f.Outcome != GotThrough || !strings.Contains(f.Evidence, "impersonate:arbitrary-node") {
		t.Errorf("I8 does not know the constrained modes: %+v", f)
	}
}

// withRulesAlone is [withRules] with an API server that refuses all requests but those that read rights.
func withRulesAlone(namespace string, rules []authorizationv1.ResourceRule) *Scenario {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("user \"x\" cannot create resource \"things\""))
	e := withRules(namespace, rules)
	e.As = interceptor.NewClient(e.As, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refused
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return refused },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refused
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return refused },
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			return refused
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o := o.(type) {
			case *authorizationv1.SelfSubjectAccessReview:
				return nil
			case *authorizationv1.SelfSubjectRulesReview:
				return c.Create(ctx, o, opts...)
			case *authenticationv1.SelfSubjectReview:
				o.Status.UserInfo.Username = e.who.user
				return nil
			}
			return refused
		},
	})
	return e
}

// attackOf returns the attack with a key.
func attackOf(t *testing.T, key string) Attack {
	t.Helper()
	for _, a := range Catalogue() {
		if a.Key() == key {
			return a
		}
	}
	t.Fatalf("the catalogue has no attack %s", key)
	return Attack{}
}

// A tenant approves certificates of a client only with the right to their signer.
func TestApprovesCertificates(t *testing.T) {
	t.Parallel()
	const group = "certificates.k8s.io"
	approval := roleRule(group, "certificatesigningrequests/approval", "update")
	for name, tc := range map[string]struct {
		reason string
		rules  []authorizationv1.ResourceRule
		want   Outcome
	}{
		"no signer":         {"the admission plugin refuses the approval", []authorizationv1.ResourceRule{approval}, Stopped},
		"a signer":          {"the API server accepts these certificates", []authorizationv1.ResourceRule{approval, roleRule(group, "signers", "approve", "kubernetes.io/kube-apiserver-client")}, GotThrough},
		"a domain":          {"a domain stands for its signers", []authorizationv1.ResourceRule{approval, roleRule(group, "signers", "approve", "kubernetes.io/*")}, GotThrough},
		"every signer":      {"a rule without names is about all", []authorizationv1.ResourceRule{approval, roleRule(group, "signers", "approve")}, GotThrough},
		"its own signer":    {"no API server accepts the certificates of a mesh", []authorizationv1.ResourceRule{approval, roleRule(group, "signers", "approve", "example.com/mesh")}, Stopped},
		"a signer, no more": {"it may not write the approval", []authorizationv1.ResourceRule{roleRule(group, "signers", "approve")}, Stopped},
	} {
		if got := judge(approvesNone(t.Context(), withRules(VictimNamespace, tc.rules)), ""); got.Outcome != tc.want {
			t.Errorf("%s, %s: got %+v, want %s", name, tc.reason, got, tc.want)
		}
	}
}
