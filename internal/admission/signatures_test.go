package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// signing are tenants whose sources must be signed, each in a namespace of its name.
var signing = func() string {
	var b strings.Builder
	for tenant, demand := range map[string]string{
		"signs-commits":  "{git: {mode: HEAD}}",
		"signs-tags":     "{git: {mode: Tag}}",
		"signs-all":      "{git: {mode: TagAndHEAD}, oci: {providers: [cosign, notation]}, charts: {providers: [notation]}}",
		"signs-keyless":  "{oci: {identities: [{issuer: ^https://token.example.com$, subject: ^https://git.example.com/acme/.*$}]}, charts: {identities: [{issuer: ^https://token.example.com$, subject: ^charts$}]}}",
		"signs-charts":   "{charts: {providers: [cosign]}}",
		"signs-anything": "{}",
		"signs-later":    "{}",
	} {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {tenure.dev/tenant: %[1]s, tenure.dev/parameters: "true", sharding.fluxcd.io/key: gold}}
---
apiVersion: tenure.dev/v1alpha1
kind: TenantParameters
metadata: {name: tenure, namespace: %[1]s}
spec:
  tenant: %[1]s
  platformNamespaces: [flux-system]
  tenants:
    sources:
      anyChartDependencies: true
      git: ["https://git.example.com/acme/*"]
      helm: ["https://charts.example.com", "oci://registry.example.com/charts/**"]
      oci: ["oci://registry.example.com/acme/*"]
      buckets: [{endpoint: s3.example.com}]
    signatures: %[2]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: signs, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: signs}]
`, tenant, demand)
	}
	return b.String()
}()

// TestSignaturesLater checks that sources that are older than the demand cannot be changed to
// other sources without a signature.
func TestSignaturesLater(t *testing.T) {
	t.Parallel()
	admin, _, restConfig := cluster(t)
	tenant := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "signs", Groups: []string{"system:authenticated"}})
	r := requester{admin: admin, account: tenant, namespace: "signs-later", reconciler: "signs-later", labels: map[string]string{"sharding.fluxcd.io/key": "gold"}}
	testwait.For(t, "the API server to know the tenant's rights", patience, func() (bool, string) {
		err := tenant.Create(t.Context(), r.object(t, "configmaps", "rights"), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	older := map[string]*unstructured.Unstructured{}
	changes := map[string]string{
		gitKind:       `{"spec":{"url":"https://git.example.com/acme/other"}}`,
		ociKind:       `{"spec":{"url":"oci://registry.example.com/acme/other"}}`,
		bucketKind:    `{"spec":{"bucketName":"other"}}`,
		chartKind:     `{"spec":{"chart":"other"}}`,
		releaseKind:   `{"spec":{"chart":{"spec":{"chart":"other"}}}}`,
		chartHostKind: `{"spec":{"url":"https://charts.example.com/"}}`,
	}
	for kind := range changes {
		object := r.object(t, kind, "older")
		if kind == bucketKind {
			merge(object.Object, map[string]any{"spec": map[string]any{"region": nil}})
		}
		older[kind] = r.makes(t, tenant, object)
	}
	parameters := parse(t, "{apiVersion: tenure.dev/v1alpha1, kind: TenantParameters, metadata: {name: tenure, namespace: signs-later}}")
	demand := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"tenants":{"signatures":{"git":{"mode":"HEAD"},"oci":{"providers":["cosign"]},"charts":{"providers":["cosign"]}}}}}`))
	if err := admin.Patch(t.Context(), parameters, demand); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "the demand to be in force", patience, func() (bool, string) {
		err := r.patch(t, older[gitKind], changes[gitKind])
		return err != nil, fmt.Sprint(err)
	})
	for kind, change := range changes {
		t.Run(kind, func(t *testing.T) { refused(t, "tenure-signatures", r.patch(t, older[kind], change)) })
	}
}

