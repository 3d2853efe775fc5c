package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// firstTenant is the goal for the time from a bare cluster to the first tenant that delivers.
const firstTenant = 60 * time.Second

// moreValues are the values of the later version in testReleaseByHelm.
const moreValues = `manager: {replicas: 2}
proxy: {enabled: true, replicas: 1}
capsule: {enabled: true}
profile: {tenants: {sources: {git: ["https://github.com/acme/*", "https://git.example.com/acme/*"]}}}
`

// firstDelivery is the content of the first tenant's repository.
var firstDelivery = map[string]string{"staging/app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app, namespace: dev-team-apps}\ndata: {value: delivered}\n"}

// helmScript is the state of testReleaseByHelm.
type helmScript struct {
	proxied
	admin admin

	programs string
	expired  []byte
}

// testReleaseByHelm installs, upgrades, rolls back and removes the chart with helm. Then it
// installs and removes the manifests on the same cluster.
func testReleaseByHelm(t *testing.T, r releases) {
	s := helmScript{programs: r.programs(t)}
	r.pull(t, s.programs, earlierVersion)
	s.run = run{t: t, Cluster: testcluster.Start(t, localcluster.Options{BinDir: s.programs, Maps: parseMaps(t,
		"https://github.com/acme/dev-team#main="+newFolder(t, firstDelivery))})}
	began := time.Now()
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	write(t, string(content), s.kubeconfig)
	s.admin = admin{releases: r, t: t, kubeconfig: s.kubeconfig, folder: t.TempDir()}
	s.admin.writes("profile:", "values.yaml")
	s.admin.writes("apiVersion: tenure.dev/v1alpha1\nkind: Tenant", "tenant.yaml")
	write(t, moreValues, s.admin.folder, "more.yaml")

	script{
		{"Flux is installed", func() { s.admin.succeeds(earlierVersion, "tenure install --export --security-profile single-tenant") }},
		{"helm shows the values", func() {
			if out := s.runs("helm", "show", "values", "oci://"+r.host+"/acme/tenure", "--plain-http"); !strings.Contains(out, "\n# ") || !strings.Contains(out, "\nprofile:") {
				t.Errorf("helm shows no values with comments:\n%s", out)
			}
		}},
		{"a wrong value is refused", func() {
			s.admin.refuses("additional properties 'proxies' not allowed", "helm install", "--set", "proxies.enabled=true")
		}},
		{"a registry that is not there, and a chart that it lacks", func() {
			for chart, why := range map[string]string{"127.0.0.1:1/acme/tenure": "connection refused", r.host + "/acme/none": "not found"} {
				s.refused(why, "helm", "install", "tenure", "oci://"+chart, "--version=0.1.0", "--plain-http", "--namespace=flux-system")
			}
		}},
		{"the earlier version is installed", func() { s.admin.succeeds(earlierVersion, "helm install") }},
		{"a tenant delivers", func() {
			s.delivers()
			t.Logf("from a bare cluster to the first tenant that delivers: %.1fs with helm, goal %s", time.Since(began).Seconds(), firstTenant)
		}},
		{"the rules are in force", s.isolates},
		{"the later version is installed", s.upgrades},
		{"back and on again, under attack", s.rollsBack},
		{"a second installation is refused", func() {
			s.refused("cannot be imported into the current release", "helm", "install", "second", "oci://"+r.host+"/acme/tenure", "--plain-http", "-n", "other", "--create-namespace")
			bootstrapped{s.run, filepath.Join(r.tenure[laterVersion], "tenure")}.bootstrap("GIT_PASSWORD=x", "--url="+fleetURL, "--token-auth").
				fails("helm has installed Tenure", patience, "Helm release flux-system/tenure has installed Tenure", "uninstall it first")
		}},
		{"the node is drained", s.drains},
		{"an expired certificate is replaced", func() { s.renewed(s.expired) }},
		{"the chart is uninstalled", s.removesChart},
		{"the manifests are installed", func() { s.installs(true) }},
		{"they are uninstalled", s.removesManifests},
		{"they are installed again", func() { s.installs(false); s.refusesAttack() }},
		{"everything is deleted", s.deletesKinds},
	}.run(t)
}

