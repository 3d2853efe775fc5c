package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/discovery"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/verify/catalog"
	"github.com/tenure-dev/tenure/test/ablation"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
)

// plain are the attacks that get through on plain Flux with its official lockdown, because only a rule
// of Tenure stops them.
var plain = func() (keys []string) {
	for key, e := range ablation.Excluded() {
		if e.Through {
			keys = append(keys, key)
		}
	}
	return keys
}()

// foreignDependencies are policies against attacks that no flag of Flux stops.
const foreignDependencies = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: foreign-dependencies}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [kustomize.toolkit.fluxcd.io, helm.toolkit.fluxcd.io]
        apiVersions: ["*"]
        resources: [kustomizations, helmreleases]
        operations: [CREATE, UPDATE]
  validations:
    - expression: "!has(object.spec.dependsOn) || object.spec.dependsOn.all(d, !has(d.namespace) || d.namespace == object.metadata.namespace)"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: foreign-dependencies}
spec: {policyName: foreign-dependencies, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: known-finalizers}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps, pods], operations: [CREATE, UPDATE]}]
  validations:
    - expression: "!has(object.metadata.finalizers) || size(object.metadata.finalizers) == 0"
    - expression: "object.?spec.?terminationGracePeriodSeconds.orValue(0) <= 86400"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: known-finalizers}
spec: {policyName: known-finalizers, validationActions: [Deny]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: quick-ends}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [DELETE]}
      - {apiGroups: [""], apiVersions: [v1], resources: [pods/eviction], operations: [CREATE]}
  validations:
    - expression: "request.operation != 'DELETE' || request.?options.?gracePeriodSeconds.orValue(0) <= 86400"
    - expression: "request.operation != 'CREATE' || object.?deleteOptions.?gracePeriodSeconds.orValue(0) <= 86400"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: quick-ends}