// The rule demands that Flux verifies sources with the platform's keys. Its refusal has the lines to add.
func TestSignatures(t *testing.T) {
	t.Parallel()
	_, _, restConfig := cluster(t)
	tenant := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "signs", Groups: []string{"system:authenticated"}})
	in := func(namespace, kind, spec string) *unstructured.Unstructured {
		manifest := source(kind, spec)
		if kind == "HelmRelease" {
			manifest = object("helm.toolkit.fluxcd.io/v2", kind, "interval: 1h, serviceAccountName: "+namespace+", "+spec)
		}
		u := parse(t, manifest)
		u.SetNamespace("signs-" + namespace)
		if kind == "HelmRelease" {
			spec, _, _ := unstructured.NestedMap(u.Object, "spec")
			spec["serviceAccountName"] = "signs-" + namespace
			u.Object["spec"] = spec
		}
		u.SetLabels(map[string]string{"sharding.fluxcd.io/key": "gold"})
		return u
	}
	testwait.For(t, "the API server to know the tenant's rights", patience, func() (bool, string) {
		u := parse(t, secretWith("any", "x"))
		u.SetNamespace("signs-anything")
		err := tenant.Create(t.Context(), u, client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	const (
		repository = "url: https://git.example.com/acme/app"
		images     = "url: oci://registry.example.com/acme/app"
		head       = "verify: {mode: HEAD, secretRef: {name: tenure-keys-git}}"
		tag        = "verify: {mode: Tag, secretRef: {name: tenure-keys-git}}"
		both       = "verify: {mode: TagAndHEAD, secretRef: {name: tenure-keys-git}}"
		cosign     = "verify: {provider: cosign, secretRef: {name: tenure-keys-cosign}}"
		notation   = "verify: {provider: notation, secretRef: {name: tenure-keys-notation}}"
		acme       = `{issuer: ^https://token.example.com$, subject: ^https://git.example.com/acme/.*$}`
		keyless    = "verify: {provider: cosign, matchOIDCIdentity: [" + acme + "]}"
		bucket     = "endpoint: s3.example.com, bucketName: any"
		chart      = "chart: x, sourceRef: {kind: HelmRepository, name: x}"
		ofGit      = "chart: ./x, sourceRef: {kind: GitRepository, name: x}"
		commits    = "GitRepository x needs signed commits, which Flux verifies: set spec.verify to {mode: HEAD, secretRef: {name: tenure-keys-git}} (rule tenure-signatures)"
		tags       = "GitRepository x needs signed tags, which Flux verifies: set spec.verify to {mode: Tag, secretRef: {name: tenure-keys-git}}"
		all        = "GitRepository x needs signed tags and commits, which Flux verifies: set spec.verify to {mode: TagAndHEAD, secretRef: {name: tenure-keys-git}}"
		artifacts  = "OCIRepository x needs signed artifacts, which Flux verifies: set spec.verify to {provider: cosign, secretRef: {name: tenure-keys-cosign}}"
		identities = "OCIRepository x needs signed artifacts, which Flux verifies: set spec.verify to {provider: cosign, matchOIDCIdentity: [{issuer: '^https://token.example.com$', subject: '^https://git.example.com/acme/.*$'}]}"
		charts     = "needs signed charts, which Flux verifies: set spec.verify to {provider: notation, secretRef: {name: tenure-keys-notation}}"
		noBucket   = "Bucket x must not be a source: sources must be signed, and Flux verifies none in a Bucket"
	)
	release := func(verify string) string {
		return "chart: {spec: {" + chart + verify + "}}"
	}
	for _, tc := range []struct{ reason, namespace, kind, spec, want string }{
		{"nothing is demanded: a repository", "anything", "GitRepository", repository, ""},
		{"nothing is demanded: a bucket", "anything", "Bucket", bucket, ""},
		{"nothing is demanded: a chart host", "anything", "HelmRepository", "url: https://charts.example.com", ""},

		{"commits: none verified", "commits", "GitRepository", repository, commits},
		{"commits: with the platform's keys", "commits", "GitRepository", repository + ", " + head, ""},
		{"commits: by the older name of the mode", "commits", "GitRepository", repository + ", " + strings.Replace(head, "HEAD", "head", 1), ""},
		{"commits: by the default of the mode", "commits", "GitRepository", repository + ", " + strings.Replace(head, "mode: HEAD, ", "", 1), ""},
		{"commits: with keys of its own", "commits", "GitRepository", repository + ", " + strings.Replace(head, "tenure-keys-git", "own", 1), commits},
		{"commits: with keys for something else", "commits", "GitRepository", repository + ", " + strings.Replace(head, "tenure-keys-git", "tenure-keys-cosign", 1), commits},
		{"commits: a tag alone", "commits", "GitRepository", repository + ", " + tag, commits},
		{"commits: the tag as well", "commits", "GitRepository", repository + ", " + both, ""},
		{"commits: a bucket", "commits", "Bucket", bucket, noBucket},
		{"commits: artifacts of OCI are not demanded", "commits", "OCIRepository", images, ""},
		{"commits: a chart out of a verified repository", "commits", "HelmChart", ofGit, ""},
		{"tags: a commit alone", "tags", "GitRepository", repository + ", " + head, tags},
		{"tags: a tag", "tags", "GitRepository", repository + ", " + tag, ""},
		{"tags: the commit as well", "tags", "GitRepository", repository + ", " + both, ""},
		{"all: a commit alone", "all", "GitRepository", repository + ", " + head, all},
		{"all: a tag alone", "all", "GitRepository", repository + ", " + tag, all},
		{"all: both", "all", "GitRepository", repository + ", " + both, ""},

		{"artifacts: none verified", "all", "OCIRepository", images, artifacts},
		{"artifacts: with a key of the platform", "all", "OCIRepository", images + ", " + cosign, ""},
		{"artifacts: with the other program", "all", "OCIRepository", images + ", " + notation, ""},
		{"artifacts: with keys of its own", "all", "OCIRepository", images + ", " + strings.Replace(cosign, "tenure-keys-cosign", "own", 1), artifacts},
		{"artifacts: one program with the keys of the other", "all", "OCIRepository", images + ", " + strings.Replace(cosign, "tenure-keys-cosign", "tenure-keys-notation", 1), artifacts},
		{"artifacts: every identity", "all", "OCIRepository", images + ", verify: {provider: cosign}", artifacts},
		{"artifacts: an identity of its own", "all", "OCIRepository", images + ", " + keyless, artifacts},
		{"artifacts: another root of trust", "all", "OCIRepository", images + ", verify: {provider: cosign, secretRef: {name: tenure-keys-cosign}, trustedRootSecretRef: {name: own}}", artifacts},
		{"artifacts: a bucket", "all", "Bucket", bucket, noBucket},
		{"identities: none", "keyless", "OCIRepository", images, identities},
		{"identities: that of the platform", "keyless", "OCIRepository", images + ", " + keyless, ""},
		{"identities: every identity", "keyless", "OCIRepository", images + ", verify: {provider: cosign}", identities},
		{"identities: a wider one beside it", "keyless", "OCIRepository", images + ", verify: {provider: cosign, matchOIDCIdentity: [" + acme + ", {issuer: ^https://token.example.com$, subject: .*}]}", identities},
		{"identities: another issuer", "keyless", "OCIRepository", images + ", verify: {provider: cosign, matchOIDCIdentity: [{issuer: ^https://token.example.net$, subject: ^https://git.example.com/acme/.*$}]}", identities},
		{"identities: another root of trust", "keyless", "OCIRepository", images + ", verify: {provider: cosign, matchOIDCIdentity: [" + acme + "], trustedRootSecretRef: {name: own}}", identities},
		{"identities: a key, of which there is none", "keyless", "OCIRepository", images + ", " + cosign, identities},

		{"charts: a chart without verification", "all", "HelmChart", chart, "HelmChart x " + charts},
		{"charts: a verified chart", "all", "HelmChart", chart + ", " + notation, ""},
		{"charts: a chart out of a verified repository has dependencies", "all", "HelmChart", ofGit, "HelmChart x " + charts},
		{"charts: a release without verification", "all", "HelmRelease", release(""), "HelmRelease x needs signed charts, which Flux verifies: set spec.chart.spec.verify to {provider: notation, secretRef: {name: tenure-keys-notation}}"},
		{"charts: a verified release", "all", "HelmRelease", release(", " + notation), ""},
		{"charts: a release with a program that is not listed", "all", "HelmRelease", release(", " + cosign), "needs signed charts"},
		{"charts: a release of every identity", "keyless", "HelmRelease", release(", verify: {provider: cosign}"), "HelmRelease x needs signed charts, which Flux verifies: spec.chart can name no identity, so use spec.chartRef with an OCIRepository whose spec.verify is {provider: cosign, matchOIDCIdentity: [{issuer: '^https://token.example.com$', subject: '^charts$'}]}"},
		{"charts: a release by reference", "keyless", "HelmRelease", "chartRef: {kind: OCIRepository, name: x}", ""},
		{"charts: a chart of the platform's identity", "keyless", "HelmChart", chart + ", verify: {provider: cosign, matchOIDCIdentity: [{issuer: ^https://token.example.com$, subject: ^charts$}]}", ""},
		{"charts: an OCIRepository that may hold one", "charts", "OCIRepository", images, "OCIRepository x needs signed charts, which Flux verifies: set spec.verify to {provider: cosign, secretRef: {name: tenure-keys-cosign}}"},
		{"charts: a verified one", "charts", "OCIRepository", images + ", " + cosign, ""},
		{"charts: a host that is no registry", "charts", "HelmRepository", "url: https://charts.example.com", "HelmRepository x needs spec.type oci: charts must be signed"},
		{"charts: a registry", "charts", "HelmRepository", "type: oci, url: oci://registry.example.com/charts/team", ""},
		{"charts: a bucket", "charts", "Bucket", bucket, noBucket},
		{"charts: a Git repository, of which no signature is demanded", "charts", "GitRepository", repository, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			judge(t, tenant.Create(t.Context(), in(tc.namespace, tc.kind, tc.spec), client.DryRunAll), tc.want)
		})
	}
}

// The Secrets with the platform's keys are not the tenant's, whether there are any or not.
func TestSignatureKeys(t *testing.T) {
	t.Parallel()
	admin, tenant, restConfig := cluster(t)
	owner := newClient(t, restConfig, rest.ImpersonationConfig{UserName: "signs", Groups: []string{"system:authenticated"}})
	const refusal = "holds the public keys of the signers, and only the platform writes it: ask the platform team to add a key to signatures.keys of the TenancyProfile or the Tenant, or use another name (rule tenure-signature-keys)"
	secret := func(namespace, name string) *unstructured.Unstructured {
		u := parse(t, secretWith("any.asc", "x"))
		u.SetNamespace(namespace)
		u.SetName(name)
		return u
	}
	there := secret("signs-tags", "tenure-keys-git")
	if err := admin.Create(t.Context(), there); err != nil {
		t.Fatalf("the platform cannot write its keys: %v", err)
	}
	testwait.For(t, "the API server to know the tenant's rights", patience, func() (bool, string) {
		err := owner.Create(t.Context(), secret("signs-tags", "x"), client.DryRunAll)
		return err == nil, fmt.Sprint(err)
	})
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"stringData":{"mine.asc":"x"}}`))
	for reason, tc := range map[string]struct {
		err  error
		want string
	}{
		"a key of its own beside the platform's":        {owner.Patch(t.Context(), there.DeepCopy(), patch, client.DryRunAll), refusal},
		"without the platform's keys":                   {owner.Delete(t.Context(), there.DeepCopy(), client.DryRunAll), refusal},
		"all Secrets at once":                           {owner.DeleteAllOf(t.Context(), there.DeepCopy(), client.InNamespace("signs-tags"), client.DryRunAll), refusal},
		"before the platform has one":                   {owner.Create(t.Context(), secret("signs-commits", "tenure-keys-git"), client.DryRunAll), refusal},
		"before anything is demanded":                   {owner.Create(t.Context(), secret("signs-anything", "tenure-keys-cosign"), client.DryRunAll), refusal},
		"in a namespace without parameters":             {tenant.Create(t.Context(), secret("apps", "tenure-keys-notation"), client.DryRunAll), refusal},
		"a Secret of another name":                      {owner.Create(t.Context(), secret("signs-commits", "tenure-keys-git-2"), client.DryRunAll), ""},
		"of a name that the API server would choose":    {owner.Create(t.Context(), withGeneratedName(secret("signs-commits", ""), "tenure-keys-"), client.DryRunAll), ""},
		"a ConfigMap of the name, which Flux reads not": {owner.Create(t.Context(), parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: tenure-keys-git, namespace: signs-commits}}"), client.DryRunAll), ""},
	} {
		t.Run(reason, func(t *testing.T) { judge(t, tc.err, tc.want) })
	}
}

func withGeneratedName(u *unstructured.Unstructured, prefix string) *unstructured.Unstructured {
	u.SetName("")
	u.SetGenerateName(prefix)
	return u
}

// judge compares the answer of the API server with the refusal that it should hold; "" is for a
// request that is admitted.
func judge(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Error("admitted")
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("the message is %v, and should hold %q", err, want)
	}
}
