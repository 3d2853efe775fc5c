package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestProfileThereAndBack locks down a running cluster by a change of its fleet, and removes
// the lockdown again, without direct access to the cluster: Flux must not lose its own rights
// in between.
func TestProfileThereAndBack(t *testing.T) {
	t.Parallel()
	e := copyExample(t)
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, "the example fleet becomes ready altogether", failed)
	kube, err := client.New(r.REST, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	cluster := lockdown.Cluster{Client: kube, Discovery: discovery.NewDiscoveryClientForConfigOrDie(r.REST), Namespace: "flux-system"}
	wrong := func() string {
		results, err := cluster.Check(t.Context())
		if err != nil {
			return err.Error()
		}
		var all []string
		for _, result := range results {
			if !result.OK {
				all = append(all, result.Name+": "+result.Message)
			}
		}
		return strings.Join(all, "\n")
	}
	if wrong() == "" {
		t.Fatal("check finds nothing wrong with a fleet that has no profile")
	}
	checks(r, 1, `(?s)rights of Flux +False +.*tenure-flux-objects +False +ValidatingAdmissionPolicy tenure-flux-objects is missing.*roles +False +.*\d+ of \d+ checks failed`)

	switchTo(t, e, true)
	testwait.For(t, "the cluster to be locked down", patience, func() (bool, string) {
		found := wrong()
		return found == "", found
	})
	expectNothing(t, "all is ready under the profile", r.settle())
	checks(r, 0, `(?s)rights of Flux +True +cut down.*tenure-flux-objects +True +denies`)
	for _, account := range []string{"kustomize-controller", "helm-controller", "source-controller", "notification-controller"} {
		// The exit code is 1 for no.
		can, _ := kubectl(t, r.Cluster, "", "auth", "can-i", "list", "secrets", "--all-namespaces", "--as=system:serviceaccount:flux-system:"+account)
		if strings.TrimSpace(can) != "no" {
			t.Errorf("may %s list all Secrets? %s", account, can)
		}
	}

	// There are two steps: the manager removes its finalizers, and then Flux deletes it.
	r.kubectl(leavingTenant, "apply", "-f", "-")
	r.kubectl("", "wait", "tenants.tenure.dev/leaving", "--for=condition=Ready", atMost)
	switchTo(t, e, false)
	r.kubectl("", "-n", "flux-system", "wait", "deployment/tenure-manager", "--for=jsonpath={.spec.strategy.rollingUpdate.maxSurge}=0", atMost)
	r.kubectl("", "-n", "flux-system", "rollout", "status", "deployment/tenure-manager", atMost)
	for _, kind := range []string{"tenants.tenure.dev", "tenantparameters.tenure.dev", "resourcequotas"} {
		if left := r.kubectl("", "get", kind, "-A", "-o", `jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {.metadata.finalizers}{"\n"}{end}`); left == "" || strings.Contains(left, "tenure.dev/") {
			t.Errorf("once the manager is ready, these have its finalizers, or are gone:\n%s", left)
		}
	}
	switchTo(t, e, false)
	testwait.For(t, "the lockdown to be gone", patience, func() (bool, string) {
		left := r.kubectl("", "get", "validatingadmissionpolicies,clusterroles", "--selector=app.kubernetes.io/name=tenure", "--output=name")
		return left == "", left
	})
	// Flux reports an object that another client deleted during the prune as a failure, and
	// retries at the next interval. So request a reconcile now.
	if len(r.settle()) > 0 {
		root := flux.Ref{Kind: flux.Kustomization, Namespace: "flux-system", Name: "flux-system"}
		if err := flux.RequestReconcile(t.Context(), kube, root); err != nil {
			t.Fatal(err)
		}
	}
	testwait.For(t, "all to be ready without the profile", patience, func() (bool, string) {
		failed := r.settle()
		return len(failed) == 0, fmt.Sprint(failed)
	})
	r.kubectl("", "delete", "tenants.tenure.dev/leaving", "namespace/leaving", atMost)
}

