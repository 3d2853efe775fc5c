package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	buildinfo "github.com/tenure-dev/tenure/internal/release"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// chartFolder returns the folder of Tenure's chart.
func chartFolder(t *testing.T) string {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "charts", "tenure")
}

// helmTemplate renders the chart, and returns the output and the errors.
func helmTemplate(t *testing.T, namespace string, args ...string) (out, errs string, err error) {
	t.Helper()
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "helm"), append([]string{"template", "tenure", chartFolder(t), "--namespace", namespace}, args...)...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	var both [2]strings.Builder
	cmd.Stdout, cmd.Stderr = &both[0], &both[1]
	err = cmd.Run()
	return both[0].String(), both[1].String(), err
}

// byKey returns the objects of manifests by kind, namespace and name, without the annotation with
// which Helm keeps them, and without the rules of roles that Kubernetes aggregates.
func byKey(t *testing.T, manifests string) map[string]map[string]any {
	t.Helper()
	objects, err := flux.ReadObjects([]byte(manifests))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for _, o := range objects {
		annotations := o.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		if o.SetAnnotations(annotations); len(annotations) == 0 {
			unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
		}
		if rules, _ := o.Object["rules"].([]any); o.Object["aggregationRule"] != nil && len(rules) == 0 {
			delete(o.Object, "rules")
		}
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if all[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		all[key] = o.Object
	}
	return all
}

// TestChartEqualsInstall compares the rendered chart with the objects of `tenure install`, for the
// same options.
func TestChartEqualsInstall(t *testing.T) {
	t.Parallel()
	const (
		image  = "registry.example.com/acme/tenure-server"
		digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	)
	yes, no := true, false
	// As Helm finds it on Kubernetes 1.36.
	newer := []string{"--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"}
	for _, tt := range []struct {
		reason, namespace string
		values, args      []string
		options           lockdown.Options
	}{
		{reason: "the defaults", namespace: "flux-system"},
		{reason: "the proxy", namespace: "flux-system", values: []string{"proxy.enabled=true"}, options: lockdown.Options{Proxy: &yes}},
		{reason: "the check", namespace: "gitops", values: []string{"check.enabled=true"}, options: lockdown.Options{Check: &yes}},
		{reason: "the check in warn mode", namespace: "flux-system", values: []string{"check.enabled=true", "mode=warn"}, options: lockdown.Options{Check: &yes, Warn: new(true)}},
		{reason: "Capsule's kinds", namespace: "flux-system", values: []string{"capsule.enabled=true"}, options: lockdown.Options{Capsule: &yes, Proxy: &no}},
		{reason: "everything", namespace: "flux-system", values: []string{"capsule.enabled=true", "proxy.enabled=true"}, options: lockdown.Options{Capsule: &yes, Proxy: &yes}},
		{reason: "another namespace of Flux", namespace: "gitops", values: []string{"capsule.enabled=true", "proxy.enabled=true"}, options: lockdown.Options{Capsule: &yes, Proxy: &yes}},
		{
			reason: "an image by tag", namespace: "flux-system", values: []string{"proxy.enabled=true", "image.repository=" + image, "image.tag=v1.2.3"},
			options: lockdown.Options{Proxy: &yes, ManagerImage: image + ":v1.2.3"},
		},
		{
			reason: "an image by digest", namespace: "flux-system", values: []string{"image.repository=" + image, "image.digest=" + digest[1:]},
			options: lockdown.Options{ManagerImage: image + digest},
		},
		{
			reason: "an image by both", namespace: "flux-system", values: []string{"image.repository=" + image, "image.tag=v1.2.3", "image.digest=" + digest[1:]},
			options: lockdown.Options{ManagerImage: image + ":v1.2.3" + digest},
		},
		{
			reason: "an approved address", namespace: "flux-system", values: []string{"profile.tenants.sources.git[0]=https://github.com/acme/*"},
			options: lockdown.Options{Allow: []string{"git=https://github.com/acme/*"}},
		},
		{
			reason: "warn mode", namespace: "flux-system", values: []string{"mode=warn", "capsule.enabled=true"},
			options: lockdown.Options{Warn: new(true), Capsule: &yes},
		},
		{reason: "defaults, on a cluster that does not serve the policy", namespace: "flux-system", values: []string{"defaults.enabled=true"}},
		{reason: "defaults", namespace: "flux-system", args: newer, options: lockdown.Options{Defaults: &yes}},
		{reason: "no defaults", namespace: "flux-system", args: newer, values: []string{"defaults.enabled=false"}},
		{
			reason: "shards", namespace: "gitops", args: newer, values: []string{"shards.enabled=true"},
			options: lockdown.Options{Defaults: &yes, Shards: []string{"gold"}},
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			args := slices.Clone(tt.args)
			for _, value := range tt.values {
				args = append(args, "--set", value)
			}
			rendered, errs, err := helmTemplate(t, tt.namespace, args...)
			if err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			installed, err := lockdown.Objects(tt.namespace, tt.options)
			if err != nil {
				t.Fatal(err)
			}
			want, got := byKey(t, string(installed)), byKey(t, rendered)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Errorf("the objects differ, -install +chart:\n%s", diff)
			}
			for key, object := range want {
				if diff := cmp.Diff(object, got[key]); diff != "" {
					t.Errorf("%s differs, -install +chart:\n%s", key, diff)
				}
			}
			if len(want) < 50 {
				t.Errorf("install has only %d objects", len(want))
			}
		})
	}
}

