package lockdown

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/config"
	"github.com/tenure-dev/tenure/internal/fleet/layout"
	"github.com/tenure-dev/tenure/internal/fleet/yamledit"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// instanceFleet returns a fleet whose FluxInstance is in a file with the content.
func instanceFleet(t *testing.T, content string) *layout.Fleet {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"clusters/prod/flux.yaml": content,
		"clusters/prod/apps.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec: {path: ./apps}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: named, namespace: flux-system}
spec: {path: ./named, serviceAccountName: kustomize-controller}
---
apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: teams, namespace: flux-system}
spec:
  resources:
    - apiVersion: helm.toolkit.fluxcd.io/v2
      kind: HelmRelease
      metadata: {name: app, namespace: << inputs.tenant >>}
      spec: {interval: 1h}
---
apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: text, namespace: flux-system}
spec:
  resourcesTemplate: |
    <<- if inputs.tenant >>
    apiVersion: kustomize.toolkit.fluxcd.io/v1
    kind: Kustomization
    metadata: {name: in-text, namespace: << inputs.tenant >>}
    spec: {path: ./deploy}
    ---
    apiVersion: kustomize.toolkit.fluxcd.io/v1
    kind: Kustomization
    metadata: {name: named-in-text, namespace: << inputs.tenant >>}
    spec: {path: ./deploy, serviceAccountName: << inputs.account >>}
    <<- end >>