spec: {policyName: quick-ends, validationActions: [Deny]}
`

// sharedKey copies billing's decryption key to the platform's namespace.
func sharedKey(t *testing.T, e example) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(e.bootstrap, "billing.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, secret, found := strings.Cut(string(content), "\n---\n")
	if !found {
		t.Fatal("bootstrap/billing.yaml holds one object only")
	}
	write(t, strings.Replace(secret, "namespace: billing\n", "namespace: flux-system\n", 1), e.bootstrap, "platform.yaml")
}

// all are the kinds of objects that attacks could leave behind.
const all = "kustomizations,helmreleases,helmcharts,gitrepositories,configmaps,secrets,serviceaccounts,namespaces,roles,rolebindings,pods"

// attackOptions returns the options that the command uses.
func attackOptions(r run) catalog.Options {
	return catalog.Options{
		Config: r.REST, Git: r.Git, OCI: r.OCI, Network: r.Network, Platform: r.Fleet.FluxNamespace(),
		Root: flux.Ref{Kind: flux.GitRepository, Namespace: r.Fleet.Sync.Namespace, Name: r.Fleet.Sync.Source},
	}
}

// verify attacks a running fleet and returns the attacks that got through, and the report. It
// checks that every other attack was stopped. The platform's namespaces are those that it
// discovers, and those that are named as for the flag --platform.
func verify(r run, platform ...string) (through []string, report catalog.Report) {
	r.t.Helper()
	return tryAttacks(r, nil, platform...)
}

// tryAttacks is verify with the attacks for which only returns true; nil for all.
func tryAttacks(r run, only func(catalog.Attack) bool, platform ...string) (through []string, report catalog.Report) {
	r.t.Helper()
	options := attackOptions(r)
	options.Only = only
	var err error
	if options.Choice, err = discovery.NewChoice(nil, platform); err != nil {
		r.t.Fatal(err)
	}
	// Flux reconciles a Kustomization every minute, and the Kustomization is not ready meanwhile. On a busy
	// machine that takes seconds, in which nothing is proven about the rights that it applies.
	r.settle()
	report, err = catalog.Run(r.t.Context(), options)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, result := range report.Results {
		id := result.Attack.Key()
		switch result.Finding.Outcome {
		case catalog.GotThrough:
			if !slices.Contains(through, id) {
				through = append(through, id)
			}
		case catalog.NotProven:
			r.t.Errorf("%s as %s is not proven: %s", id, result.Tenant, result.Finding.Reason)
		case catalog.Stopped:
			if result.Finding.Control == "" || result.Finding.Message == "" {
				r.t.Errorf("%s as %s was stopped, but by what and with which words is not said", id, result.Tenant)
			}
		}
	}
	slices.Sort(through)
	return through, report
}

// expectSample compares the report of the example in docs/how-to/verify.md, and its verdict
// in README.md, with the results: the number of attacks, and the control that stopped each. With -update
// it writes them.
func expectSample(t *testing.T, report catalog.Report) {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	repeated := 0 // an attack that got through as one tenant is reported for all tenants of its shape
	for _, r := range report.Results {
		for _, like := range report.Like {
			if r.Attack.Deep && r.Finding.Outcome == catalog.GotThrough && r.Tenant == like {
				repeated++
			}
		}
	}
	verdict := fmt.Sprintf("%d tenants, %d attacks: %d stopped, %d got through, %d not proven, %d not installed", len(report.Tenants), len(report.Results)+repeated,
		report.Count(catalog.Stopped), report.Count(catalog.GotThrough)+repeated, report.Count(catalog.NotProven), report.Count(catalog.NotInstalled))
	stoppedBy := map[string][]string{}
	for _, a := range catalog.Catalogue() {
		for _, r := range report.Results {
			control := r.Finding.Control
			if r.Attack.Key() == a.Key() && r.Finding.Outcome == catalog.Stopped && !slices.Contains(stoppedBy[control], a.ID) {
				stoppedBy[control] = append(stoppedBy[control], a.ID)
			}
		}
	}
	for name, stoppedBy := range map[string]map[string][]string{"README.md": nil, "docs/how-to/verify.md": stoppedBy} {
		file := filepath.Join(root, filepath.FromSlash(name))
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, missing := sample(string(content), verdict, stoppedBy)
		for _, line := range missing {
			t.Errorf("the report in %s lacks %q: copy it from a run of tenure verify", name, line)
		}
		switch {
		case want == string(content):
		case *update:
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("the report in %s is out of date, make golden writes it anew: %s", name, cmp.Diff(string(content), want))
		}
	}
}

// verdictLine is the verdict of a report in a page, which may be wrapped.
var verdictLine = regexp.MustCompile(`(?m)^(✗ unsafe: |✓ safe: )\d+ tenants, \d+ attacks:[^;(]*?(\s+\()`)

// sampleWidth is the number of columns at which reports in pages are wrapped.
const sampleWidth = 84

// sample returns a page whose report has a verdict and lists the attacks that each control stopped. missing are the
// parts for which the page has no line.
func sample(page, verdict string, stoppedBy map[string][]string) (updated string, missing []string) {
	if !verdictLine.MatchString(page) {
		missing = append(missing, verdict)
	}
	updated = verdictLine.ReplaceAllStringFunc(page, func(before string) string {
		m := verdictLine.FindStringSubmatch(before)
		if strings.Join(strings.Fields(before), " ") == m[1]+verdict+" (" {
			return before // however it is wrapped
		}
		line, text := strings.TrimSpace(m[1]), ""
		for _, word := range strings.Fields(verdict) {
			if len([]rune(line))+1+len(word) > sampleWidth {
				text, line = text+line+"\n", " "
			}
			line += " " + word
		}
		return text + line + m[2]
	})
	for _, control := range slices.Sorted(maps.Keys(stoppedBy)) {
		line := regexp.MustCompile(`(?m)^(` + regexp.QuoteMeta(control) + ` +)[A-Z]\d+( [A-Z]\d+)*$`)
		if !line.MatchString(updated) {
			missing = append(missing, control+" "+strings.Join(stoppedBy[control], " "))
		}
		updated = line.ReplaceAllString(updated, "${1}"+strings.Join(stoppedBy[control], " "))
	}
	return updated, missing
}

// TestSample updates a page.
func TestSample(t *testing.T) {
	t.Parallel()
	const page = "STOPPED BY     ATTACKS\nRBAC           I1 I3\nRBAC (own objects too)   I4\n\n✗ unsafe: 2 tenants, 9 attacks: 8 stopped, 1 got through, 0 not proven, 0 not\n  installed (100% proven); …\n"
	for _, tc := range []struct {
		reason, verdict string
		stoppedBy       map[string][]string
		want            string
		missing         []string
	}{
		{"nothing changed", "2 tenants, 9 attacks: 8 stopped, 1 got through, 0 not proven, 0 not installed", map[string][]string{"RBAC": {"I1", "I3"}}, page, nil},
		{
			"one more attack", "2 tenants, 10 attacks: 9 stopped, 1 got through, 0 not proven, 0 not installed", map[string][]string{"RBAC": {"I1", "I3", "W17"}},
			"STOPPED BY     ATTACKS\nRBAC           I1 I3 W17\nRBAC (own objects too)   I4\n\n✗ unsafe: 2 tenants, 10 attacks: 9 stopped, 1 got through, 0 not proven, 0 not\n  installed (100% proven); …\n", nil,
		},
		{"a control without a line", "2 tenants, 9 attacks: 8 stopped, 1 got through, 0 not proven, 0 not installed", map[string][]string{"quota": {"A2"}}, page, []string{"quota A2"}},
	} {
		got, missing := sample(page, tc.verdict, tc.stoppedBy)
		if diff := cmp.Diff(tc.want, got) + cmp.Diff(tc.missing, missing); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
	if _, missing := sample("no report", "2 tenants", nil); len(missing) != 1 {
		t.Errorf("a page without a verdict: got %q, want the verdict", missing)
	}
}

// repeat runs the commands of twenty attacks, chosen at random, that the report gives for
// repetition, and checks that the API server answers the same.
func repeat(r run, report catalog.Report) {
	r.t.Helper()
	var all []catalog.Result
	for _, result := range report.Results {
		f := result.Finding
		answered := strings.Contains(f.Message, "is forbidden:") || strings.Contains(f.Message, "denied the request")
		if f.Repeat != "" && result.Attack.Files == nil && (f.Outcome == catalog.GotThrough || f.Outcome == catalog.Stopped && answered) {
			all = append(all, result)
		}
	}
	const rows = 20
	if len(all) < rows {
		r.t.Fatalf("%d attacks can be repeated, want %d", len(all), rows)
	}
	seed := uint64(time.Now().UnixNano())
	r.t.Logf("attacks to repeat are chosen with seed %d out of %d", seed, len(all))
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	dir := r.t.TempDir()
	for _, result := range all[:rows] {
		out, code := shell(r.t, dir, atMostRepeat, "export HOME='"+dir+"' KUBECONFIG='"+r.Kubeconfig+"'\n"+result.Finding.Repeat)
		refused := code != 0 && (strings.Contains(out, "orbidden") || strings.Contains(out, "denied"))
		if stopped := result.Finding.Outcome == catalog.Stopped; stopped != refused || !stopped && code != 0 {
			r.t.Errorf("%s as %s was %s, but who repeats it gets exit code %d: %s\n%s", result.Attack.Key(), result.Tenant, result.Finding.Outcome, code, out, result.Finding.Repeat)
		}
	}
}

// atMostRepeat is the timeout of a command of a report.
const atMostRepeat = 2 * time.Minute

// exampleCase is the example fleet with a change, and what gets through it.
type exampleCase struct {
	reason  string
	change  func(*testing.T, example)
	through []string
}

// TestVerifyExample attacks the example fleet with keys that the platform and another tenant have,
// and with policies on dependencies and finalizers beside those of the example. TestAblation
// attacks the unchanged one and removes each of its controls, and TestPatches has fleets without
// them.
func TestVerifyExample(t *testing.T) {
	t.Parallel()
	stopped := []string{"A4-api", "S5-api", "S5-api-HelmRelease"}
	exampleCase{
		reason: "with billing's key as that of the controller and as dev-team's, and with more policies",
		change: func(t *testing.T, e example) {
			edit(t, "--no-remote-bases=true", "--sops-age-secret=sops-age", e.platform, "clusters", "staging", "flux-system", "kustomization.yaml")
			sharedKey(t, e)
			write(t, foreignDependencies, e.platform, "infrastructure", "policies", "foreign-dependencies.yaml")
			edit(t, "resources:\n", "resources:\n  - foreign-dependencies.yaml\n", e.platform, "infrastructure", "policies", "kustomization.yaml")
		},
		through: slices.DeleteFunc(append([]string{"S7-git", "S10-git", "S10-git-shared"}, plain...), func(key string) bool { return slices.Contains(stopped, key) }),
	}.attack(t)
}

// attack attacks the changed example fleet, and checks the report and that the attacks leave
// nothing behind. It returns the cluster, which still runs, and the report.
func (tc exampleCase) attack(t *testing.T) (run, catalog.Report) {
	t.Helper()
	e := copyExample(t)
	tc.change(t, e)
	r, failed := start(t, e.options(t, "clusters/staging", "https://git.example.com/acme/billing#main="+e.billing))
	expectNothing(t, tc.reason, failed)
	before := r.kubectl("", "get", all, "-A", "--no-headers", "-o", "name")
	through, report := verify(r)
	want := slices.Clone(tc.through)
	slices.Sort(want)
	if diff := cmp.Diff(want, through); diff != "" {
		t.Errorf("%s: what got through (-want +got):\n%s", tc.reason, diff)
	}
	if got := len(report.Tenants); got != 2 {
		t.Errorf("%s: %d tenants, want 2", tc.reason, got)
	}
	for _, result := range report.Results {
		named := strings.Contains(result.Finding.Evidence, "reconciler gives ServiceAccount")
		if got := result.Attack.Key() == "I8-api" && result.Finding.Outcome == catalog.GotThrough; got != named {
			t.Errorf("%s: %s as %s does not name the binding: %s", tc.reason, result.Attack.Key(), result.Tenant, result.Finding.Evidence)
		}
	}
	for _, tenant := range report.Tenants {
		if tenant.HasClusterAdmin() {
			t.Errorf("%s: tenant %s has no cluster-admin", tc.reason, tenant.Name)
		}
	}
	r.kubectl("", "wait", "--for=delete", "namespace/tenure-canary", "namespace/tenure-attack-i5", "namespace/tenure-attack-i5-release", atMost)
	after := r.kubectl("", "get", all, "-A", "--no-headers", "-o", "name")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("%s: the attacks changed the cluster (-before +after):\n%s", tc.reason, diff)
	}
	return r, report
}

// TestAblation attacks the unchanged example fleet. Then it removes controls of the fleet, each
// by itself, and checks that exactly the attacks that the control should stop get through. With
// all controls restored, all attacks are stopped again.
func TestAblation(t *testing.T) {
	t.Parallel()
	r, report := exampleCase{
		reason:  "with the official lockdown and the example's policies and role",
		change:  func(*testing.T, example) {},
		through: plain,
	}.attack(t)
	expectSample(t, report)
	// The API server counts refusals by a policy, also after the deletion of the policy.
	const marker = "tenure-canary-policies"
	if !strings.Contains(r.kubectl("", "get", "--raw", "/metrics"), `policy="`+marker+`"`) {
		t.Error("the attacks did not wait until the policies were in force")
	}
	if left := r.kubectl("", "get", "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name"); strings.Contains(left, marker) {
		t.Errorf("the policy of the wait is left:\n%s", left)
	}
	repeat(r, report)
	t.Run("Rows", func(t *testing.T) { ablate(r.with(t), ablation.Rows(), ablation.Excluded()) })
}
