package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// withCapsule adds the optional component for Capsule's kinds to the files of a
// fleet that has the manager.
func withCapsule(t *testing.T, files map[string]string) {
	t.Helper()
	const folder, arguments = "infrastructure/tenure/", "            - manager\n"
	if strings.Count(files[folder+"manager.yaml"], arguments) != 1 {
		t.Fatal("the manager's Deployment has no argument to add another one to")
	}
	files[folder+"manager.yaml"] = strings.Replace(files[folder+"manager.yaml"], arguments, arguments+"            - --capsule\n", 1)
	files[folder+"capsule-crds.yaml"] = string(config.CapsuleCRDs())
	files[folder+"capsule-roles.yaml"] = string(config.CapsuleRoles())
	files[folder+"capsule-policies.yaml"] = string(config.CapsulePolicies())
}

// saysOf waits until a condition of a Tenant of Capsule is as it should be.
func (r run) saysOf(tenant, condition, status string) {
	r.t.Helper()
	testwait.For(r.t, fmt.Sprintf("Capsule's Tenant %s to say %s=%s", tenant, condition, status), patience, func() (bool, string) {
		said := r.field("", "tenants.capsule.clastix.io/"+tenant, ".status.conditions")
		return r.field("", "tenants.capsule.clastix.io/"+tenant, `.status.conditions[?(@.type=="`+condition+`")].status`) == status, said
	})
}

// may reports whether a user may perform an action, with arguments as for kubectl auth can-i:
// a verb, a resource with its group and perhaps a name, and -n with a namespace or -A.
func (r run) may(who string, what ...string) bool {
	r.t.Helper()
	resource, name, _ := strings.Cut(what[1], "/")
	resource, group, _ := strings.Cut(resource, ".")
	asked := &authorizationv1.ResourceAttributes{Verb: what[0], Group: group, Resource: resource, Name: name}
	if len(what) == 4 && what[2] == "-n" {
		asked.Namespace = what[3]
	}
	config := rest.CopyConfig(r.REST)
	config.Impersonate.UserName = who
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		r.t.Fatal(err)
	}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(r.t.Context(),
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: asked}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatalf("cannot ask what %s may do: %v", who, err)
	}
	return review.Status.Allowed
}

// untilMay waits until a user may perform an action, with arguments as for [run.may]. The
// manager grants the right, and the API server needs some time to apply it.
func (r run) untilMay(who string, what ...string) {
	r.t.Helper()
	testwait.For(r.t, who+" to have the right to "+strings.Join(what, " "), patience, func() (bool, string) {
		return r.may(who, what...), "it may not"
	})
}

// capsuleManifests returns the manifests of a tenant from the Capsule document and its public
// fleet: see testdata/capsule.
func capsuleManifests(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "capsule", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestCapsuleManifests compares the copies of the public fleet's manifests with the fleet, if
// it is beside the repository, and with our fleet of the same shape.
func TestCapsuleManifests(t *testing.T) {
	t.Parallel()
	const base = "main/tenants/base/dev-team/"
	for name, files := range map[string][]string{
		"dev-team":            {"main/infrastructure/capsule/*role.yaml", base + "rbac.yaml", base + "home.yaml", "main/tenants/staging/capsule-configuration.yaml"},
		"dev-team-namespaces": {"dev-team/staging/namespaces/namespaces.yaml"},
	} {
		copied, err := flux.ReadObjects([]byte(capsuleManifests(t, name)))
		if err != nil {
			t.Fatal(err)
		}
		for whose, fleet := range capsuleAged.fleets(t) {
			var there []*unstructured.Unstructured
			for _, file := range files {
				there = append(there, objectsOf(t, filepath.Join(fleet.dir, file))...)
			}
			if diff := cmp.Diff(there, copied, cmpopts.SortSlices(func(a, b *unstructured.Unstructured) bool {
				return a.GetKind()+"/"+a.GetName() < b.GetKind()+"/"+b.GetName()
			})); diff != "" {
				t.Errorf("testdata/capsule/%s.yaml is not what the fleet has: %s (-want +got):\n%s", name, whose, diff)
			}
		}
	}
}

// objectsOf reads the files that match a pattern, if there are any.
func objectsOf(t *testing.T, pattern string) []*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := flux.ReadObjects(content)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects...)
	}
	return all
}

