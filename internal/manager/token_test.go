package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/admission"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// What the attacks aim at: the platform's objects, and a tenant without a Tenant.
const stolenTokenFixture = `
apiVersion: v1
kind: Namespace
metadata: {name: stolen, labels: {toolkit.fluxcd.io/tenant: stolen}}
---
apiVersion: v1
kind: Namespace
metadata: {name: stolen-nobody}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: root, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stolen-root}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: root, namespace: kube-system}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: target, namespace: flux-system}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: target, namespace: flux-system}
spec: {hard: {pods: "100"}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: target, namespace: flux-system}
spec: {podSelector: {}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: target, namespace: flux-system}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: target, namespace: stolen}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: target, namespace: flux-system}
spec: {interval: 1h, url: "https://git.example.com/acme/platform"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: ExternalArtifact
metadata: {name: target, namespace: flux-system}
spec: {}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: target, namespace: flux-system}
spec: {interval: 1h, prune: true, path: ./, sourceRef: {kind: GitRepository, name: target}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: target, namespace: flux-system}
spec: {interval: 1h, chartRef: {kind: OCIRepository, name: target}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: stolen-volume, labels: {pool: fast}}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: /tmp/stolen}}
---
# A part of the rights that it has with --capsule.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: stolen-volumes}
rules: [{apiGroups: [""], resources: [persistentvolumes], verbs: [get, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: stolen-volumes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: stolen-volumes}
subjects: [{kind: ServiceAccount, name: tenure-manager, namespace: flux-system}]
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: stolen-tenant}
spec: {owners: [{kind: User, name: eve}]}
`

// theft is a request that somebody with the manager's token makes, as a dry run.
type theft struct {
	what string
	verb string // create, merge, status or delete
	// object is a manifest; of what is patched, all but its name is the patch.
	object string
}

const (
	rbacObject = "{apiVersion: rbac.authorization.k8s.io/v1, kind: "
	aRole      = ", roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "
	toEve      = "}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]}"
	toItself   = "}, subjects: [{kind: ServiceAccount, name: tenure-manager, namespace: flux-system}]}"
	itMade     = "labels: {tenure.dev/managed-by: manager}"
)

