package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/internal/cli/local"
	"github.com/tenure-dev/tenure/internal/flux"
	"github.com/tenure-dev/tenure/internal/tenancy"
	"github.com/tenure-dev/tenure/internal/verify/baseline"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"
)

// A fragment is a block of the documentation that is a part of an object or a file.
type fragment struct {
	page, begins string
	// tenant is set if a tenant applies the objects, and not the platform.
	tenant bool
	// parts are the objects that the block is a part of.
	parts []part
	// read reads a block that is not a part of an object.
	read func(block string) error
}

// A part puts fields of a block into an object: the named fields, or all fields of the block.
type part struct {
	object string
	at     []string
	fields []string
}

// Objects that fragments are parts of.
const (
	documentedProfile       = "{apiVersion: tenure.dev/v1alpha1, kind: TenancyProfile, metadata: {name: default}}"
	documentedTenantObject  = "{apiVersion: tenure.dev/v1alpha1, kind: Tenant, metadata: {name: dev-team}, spec: {owners: [{kind: Group, name: dev-team}]}}"
	documentedKustomization = "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: fragment, namespace: dev-team}, spec: {interval: 1h, prune: true, targetNamespace: dev-team, sourceRef: {kind: GitRepository, name: fragment}}}"
	documentedRelease       = "{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: fragment, namespace: dev-team}, spec: {interval: 1h, serviceAccountName: gitops-reconciler}}"
)

// fragments returns all blocks of YAML in the documentation that are not complete manifests.
func fragments() []fragment {
	return []fragment{
		// The fleet of the documentation could deliver nothing under this demand.
		{page: "docs/how-to/demand-signatures.md", begins: "spec:\n  tenants:", read: demands},
		{page: "docs/how-to/demand-signatures.md", begins: "spec:\n  verify:", read: satisfies},
		{page: "docs/how-to/exempt-warn-break-glass.md", begins: "resources:", read: warns},
		{page: "docs/how-to/exempt-warn-break-glass.md", begins: "spec:\n  breakGlass:", parts: []part{{object: documentedProfile}}},
		{page: "docs/how-to/expose-the-proxy.md", begins: "patches:", read: exposes},
		{page: "docs/how-to/install.md", begins: "profile:", read: func(block string) error {
			var values struct{ Profile v1alpha1.TenancyProfileSpec }
			return yaml.UnmarshalStrict([]byte(block), &values)
		}},
		{page: "docs/how-to/kubeconfig.md", begins: "spec:\n  serviceAccountName:", tenant: true, parts: []part{{object: documentedKustomization}}},
		{page: "docs/how-to/limit-workloads.md", begins: "spec:\n  tenants:", parts: []part{{object: documentedProfile}}},
		// TestClients starts an API server with these.
		{page: "docs/how-to/log-in-with-oidc.md", begins: "# Dex\n", read: authenticates},
		{page: "docs/how-to/log-in-with-oidc.md", begins: "# Keycloak\n", read: authenticates},
		{page: "docs/how-to/log-in-with-oidc.md", begins: "# Entra\n", read: authenticates},
		{page: "docs/how-to/move-from-capsule.md", begins: "metadata:\n     annotations:", parts: []part{{object: documentedTenantObject}}},
		// It opens on purpose what the attack I21 tries.
		{page: "docs/how-to/move-from-capsule.md", begins: "spec:\n  domainNames:", read: func(block string) error {
			return yaml.UnmarshalStrict([]byte(block), &v1alpha1.TenancyProfile{})
		}},
		{page: "docs/how-to/move-from-capsule.md", begins: "spec:\n     tenants:", parts: []part{{object: documentedProfile}}},
		{page: "docs/how-to/proxy.md", begins: "spec:\n  clusterResources:", parts: []part{{object: documentedTenantObject}}},
		{page: "docs/how-to/replicate-objects.md", begins: "spec:\n  objects:", parts: []part{{object: documentedTenantObject}}},
		{page: "docs/how-to/share-sources.md", begins: "spec:\n  sourceRef:", tenant: true, parts: []part{
			{object: documentedKustomization, fields: []string{"sourceRef"}}, {object: documentedRelease, fields: []string{"chartRef"}},
		}},
		{page: "docs/how-to/tenant-object.md", begins: "namespaces:", parts: []part{{object: documentedTenantObject, at: []string{"spec"}}}},
		{page: "docs/how-to/tenant-object.md", begins: "quotas:", parts: []part{{object: documentedTenantObject, at: []string{"spec"}}}},
		{page: "docs/how-to/tenant-object.md", begins: "exemptions:", parts: []part{{object: documentedProfile, at: []string{"spec"}}}},
		// A file of SOPS; the page shows only its shape.
		{page: "docs/how-to/tenants.md", begins: "creation_rules:", read: func(string) error { return nil }},
		{page: "docs/how-to/verify.md", begins: "tenants:", read: func(block string) error {
			_, err := local.ParseFile([]byte(block))
			return err
		}},
		{page: "docs/how-to/verify.md", begins: "path:", read: func(block string) error {
			_, err := local.ParseFile([]byte(block))
			return err
		}},
		{page: "docs/how-to/verify.md", begins: "accepted:", read: func(block string) error {
			_, err := baseline.Parse([]byte(block))
			return err
		}},
		{page: "docs/how-to/verify-in-github-actions.md", begins: "name: verify", read: usesAction},
		{page: "docs/how-to/verify-in-gitlab.md", begins: "# .gitlab-ci.yml", read: func(block string) error {
			var pipeline struct {
				Include []struct{ Local string }
			}
			return yaml.UnmarshalStrict([]byte(block), &pipeline)
		}},
	}
}