// testCapsuleDocument applies the manifests of the Capsule document, and checks the results
// that it describes.
func testCapsuleDocument(r run) {
	for tenant, home := range map[string]string{"oil": "oil-system", "my-tenant": "my-tenant"} {
		owner := "system:serviceaccount:" + home + ":gitops-reconciler"
		r.kubectl(capsuleManifests(r.t, tenant), "apply", "-f", "-")
		r.saysOf(tenant, "Ready", "True")
		space := func(name string) string {
			return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"
		}
		// By Git, which applies: the owner's Kustomization does the same.
		testwait.For(r.t, "the owner to declare a namespace", patience, func() (bool, string) {
			out, err := kubectl(r.t, r.Cluster, space(tenant+"-apps"), "apply", "--server-side", "-f", "-", "--as="+owner)
			return err == nil, out
		})
		if got := r.field("", "namespace/"+tenant+"-apps", ".metadata.labels"); !strings.Contains(got, `"tenure.dev/tenant":"`+tenant+`"`) {
			r.t.Errorf("the namespace is not tenant %s's: %s", tenant, got)
		}
		for reason, right := range map[string][]string{
			"it has the role admin":                         {"create", "deployments.apps"},
			"it may delete its namespaces":                  {"delete", "namespaces/" + tenant + "-apps"},
			"the additional binding is for Flux's objects":  {"create", "kustomizations.kustomize.toolkit.fluxcd.io"},
			"and for those that tell it what went wrong":    {"create", "alerts.notification.toolkit.fluxcd.io"},
			"and it may bring charts, as the document does": {"create", "helmreleases.helm.toolkit.fluxcd.io"},
		} {
			r.t.Log(reason)
			r.untilMay(owner, append(right, "-n", tenant+"-apps")...)
		}
		// The translation replaces cluster-admin in the namespaces, and the condition reports it.
		if said := r.field("", "tenants.capsule.clastix.io/"+tenant, `.status.conditions[?(@.type=="Honoured")].message`); !strings.Contains(said, "spec.additionalRoleBindings[0].clusterRoleName") {
			r.t.Errorf("nothing is said of cluster-admin: %q", said)
		}
		dryRun := func(manifest string, as ...string) (string, error) {
			return kubectl(r.t, r.Cluster, manifest, append([]string{"apply", "--server-side", "-f", "-", "--dry-run=server"}, as...)...)
		}
		sync := func(namespace, account string) string {
			return fmt.Sprintf("{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: taken, namespace: %s}, spec: {interval: 1h, prune: true, serviceAccountName: %s, sourceRef: {kind: GitRepository, name: app}}}", namespace, account)
		}
		for threat, manifest := range map[string]string{
			"impersonate a privileged account":           sync("flux-system", "kustomize-controller"),
			"bind a role at cluster level":               "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: taken}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: x, namespace: " + tenant + "-apps}]}",
			"bind a role in a namespace that is not its": "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: taken, namespace: team-0}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}, subjects: [{kind: ServiceAccount, name: x, namespace: " + tenant + "-apps}]}",
			"own a privileged namespace":                 "{apiVersion: v1, kind: Namespace, metadata: {name: flux-system, labels: {capsule.clastix.io/tenant: " + tenant + "}}}",
			"own another tenant's namespace":             "{apiVersion: v1, kind: Namespace, metadata: {name: team-0, labels: {capsule.clastix.io/tenant: " + tenant + "}}}",
		} {
			if out, err := dryRun(manifest, "--as="+owner); err == nil || !strings.Contains(out, "orbidden") && !strings.Contains(out, "denied") {
				r.t.Errorf("the owner of %s could %s: %s", tenant, threat, out)
			}
		}
		// The requests of the platform are not the tenants' rules' business.
		if out, err := dryRun(space("anybodys"), "--as=system:serviceaccount:flux-system:kustomize-controller"); err != nil {
			r.t.Errorf("a privileged account is held to a tenant: %s", out)
		}
	}
	const reconciler = "system:serviceaccount:my-tenant:gitops-reconciler"
	r.untilMay(reconciler, "impersonate", "users/"+reconciler)
	if r.may(reconciler, "impersonate", "users/system:admin") {
		r.t.Error("the reconciler may impersonate others")
	}
	r.untilMay(reconciler, "create", "kustomizations.kustomize.toolkit.fluxcd.io", "-n", "my-tenant")
	// Up to the quota.
	r.kubectl("", "patch", "tenants.capsule.clastix.io/oil", "--type=merge", "-p", `{"spec":{"namespaceOptions":{"quota":2}}}`)
	r.kubectl("", "wait", "tenants.tenure.dev/oil", "--for=jsonpath={.spec.namespaces.quota}=2", atMost)
	const oil = "--as=system:serviceaccount:oil-system:gitops-reconciler"
	r.kubectl("", "create", "namespace", "oil-second", oil)
	testwait.For(r.t, "the webhook to know the quota of 2", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, "", "create", "namespace", "oil-third", oil, "--dry-run=server")
		return err != nil && strings.Contains(out, "has 2 of 2 namespaces"), out
	})
}

