package admission_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// movein are two namespaces of a tenant. An owner created one of them.
const movein = `
apiVersion: v1
kind: Namespace
metadata: {name: movein-made, labels: {tenure.dev/tenant: alpha, tenure.dev/made-by: owner}}
---
apiVersion: v1
kind: Namespace
metadata: {name: movein-given, labels: {tenure.dev/tenant: alpha}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default-like, namespace: movein-made}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: movein}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
  - {kind: ServiceAccount, name: tenure-root, namespace: flux-system}
  - {kind: ServiceAccount, name: helm-controller, namespace: flux-system}
  - {kind: ServiceAccount, name: tenure-manager, namespace: flux-system}
  - {kind: ServiceAccount, name: operator, namespace: tools}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mover, namespace: movein-made}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: alpha, namespace: taken-alpha}]
`

// TestMovesIn checks that the platform applies nothing to a namespace that an owner created, for every kind
// and by every request, until a platform admin adopts the namespace.
func TestMovesIn(t *testing.T) {
	admin, _, restConfig := cluster(t)
	makeAll(t, admin, strings.Split(movein, "---\n"))
	account := func(namespace, name string) client.Client {
		return user(t, restConfig, "system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	root, helm, manager, operator, tenant := account("flux-system", "tenure-root"), account("flux-system", "helm-controller"),
		account("flux-system", "tenure-manager"), account("tools", "operator"), account("taken-alpha", "alpha")
	const (
		byKustomize = "kustomize.toolkit.fluxcd.io/name: infra, kustomize.toolkit.fluxcd.io/namespace: flux-system"
		byHelm      = "helm.toolkit.fluxcd.io/name: infra, helm.toolkit.fluxcd.io/namespace: flux-system"
		refused     = "which an owner of the tenant made"
	)
	serviceAccount := func(name, namespace, labels string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: %s, labels: {%s}}}", name, namespace, labels)
	}
	create := func(manifest string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, parse(t, manifest), client.DryRunAll)
		}
	}
	apply := func(manifest string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, parse(t, manifest), client.RawPatch(types.ApplyPatchType, []byte(manifest)), client.DryRunAll, client.FieldOwner("kustomize-controller"), client.ForceOwnership)
		}
	}
	patch := func(manifest, labels string) func(context.Context, client.Client) error {
		return func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, parse(t, manifest), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+asJSON(t, labels)+`}}`)), client.DryRunAll)
		}
	}
	namespace := func(labels string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: movein-made, labels: {" + labels + "}}}"
	}
	attempts := []struct {
		reason string
		do     func(context.Context, client.Client) error
		by     client.Client
		want   string
	}{
		{"an account by server-side apply", apply(serviceAccount("issuer", "movein-made", byKustomize)), root, "tenant alpha: ServiceAccount issuer of the platform must not be applied to namespace movein-made, which an owner of the tenant made"},
		{"an account that is there already", apply(serviceAccount("default-like", "movein-made", byKustomize)), root, refused},
		{"an account without labels, as hooks of charts are", create(serviceAccount("hook", "movein-made", "")), helm, refused},
		{"one of a chart", create(serviceAccount("chart", "movein-made", byHelm)), helm, refused},
		{"one that the API server names", create("{apiVersion: v1, kind: ServiceAccount, metadata: {generateName: x-, namespace: movein-made}}"), root, refused},
		{"a Deployment", create("{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: movein-made, labels: {" + byKustomize + "}}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}}}"), root, refused},
		{"a Secret under another account", create("{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: movein-made, labels: {" + byKustomize + "}}}"), operator, refused},
		{"the namespace itself", apply(namespace(byKustomize)), root, "Namespace movein-made of the platform must not be applied to namespace movein-made"},
		{"an account that is there already, by patch", patch(serviceAccount("default-like", "movein-made", ""), byKustomize), root, refused},
		{"the namespace itself, by patch", patch(namespace(""), byKustomize), root, refused},
		{"a new namespace that an owner seems to have made", create("{apiVersion: v1, kind: Namespace, metadata: {name: movein-x, labels: {tenure.dev/tenant: alpha, tenure.dev/made-by: owner, " + byKustomize + "}}}"), root, refused},
		{"a namespace that is adopted with it", apply(namespace(byKustomize + ", tenure.dev/made-by: platform")), root, ""},
		{"to where the platform made the namespace", create(serviceAccount("issuer", "movein-given", byKustomize)), root, ""},
		{"what Flux makes for the tenant's releases", create("{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmChart, metadata: {name: x, namespace: movein-made}, spec: {interval: 1h, chart: x, sourceRef: {kind: HelmRepository, name: x}}}"), helm, ""},
		{"what is in no namespace", create("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: movein-x, labels: {" + byKustomize + "}}}"), root, ""},
		{"a namespace without owners", create("{apiVersion: v1, kind: Namespace, metadata: {name: movein-x, labels: {" + byKustomize + "}}}"), root, ""},
		{"events", create("{apiVersion: v1, kind: Event, metadata: {name: x, namespace: movein-made}, involvedObject: {kind: Pod, namespace: movein-made, name: x}, reason: x, message: x, type: Normal, source: {component: x}, reportingComponent: x, reportingInstance: x, action: x, eventTime: '2026-11-22T00:00:00.000000Z'}"), helm, ""},
		{"what the manager keeps", create(serviceAccount("alpha", "movein-made", "tenure.dev/managed-by: manager")), manager, ""},
		{"an operator's own", create(serviceAccount("x", "movein-made", "")), operator, ""},
		{"an admin's own", create(serviceAccount("x", "movein-made", "")), admin, ""},
		{"the tenant's own", create(serviceAccount("x", "movein-made", "kustomize.toolkit.fluxcd.io/namespace: taken-alpha")), tenant, ""},
	}
	for _, a := range attempts {
		t.Run(a.reason, func(t *testing.T) { check(t, a.do(t.Context(), a.by), a.want) })
	}

	inForce := func(action admissionregistrationv1.ValidationAction) {
		enforce(t, admin, "tenure-takeover", action)
		testwait.For(t, "the rule to "+string(action), patience, func() (bool, string) {
			err := attempts[0].do(context.WithoutCancel(t.Context()), root)
			return (err != nil) == (action == admissionregistrationv1.Deny), fmt.Sprint(err)
		})
	}
	inForce(admissionregistrationv1.Audit)
	defer inForce(admissionregistrationv1.Deny)
	for _, a := range attempts {
		t.Run("without the rule, "+a.reason, func(t *testing.T) { check(t, a.do(t.Context(), a.by), "") })
	}
}

// asJSON returns a map in YAML, without its braces, as JSON.
func asJSON(t *testing.T, mapping string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte("{" + mapping + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