// writes writes the block of the page that begins with the words to a file.
func (a admin) writes(begins, file string) {
	a.t.Helper()
	for _, block := range pageBlocks(a.t)["docs/how-to/install.md"] {
		if strings.HasPrefix(block, begins) {
			write(a.t, block+"\n", a.folder, file)
			return
		}
	}
	a.t.Fatalf("install.md has no block that begins with %q", begins)
}

// refuses runs a command as runs does, which must fail with the reason.
func (a admin) refuses(why, begins string, more ...string) {
	a.t.Helper()
	if out, code := a.runs(laterVersion, begins, more...); code == 0 || !strings.Contains(out, why) {
		a.t.Errorf("%s: want the refusal %q, got %d and\n%s", begins, why, code, out)
	}
}

// delivers applies the page's first Tenant, and waits until Flux has applied its repository.
func (s *helmScript) delivers() {
	s.t.Helper()
	s.admin.succeeds(earlierVersion, "kubectl apply -f tenant.yaml")
	s.admin.succeeds(earlierVersion, "kubectl wait tenant/dev-team")
	s.hasDelivered()
	if out := s.admin.succeeds(earlierVersion, "tenure get all -A"); !strings.Contains(out, "dev-team-apps") {
		s.t.Errorf("tenure get all does not show the tenant's objects:\n%s", out)
	}
}

// hasDelivered checks that the work of the first tenant is there.
func (s *helmScript) hasDelivered() {
	s.t.Helper()
	if got := s.field("dev-team-apps", "configmap/app", ".data.value"); got != "delivered" {
		s.t.Errorf("the tenant's ConfigMap has %q", got)
	}
}

// isolates makes another Tenant, and attacks as its owner.
func (s *helmScript) isolates() {
	s.seesReleases("the chart is installed", release{"tenure", "flux-system", "1", "deployed"})
	if got := s.profileDescription(); !strings.HasPrefix(got, earlierDescription) {
		s.t.Errorf("the earlier chart has the kind %q", got)
	}
	s.admin.checked("kinds")
	s.kubectl(chartTenant, "apply", "-f", "-")
	s.untilMay("alice", "create", "gitrepositories.source.toolkit.fluxcd.io", "-n", "team-apps")
	s.refusesAttack()
	s.alice("tenants may not fetch from addresses that the values lack", "must not fetch from https://git.example.com/acme/app (allowed: https://github.com/acme/*)", chartSource)
	s.expired = s.expires()
}

// upgrades installs the later version with more values.
func (s *helmScript) upgrades() {
	s.admin.pull(s.t, s.programs, laterVersion)
	s.admin.succeeds(laterVersion, "helm upgrade tenure oci://registry.example.com/acme/tenure --version 0.2.0 -n flux-system --reset-then-reuse-values", "--values", "more.yaml")
	if got := s.profileDescription(); !strings.HasPrefix(got, laterDescription) {
		s.t.Errorf("after the upgrade the kind is %q", got)
	}
	for deployment, want := range map[string]string{"tenure-manager": "2", "tenure-proxy": "1"} {
		if got := s.field("flux-system", "deployment/"+deployment, ".status.readyReplicas"); got != want {
			s.t.Errorf("%s has %q ready replicas, want %s", deployment, got, want)
		}
		if got, want := s.field("flux-system", "deployment/"+deployment, ".spec.template.spec.containers[0].image"), s.admin.host+"/acme/tenure-server:"+laterVersion; got != want {
			s.t.Errorf("%s has the image %s, want %s", deployment, got, want)
		}
	}
	if got := s.field("", "customresourcedefinition/tenants.capsule.clastix.io", ".metadata.name"); got == "" {
		s.t.Error("the upgrade has not installed Capsule's kinds")
	}
	s.admin.checked()
	s.refusesAttack()
	testwait.For(s.t, "the approved address to be accepted", patience, func() (bool, string) {
		out, err := kubectl(s.t, s.Cluster, chartSource, "apply", "-f", "-", "--as=alice")
		return err == nil, out
	})
	// The webhook has the certificate that the manager filled in before the upgrade.
	testwait.For(s.t, "the owner to create a namespace", patience, func() (bool, string) {
		out, err := kubectl(s.t, s.Cluster, "", "create", "namespace", "team-more", "--as=alice")
		return err == nil || strings.Contains(out, "already exists"), out
	})
}

