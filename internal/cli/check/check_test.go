package check_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/cli/check"
	"github.com/tenure-dev/tenure/internal/cli/check/olderobjects"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/ui"
	"github.com/tenure-dev/tenure/test/fixtures/fleetgen"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestDrift changes objects of an installation on a real API server, and checks that the
// command finds each change, with and without a fleet to compare with.
func TestDrift(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Start(t, localcluster.Options{})
	kube, err := client.New(cluster.REST, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = run(t, "--kubeconfig", cluster.Kubeconfig)
	if hints := ui.Hints(err); len(hints) != 1 || !strings.Contains(hints[0], "name Flux's namespace with -n, or install Flux and Tenure") {
		t.Errorf("a cluster without Flux: the hints are %q", hints)
	}
	if err := flux.ApplyManifests(t.Context(), cluster.REST, append(parse(t, teamOfOperator), rules(t)...)); err != nil {
		t.Fatal(err)
	}
	fleet, err := fleetgen.Write(t.TempDir(), fleetgen.Platform{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, drift := range []struct{ reason, kind, name, patch, row, words string }{
		{"an expression became true", "ValidatingAdmissionPolicy", "tenure-protected", `[{"op": "replace", "path": "/spec/validations/0/expression", "value": "true"}]`, "tenure-protected", "expression is `true`"},
		{"a policy is left out when it fails", "ValidatingAdmissionPolicy", "tenure-credentials", `[{"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}]`, "tenure-credentials", "spec.failurePolicy is `Ignore`"},
		{"a webhook is gone", "MutatingWebhookConfiguration", "tenure-namespaces", `[{"op": "remove", "path": "/webhooks"}]`, "webhook tenure-namespaces", "webhooks is missing"},
	} {
		expect := func(ready, words string) {
			t.Helper()
			for _, args := range [][]string{nil, {"--fleet", fleet.Dir, "--path", fleetgen.Path}} {
				line := row(t, drift.row, append(args, "--kubeconfig", cluster.Kubeconfig)...)
				if !strings.HasPrefix(line, ready+" ") || !strings.Contains(line, words) {
					t.Errorf("%s (%v): row %s is %q, want %s and %q", drift.reason, args, drift.row, line, ready, words)
				}
			}
		}
		expect("True", "")
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("admissionregistration.k8s.io/v1")
		u.SetKind(drift.kind)
		u.SetName(drift.name)
		if err := kube.Patch(t.Context(), u, client.RawPatch(types.JSONPatchType, []byte(drift.patch))); err != nil {
			t.Fatal(err)
		}
		expect("False", drift.words)
	}
	operated(t, cluster)
	older(t, cluster, kube)
}

// teamOfOperator are the objects of a team that a ResourceSet made, as in flux-operator's examples: the
// namespace has no tenant's label.
const teamOfOperator = `
apiVersion: v1
kind: Namespace
metadata: {name: orders, labels: {toolkit.fluxcd.io/role: tenant}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: flux, namespace: orders}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{kind: ServiceAccount, name: flux, namespace: orders}]
`

// syncOfOperator is the Kustomization of the team, and operatorDeployments what flux-operator runs.
const (
	syncOfOperator = `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: orders}
spec: {interval: 1h, prune: true, serviceAccountName: flux, sourceRef: {kind: GitRepository, name: apps}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: ingress, namespace: flux-system}
spec: {interval: 1h, prune: true, serviceAccountName: kustomize-controller, dependsOn: [{name: apps, namespace: orders}], sourceRef: {kind: GitRepository, name: flux-system}}
`
	clusterRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: flux, namespace: orders}]
`
	operatorDeployments = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: kustomize-controller, namespace: flux-system, labels: {app.kubernetes.io/managed-by: flux-operator, app.kubernetes.io/component: kustomize-controller}}
spec: {selector: {matchLabels: {app: k}}, template: {metadata: {labels: {app: k}}, spec: {containers: [{name: manager, image: k, args: [--no-remote-bases=true]}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: flux-operator, namespace: flux-system}
spec: {selector: {matchLabels: {app: o}}, template: {metadata: {labels: {app: o}}, spec: {containers: [{name: manager, image: o}]}}}
`
)

// operated checks what the command says about a cluster that flux-operator runs, with the rules of
// Tenure and without the manager.
func operated(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	if err := flux.ApplyManifests(t.Context(), cluster.REST, parse(t, syncOfOperator+"---"+clusterRights+"---"+operatorDeployments)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, ready, words string }{
		{"kustomize-controller --no-remote-bases", "True", "in force"},
		{"kustomize-controller --no-cross-namespace-refs", "False", "missing"},
		{"flux-operator --default-service-account", "True", "the rule tenure-resource-sets demands an account"},
		{"rights of Flux", "True", "as flux-operator binds them"},
		{"rights of tenants", "False", "RoleBinding orders/flux gives orders/flux the role admin"},
		{"rights of tenants", "False", "ClusterRoleBinding reads gives orders/flux the role view in the whole cluster: get, list, watch"},
		{"labels of tenants", "False", "the rules for tenants do not apply in orders: add the label toolkit.fluxcd.io/tenant"},
		{"dependencies of the platform", "False", "Kustomization flux-system/ingress depends on Kustomization orders/apps of tenant orders"},
		{"webhook tenure-namespaces", "False", "is missing"},
		{"manager", "False", "there is no Deployment"},
	} {
		if line := row(t, tc.name, "--kubeconfig", cluster.Kubeconfig); !strings.HasPrefix(line, tc.ready+" ") || !strings.Contains(line, tc.words) {
			t.Errorf("row %s is %q, want %s and %q", tc.name, line, tc.ready, tc.words)
		}
	}
	_, err := run(t, "--kubeconfig", cluster.Kubeconfig)
	var hint bytes.Buffer
	ui.PrintError(ui.NewScreen(&hint), err)
	for _, fix := range []string{"of them: install Tenure's chart", "of them: set spec.cluster.multitenant: true in the FluxInstance"} {
		if !strings.Contains(hint.String(), fix) {
			t.Errorf("the fix of several rows is said once, below them: got %s, want %q", &hint, fix)
		}
	}
}

// teamWithObjects are a team, and objects in its namespace that a platform admin made.
const teamWithObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {toolkit.fluxcd.io/tenant: shop}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: shop, labels: {toolkit.fluxcd.io/tenant: shop}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: all, namespace: shop}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shop, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: all}
subjects: [{kind: ServiceAccount, name: shop, namespace: shop}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: quay.io/acme/web:1}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: exempt, namespace: shop}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: quay.io/acme/web:1}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: agent, namespace: shop, labels: {kustomize.toolkit.fluxcd.io/name: agents, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, spec: {containers: [{name: agent, image: quay.io/acme/agent:1}]}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: job, image: quay.io/acme/job:1}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web, namespace: shop}
spec: {selector: {matchLabels: {app: set}}, template: {metadata: {labels: {app: set}}, spec: {containers: [{name: web, image: quay.io/acme/web:1}]}}}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: web, namespace: shop}
spec: {selector: {app: old}, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: web, image: quay.io/acme/web:1}]}}}
---
apiVersion: v1
kind: PodTemplate
metadata: {name: web, namespace: shop}
template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: quay.io/acme/web:1}]}}
---
apiVersion: v1
kind: Service
metadata: {name: door, namespace: shop}
spec: {type: NodePort, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec: {rules: [{host: web.elsewhere.example}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {storageClassName: slow, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: web, namespace: shop}
spec: {interval: 5m, url: "https://git.elsewhere.example/web"}
`

// limitingProfile limits the images, hosts and classes of these objects.
const limitingProfile = `
apiVersion: tenure.dev/v1alpha1
kind: TenancyProfile
metadata: {name: default}
spec:
  exemptions: [{rule: tenure-workloads, namespace: shop, kind: Deployment, name: exempt, reason: it moves soon}]
  tenants:
    sources: {git: ["SOURCES"]}
    workloads: {images: {registries: [registry.example.com/shop/*]}}
    network: {hosts: {allowed: ["*.shop.example.com"]}}
    storage: {classes: {allowed: [fast]}}
`

// older checks that the command counts objects from before a limit until they keep to it, and that it
// writes nothing.
func older(t *testing.T, cluster *localcluster.Cluster, kube client.Client) {
	t.Helper()
	profile := func(sources string) {
		t.Helper()
		if err := flux.ApplyManifests(t.Context(), cluster.REST, parse(t, strings.Replace(limitingProfile, "SOURCES", sources, 1))); err != nil {
			t.Fatal(err)
		}
	}
	profile("https://git.elsewhere.example/*")
	// An admin is exempt from the limits of workloads, and neither from those of Flux objects nor from the
	// demand for a profile.
	testwait.For(t, "the rules to read the profile", time.Minute, func() (bool, string) {
		err := flux.ApplyManifests(t.Context(), cluster.REST, parse(t, teamWithObjects))
		return err == nil, fmt.Sprint(err)
	})
	profile("https://git.example.com/*")
	expect := func(reason string, words ...string) {
		t.Helper()
		testwait.For(t, reason, time.Minute, func() (bool, string) {
			line := row(t, "older objects", "--kubeconfig", cluster.Kubeconfig)
			return strings.HasPrefix(line, "True ") && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }), line
		})
	}
	expect("older objects to be counted", "True 9 of ", "objects break today's rules, and keep running (", "tenure-workloads: 5", "tenure-services: 1", "tenure-sources: 1", "tenure-hosts: 1", "tenure-claims: 1",
		"Deployment shop/web (", "Job shop/once (", "Ingress shop/web (tenure-hosts)", "PersistentVolumeClaim shop/data (tenure-claims)", "GitRepository shop/web (tenure-sources)", "and 4 more")
	uncounted(t, cluster.REST)
	for _, fixed := range []struct{ version, kind, name, patch string }{
		{"apps/v1", "Deployment", "web", `[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example.com/shop/web:1"}]`},
		{"v1", "Service", "door", `[{"op": "replace", "path": "/spec/type", "value": "ClusterIP"}]`},
		{"networking.k8s.io/v1", "Ingress", "web", `[{"op": "replace", "path": "/spec/rules/0/host", "value": "web.shop.example.com"}]`},
		{"source.toolkit.fluxcd.io/v1", "GitRepository", "web", `[{"op": "replace", "path": "/spec/url", "value": "https://git.example.com/web"}]`},
	} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(fixed.version)
		u.SetKind(fixed.kind)
		u.SetNamespace("shop")
		u.SetName(fixed.name)
		if err := kube.Patch(t.Context(), u, client.RawPatch(types.JSONPatchType, []byte(fixed.patch))); err != nil {
			t.Fatal(err)
		}
	}
	expect("corrected objects not to be counted", "True 5 of ", "tenure-workloads: 4", "tenure-claims: 1", "Job shop/once (", "PersistentVolumeClaim shop/data (")
}

// uncounted checks that a user with read rights only gets the reason why check counts nothing.
func uncounted(t *testing.T, admin *rest.Config) {
	t.Helper()
	token, err := kubernetes.NewForConfigOrDie(admin).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reader := rest.AnonymousClientConfig(admin)
	reader.BearerToken = token.Status.Token
	report, err := olderobjects.Count(t.Context(), reader, []discovery.Tenant{{Namespaces: []string{"shop"}, Accounts: []discovery.Account{{Namespace: "shop", Name: "shop"}}}}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if text := report.String(); !strings.HasPrefix(text, "not counted; 11 objects could not be tried, such as: ") || !strings.Contains(text, "cannot impersonate") {
		t.Errorf("a reader's count is %q", text)
	}
}

// parse returns the objects of a manifest.
func parse(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// rules returns the objects of an installation that decide about requests. The webhook is last:
// no server answers it here, so that nothing that it selects could be created after it.
func rules(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	manifests, err := lockdown.Export(config.FluxComponents(), lockdown.Options{Tenants: true})
	if err != nil {
		t.Fatal(err)
	}
	all, err := flux.ReadObjects(manifests)
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(u *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"Namespace", "CustomResourceDefinition"}, u.GetKind()) &&
			!slices.Contains([]string{"rbac.authorization.k8s.io", "admissionregistration.k8s.io"}, u.GroupVersionKind().Group)
	})
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(map[bool]string{true: "webhook"}[strings.HasSuffix(a.GetKind(), "WebhookConfiguration")],
			map[bool]string{true: "webhook"}[strings.HasSuffix(b.GetKind(), "WebhookConfiguration")])
	})
	return all
}

// row runs the command and returns the columns READY and MESSAGE of a check, with single spaces.
func row(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	for line := range strings.Lines(out) {
		if rest, found := strings.CutPrefix(strings.Join(strings.Fields(line), " "), name+" "); found && (strings.HasPrefix(rest, "True") || strings.HasPrefix(rest, "False")) {
			return rest
		}
	}
	t.Fatalf("there is no row %s (%v):\n%s", name, err, out)
	return ""
}

// run returns what the command prints, and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := check.NewCommand(ui.IO{Out: &out, Err: &errs})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String() + errs.String(), err
}
