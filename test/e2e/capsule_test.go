package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/testwait"
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

// may asks whether somebody may do something.
func (r run) may(who string, what ...string) bool {
	r.t.Helper()
	out, err := kubectl(r.t, r.Cluster, "", append([]string{"auth", "can-i", "--as=" + who}, what...)...)
	if err != nil && !strings.HasPrefix(out, "no") {
		r.t.Fatalf("cannot ask what %s may do: %s", who, out)
	}
	return err == nil
}

// testCapsuleUnchanged applies what the public fleet has for Capsule, as it is, and
// makes its namespaces as their owner does.
func testCapsuleUnchanged(r run) {
	fleet := realFleet(r.t, "flux2-capsule-multi-tenancy")
	read := func(path ...string) string {
		r.t.Helper()
		content, err := os.ReadFile(filepath.Join(append([]string{fleet}, path...)...))
		if err != nil {
			r.t.Fatal(err)
		}
		return string(content)
	}
	const owner = "system:serviceaccount:dev-team:gitops-reconciler"
	r.kubectl(read("main", "infrastructure", "capsule", "capsule-namespace-provisioner-clusterrole.yaml"), "apply", "-f", "-")
	r.kubectl(read("main", "tenants", "base", "dev-team", "rbac.yaml"), "apply", "-f", "-")
	r.kubectl(read("main", "tenants", "staging", "capsule-configuration.yaml"), "apply", "-f", "-")
	r.saysOf("dev-team", "Ready", "True")
	made := read("dev-team", "staging", "namespaces", "namespaces.yaml")
	testwait.For(r.t, "the owner to make its namespaces", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, made, "apply", "--server-side", "-f", "-", "--as="+owner)
		return err == nil, out
	})
	for _, namespace := range []string{"apps", "tools"} {
		if got := r.field("", "namespace/"+namespace, ".metadata.labels"); !strings.Contains(got, `"tenure.dev/tenant":"dev-team"`) {
			r.t.Errorf("namespace %s of the owner is nobody's: %s", namespace, got)
		}
		testwait.For(r.t, "the owner to have its roles in "+namespace, patience, func() (bool, string) {
			return r.may(owner, "create", "deployments.apps", "-n", namespace) && r.may(owner, "delete", "namespace/"+namespace, "-n", namespace), "it may not"
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

// What Capsule's controller leaves of a tenant: see move-from-capsule.md.
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

// testCapsuleMove starts the manager on what Capsule's controller has left: the
// owner has the same rights all the time, what bounds the tenant is replaced, and
// nothing is lost.
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
	r.kubectl("", "scale", "deployment/tenure-manager", "-n", "flux-system", "--replicas=1")

	const tenant = "tenants.capsule.clastix.io/solar"
	looked := 0
	testwait.For(r.t, "the tenant to be moved", patience, func() (bool, string) {
		for _, what := range [][]string{{"create", "configmaps"}, {"delete", "namespace/solar-dev"}} {
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
	if got := r.field("solar-dev", "resourcequota/tenure-capsule-0", ".spec.hard.pods"); got != "3" {
		r.t.Errorf("the tenant's quota is %q", got)
	}
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