// rollsBack goes back to the earlier version and then on again, while the owner of a tenant attacks
// without a pause.
func (s *helmScript) rollsBack() {
	t := s.t
	calm := s.attacked("the rollback and the next upgrade")
	s.admin.pull(t, s.programs, earlierVersion)
	s.admin.succeeds(laterVersion, "helm rollback")
	if got := s.profileDescription(); !strings.HasPrefix(got, earlierDescription) {
		t.Errorf("after the rollback the kind is %q", got)
	}
	if got := s.kubectl("", "-n", "flux-system", "get", "deployments", "-o", "name", "-l", "app=tenure-proxy", "--ignore-not-found"); got != "" {
		t.Errorf("after the rollback there is %s", got)
	}
	s.kubectl("", "wait", "tenants.tenure.dev/team", "--for=condition=Ready", atMost)
	s.upgrades()
	calm()
}

// removesChart uninstalls the chart, first with `tenure uninstall`, which says the way out. The
// tenants and their work stay.
func (s *helmScript) removesChart() {
	s.uninstalls("helm has installed it", 1, `Helm release flux-system/tenure has installed Tenure(?s).*docs/how-to/install.md`, "--yes")
	s.admin.succeeds(laterVersion, "helm upgrade tenure oci://registry.example.com/acme/tenure --version 0.2.0 -n flux-system --reuse-values --set manager.release=true")
	if got := s.field("", "tenants.tenure.dev/team", ".metadata.finalizers"); got != "" {
		s.t.Errorf("the manager has left finalizers: %s", got)
	}
	s.admin.succeeds(laterVersion, "helm uninstall")
	s.keeps("tenants.capsule.clastix.io", "namespace/team-more")
	if left := s.kubectl("", "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name", "-l", "app.kubernetes.io/name=tenure"); left != "" {
		s.t.Errorf("uninstalling has left:\n%s", left)
	}
}

// keeps checks that uninstalling has kept the kinds, the Tenants and their work.
func (s *helmScript) keeps(kind, namespace string) {
	s.t.Helper()
	for _, object := range []string{
		"customresourcedefinition/tenants.tenure.dev", "customresourcedefinition/tenancyprofiles.tenure.dev", "customresourcedefinition/" + kind,
		"tenancyprofile/default", "tenants.tenure.dev/team", "tenants.tenure.dev/dev-team", "namespace/team-apps", namespace,
	} {
		if s.field("", object, ".metadata.name") == "" {
			s.t.Errorf("uninstalling has deleted %s", object)
		}
	}
	s.hasDelivered()
}