// leavingTenant has objects with each of the manager's finalizers.
const leavingTenant = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: leaving}
spec: {namespaces: {create: [leaving]}, quotas: [{name: compute, hard: {requests.cpu: "4"}}]}
`

// checks runs `tenure check` on a cluster until its exit code and output are as expected: a
// manager that has just started may not have written its status yet.
func checks(r run, code int, expression string) {
	r.t.Helper()
	re := regexp.MustCompile(expression)
	testwait.For(r.t, fmt.Sprintf("tenure check to end with %d and say %s", code, expression), patience, func() (bool, string) {
		cmd := command(r.t, r.t.TempDir(), "check", "--kubeconfig", r.Kubeconfig)
		out, err := cmd.CombinedOutput()
		return cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == code && re.Match(out), fmt.Sprintf("%v\n%s", err, out)
	})
}

// switchTo edits the fleet, which the cluster follows.
func switchTo(t *testing.T, e example, tenants bool) {
	t.Helper()
	f, err := layout.Load(e.platform, "clusters/staging", layout.Options{Components: config.FluxComponents()})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := lockdown.Make(f, lockdown.Options{Tenants: tenants, Allow: []string{"helm=https://charts.example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Write(e.platform); err != nil {
		t.Fatal(err)
	}
}

// TestInstallExport applies the output of `tenure install --export` to a bare cluster, twice,
// and checks that Flux runs and is locked down. It applies the output once more without a
// change, as a pipeline does. Then it uninstalls Tenure, and installs it again.
func TestInstallExport(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Start(t, localcluster.Options{})
	kube, err := client.New(cluster.REST, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	// A started cluster has its aggregated roles: an account with the role can use it.
	view := &rbacv1.ClusterRole{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: "view"}, view); err != nil || len(view.Rules) == 0 {
		t.Errorf("ClusterRole view gives nothing in a cluster that has started: %v", err)
	}
	manifests, err := command(t, t.TempDir(), "install", "--export", "--image-controllers", "--check").Output()
	if err != nil {
		t.Fatal(err)
	}
	// The kinds of some objects are new, which kubectl finds out after it has
	// applied the others.
	if out, err := kubectl(t, cluster, string(manifests), "apply", "--server-side", "-f", "-"); err == nil || !strings.Contains(out, "ensure CRDs are installed first") {
		t.Errorf("a first time: %v\n%s", err, out)
	}
	r := run{t: t, Cluster: cluster}
	r.installs("again", string(manifests))
	r.checksItself("all is as installed", "Complete", "kinds ")
	r.kubectl("", "delete", "validatingadmissionpolicybinding", "tenure-protected")
	r.checksItself("a binding is gone", "Failed", "ValidatingAdmissionPolicyBinding tenure-protected is missing")
	r.installs("and when nothing is new", string(manifests))

	r.kubectl(chartTenant, "apply", "-f", "-")
	r.untilMay("alice", "create", "gitrepositories.source.toolkit.fluxcd.io", "-n", "team-apps")
	r.uninstalls("nobody can be asked", 1, "nobody can be asked")
	r.uninstalls("only a look", 0, `(?s)tenure-namespaces would be deleted.*1 Tenants, 1 tenants' namespaces`, "--dry-run")
	if r.field("", "tenants.tenure.dev/team", ".metadata.finalizers") == "" {
		t.Error("the Tenant has no finalizer while the manager runs")
	}
	r.uninstalls("for good", 0, `Nothing isolates the tenants any more`, "--yes")
	r.uninstalls("once more", 0, `Tenure is not installed`, "--yes")
	if got := r.field("", "tenants.tenure.dev/team", ".metadata.finalizers"); got != "" {
		t.Errorf("uninstalling has left finalizers: %s", got)
	}
	for _, object := range []string{"tenancyprofile/default", "tenants.tenure.dev/team", "namespace/team-apps", "customresourcedefinition/tenants.tenure.dev"} {
		if r.field("", object, ".metadata.name") == "" {
			t.Errorf("uninstalling has deleted %s", object)
		}
	}
	rightsOfFlux := regexp.MustCompile(`/tenure-(.*-controller|source-watcher|root-.*)$`)
	for left := range strings.FieldsSeq(r.kubectl("", "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings", "-o", "name", "-l", "app.kubernetes.io/name=tenure")) {
		if !rightsOfFlux.MatchString(left) {
			t.Errorf("uninstalling has left %s", left)
		}
	}
	if got := r.field("flux-system", "deployment/kustomize-controller", ".status.readyReplicas"); got != "1" {
		t.Errorf("after Tenure was uninstalled, kustomize-controller has %q ready replicas", got)
	}

	r.installs("after it was uninstalled", string(manifests))
	r.refusesAttack()
}

// installs applies what `tenure install --export` has printed, and checks that Flux runs and is
// locked down.
func (r run) installs(reason, manifests string) {
	r.t.Helper()
	testwait.For(r.t, reason, patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, manifests, "apply", "--server-side", "-f", "-")
		return err == nil, out
	})
	testwait.For(r.t, "Flux to run", patience, func() (bool, string) {
		out := r.kubectl("", "get", "deployments", "-n", "flux-system", "-o", "jsonpath={.items[*].status.readyReplicas}")
		// Of the manager there are two.
		ready := strings.Fields(out)
		slices.Sort(ready)
		return slices.Equal(ready, []string{"1", "1", "1", "1", "1", "1", "2"}), out
	})
	checks(r, 0, `tenure-flux-objects +True +denies`)
}

// uninstalls runs `tenure uninstall`, and compares its exit code and what it prints.
func (r run) uninstalls(reason string, code int, want string, args ...string) {
	r.t.Helper()
	cmd := command(r.t, r.t.TempDir(), append([]string{"uninstall", "--kubeconfig", r.Kubeconfig}, args...)...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code || !regexp.MustCompile(want).Match(out) {
		r.t.Fatalf("%s: want exit code %d and %q, got %d and\n%s", reason, code, want, got, out)
	}
}