// usesAction checks that a workflow gives this repository's action inputs that it has, and those that
// it requires.
func usesAction(block string) error {
	root, err := testcluster.Repository()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(root, "action.yaml"))
	if err != nil {
		return err
	}
	var action struct {
		Inputs map[string]struct{ Required bool }
	}
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Uses string
				With map[string]any
			}
		}
	}
	if err := errors.Join(yaml.Unmarshal(content, &action), yaml.Unmarshal([]byte(block), &workflow)); err != nil {
		return err
	}
	for _, step := range workflow.Jobs["verify"].Steps {
		if !strings.HasPrefix(step.Uses, "tenure-dev/tenure@") {
			continue
		}
		for name := range step.With {
			if _, known := action.Inputs[name]; !known {
				return fmt.Errorf("the action has no input %s", name)
			}
		}
		for name, input := range action.Inputs {
			if input.Required && step.With[name] == nil {
				return fmt.Errorf("the workflow lacks the input %s", name)
			}
		}
		return nil
	}
	return errors.New("the workflow does not use the action")
}

// authenticates reads a configuration of the API server, and checks that each name that it takes from a
// token has a prefix.
func authenticates(block string) error {
	config := &apiserverv1.AuthenticationConfiguration{}
	if err := yaml.UnmarshalStrict([]byte(block), config); err != nil {
		return err
	}
	if len(config.JWT) != 1 {
		return fmt.Errorf("it has %d issuers", len(config.JWT))
	}
	for _, claim := range []apiserverv1.PrefixedClaimOrExpression{config.JWT[0].ClaimMappings.Username, config.JWT[0].ClaimMappings.Groups} {
		if claim.Claim == "" || claim.Prefix == nil || *claim.Prefix == "" {
			return fmt.Errorf("the claim %q has no prefix", claim.Claim)
		}
	}
	return nil
}

// demands reads the signatures of a profile, and checks that each field of the block is known.
func demands(block string) error {
	profile := &v1alpha1.TenancyProfile{}
	if err := yaml.UnmarshalStrict([]byte(block), profile); err != nil {
		return err
	}
	if reflect.ValueOf(profile.Spec.Tenants.Signatures).IsZero() {
		return errors.New("the block demands no signatures and has no keys")
	}
	return nil
}