// installs installs the manifests, and checks that Flux runs and is locked down. Checked reports
// whether to run the check in the cluster, too.
func (s *helmScript) installs(checked bool) {
	t := s.t
	if checked {
		s.admin.pull(t, s.programs, earlierVersion)
		s.admin.succeeds(earlierVersion, "tenure install --export --allow", "--image-controllers", "--check")
	}
	// The chart's fields in the kinds and in the TenancyProfile are helm's.
	s.admin.succeeds(earlierVersion, "kubectl apply --server-side -f tenure.yaml", "--force-conflicts")
	if checked {
		s.admin.succeeds(earlierVersion, "kubectl delete clusterrolebinding")
	}
	testwait.For(t, "Flux to run", patience, func() (bool, string) {
		out := s.kubectl("", "get", "deployments", "-n", "flux-system", "-o", "jsonpath={.items[*].status.readyReplicas}")
		// Of the manager there are two.
		ready := strings.Fields(out)
		slices.Sort(ready)
		return slices.Equal(ready, []string{"1", "1", "1", "1", "1", "1", "2"}), out
	})
	checks(s.run, 0, `tenure-flux-objects +True +denies`)
	s.kubectl("", "wait", "tenants.tenure.dev", "--all", "--for=condition=Ready", atMost)
	if !checked {
		return
	}
	s.kubectl("", "wait", "tenants.tenure.dev/dev-team", "--for=condition=Synced", atMost)
	s.checksItself("all is as installed", "Complete", "kinds ")
	s.kubectl("", "delete", "validatingadmissionpolicybinding", "tenure-protected")
	s.checksItself("a binding is gone", "Failed", "ValidatingAdmissionPolicyBinding tenure-protected is missing")
	s.admin.succeeds(earlierVersion, "kubectl apply --server-side -f tenure.yaml", "--force-conflicts")
}

// removesManifests runs `tenure uninstall`. The tenants and their work stay, and so does Flux with
// its lockdown.
func (s *helmScript) removesManifests() {
	s.uninstalls("nobody can be asked", 1, "cannot ask for confirmation")
	s.uninstalls("only a look", 0, `(?s)tenure-namespaces would be deleted.*2 Tenants, 3 namespaces of tenants`, "--dry-run")
	if s.field("", "tenants.tenure.dev/team", ".metadata.finalizers") == "" {
		s.t.Error("the Tenant has no finalizer while the manager runs")
	}
	s.uninstalls("for good", 0, `(?s)Nothing isolates the tenants any more.*RoleBindings to Tenure's roles give no rights.*other rights have no limits`, "--yes")
	s.uninstalls("once more", 0, `Tenure is not installed`, "--yes")
	if got := s.field("", "tenants.tenure.dev/team", ".metadata.finalizers"); got != "" {
		s.t.Errorf("uninstalling has left finalizers: %s", got)
	}
	s.keeps("sourcegrants.tenure.dev", "namespace/team-more")
	rightsOfFlux := regexp.MustCompile(`/tenure-(.*-controller|source-watcher|root-.*)$`)
	for left := range strings.FieldsSeq(s.kubectl("", "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings", "-o", "name", "-l", "app.kubernetes.io/name=tenure")) {
		if !rightsOfFlux.MatchString(left) {
			s.t.Errorf("uninstalling has left %s", left)
		}
	}
	if got := s.field("flux-system", "deployment/kustomize-controller", ".status.readyReplicas"); got != "1" {
		s.t.Errorf("after Tenure was uninstalled, kustomize-controller has %q ready replicas", got)
	}
}

// deletesKinds deletes the Tenants with their kinds. The tenants' namespaces and work stay.
func (s *helmScript) deletesKinds() {
	s.uninstalls("before the kinds", 0, `Nothing isolates the tenants any more`, "--yes")
	s.admin.succeeds(earlierVersion, "kubectl delete crd", "--wait")
	if left := s.kubectl("", "get", "customresourcedefinitions", "-o", "name"); strings.Contains(left, ".tenure.dev") {
		s.t.Errorf("these kinds are left:\n%s", left)
	}
	s.hasDelivered()
}