// testCapsuleUnchanged applies the manifests of the public fleet for Capsule unchanged. The
// owner may not create its namespaces, whose names have no hyphen, and applies them after the
// platform has created them: see move-from-capsule.md.
func testCapsuleUnchanged(r run) {
	const owner = "system:serviceaccount:dev-team:gitops-reconciler"
	r.kubectl(capsuleManifests(r.t, "dev-team"), "apply", "-f", "-")
	r.saysOf("dev-team", "Ready", "True")
	made := capsuleManifests(r.t, "dev-team-namespaces")
	testwait.For(r.t, "the names of its namespaces to be refused", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, made, "apply", "--server-side", "-f", "-", "--as="+owner)
		return err != nil && strings.Contains(out, "choose one with a hyphen, such as dev-team-tools"), out
	})
	for _, namespace := range []string{"apps", "tools"} {
		r.kubectl("{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+", labels: {tenure.dev/tenant: dev-team, toolkit.fluxcd.io/tenant: dev-team}}}", "create", "-f", "-")
	}
	testwait.For(r.t, "the owner to apply its namespaces", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, made, "apply", "--server-side", "-f", "-", "--as="+owner)
		return err == nil, out
	})
	for _, namespace := range []string{"apps", "tools"} {
		if got := r.field("", "namespace/"+namespace, ".metadata.labels"); !strings.Contains(got, `"tenure.dev/tenant":"dev-team"`) {
			r.t.Errorf("namespace %s of the owner is nobody's: %s", namespace, got)
		}
		testwait.For(r.t, "the owner to have its roles in "+namespace, patience, func() (bool, string) {
			return r.may(owner, "create", "deployments.apps", "-n", namespace) && r.may(owner, "delete", "namespaces/"+namespace, "-n", namespace), "it may not"
		})
	}
	testwait.For(r.t, "the Tenant to count its namespaces", patience, func() (bool, string) {
		size := r.field("", "tenants.capsule.clastix.io/dev-team", ".status.size")
		return size == "2", size
	})
	for _, what := range [][]string{
		{"label", "namespace", "team-0", "x=y"}, {"label", "namespace", "kube-system", "x=y"},
		{"label", "namespace", "apps", "--overwrite", "toolkit.fluxcd.io/tenant=team-0"},
		{"create", "configmap", "x", "-n", "team-0"}, {"create", "namespace", "kube-mine"},
		{"annotate", "capsuleconfiguration", "default", "x=y"}, {"annotate", "tenants.capsule.clastix.io", "dev-team", "x=y"},
	} {
		if out, err := kubectl(r.t, r.Cluster, "", append(what, "--as="+owner, "--dry-run=server")...); err == nil {
			r.t.Errorf("the owner could %s: %s", strings.Join(what, " "), out)
		}
	}
}