// TestChartRefuses renders the chart with wrong values.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason, namespace, value, want string
	}{
		{"an unknown value", "flux-system", "proxies.enabled=true", "additional properties 'proxies' not allowed"},
		{"an unknown value of the proxy", "flux-system", "proxy.enable=true", "additional properties 'enable' not allowed"},
		{"text in place of a boolean", "flux-system", "proxy.enabled=on", "at '/proxy/enabled': got string, want boolean"},
		{"text in place of a number", "flux-system", "manager.replicas=two", "at '/manager/replicas': got string, want integer"},
		{"a tag with an argument", "flux-system", "image.tag=v1 --x", "at '/image/tag'"},
		{"a short digest", "flux-system", "image.digest=sha256:12", "at '/image/digest'"},
		{"a repository with a tag", "flux-system", "image.repository=registry.example.com/x:v1", "at '/image/repository'"},
		{"an unknown field of the profile", "flux-system", "profile.tenants.source.git={x}", "at '/profile/tenants': additional properties 'source' not allowed"},
		{"a list in the profile that is text", "flux-system", "profile.breakGlass=admins", "at '/profile/breakGlass': got string, want array"},
		{"a port that is none", "flux-system", "networkPolicies.apiServerPorts={0}", "at '/networkPolicies/apiServerPorts/0'"},
		{"a name of the proxy with an argument", "flux-system", "proxy.hosts={x --tls-host=y}", "at '/proxy/hosts/0'"},
		{"monitoring on a cluster without the Prometheus operator", "flux-system", "monitoring.enabled=true", "this cluster serves no PodMonitor: install the operator first"},
		{"a label that is a number", "flux-system", "monitoring.labels.release=1", "at '/monitoring/labels/release': got number, want string"},
		{"a schedule of four fields", "flux-system", "check.schedule=7 * * *", "at '/check/schedule'"},
		{"an unknown mode", "flux-system", "mode=audit", "at '/mode': value must be one of 'enforce', 'warn'"},
		{"shards on a cluster that cannot have them", "flux-system", "shards.enabled=true", "shards need Kubernetes 1.36"},
		{"Helm's default namespace", "default", "proxy.enabled=false", "cannot be installed in the namespace default: the manager runs where Flux does"},
		{"Kubernetes' namespace", "kube-system", "proxy.enabled=false", "cannot be installed in the namespace kube-system"},
	} {
		if _, errs, err := helmTemplate(t, tt.namespace, "--set", tt.value); err == nil || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: want %q, got %v\n%s", tt.reason, tt.want, err, errs)
		}
	}
	if _, errs, err := helmTemplate(t, "flux-system", "--kube-version=1.32.9"); err == nil || !strings.Contains(errs, "requires kubeVersion: >=1.33.0-0 which is incompatible with Kubernetes v1.32.9") {
		t.Errorf("a cluster that is too old: got %v\n%s", err, errs)
	}
}

// TestChartMonitoring compares the monitoring of the chart with config/monitoring, which docs/how-to/operate.md
// describes. In another namespace, the job of the alerts has its name.
func TestChartMonitoring(t *testing.T) {
	t.Parallel()
	const served = "--api-versions=monitoring.coreos.com/v1/PodMonitor"
	kustomized := kustomize(t, "config", "monitoring")
	for _, namespace := range []string{"flux-system", "tenure-system"} {
		rendered, errs, err := helmTemplate(t, namespace, served, "--set", "monitoring.enabled=true")
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		got := byKey(t, rendered)
		for key, want := range byKey(t, strings.ReplaceAll(kustomized, "flux-system", namespace)) {
			if diff := cmp.Diff(want, got[key]); diff != "" {
				t.Errorf("%s differs, -config +chart:\n%s", key, diff)
			}
		}
	}
	rendered, errs, err := helmTemplate(t, "flux-system", served, "--set", "monitoring.enabled=true,monitoring.labels.release=prometheus")
	if err != nil || strings.Count(rendered, "    release: prometheus\n") != 3 {
		t.Errorf("the labels are not on the three objects: %v\n%s", err, errs)
	}
}