// uninstalls runs `tenure uninstall`, and compares its exit code and its output.
func (r run) uninstalls(reason string, code int, want string, args ...string) {
	r.t.Helper()
	cmd := command(r.t, r.t.TempDir(), append([]string{"uninstall", "--kubeconfig", r.Kubeconfig}, args...)...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code || !regexp.MustCompile(want).Match(out) {
		r.t.Fatalf("%s: want exit code %d and %q, got %d and\n%s", reason, code, want, got, out)
	}
}

// profileDescription returns the description of the profile's kind in the cluster.
func (r run) profileDescription() string {
	r.t.Helper()
	return r.field("", "customresourcedefinition/tenancyprofiles.tenure.dev", ".spec.versions[0].schema.openAPIV3Schema.description")
}

// alice applies an object as the tenant's owner, which the rules must refuse with the reason.
func (r run) alice(reason, why, manifest string) {
	r.t.Helper()
	if out, err := kubectl(r.t, r.Cluster, manifest, "apply", "-f", "-", "--as=alice"); err == nil || !strings.Contains(out, why) {
		r.t.Errorf("%s: want %q, got %v\n%s", reason, why, err, out)
	}
}

// checked runs the page's `tenure check`, and expects failures of the lockdown of Flux, which the
// chart does not have, and of the given checks.
func (a admin) checked(failures ...string) {
	a.t.Helper()
	out, code := a.runs(laterVersion, "tenure check")
	want := append([]string{"notifications", "rights of Flux", "roles"}, failures...)
	slices.Sort(want)
	var got []string
	right := 0
	for line := range strings.Lines(out) {
		cells := regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(line), 3)
		switch {
		case len(cells) < 2 || strings.Contains(cells[0], "-controller "): // a flag or a variable
		case cells[1] == "True":
			right++
		case cells[1] == "False":
			got = append(got, cells[0])
		}
		if len(cells) == 3 && cells[0] == "roles" {
			// It names some of the missing roles.
			for missing := range strings.SplitSeq(cells[2], ";") {
				if strings.Contains(missing, " is missing") && !strings.Contains(missing, "tenure-flux-") && !strings.Contains(missing, "-controller is") {
					a.t.Errorf("check misses a role that is not Flux's: %s", missing)
				}
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || code != 1 || right < 20 {
		a.t.Errorf("check finds %d things right; wrong are -want +got:\n%s%d\n%s", right, diff, code, out)
	}
}

// attacked sends attacks and allowed requests as the owner of the Tenant team, without a pause. The
// returned function stops them, and checks that no attack was admitted and that no allowed request was
// refused for long.
func (r run) attacked(while string) (calm func()) {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	admitted, refused := make(chan string, 1), make(chan time.Duration, 1)
	config := rest.CopyConfig(r.REST)
	config.Impersonate.UserName = "alice"
	config.QPS = -1
	alice, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	attack, err := flux.ReadObjects([]byte(chartAttack))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		admitted <- admittedAttack(ctx, func() error { return alice.Create(ctx, attack[0].DeepCopy(), client.DryRunAll) })
	}()
	go func() {
		refused <- longestRefusal(ctx, func() error {
			// The API server calls a webhook for the namespace.
			return errors.Join(
				alice.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-apps", Name: "probe"}}, client.DryRunAll),
				alice.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-probe"}}, client.DryRunAll),
			)
		})
	}()
	return func() {
		t.Helper()
		cancel()
		if got := <-admitted; got != "" {
			t.Errorf("during %s: %s", while, got)
		}
		longest := <-refused
		t.Logf("during %s, the owner was refused for %.1fs", while, longest.Seconds())
		if longest > maxRefusal {
			t.Errorf("the owner was refused for %s, want at most %s", longest, maxRefusal)
		}
	}
}

// admittedAttack repeats an attack until the context ends, and returns what went wrong: the first
// attempt that was admitted, or too few that a rule refused.
func admittedAttack(ctx context.Context, attack func() error) string {
	refused, other := 0, error(nil)
	for attempt := 1; ctx.Err() == nil; attempt++ {
		switch err := attack(); {
		case err == nil:
			return fmt.Sprintf("attack %d was admitted", attempt)
		case strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			refused++
		default:
			other = err
		}
	}
	if refused < 10 {
		return fmt.Sprintf("the rules refused only %d attacks; another error: %v", refused, other)
	}
	return ""
}