`,
	}
	files["infrastructure/kustomization.yaml"] = "resources:\n- https://github.com/acme/bases//app?ref=v1\n"
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := layout.Load(dir, "clusters/prod", layout.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const (
	instanceHead = "apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\nmetadata: {name: flux, namespace: flux-system}\nspec:\n"
	instanceSync = "  sync: {kind: GitRepository, url: https://git.example.com/fleet, ref: refs/heads/main, path: clusters/prod} # the fleet\n"
)

// patchesFor returns the patches of the profile as lines of YAML, with the indentation of a list.
func patchesFor(t *testing.T, indentation int, ranges ...string) string {
	t.Helper()
	return patchesReaching(t, indentation, nil, ranges...)
}

// patchesReaching is patchesFor with hosts that kustomize-controller may reach.
func patchesReaching(t *testing.T, indentation int, hosts []string, ranges ...string) string {
	t.Helper()
	blocked, err := blockedRanges(ranges, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := renderFile("instance.yaml", instanceFile{blocked, egress{Namespace: "flux-system", Domain: "cluster.local", Hosts: hosts, Image: release.Current().Image()}})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(yamledit.Indented(text, indentation), "\n") + "\n"
}

// TestFluxInstance checks that the profile changes its own fields and patches of a FluxInstance and no
// others.
func TestFluxInstance(t *testing.T) {
	t.Parallel()
	const (
		chart     = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: flux}\nspec:\n  values:\n    instance:\n"
		locked    = "  cluster:\n    multitenant: true\n"
		opened    = "  cluster:\n    multitenant: false\n"
		list      = "  kustomize:\n    patches:\n"
		other     = "      - patch: |\n          # the fleet's own\n          - {op: remove, path: /a}\n        target: {kind: Deployment}\n"
		storage   = "      - {target: {kind: Deployment}, patch: \"- {op: add, path: /a, value: --storage-addr=$(IP):9090}\"}\n"
		metrics   = "      - {target: {kind: Deployment}, patch: \"- {op: add, path: /a, value: --metrics-addr=$(IP):9090}\"}\n"
		merged    = "      - {patch: \"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: allow-egress}, spec: {podSelector: {}}}\"}\n"
		proxy     = "      - {target: {kind: Deployment}, patch: \"[{op: add, path: /a, value: {name: NO_PROXY}}, {op: add, path: /b, value: {name: HTTPS_PROXY, value: 'http://127.0.0.1:9'}}]\"}\n"
		corporate = "      - {target: {kind: Deployment}, patch: \"[{op: add, path: /a, value: {name: HTTPS_PROXY, value: 'http://proxy.example.com:3128'}}]\"}\n"
		scrape    = "      - {target: {kind: NetworkPolicy, name: allow-scraping}, patch: \"- {op: remove, path: /a}\"}\n"
		egress    = "      - {target: {kind: NetworkPolicy, name: allow-egress}, patch: \"- {op: remove, path: /a}\"}\n"
	)
	inChart := func(text string) string {
		return "    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
	}
	own, narrow := patchesFor(t, 6), patchesFor(t, 6, "10.0.0.0/8")
	reaching := patchesReaching(t, 6, []string{"kms.example.com:8200"})
	parts := strings.SplitAfterN(own, "--storage-addr=$(TENURE_POD_NAME):9090\n", 2)
	before, network, _ := strings.Cut(own, "      - target: {kind: NetworkPolicy, name: allow-egress}")
	network = "      - target: {kind: NetworkPolicy, name: allow-egress}" + network
	unscraped, _, _ := strings.Cut(before, "      - target: {kind: NetworkPolicy, name: allow-scraping}")
	scraping := strings.TrimPrefix(before, unscraped)
	proxies, _, _ := strings.Cut(before, "      - target: {kind: Deployment, name: kustomize-controller}\n        patch: |\n          # tenure profile: kustomize-controller serves")
	closed, _, _ := strings.Cut(before, "      - target: {kind: Deployment, name: kustomize-controller}\n        patch: |\n          # tenure profile: git of")
	served := strings.TrimPrefix(before, closed)
	head := instanceHead + instanceSync
	for name, tc := range map[string]struct {
		reason, before, after string
		single                bool
		ranges, hosts         []string
	}{
		"Missing":       {reason: "nothing is set", before: head, after: head + locked + list + own},
		"Cluster":       {reason: "other fields stay", before: head + "  cluster:\n    type: aws\n", after: head + "  cluster:\n    type: aws\n    multitenant: true\n" + list + own},
		"Flow":          {reason: "in flow style, with the network open", before: instanceHead + "  cluster: {multitenant: false, networkPolicy: false}\n" + instanceSync, after: instanceHead + "  cluster: {multitenant: true, networkPolicy: true}\n" + instanceSync + list + own},
		"Done":          {reason: "it is locked down", before: head + locked + list + own},
		"Others":        {reason: "other patches stay, first", before: head + locked + list + other, after: head + locked + list + other + own},
		"Storage":       {reason: "the fleet sets the flag of source-controller", before: head + locked + list + storage, after: head + locked + list + storage + parts[1]},
		"Egress":        {reason: "the fleet sets the network policy", before: head + locked + list + egress, after: head + locked + list + egress + before},
		"Scraping":      {reason: "the fleet sets the policy about metrics", before: head + locked + list + scrape, after: head + locked + list + scrape + strings.TrimSuffix(before, scraping) + network},
		"Merged":        {reason: "it sets it by a strategic merge patch", before: head + locked + list + merged, after: head + locked + list + merged + before},
		"Proxy":         {reason: "the fleet limits kustomize-controller", before: head + locked + list + proxy, after: head + locked + list + proxy + parts[0] + served + network},
		"Metrics":       {reason: "the fleet sets the address of metrics", before: head + locked + list + metrics, after: head + locked + list + metrics + proxies + scraping + network},
		"FleetProxy":    {reason: "the fleet gives a proxy to all controllers", before: head + locked + list + corporate, after: head + locked + list + corporate + parts[0] + served + network},
		"Hosts":         {reason: "kustomize-controller reaches a host", hosts: []string{"kms.example.com:8200"}, before: head + locked + list + own, after: head + locked + list + reaching},
		"HostsStay":     {reason: "the hosts stay", before: head + locked + list + reaching},
		"NoHosts":       {reason: "no host is left", hosts: []string{}, before: head + locked + list + reaching, after: head + locked + list + own},
		"Ranges":        {reason: "other ranges", ranges: []string{"10.0.0.0/8"}, before: head + locked + list + own + other, after: head + locked + list + other + narrow},
		"Remembered":    {reason: "the ranges stay", before: head + locked + list + narrow},
		"Chart":         {reason: "the values of the chart", before: chart + inChart(instanceSync), after: chart + inChart(instanceSync+locked+list+own)},
		"Single":        {reason: "the way back", single: true, before: head + locked + list + own, after: head + opened},
		"SingleOthers":  {reason: "other patches stay", single: true, before: head + locked + list + own + other, after: head + opened + list + other},
		"SingleFields":  {reason: "another field beside the patches", single: true, before: head + locked + list + own + "    other: 1\n", after: head + opened + "  kustomize:\n    other: 1\n"},
		"NothingToUndo": {reason: "it was never locked down", single: true, before: head},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := Make(instanceFleet(t, tc.before), Options{Tenants: !tc.single, ClusterRanges: tc.ranges, EgressHosts: tc.hosts})
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			after := ""
			for _, change := range plan.Changes {
				if change.Path != "clusters/prod/flux.yaml" {
					t.Errorf("%s: %s is changed", tc.reason, change.Path)
				}
				after = *change.After
			}
			if diff := cmp.Diff(tc.after, after); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			notes := strings.Join(plan.Notes, "\n")
			for _, lost := range []string{"HelmRelease app in clusters/prod/apps.yaml", "Kustomization apps in clusters/prod/apps.yaml", "Kustomization in-text in clusters/prod/apps.yaml", "https://github.com/acme/bases//app?ref=v1 in infrastructure/kustomization.yaml"} {
				if strings.Contains(notes, lost) == tc.single {
					t.Errorf("%s: Flux refuses %s, or applies it as another account; the notes say so: %t", tc.reason, lost, tc.single)
				}
			}
			if strings.Contains(notes, "Kustomization named") {
				t.Errorf("%s: the notes name an object with an account: %s", tc.reason, notes)
			}
		})
	}
}

// TestFluxInstanceImage checks that the profile gives kustomize-controller the image of the option, and keeps it.
func TestFluxInstanceImage(t *testing.T) {
	t.Parallel()
	const image = "registry.example.com/acme/tenure-server:v1"
	written := func(before, image string) string {
		plan, err := Make(instanceFleet(t, before), Options{Tenants: true, ManagerImage: image})
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Changes) == 0 {
			return before
		}
		if unreleased := strings.Contains(strings.Join(plan.Notes, "\n"), "no released image"); unreleased != (image == "") {
			t.Errorf("with the image %q, the notes name a missing image: %t", image, unreleased)
		}
		return *plan.Changes[0].After
	}
	named := written(instanceHead+instanceSync, image)
	if !strings.Contains(named, "image: "+image+"\n") {
		t.Errorf("the FluxInstance has another image than %s:\n%s", image, named)
	}
	if again := written(named, ""); again != named {
		t.Errorf("another run changes the image (-before +after):\n%s", cmp.Diff(named, again))
	}
	written(instanceHead+instanceSync, "")
	if _, err := Make(instanceFleet(t, instanceHead+instanceSync), Options{Tenants: true, ManagerImage: "no image"}); err == nil {
		t.Error("an image that is none is accepted")
	}
}

// TestFluxInstanceOptions checks that a flag which a FluxInstance cannot have is refused.
func TestFluxInstanceOptions(t *testing.T) {
	t.Parallel()
	yes := true
	for want, o := range map[string]Options{
		"spec.sharding":        {Shards: []string{"gold"}},
		"spec.distribution":    {Pins: []Pin{{}}},
		"Tenure's chart":       {Proxy: &yes},
		"as a value of Tenure": {Warn: new(true)},
	} {
		o.Tenants = true
		if _, err := Make(instanceFleet(t, instanceHead+instanceSync), o); !errors.Is(err, errInstance) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	flow := instanceHead + instanceSync + "  kustomize: {patches: [{patch: '[]', target: {kind: Deployment}}]}\n"
	if _, err := Make(instanceFleet(t, flow), Options{Tenants: true}); err == nil || !strings.Contains(err.Error(), "only a person can edit") {
		t.Errorf("patches in flow style: got %v", err)
	}
	anchored := instanceHead + strings.Replace(instanceSync, "url: ", "url: &url ", 1)
	if _, err := Make(instanceFleet(t, anchored), Options{Tenants: true}); err == nil || !strings.Contains(err.Error(), "only a person can edit") {
		t.Errorf("an anchor: got %v", err)
	}
}

// TestFluxInstanceDrift checks the states of the fields, with the defaults of the kind.
func TestFluxInstanceDrift(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		spec string
		got  []string
	}{
		"defaults": {"", []string{"false", "default", "true", "", "", "", "", ""}},
		"one set":  {"  kustomize: {patches: [{patch: \"value: --storage-addr=$(POD):9090\"}]}\n", []string{"false", "default", "true", "set", "", "", "", ""}},
		"all set":  {"  cluster: {multitenant: true, tenantDefaultServiceAccount: flux, networkPolicy: true}\n  kustomize:\n    patches:\n" + patchesFor(t, 6), []string{"true", "flux", "true", "set", "set", "set", "set", "set"}},
	} {
		states, err := Drift(instanceFleet(t, instanceHead+instanceSync+tc.spec))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range states {
			got = append(got, s.Got)
		}
		if diff := cmp.Diff(tc.got, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}

// TestOperated checks the results of the check of a cluster for flags that flux-operator writes.
func TestOperated(t *testing.T) {
	t.Parallel()
	deployment := func(labels map[string]any) []*unstructured.Unstructured {
		return []*unstructured.Unstructured{{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "kustomize-controller", "labels": labels}}}}
	}
	if !operated(deployment(map[string]any{"app.kubernetes.io/managed-by": "flux-operator"})) || operated(deployment(map[string]any{"app.kubernetes.io/managed-by": "helm"})) {
		t.Error("the label of flux-operator decides")
	}
	if advice := instanceAdvice(Flag{Name: "--no-remote-bases"}); !strings.Contains(advice, "spec.cluster.multitenant") {
		t.Errorf("got %q", advice)
	}
	if advice := instanceAdvice(Flag{Name: storageFlag}); !strings.Contains(advice, "patch") {
		t.Errorf("got %q", advice)
	}
	if advice := instanceAdvice(Flag{Name: metricsFlag}); !strings.Contains(advice, "patch") {
		t.Errorf("got %q", advice)
	}
}

// TestOperatorAccount checks the result about flux-operator's own flag.
func TestOperatorAccount(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, container string
		ruled, ok         bool
		want              string
	}{
		{"the flag", "args: [--default-service-account=flux]", false, true, "in force"},
		{"the variable", "env: [{name: DEFAULT_SERVICE_ACCOUNT, value: flux}]", false, true, "in force"},
		{"an empty variable", "env: [{name: DEFAULT_SERVICE_ACCOUNT}]", false, false, "multitenancy.enabled"},
		{"neither, and the rule", "args: [--log-level=info]", true, true, "tenure-resource-sets"},
		{"neither", "args: [--log-level=info]", false, false, "applied as cluster-admin"},
	} {
		got := operatorAccount(parsed(t, "{kind: Deployment, spec: {template: {spec: {containers: [{"+tc.container+"}]}}}}"), tc.ruled)
		if got.OK != tc.ok || !strings.Contains(got.Message+"\n"+got.Fix, tc.want) {
			t.Errorf("%s: got %+v, want %t and %q", tc.reason, got, tc.ok, tc.want)
		}
	}
	binding := "{kind: ValidatingAdmissionPolicyBinding, spec: {policyName: tenure-flux-objects, validationActions: [%s]}}"
	if !deniesFluxObjects(parsed(t, strings.Replace(binding, "%s", "Deny", 1))) || deniesFluxObjects(parsed(t, strings.Replace(binding, "%s", "Warn, Audit", 1))) {
		t.Error("only a binding that denies counts")
	}
}

// TestOperatedExpected checks that the check of a cluster that flux-operator runs expects the objects of
// the chart alone, and advises to install it.
func TestOperatedExpected(t *testing.T) {
	t.Parallel()
	c := Cluster{Namespace: "flux-system", operated: true}
	expected, err := c.expected(nil, parts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range expected {
		if o.GetName() == "tenure-kustomize-controller" {
			t.Errorf("%s is expected, which the chart does not install", ObjectName(o))
		}
	}
	if advice := c.rulesAdvice("--defaults", "defaults.enabled: true"); advice != "install Tenure's chart with defaults.enabled: true, see docs/how-to/install.md" {
		t.Errorf("got %q", advice)
	}
	if advice := (Cluster{}).rulesAdvice("--defaults", "defaults.enabled: true"); advice != "run `tenure profile multi-tenant` on the fleet with --defaults; without a fleet: docs/how-to/install.md" {
		t.Errorf("a fleet with a bootstrap: got %q", advice)
	}
}

// TestInstancePatchesApply checks that the patches apply to Flux's manifests, and that the check then
// finds neither the flag nor the network policies wrong.
func TestInstancePatchesApply(t *testing.T) {
	t.Parallel()
	build := func(patches string) (set []FlagState, notifications string) {
		dir := t.TempDir()
		for name, content := range map[string]string{"flux.yaml": string(config.FluxComponents()), "kustomization.yaml": "resources: [flux.yaml]\npatches:\n" + patches} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		objects, err := flux.BuildFolder(dir, dir, "")
		if err != nil {
			t.Fatal(err)
		}
		policies := networkPoliciesOf(t, objects)
		states := FlagStates(objects)
		states = slices.DeleteFunc(states, func(s FlagState) bool { return s.Name != storageFlag && !s.isVariable() })
		if wrong := artifactsOpen(policies, ofControllers(fluxControllers...)); wrong != "" {
			t.Error(wrong)
		}
		return states, notificationsReach(policies, map[string]netip.Addr{"Pods": netip.MustParseAddr("10.1.2.3")})
	}
	missing := func(s FlagState) bool { return !s.OK() }
	if states, notifications := build("  []\n"); slices.ContainsFunc(states, FlagState.OK) || notifications == "" {
		t.Errorf("without patches: %s and %q", states, notifications)
	}
	if states, notifications := build(patchesFor(t, 2)); len(states) != 4 || slices.ContainsFunc(states, missing) || notifications != "" {
		t.Errorf("with the patches: %s and %q", states, notifications)
	}
}

// TestOperatorOfTheFleet checks that no note advises flux-operator's own lockdown if the fleet installs the
// operator with it.
func TestOperatorOfTheFleet(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{false, true} {
		f := instanceFleet(t, instanceHead+instanceSync)
		release := fmt.Sprintf(`apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: flux-operator, namespace: flux-system}
spec:
  resources:
    - apiVersion: helm.toolkit.fluxcd.io/v2
      kind: HelmRelease
      metadata: {name: flux-operator, namespace: flux-system}
      spec: {serviceAccountName: flux-operator, values: {multitenancy: {enabled: %t}}}
`, enabled)
		if err := os.WriteFile(filepath.Join(f.Dir, "clusters", "prod", "operator.yaml"), []byte(release), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, err := Make(f, Options{Tenants: true})
		if err != nil {
			t.Fatal(err)
		}
		if advised := strings.Contains(strings.Join(plan.Notes, "\n"), "flux-operator's own flag"); advised == enabled {
			t.Errorf("multitenancy.enabled: %t; the notes advise it: %t", enabled, advised)
		}
	}
}