// kustomize builds a folder of the repository with kubectl.
func kustomize(t *testing.T, folder ...string) string {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	bin, err := testcluster.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, "kubectl"), "kustomize", filepath.Join(append([]string{root}, folder...)...)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestChartHosts renders the proxy with more names in its certificate.
func TestChartHosts(t *testing.T) {
	t.Parallel()
	rendered, errs, err := helmTemplate(t, "flux-system", "--set", "proxy.enabled=true", "--set", "proxy.hosts={proxy.example.com,2001:db8::1}")
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	proxy := &appsv1.Deployment{}
	content, err := yaml.Marshal(byKey(t, rendered)["Deployment flux-system/tenure-proxy"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, proxy); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, arg := range proxy.Spec.Template.Spec.Containers[0].Args {
		if host, found := strings.CutPrefix(arg, "--tls-host="); found {
			hosts = append(hosts, host)
		}
	}
	want := []string{"tenure-proxy.flux-system.svc", "tenure-proxy.flux-system.svc.cluster.local", "proxy.example.com", "2001:db8::1"}
	if diff := cmp.Diff(want, hosts); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// Objects of a tenant.
const (
	chartTenant = `apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: team}
spec:
  owners: [{kind: User, name: alice}]
  namespaces: {create: [team-apps], quota: 5}
`
	chartSource = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: team-apps}
spec: {interval: 1h, url: "https://git.example.com/acme/app", ref: {branch: main}}
`
	chartAttack = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: attack, namespace: team-apps}
spec: {interval: 1h, prune: true, path: ./, serviceAccountName: admin, sourceRef: {kind: GitRepository, name: flux-system, namespace: flux-system}}
`
)

// refusesAttack waits until the rules are in force: the owner must not apply the platform's source
// as an account of the platform.
func (r run) refusesAttack() {
	r.t.Helper()
	testwait.For(r.t, "the rules to refuse the attack", patience, func() (bool, string) {
		out, err := kubectl(r.t, r.Cluster, chartAttack, "apply", "-f", "-", "--dry-run=server", "--as=alice")
		return err != nil && strings.Contains(out, "tenant team: Kustomization attack"), out
	})
}

// TestChartByFlux installs the chart from an OCI registry as docs/how-to/install.md says, with
// helm-controller.
func TestChartByFlux(t *testing.T) {
	t.Parallel()
	r := installDocumented(t, "tenure", chartFolder(t), map[string]any{"semver": ">=0.0.0-0"})
	if row, found := r.row("HelmRelease/flux-system/tenure"); !found || row.State != flux.Ready {
		t.Fatalf("the release is %+v", row)
	}
	r.installed()
}

// TestManifestsByFlux installs the folder for kustomize from an OCI registry as
// docs/how-to/install.md says, with kustomize-controller.
func TestManifestsByFlux(t *testing.T) {
	t.Parallel()
	files, err := lockdown.Artifact(buildinfo.Current().Image())
	if err != nil {
		t.Fatal(err)
	}
	r := installDocumented(t, "tenure-manifests", newFolder(t, files), map[string]any{"tag": "latest"})
	if row, found := r.row("Kustomization/flux-system/tenure-manifests"); !found || row.State != flux.Ready {
		t.Fatalf("the Kustomization is %+v", row)
	}
	if got := r.field("flux-system", "deployment/tenure-proxy", ".status.readyReplicas"); got == "" {
		t.Error("the component proxy has no ready replica")
	}
	r.installed()
	// Before the deletion, the manager removes its finalizers.
	sync := "kustomizations.kustomize.toolkit.fluxcd.io/tenure-manifests"
	r.kubectl("", "-n", "flux-system", "patch", "kustomizations.kustomize.toolkit.fluxcd.io/flux-system", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	r.kubectl("", "-n", "flux-system", "patch", sync, "--type=json", "-p", `[{"op": "add", "path": "/spec/components/-", "value": "components/release"}]`)
	testwait.For(t, "the manager to remove its finalizers", patience, func() (bool, string) {
		left := r.field("", "tenants.tenure.dev/team", ".metadata.finalizers")
		return left == "", left
	})
	r.kubectl("", "-n", "flux-system", "delete", sync, "--timeout=2m")
	for _, object := range []string{"tenants.tenure.dev/team", "tenancyprofile/default", "namespace/team-apps"} {
		if r.field("", object, ".metadata.name") == "" {
			t.Errorf("the deletion has removed %s", object)
		}
	}
	testwait.For(t, "Flux to delete the rules and the manager", patience, func() (bool, string) {
		left := r.kubectl("", "get", "validatingadmissionpolicies,mutatingwebhookconfigurations,deployments", "-A", "-o", "name", "-l", "app.kubernetes.io/name=tenure")
		return left == "", left
	})
}

// TestManifestsByKubectl installs the folder for kustomize with `kubectl apply -k`, twice, as
// docs/how-to/install.md says: once the kinds are there, everything is accepted.
func TestManifestsByKubectl(t *testing.T) {
	t.Parallel()
	files, err := lockdown.Artifact(buildinfo.Current().Image())
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := newFleet(t, nil)
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test"})
	expectNothing(t, "the empty fleet is ready", failed)
	overlay := map[string]string{"overlay/kustomization.yaml": `
resources: [../manifests]
components: [../manifests/components/proxy]
patches:
  - target: {kind: TenancyProfile}
    patch: |
      apiVersion: tenure.dev/v1alpha1
      kind: TenancyProfile
      metadata: {name: default}
      spec: {tenants: {sources: {git: ["https://github.com/acme/*"]}}}
`}
	for name, content := range files {
		overlay["manifests/"+name] = content
	}
	apply := []string{"apply", "--server-side", "-k", filepath.Join(newFolder(t, overlay), "overlay")}
	if out, err := kubectl(t, r.Cluster, "", apply...); err == nil || !strings.Contains(out, `no matches for kind "TenancyProfile"`) {
		t.Errorf("the first run: got %v, want that a kind is not there yet\n%s", err, out)
	}
	testwait.For(t, "kubectl to apply the folder", moment, func() (bool, string) {
		out, err := kubectl(t, r.Cluster, "", apply...)
		return err == nil, out
	})
	r.kubectl("", "-n", "flux-system", "rollout", "status", "deployment/tenure-proxy", atMost)
	r.kubectl("", "-n", "flux-system", "rollout", "status", "deployment/tenure-manager", atMost)
	r.installed()
}

// installDocumented starts a cluster whose fleet has the objects of docs/how-to/install.md with the
// name, and maps the address of their OCIRepository to the folder.
func installDocumented(t *testing.T, name, folder string, ref map[string]any) run {
	t.Helper()
	const page = "docs/how-to/install.md"
	var manifests strings.Builder
	var address string
	for _, o := range documentation(t)[page] {
		if o.GetName() != name {
			continue
		}
		if o.GetKind() == "OCIRepository" {
			address, _, _ = unstructured.NestedString(o.Object, "spec", "url")
			// The files of this repository have no release, and no signature.
			if err := unstructured.SetNestedMap(o.Object, ref, "spec", "ref"); err != nil {
				t.Fatal(err)
			}
			unstructured.RemoveNestedField(o.Object, "spec", "verify")
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifests, "---\n%s", text)
	}
	if address == "" {
		t.Fatalf("%s has no OCIRepository %s", page, name)
	}
	dir, _ := newFleet(t, map[string]string{"clusters/test/tenure.yaml": manifests.String()})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test", Maps: parseMaps(t, address+"="+folder)})
	expectNothing(t, "the fleet with "+name+" is ready", failed)
	return r
}

// installed checks that the profile approves an address, and that the rules are in force.
func (r run) installed() {
	t := r.t
	t.Helper()
	var profile struct {
		Spec struct {
			PlatformNamespaces []string
			Tenants            struct{ Sources struct{ Git []string } }
		}
	}
	if err := json.Unmarshal([]byte(r.kubectl("", "get", "tenancyprofile/default", "-o", "json")), &profile); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"flux-system"}, profile.Spec.PlatformNamespaces); diff != "" || len(profile.Spec.Tenants.Sources.Git) == 0 {
		t.Errorf("the profile is %+v: %s", profile, diff)
	}
	r.kubectl(chartTenant, "apply", "-f", "-")
	r.untilMay("alice", "create", "gitrepositories.source.toolkit.fluxcd.io", "-n", "team-apps")
	r.refusesAttack()
}
