package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
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
	checks(r, 1, `(?s)rights of Flux +False +.*Tenure +False +not installed.*\d+ of \d+ checks failed`)

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