// thefts are the ways from the manager's token to the whole cluster that its rights in
// RBAC leave open.
var thefts = []theft{
	{"take admin in kube-system", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: kube-system, " + itMade + "}" + aRole + "admin" + toItself},
	{"give admin in flux-system", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: flux-system, " + itMade + "}" + aRole + "admin" + toEve},
	{"give edit in a namespace that is no tenant's", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: stolen-nobody, " + itMade + "}" + aRole + "edit" + toEve},
	{"take admin in a tenant's namespace", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: stolen, " + itMade + "}" + aRole + "admin" + toItself},
	{"give everybody admin in a tenant's namespace", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: stolen, " + itMade + "}" + aRole + "admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}]}"},
	{"give a role that it has itself in a tenant's namespace", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: stolen, " + itMade + "}" + aRole + "tenure-manager" + toEve},
	{"change a binding that it did not make", "merge", rbacObject + "RoleBinding, metadata: {name: target, namespace: stolen}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]}"},
	{"say that it made what it did not", "merge", rbacObject + "RoleBinding, metadata: {name: target, namespace: stolen, " + itMade + "}}"},
	{"give admin in the whole cluster", "create", rbacObject + "ClusterRoleBinding, metadata: {name: x, " + itMade + "}" + aRole + "admin" + toEve},
	{"give its own rights to others", "create", rbacObject + "ClusterRoleBinding, metadata: {name: x, " + itMade + "}" + aRole + "tenure-manager" + toEve},
	{"delete others' bindings of the cluster", "delete", rbacObject + "ClusterRoleBinding, metadata: {name: stolen-root}}"},
	{"write its own rights into a role that everybody has", "merge", rbacObject + "ClusterRole, metadata: {name: 'system:basic-user'}, rules: [{apiGroups: [''], resources: [namespaces], verbs: [patch]}]}"},
	{"take cluster-admin's rights away", "merge", rbacObject + "ClusterRole, metadata: {name: cluster-admin}, rules: []}"},
	{"make a role with the right to change all namespaces", "create", rbacObject + "ClusterRole, metadata: {name: 'tenure:owners:x', " + itMade + "}, rules: [{apiGroups: [''], resources: [namespaces], verbs: [patch]}]}"},
	{"make a role that is part of admin", "create", rbacObject + "ClusterRole, metadata: {name: x, labels: {tenure.dev/managed-by: manager, rbac.authorization.k8s.io/aggregate-to-view: 'true'}}, rules: [{apiGroups: [''], resources: [namespaces], verbs: [patch]}]}"},
	{"change a Role of the platform's", "merge", rbacObject + "Role, metadata: {name: target, namespace: flux-system}, rules: [{apiGroups: [''], resources: [namespaces], verbs: [patch]}]}"},
	{"delete a Role of the platform's", "delete", rbacObject + "Role, metadata: {name: target, namespace: flux-system}}"},
	{"make kube-system a tenant's", "merge", "{apiVersion: v1, kind: Namespace, metadata: {name: kube-system, labels: {tenure.dev/tenant: stolen}}}"},
	{"make flux-system a tenant's", "merge", "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system, labels: {tenure.dev/tenant: stolen}}}"},
	{"make a namespace a tenant's", "merge", "{apiVersion: v1, kind: Namespace, metadata: {name: stolen-nobody, labels: {tenure.dev/tenant: stolen}}}"},
	{"give a tenant's namespace to another one", "merge", "{apiVersion: v1, kind: Namespace, metadata: {name: stolen, labels: {tenure.dev/tenant: other}}}"},
	{"let a tenant's Pods have the node", "merge", "{apiVersion: v1, kind: Namespace, metadata: {name: stolen, labels: {pod-security.kubernetes.io/enforce: privileged}}}"},
	{"make a tenant's namespace without a level", "create", "{apiVersion: v1, kind: Namespace, metadata: {name: fresh, labels: {tenure.dev/tenant: stolen}}}"},
	{"make a namespace of the system's", "create", "{apiVersion: v1, kind: Namespace, metadata: {name: kube-fresh, labels: {tenure.dev/tenant: stolen, pod-security.kubernetes.io/enforce: baseline}}}"},
	{"apply as the platform's root account", "create", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x, namespace: flux-system, " + itMade + "}, spec: {interval: 1h, prune: true, path: ./, serviceAccountName: tenure-root, sourceRef: {kind: GitRepository, name: x}}}"},
	{"apply as an account of nobody's namespace", "create", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x, namespace: stolen-nobody, " + itMade + "}, spec: {interval: 1h, prune: true, path: ./, serviceAccountName: default, sourceRef: {kind: GitRepository, name: x}}}"},
	{"change what the platform applies", "merge", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: target, namespace: flux-system}, spec: {path: ./evil}}"},
	{"stop what the platform applies by an annotation", "merge", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: target, namespace: flux-system, annotations: {kustomize.toolkit.fluxcd.io/reconcile: disabled}}}"},
	{"delete what the platform applies", "delete", "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: target, namespace: flux-system}}"},
	{"fetch the platform's repository from elsewhere", "merge", "{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: target, namespace: flux-system}, spec: {url: 'https://git.example.com/acme/evil'}}"},
	{"change a release of the platform's", "merge", "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: target, namespace: flux-system}, spec: {values: {a: b}}}"},
	{"put content into an artifact of the platform's", "status", "{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, metadata: {name: target, namespace: flux-system}, status: {artifact: {path: x, url: 'http://x/x', revision: x, digest: 'sha256:" + strings.Repeat("0", 64) + "', lastUpdateTime: '2026-01-01T00:00:00Z'}}}"},
	{"make an artifact of the platform's", "create", "{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, metadata: {name: x, namespace: flux-system, " + itMade + "}, spec: {}}"},
	{"give an account of the platform's a cloud identity", "merge", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: target, namespace: flux-system, annotations: {eks.amazonaws.com/role-arn: x}}}"},
	{"delete an account of the platform's", "delete", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: target, namespace: flux-system}}"},
	{"make an account of the system's", "create", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: x, namespace: kube-system, " + itMade + "}}"},
	{"open the platform's network", "delete", "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: target, namespace: flux-system}}"},
	{"lift the platform's quota", "delete", "{apiVersion: v1, kind: ResourceQuota, metadata: {name: target, namespace: flux-system}}"},
	{"be asked about every request", "update", "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: tenure-namespaces}, rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*'], scope: '*'}]}"},
	{"write parameters where no tenant is", "create", "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: stolen-nobody, " + itMade + "}, spec: {tenant: stolen}}"},
	{"give a volume to a claim", "merge", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: stolen-volume}, spec: {claimRef: {namespace: stolen, name: x}}}"},
	{"give a volume to whoever selects a label", "merge", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: stolen-volume, labels: {pool: null}}}"},
	{"let a volume go", "merge", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: stolen-volume, finalizers: [x.example.com/y]}}"},
	{"change what a Tenant says", "merge", "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: stolen-tenant}, spec: {namespaces: {podSecurity: privileged}}}"},
}