// satisfies checks that the lines for a tenant's source are those that the manager writes into a
// sync where signed commits are demanded.
func satisfies(block string) error {
	var source map[string]any
	if err := yaml.Unmarshal([]byte(block), &source); err != nil {
		return err
	}
	profile := &v1alpha1.TenancyProfile{}
	profile.Spec.Tenants.Signatures.Git = &v1alpha1.GitSignatures{}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}
	tenant.Spec.Sync = []v1alpha1.Sync{{Name: "app", Namespace: "apps", Git: &v1alpha1.GitSource{URL: "https://git.example.com/acme/app"}}}
	objects, err := tenancy.Desired(tenancy.Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}, Tenant: tenant}, profile)
	if err != nil {
		return err
	}
	want, _, _ := unstructured.NestedMap(objects.Sync[0].(*unstructured.Unstructured).Object, "spec", "verify")
	got, _, _ := unstructured.NestedMap(source, "spec", "verify")
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("spec.verify (-want +got):\n%s", diff)
	}
	return nil
}

// warns builds the rules with the patch of a block: all that may warn do.
func warns(block string) error {
	root, err := testcluster.Repository()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tenure-docs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range []string{"policies.yaml", "warn.yaml"} {
		rules, err := os.ReadFile(filepath.Join(root, "config", "admission", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), rules, 0o600); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(block), 0o600); err != nil {
		return err
	}
	objects, err := flux.Build(dir, dir)
	if err != nil {
		return err
	}
	warning, denying := 0, 0
	for _, o := range objects {
		actions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "validationActions")
		always := o.GetLabels()["app.kubernetes.io/component"] == "admission-always"
		if o.GetKind() != "ValidatingAdmissionPolicyBinding" {
			continue
		}
		if got := fmt.Sprint(actions) == "[Warn Audit]"; got == always {
			return fmt.Errorf("the binding %s has the actions %v", o.GetName(), actions)
		}
		switch {
		case !always:
			warning++
		case strings.HasPrefix(o.GetName(), "tenure-objects-always"):
			denying++
		}
	}
	if warning == 0 || denying == 0 {
		return fmt.Errorf("of %d objects, %d are bindings that warn, and %d are bindings of the rules about objects that deny", len(objects), warning, denying)
	}
	return nil
}

// exposes builds the Kustomization of the manager with the patch of a block, and the proxy's Service with the patch of the
// Kustomization.
func exposes(block string) error {
	const manager = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: tenure-manager, namespace: flux-system}\nspec: {path: ./x}\n"
	built, err := patched(manager, block)
	if err != nil {
		return err
	}
	patches, _, _ := unstructured.NestedSlice(built.Object, "spec", "patches")
	text, err := yaml.Marshal(map[string]any{"patches": patches})
	if err != nil {
		return err
	}
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: tenure-proxy, namespace: flux-system}\nspec: {ports: [{port: 9001}]}\n"
	if built, err = patched(service, string(text)); err != nil {
		return err
	}
	if kind, _, _ := unstructured.NestedString(built.Object, "spec", "type"); kind != "LoadBalancer" {
		return fmt.Errorf("the Service has the type %q", kind)
	}
	return nil
}

// patched builds an object with the patches of a kustomization.yaml.
func patched(object, patches string) (*unstructured.Unstructured, error) {
	dir, err := os.MkdirTemp("", "tenure-docs-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, content := range map[string]string{"object.yaml": object, "kustomization.yaml": "resources: [object.yaml]\n" + patches} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
	}
	objects, err := flux.Build(dir, dir)
	if err != nil {
		return nil, err
	}
	return objects[0], nil
}

