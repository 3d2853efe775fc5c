package tenancy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tenure-dev/tenure/api/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parseSignatures(t *testing.T, text string) *v1alpha1.Signatures {
	t.Helper()
	s := &v1alpha1.Signatures{}
	if err := yaml.UnmarshalStrict([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSignatures is about the sources and key Secrets of a tenant whose sources must be signed,
// and about the objects of its sync that the manager delays because the profile refuses them.
func TestSignatures(t *testing.T) {
	t.Parallel()
	const git, oci = `git: {url: "https://git.example.com/acme/app"}`, `oci: {url: "oci://registry.example.com/app"}`
	const keys = "keys: {git: {a.asc: A, b.sshpub: B}, cosign: {c.pub: C}, notation: {trustpolicy.json: '{}', d.crt: D}}"
	const keyless = "identities: [{issuer: ^https://issuer.example.com$, subject: ^https://git.example.com/acme/.*$}]"
	for _, tc := range []struct {
		reason, profile, tenant, sync string
		secrets                       []string
		verify                        string
		later                         bool
	}{
		{reason: "nothing is demanded", profile: "{}", sync: git},
		{reason: "keys alone demand nothing", profile: "{" + keys + "}", sync: git, secrets: KeySecrets()},
		{reason: "commits", profile: "{keys: {git: {a.asc: A}}, git: {}}", sync: git, secrets: []string{"tenure-keys-git"}, verify: "{mode: HEAD, secretRef: {name: tenure-keys-git}}"},
		{reason: "tags", profile: "{keys: {git: {a.asc: A}}, git: {mode: Tag}}", sync: git, secrets: []string{"tenure-keys-git"}, verify: "{mode: Tag, secretRef: {name: tenure-keys-git}}"},
		{reason: "artifacts, of which a Git repository is none", profile: "{oci: {providers: [cosign]}}", sync: git},
		{reason: "artifacts with a key", profile: "{oci: {providers: [notation, cosign], " + keyless + "}}", sync: oci, verify: "{provider: notation, secretRef: {name: tenure-keys-notation}}", later: true},
		{reason: "artifacts by identities", profile: "{oci: {" + keyless + "}}", sync: oci, verify: "{provider: cosign, matchOIDCIdentity: [{issuer: ^https://issuer.example.com$, subject: ^https://git.example.com/acme/.*$}]}", later: true},
		{reason: "charts, which an OCIRepository may hold", profile: "{charts: {providers: [cosign]}}", sync: oci, verify: "{provider: cosign, secretRef: {name: tenure-keys-cosign}}", later: true},
		{reason: "the Tenant replaces the whole part", profile: "{" + keys + ", git: {mode: TagAndHEAD}}", tenant: "{keys: {git: {z.asc: Z}}}", sync: git, secrets: []string{"tenure-keys-git"}, later: true},
		{reason: "the Tenant demands more", profile: "{git: {}}", tenant: "{git: {mode: TagAndHEAD}}", sync: git, verify: "{mode: TagAndHEAD, secretRef: {name: tenure-keys-git}}"},
		{reason: "the Tenant demands less", profile: "{git: {mode: TagAndHEAD}}", tenant: "{git: {mode: HEAD}}", sync: git, verify: "{mode: HEAD, secretRef: {name: tenure-keys-git}}", later: true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			policy := "{}"
			if tc.tenant != "" {
				policy = "{signatures: " + tc.tenant + "}"
			}
			tenant := parseTenant(t, fmt.Sprintf("{metadata: {name: dev}, spec: {sync: [{name: app, namespace: apps, %s}], policy: %s}}", tc.sync, policy))
			profile := posture()
			profile.Spec.Tenants.Signatures = *parseSignatures(t, tc.profile)
			objects, err := Desired(Namespace{Name: "apps", Labels: map[string]string{v1alpha1.LabelTenant: "dev"}, Tenant: tenant, Siblings: []string{"apps"}}, profile)
			if err != nil {
				t.Fatal(err)
			}
			var secrets []string
			for _, s := range objects.Keys {
				secrets = append(secrets, s.Name)
				if s.Namespace != "apps" || s.Labels[LabelManaged] != ManagedValue || len(s.Data) == 0 || !SameKeys(s, s) {
					t.Errorf("Secret %s is not the manager's: %v", s.Name, s)
				}
			}
			if diff := cmp.Diff(tc.secrets, secrets); diff != "" {
				t.Errorf("the Secrets with keys (-want +got):\n%s", diff)
			}
			parameters := objects.Parameters.Spec
			if diff := cmp.Diff(tc.secrets, parameters.KeySecrets); diff != "" {
				t.Errorf("what the parameters name of them (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(v1alpha1.SignatureKeys{}, parameters.Tenants.Signatures.Keys); diff != "" {
				t.Errorf("the parameters hold keys, which no rule reads (-want +got):\n%s", diff)
			}
			want := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.verify), &want); err != nil {
				t.Fatal(err)
			}
			got, _, _ := unstructured.NestedMap(objects.Sync[0].(*unstructured.Unstructured).Object, "spec", "verify")
			if diff := cmp.Diff(want, got); len(want)+len(got) > 0 && diff != "" {
				t.Errorf("spec.verify of the sync's source (-want +got):\n%s", diff)
			}
			// The profile allows no OCI registry, so that the manager delays every OCIRepository.
			if later := len(objects.Later) == 2; later != tc.later {
				t.Errorf("put off are %d objects, and it should be: %v", len(objects.Later), tc.later)
			}
		})
	}
}

// The manager delays exactly the objects that the rule would refuse.
func TestVerifies(t *testing.T) {
	t.Parallel()
	const id, other = "{issuer: ^i$, subject: ^s$}", "{issuer: ^i$, subject: ^.*$}"
	for _, tc := range []struct {
		reason, kind, demand, verify string
		want                         bool
	}{
		{"no demand", "GitRepository", "{}", "{}", true},
		{"nothing is verified", "GitRepository", "{git: {}}", "{}", false},
		{"another Secret", "GitRepository", "{git: {}}", "{mode: HEAD, secretRef: {name: own}}", false},
		{"both for one", "GitRepository", "{git: {mode: Tag}}", "{mode: TagAndHEAD, secretRef: {name: tenure-keys-git}}", true},
		{"one for both", "GitRepository", "{git: {mode: TagAndHEAD}}", "{mode: HEAD, secretRef: {name: tenure-keys-git}}", false},
		{"a program that is not listed", "OCIRepository", "{oci: {providers: [cosign]}}", "{provider: notation, secretRef: {name: tenure-keys-notation}}", false},
		{"the keys of another program", "OCIRepository", "{oci: {providers: [cosign]}}", "{provider: cosign, secretRef: {name: tenure-keys-git}}", false},
		{"a listed identity", "OCIRepository", "{oci: {identities: [" + id + "]}}", "{provider: cosign, matchOIDCIdentity: [" + id + "]}", true},
		{"a wider one beside it", "OCIRepository", "{oci: {identities: [" + id + "]}}", "{provider: cosign, matchOIDCIdentity: [" + strings.Join([]string{id, other}, ", ") + "]}", false},
		{"every identity", "OCIRepository", "{oci: {identities: [" + id + "]}}", "{provider: cosign}", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			verify := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.verify), &verify); err != nil {
				t.Fatal(err)
			}
			o := &unstructured.Unstructured{Object: map[string]any{"kind": tc.kind, "spec": map[string]any{"verify": verify}}}
			if got := verifies(*parseSignatures(t, tc.demand), o); got != tc.want {
				t.Errorf("%s: verified as demanded is %v", tc.reason, got)
			}
		})
	}
}