// parameterThefts are stopped by the rule about parameters.
var parameterThefts = []theft{
	{"make a tenant the platform", "merge", "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: stolen}, spec: {platformAccounts: [stolen/stolen]}}"},
	{"break the glass for everybody", "merge", "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: stolen}, spec: {breakGlass: ['system:serviceaccounts']}}"},
	{"exempt a tenant's object", "merge", "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: stolen}, spec: {exemptions: [{rule: tenure-accounts, namespace: stolen, kind: Kustomization, name: x, reason: x}]}}"},
}

// rightsLacking are requests for which the manager has no right at all.
var rightsLacking = []theft{
	{"change its own rules", "delete", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: tenure-manager}}"},
	{"change the rules", "merge", "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: tenure-manager}, spec: {failurePolicy: Ignore}}"},
	{"change the profile", "merge", "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}, spec: {breakGlass: [x]}}"},
	{"make another webhook", "create", "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: x}, webhooks: []}"},
	{"bind cluster-admin", "create", rbacObject + "ClusterRoleBinding, metadata: {name: x, " + itMade + "}" + aRole + "cluster-admin" + toEve},
	{"bind cluster-admin in a tenant's namespace", "create", rbacObject + "RoleBinding, metadata: {name: x, namespace: stolen, " + itMade + "}" + aRole + "cluster-admin" + toEve},
	{"make a role with everything", "create", rbacObject + "ClusterRole, metadata: {name: 'tenure:owners:x', " + itMade + "}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}"},
	{"change a Deployment", "merge", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: kustomize-controller, namespace: flux-system}, spec: {paused: true}}"},
	{"run a Pod", "create", "{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: flux-system}, spec: {serviceAccountName: root, containers: [{name: x, image: x}]}}"},
	{"write a Secret", "create", "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: flux-system}}"},
	{"write a ConfigMap", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: flux-system}}"},
}

func (s theft) do(ctx context.Context, c client.Client) error {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(s.object), &u.Object); err != nil {
		return err
	}
	patch, err := yaml.YAMLToJSON([]byte(s.object))
	if err != nil {
		return err
	}
	switch s.verb {
	case "create":
		return c.Create(ctx, u, client.DryRunAll)
	case "delete":
		return c.Delete(ctx, u, client.DryRunAll)
	case "status":
		return c.Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
	case "update": // the webhook, with other rules
		have := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(u), have); err != nil {
			return err
		}
		wanted := &struct {
			Rules []admissionregistrationv1.RuleWithOperations `json:"rules"`
		}{}
		if err := yaml.Unmarshal([]byte(s.object), wanted); err != nil {
			return err
		}
		have.Webhooks[0].Rules = wanted.Rules
		return c.Update(ctx, have, client.DryRunAll)
	}
	return c.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
}

// thief returns a client with the manager's own token.
func thief(t *testing.T, admin *rest.Config) (client.Client, *rest.Config) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	token, err := clients.CoreV1().ServiceAccounts("flux-system").CreateToken(t.Context(), "tenure-manager", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(admin)
	own.BearerToken = token.Status.Token
	scheme := newScheme()
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c, own
}