// objects returns the objects that a block is a part of, with the block in them.
func (f fragment) objects(block string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, p := range f.parts {
		var object, content map[string]any
		if err := yaml.Unmarshal([]byte(p.object), &object); err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal([]byte(block), &content); err != nil {
			return nil, err
		}
		if spec, ok := content["spec"].(map[string]any); ok && p.fields != nil {
			for name := range spec {
				if name != p.fields[0] {
					delete(spec, name)
				}
			}
		}
		to := object
		for _, field := range p.at {
			if to[field] == nil {
				to[field] = map[string]any{}
			}
			to = to[field].(map[string]any)
		}
		merge(to, content)
		all = append(all, &unstructured.Unstructured{Object: object})
	}
	return all, nil
}

// merge adds fields to an object. It appends missing entries to lists.
func merge(to, from map[string]any) {
	for key, value := range from {
		switch before := to[key].(type) {
		case map[string]any:
			if more, ok := value.(map[string]any); ok && key != "sourceRef" {
				merge(before, more)
				continue
			}
		case []any:
			more, _ := value.([]any)
			to[key] = append(before, slices.DeleteFunc(slices.Clone(more), func(item any) bool {
				return slices.ContainsFunc(before, func(known any) bool { return reflect.DeepEqual(known, item) })
			})...)
			continue
		}
		to[key] = value
	}
}

// pageBlocks returns the blocks of YAML of each page: the blocks that are fenced as YAML, and
// the blocks that are a mapping.
func pageBlocks(t *testing.T) map[string][]string {
	t.Helper()
	root, err := testcluster.Repository()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "how-to", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string][]string{}
	for _, file := range append(files, filepath.Join(root, "README.md"), filepath.Join(root, "docs", "tutorial.md")) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page, err := filepath.Rel(root, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks(string(content)) {
			var mapping map[string]any
			first, _, _ := strings.Cut(block, "\n---\n")
			if fenced := strings.Contains(string(content), "```yaml\n"+block); !fenced && (yaml.Unmarshal([]byte(first), &mapping) != nil || mapping == nil) {
				continue
			}
			// Pages abbreviate digests.
			block = strings.ReplaceAll(block, "sha256:…", "sha256:"+strings.Repeat("0", 64))
			pages[filepath.ToSlash(page)] = append(pages[filepath.ToSlash(page)], block)
		}
	}
	return pages
}

// documentedFragments returns the objects of all fragments by page, for the platform and for a
// tenant. It fails the test for a block that is neither a complete manifest nor a fragment,
// and for a fragment without a block.
func documentedFragments(t *testing.T) (platform, tenant map[string][]*unstructured.Unstructured) {
	t.Helper()
	known := fragments()
	used := make([]bool, len(known))
	platform, tenant = map[string][]*unstructured.Unstructured{}, map[string][]*unstructured.Unstructured{}
	for page, texts := range pageBlocks(t) {
		for _, block := range texts {
			found := strings.HasPrefix(block, "apiVersion:")
			for i, f := range known {
				if f.page != page || !strings.HasPrefix(block, f.begins) {
					continue
				}
				found, used[i] = true, true
				objects, err := f.objects(block)
				if f.read != nil {
					err = f.read(block)
				}
				if err != nil {
					t.Errorf("%s: a block cannot be read: %v\n%s", page, err, block)
				}
				all := platform
				if f.tenant {
					all = tenant
				}
				all[page] = append(all[page], objects...)
			}
			if !found {
				t.Errorf("%s: no test knows this block; add it to the fragments:\n%s", page, block)
			}
		}
	}
	for i, f := range known {
		if !used[i] {
			t.Errorf("%s has no block that begins with %q", f.page, f.begins)
		}
	}
	return platform, tenant
}

// TestDocumentedBlocks checks that every block of YAML is in the list of fragments or a
// complete manifest, and parses the blocks that are not for a cluster.
func TestDocumentedBlocks(t *testing.T) {
	t.Parallel()
	if platform, tenant := documentedFragments(t); len(platform) == 0 || len(tenant) == 0 {
		t.Error("the documentation has no fragments")
	}
}
