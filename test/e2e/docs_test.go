package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tenure-dev/tenure/internal/fleet/lockdown"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcrds"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// documentedTenants applies the manifests of the documentation.
const documentedTenants = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: %[1]s, namespace: flux-system}
spec: {interval: 1h, retryInterval: 2s, path: ./%[1]s, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`

// TestDocumentedManifests applies every manifest and every fragment for the platform in the
// README, the tutorial and the how-to pages, page by page, to a cluster with the multi-tenant
// profile. TestDocumentedTenant applies the manifests for tenants.
func TestDocumentedManifests(t *testing.T) {
	t.Parallel()
	pages := documentation(t)
	fragments, _ := documentedFragments(t)
	for page, objects := range fragments {
		pages[page] = append(pages[page], objects...)
	}
	dir, _ := newFleet(t, map[string]string{
		"clusters/test/gateway-api.yaml":        string(testcrds.GatewayAPI()),
		"clusters/test/network-policy-api.yaml": string(testcrds.NetworkPolicyAPI("v1alpha2")),
	})
	lockDown(t, dir, lockdown.Options{Tenants: true})
	r, failed := start(t, localcluster.Options{Fleet: dir, Path: "clusters/test"})
	expectNothing(t, "the fleet is ready before anything of the documentation is applied", failed)
	plain, err := client.New(r.REST, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// Strict validation returns an error for unknown fields.
	kube := client.WithFieldValidation(plain, metav1.FieldValidationStrict)
	applied := 0
	for page, objects := range pages {
		for _, o := range needed(objects) {
			if err := client.IgnoreAlreadyExists(kube.Create(t.Context(), o)); err != nil {
				t.Errorf("%s: %s %s, which the page needs: %v", page, o.GetKind(), o.GetName(), err)
			}
		}
		for _, o := range objects {
			applied++
			err := kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("docs"), client.ForceOwnership)
			if err != nil {
				t.Errorf("%s: %s %s is refused: %v", page, o.GetKind(), o.GetName(), err)
			}
		}
	}
	if applied < 18 {
		t.Errorf("only %d manifests were found in the documentation", applied)
	}
}

// besideTenant is a Tenant with a quota, whose owner is an account in a namespace without a
// tenant.
const besideTenant = `apiVersion: v1
kind: Namespace
metadata: {name: home}
---
apiVersion: tenure.dev/v1alpha1
kind: Tenant
metadata: {name: billing}
spec:
  owners: [{kind: ServiceAccount, name: robot, namespace: home}]
  namespaces: {create: [billing-apps, billing-jobs], quota: 4}
  quotas: [{name: compute, hard: {requests.cpu: "4", pods: "20"}}]
  sync: [{name: apps, git: {url: "https://github.com/acme/billing", branch: main}, path: ./staging}]
`

// besideDocumented are the objects that the pages expect in the cluster.
const besideDocumented = `apiVersion: v1
kind: Namespace
metadata: {name: dev-team, labels: {toolkit.fluxcd.io/tenant: dev-team}}
---
apiVersion: v1
kind: Namespace
metadata: {name: platform}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: common, namespace: platform}
spec: {interval: 1h, url: "https://github.com/acme/common", ref: {branch: main}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: chart, namespace: platform}
spec: {interval: 1h, chart: ./chart, sourceRef: {kind: GitRepository, name: common}}
---
apiVersion: tenure.dev/v1alpha1
kind: SourceGrant
metadata: {name: chart, namespace: platform}
spec: {to: [{kind: HelmChart, name: chart}], from: [{tenant: dev-team}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: platform-shared}
---
apiVersion: v1
kind: Secret
metadata: {name: registry, namespace: platform-shared}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reads-registry, namespace: platform-shared}
rules: [{apiGroups: [""], resources: [secrets], resourceNames: [registry], verbs: [get]}]
`

// documentedFleet returns all objects that the documentation has for the platform: the
// TenancyProfile, the manifest of each Tenant by its name, and the manifests of the others.
func documentedFleet(t *testing.T) (profile map[string]any, tenants map[string]string, manifests string) {
	t.Helper()
	pages, _ := documentedFragments(t)
	for page, objects := range documentation(t) {
		pages[page] = append(objects, pages[page]...)
	}
	// TestDocumentedManifests applies the manifests of this page: no Gateway serves here.
	delete(pages, filepath.Join("docs", "how-to", "expose-the-proxy.md"))
	// The fleet has Tenure already. TestChartByFlux applies the manifests of this page.
	delete(pages, filepath.Join("docs", "how-to", "install.md"))
	tenants = map[string]string{}
	var text strings.Builder
	for _, object := range together(t, pages) {
		if object["kind"] == "TenancyProfile" {
			profile = object
			continue
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if o := (&unstructured.Unstructured{Object: object}); o.GetKind() == "Tenant" {
			tenants[o.GetName()] = string(content)
			continue
		}
		fmt.Fprintf(&text, "---\n%s", content)
	}
	return profile, tenants, text.String()
}

// together returns the objects of all pages. It merges objects that several pages have.
func together(t *testing.T, pages map[string][]*unstructured.Unstructured) []map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, o := range pages[page] {
			name := strings.Join([]string{o.GetKind(), o.GetNamespace(), o.GetName()}, "/")
			if all[name] == nil {
				all[name] = map[string]any{}
			}
			merge(all[name], o.Object)
		}
	}
	var objects []map[string]any
	for _, name := range slices.Sorted(maps.Keys(all)) {
		objects = append(objects, all[name])
	}
	return objects
}

// addToProfile adds fields to the TenancyProfile of a fleet.
func addToProfile(t *testing.T, dir string, fields map[string]any) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(lockdown.Infrastructure), "profile.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var profile map[string]any
	if err := yaml.Unmarshal(content, &profile); err != nil {
		t.Fatal(err)
	}
	merge(profile, fields)
	if content, err = yaml.Marshal(profile); err != nil {
		t.Fatal(err)
	}
	write(t, string(content), file)
}

// TestDocumentedTenant runs one fleet with all manifests of the documentation for the
// platform, beside another Tenant, with the proxy, a shard, a home namespace and Flagger's
// kinds. It checks that the fleet is safe and that every attack is judged. A tenant applies
// the manifests for tenants. The commands of the pages run on the same cluster. The fleet leaves out the patch of exempt-warn-break-glass.md that
// makes the rules warn, since that opens the fleet on purpose.
func TestDocumentedTenant(t *testing.T) {
	t.Parallel()
	profile, tenants, others := documentedFleet(t)
	tenants["billing"] = besideTenant
	manifests := map[string]string{
		"clusters/test/tenants.yaml": fmt.Sprintf(documentedTenants, "tenants"),
		"tenants/documented.yaml":    others,
		"tenants/beside.yaml":        besideDocumented,
		"clusters/test/flagger.yaml": string(testcrds.Flagger()),
		"clusters/test/network.yaml": string(testcrds.NetworkPolicyAPI("v1alpha2")),
	}
	for name, manifest := range tenants {
		sync := "tenant-" + name
		manifests["clusters/test/"+sync+".yaml"] = fmt.Sprintf(documentedTenants, sync)
		manifests[sync+"/tenant.yaml"] = manifest
	}
	dir, _ := newFleet(t, manifests)
	lockDown(t, dir, lockdown.Options{Tenants: true, Proxy: new(true), Shards: []string{"gold"}})
	addToProfile(t, dir, profile)
	files := map[string]string{"staging/app.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\n"}
	common := map[string]string{
		"common.yaml":            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: common}\n",
		"kustomization.yaml":     "resources: [common.yaml]\n",
		"chart/Chart.yaml":       "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
		"chart/templates/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: released}\n",
	}
	r, failed := start(t, localcluster.Options{
		Fleet: dir, Path: "clusters/test",
		Maps: parseMaps(t, "https://github.com/acme/dev-team#main="+newFolder(t, files), "https://github.com/acme/billing#main="+newFolder(t, files), "https://github.com/acme/common#main="+newFolder(t, common)),
	})
	expectNothing(t, "the fleet is ready", failed)
	// The tenants dev-team, billing and shop.
	testwait.For(t, "all three Tenants to be ready", patience, func() (bool, string) {
		out := r.kubectl("", "get", "tenants", "-o", `jsonpath={range .items[*].status.conditions[*]}{.type}={.status} {.message}{"\n"}{end}`)
		return strings.Count(out, "Ready=True") == 3, out
	})
	r.applyDocumented("system:serviceaccount:dev-team:gitops-reconciler")
	through, report := verify(r, "namespace=platform")
	if len(through) > 0 || len(report.Results) == 0 {
		t.Errorf("of %d attacks these get through: %v", len(report.Results), through)
	}
	dir = t.TempDir()
	pasteCommands(t, onCluster, "export HOME='"+dir+"' KUBECONFIG='"+r.Kubeconfig+"'", func() string { return dir })
}

// applyDocumented applies the documentation's manifests for tenants as a tenant's account, and
// waits until Flux has reconciled them.
func (r run) applyDocumented(account string) {
	r.t.Helper()
	_, fragments := documentedFragments(r.t)
	for _, content := range together(r.t, fragments) {
		o := unstructured.Unstructured{Object: content}
		text, err := yaml.Marshal(content)
		if err != nil {
			r.t.Fatal(err)
		}
		r.kubectl(string(text), "apply", "-f", "-", "--as="+account)
		r.until(o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName(), "to be ready", func(row flux.Row) bool { return row.State == flux.Ready })
	}
}

// needed returns the missing namespaces of the objects.
func needed(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var missing []*unstructured.Unstructured
	var names []string
	for _, o := range objects {
		if name := o.GetNamespace(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
			missing = append(missing, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
			}})
		}
	}
	return missing
}

// documentation returns the complete manifests of the README, the tutorial and the how-to
// pages, by page: blocks of YAML, indented or fenced, in which every document is an object
// with a name.
func documentation(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	pages := map[string][]*unstructured.Unstructured{}
	for page, texts := range pageBlocks(t) {
		for _, block := range texts {
			if !strings.HasPrefix(block, "apiVersion:") {
				continue
			}
			objects, err := flux.ReadObjects([]byte(block))
			if err != nil {
				t.Errorf("%s: a manifest cannot be read: %v\n%s", page, err, block)
			}
			pages[page] = append(pages[page], objects...)
		}
	}
	return pages
}

// blocks returns the code blocks of a page, without their indentation or fence.
func blocks(page string) []string {
	var all []string
	var block []string
	fenced := false
	end := func() {
		if text := strings.TrimSpace(strings.Join(block, "\n")); text != "" {
			all = append(all, text)
		}
		block = nil
	}
	for _, line := range strings.Split(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			end()
			fenced = !fenced
		case fenced:
			block = append(block, line)
		case strings.HasPrefix(line, "    "):
			block = append(block, line[4:])
		case line == "" && len(block) > 0:
			block = append(block, "")
		default:
			end()
		}
	}
	end()
	return all
}

// TestBlocks reads a page with both kinds of blocks.
func TestBlocks(t *testing.T) {
	t.Parallel()
	got := blocks("text\n\n    a: 1\n\n    b: 2\ntext\n```yaml\nc: 3\n    d: 4\n```\nmore\n")
	want := []string{"a: 1\n\nb: 2", "c: 3\n    d: 4"}
	if !slices.Equal(want, got) {
		t.Errorf("want %q, got %q", want, got)
	}
}