// Whoever has the manager's token gets no further than the manager: each way that RBAC
// leaves open is stopped by the rule, and is open without it. It changes the rules of
// the shared cluster, so that it is not parallel.
func TestStolenToken(t *testing.T) {
	admin, restConfig := cluster(t)
	create(t, admin, stolenTokenFixture)
	governed(t, admin, "stolen", "stolen")
	c, own := thief(t, restConfig)
	for _, s := range rightsLacking {
		t.Run("has no right to "+s.what, func(t *testing.T) {
			if err := s.do(t.Context(), c); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("want a refusal of RBAC, got %v", err)
			}
		})
	}
	labelled := theft{"", "merge", "{apiVersion: v1, kind: PersistentVolume, metadata: {name: stolen-volume, labels: {capsule.clastix.io/tenant: stolen}}}"}
	if err := labelled.do(t.Context(), c); err != nil {
		t.Errorf("the label of the tenant that claims a volume: %v", err)
	}
	// The check of the manager's readiness needs a refusal by a rule, and not by the schema.
	if err := c.Create(t.Context(), probe("flux-system"), client.DryRunAll); !refusedBy(err, admission.Prefix+"manager") {
		t.Errorf("want a refusal of the request with which the manager asks whether its parameters are found, got %v", err)
	}
	rules := map[string][]theft{admission.Prefix + "manager": thefts, admission.Prefix + "manager-parameters": parameterThefts}
	for rule, all := range rules {
		for _, s := range all {
			t.Run("must not "+s.what, func(t *testing.T) {
				if err := s.do(t.Context(), c); err == nil || !refusedBy(err, rule) || !strings.Contains(err.Error(), "the manager must not") {
					t.Errorf("want a refusal of %s, got %v", rule, err)
				}
			})
		}
	}
	stealsCluster(t, c, own, admission.Prefix+"manager")
	for rule, all := range rules {
		restore := withoutRule(t, admin, rule)
		testwait.For(t, "the rule to be out of force", patience, func() (bool, string) {
			err := all[0].do(t.Context(), c)
			return err == nil, fmt.Sprint(err)
		})
		for _, s := range all {
			t.Run("without the rule: "+s.what, func(t *testing.T) {
				if err := s.do(t.Context(), c); err != nil {
					t.Errorf("want this to get through, got %v", err)
				}
			})
		}
		if rule == admission.Prefix+"manager" {
			stealsCluster(t, c, own, "")
		}
		restore()
		testwait.For(t, "the rule to be in force", patience, func() (bool, string) {
			err := all[0].do(t.Context(), c)
			return err != nil, fmt.Sprint(err)
		})
	}
}

// refusedBy reports whether one of the policies of a rule denied a request.
func refusedBy(err error, rule string) bool {
	return err != nil && (strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+rule+"'") || strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+rule+"-own'"))
}

// withoutRule deletes the bindings of a rule; what it returns makes them again.
func withoutRule(t *testing.T, admin client.Client, name string) func() {
	t.Helper()
	objects, err := flux.ReadObjects(config.Policies())
	if err != nil {
		t.Fatal(err)
	}
	var removed []*unstructured.Unstructured
	for _, o := range objects {
		policy, _, _ := unstructured.NestedString(o.Object, "spec", "policyName")
		if o.GetKind() != "ValidatingAdmissionPolicyBinding" || policy != name && policy != name+"-own" {
			continue
		}
		if err := admin.Delete(t.Context(), o.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		removed = append(removed, o)
	}
	if len(removed) == 0 {
		t.Fatalf("there is no binding of %s", name)
	}
	return func() {
		for _, o := range removed {
			if err := admin.Create(context.WithoutCancel(t.Context()), o); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// stealsCluster goes the shortest way from the token to a cluster-admin, for real.
func stealsCluster(t *testing.T, c client.Client, own *rest.Config, rule string) {
	t.Helper()
	step := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "stolen", Labels: map[string]string{"tenure.dev/managed-by": "manager"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flux-system", Name: "tenure-manager"}},
	}
	err := c.Create(t.Context(), step.DeepCopy())
	if rule != "" {
		if !refusedBy(err, rule) {
			t.Fatalf("the first step to cluster-admin: want a refusal of %s, got %v", rule, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := kubernetes.NewForConfig(own)
	if err != nil {
		t.Fatal(err)
	}
	token := &authenticationv1.TokenRequest{}
	testwait.For(t, "a token of a cluster-admin's account", patience, func() (bool, string) {
		// The running manager deletes the binding, since kube-system belongs to no tenant.
		if err := c.Create(t.Context(), step.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return false, err.Error()
		}
		got, err := stolen.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), "root", token.DeepCopy(), metav1.CreateOptions{})
		if err == nil {
			token = got
		}
		return err == nil, fmt.Sprint(err)
	})
	as := rest.AnonymousClientConfig(own)
	as.BearerToken = token.Status.Token
	root := newClient(t, as, rest.ImpersonationConfig{})
	if err := root.List(t.Context(), &corev1.SecretList{}); err != nil {
		t.Errorf("want all Secrets of the cluster, got %v", err)
	}
	if err := root.Delete(t.Context(), step); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}