// The objects of a tenant that remain of Capsule's controller: see move-from-capsule.md.
const (
	leftTenant = `apiVersion: capsule.clastix.io/v1beta2
kind: Tenant
metadata: {name: solar, finalizers: [controller.projectcapsule.dev/finalize]}
spec:
  owners: [{kind: User, name: joe}]
  resourceQuotas: {items: [{hard: {pods: "3"}}]}
  limitRanges: {items: [{limits: [{type: Container, max: {cpu: "1"}}]}]}
`
	leftObjects = `apiVersion: v1
kind: Namespace
metadata: {name: solar-dev, labels: {capsule.clastix.io/tenant: solar}, %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "capsule:managed:1", namespace: solar-dev, %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: joe}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "capsule:managed:2", namespace: solar-dev, %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: capsule-namespace-deleter}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: joe}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: capsule-solar-0, namespace: solar-dev, %[1]s}
spec: {hard: {pods: "3"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: capsule-solar-0, namespace: solar-dev, %[1]s}
spec: {limits: [{type: Container, max: {cpu: "1"}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: data, namespace: solar-dev}
`
)

// testCapsuleMove starts the manager on objects of Capsule's controller, and checks that the
// owner keeps the same rights throughout, that Tenure's objects replace the limits of the
// tenant, and that no data is lost.
func testCapsuleMove(r run) {
	r.kubectl("", "scale", "deployment/tenure-manager", "-n", "flux-system", "--replicas=0")
	testwait.For(r.t, "the manager to be gone", patience, func() (bool, string) {
		pods := r.kubectl("", "get", "pods", "-n", "flux-system", "-l", "app=tenure-manager", "-o", "name")
		return pods == "", pods
	})
	r.kubectl(leftTenant, "apply", "-f", "-")
	uid := r.field("", "tenants.capsule.clastix.io/solar", ".metadata.uid")
	r.kubectl(fmt.Sprintf(leftObjects, "ownerReferences: [{apiVersion: capsule.clastix.io/v1beta2, kind: Tenant, name: solar, controller: true, blockOwnerDeletion: true, uid: "+uid+"}]"), "apply", "-f", "-")
	before := r.field("", "namespace/solar-dev", ".metadata.uid")
	r.untilMay("joe", "create", "configmaps", "-n", "solar-dev")
	r.untilMay("joe", "delete", "namespaces/solar-dev", "-n", "solar-dev")
	r.kubectl("", "scale", "deployment/tenure-manager", "-n", "flux-system", "--replicas=1")

	const tenant = "tenants.capsule.clastix.io/solar"
	looked := 0
	testwait.For(r.t, "the tenant to be moved", patience, func() (bool, string) {
		for _, what := range [][]string{{"create", "configmaps"}, {"delete", "namespaces/solar-dev"}} {
			if looked++; !r.may("joe", append(what, "-n", "solar-dev")...) {
				r.t.Errorf("the owner is locked out: it may not %s", strings.Join(what, " "))
			}
		}
		return r.field("", tenant, `.status.conditions[?(@.type=="Moved")].status`) == "True", r.field("", tenant, ".status.conditions")
	})
	r.t.Logf("the owner's rights were looked at %d times", looked)
	r.saysOf("solar", "Ready", "True")
	if left := r.kubectl("", "get", "rolebindings,resourcequotas,limitranges", "-n", "solar-dev", "-o", "name"); strings.Contains(left, "/capsule") {
		r.t.Errorf("what Capsule made is left: %s", left)
	}
	testwait.For(r.t, "the tenant's quota to be the Tenant's", patience, func() (bool, string) {
		got := r.field("solar-dev", "resourcequota/tenure-capsule-0", ".spec.hard.pods")
		return got == "3", got
	})
	if got := r.field("", "namespace/solar-dev", ".metadata.uid"); got != before {
		r.t.Error("the namespace is another one")
	}
	if r.field("solar-dev", "configmap/data", ".metadata.name") != "data" {
		r.t.Error("what the tenant had is lost")
	}
	testwait.For(r.t, "the owner to make another namespace", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, "", "create", "namespace", "solar-next", "--as=joe")
		return err == nil || strings.Contains(out, "already exists"), out
	})
}
