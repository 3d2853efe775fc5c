package flux

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestSecretUses checks the Secrets that objects of Flux need. Optional ones are not among them.
func TestSecretUses(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		object string
		want   []SecretUse
	}{
		"a source": {
			"{kind: GitRepository, metadata: {namespace: a}, spec: {url: 'https://x/y', secretRef: {name: s}}}",
			[]SecretUse{{Namespace: "a", Name: "s", Purpose: ForGit, URL: "https://x/y"}},
		},
		"charts in a registry": {
			"{kind: HelmRepository, metadata: {namespace: a}, spec: {type: oci, url: 'oci://x/y', secretRef: {name: s}}}",
			[]SecretUse{{Namespace: "a", Name: "s", Purpose: ForRegistry, URL: "oci://x/y"}},
		},
		"a Kustomization": {
			"{kind: Kustomization, metadata: {namespace: a}, spec: {decryption: {secretRef: {name: k}}, postBuild: {substituteFrom: [{kind: Secret, name: v}, {kind: Secret, name: o, optional: true}, {kind: ConfigMap, name: c}]}}}",
			[]SecretUse{{Namespace: "a", Name: "k", Purpose: ForDecryption}, {Namespace: "a", Name: "v", Purpose: ForVariables}},
		},
		"a HelmRelease": {
			"{kind: HelmRelease, metadata: {namespace: a}, spec: {valuesFrom: [{kind: Secret, name: v}, {kind: Secret, name: p, valuesKey: pw, targetPath: db.pw}, {kind: Secret, name: o, optional: true}]}}",
			[]SecretUse{{Namespace: "a", Name: "v", Purpose: ForValues, Key: "values.yaml"}, {Namespace: "a", Name: "p", Purpose: ForValues, Key: "pw", Target: "db.pw"}},
		},
		"copies of a ResourceSet": {
			`{kind: ResourceSet, metadata: {namespace: a}, spec: {resources: [
				{kind: OCIRepository, spec: {url: 'oci://x/<< inputs.tenant >>'}},
				{kind: Secret, type: kubernetes.io/dockerconfigjson, metadata: {annotations: {fluxcd.controlplane.io/copyFrom: b/pull}}},
				{kind: Secret, metadata: {annotations: {fluxcd.controlplane.io/copyFrom: a/values}}},
				{kind: Secret, metadata: {annotations: {fluxcd.controlplane.io/copyFrom: "a/<< inputs.tenant >>"}}},
				{kind: ConfigMap, metadata: {annotations: {fluxcd.controlplane.io/copyFrom: a/c}}}, {kind: Secret}]}}`,
			[]SecretUse{{Namespace: "b", Name: "pull", Purpose: ForRegistry, URL: "oci://x/<< inputs.tenant >>"}, {Namespace: "a", Name: "values", Purpose: ForCopy}},
		},
		"a copy that a source of the ResourceSet reads": {
			`{kind: ResourceSet, metadata: {namespace: a}, spec: {resources: [
				{kind: Secret, metadata: {name: auth, namespace: "<< inputs.tenant >>", annotations: {fluxcd.controlplane.io/copyFrom: a/git}}},
				{kind: GitRepository, metadata: {name: apps, namespace: "<< inputs.tenant >>"}, spec: {url: "<< inputs.url >>", secretRef: {name: auth}}}]}}`,
			[]SecretUse{{Namespace: "a", Name: "git", Purpose: ForGit, URL: "<< inputs.url >>"}},
		},
		"copies of a template": {
			`{kind: ResourceSet, metadata: {namespace: a}, spec: {resourcesTemplate: "<<- if inputs.x >>\nkind: Secret\nmetadata:\n  name: << inputs.x | quote >>\n  annotations: {fluxcd.controlplane.io/copyFrom: a/values}\n<<- end >>\n"}}`,
			[]SecretUse{{Namespace: "a", Name: "values", Purpose: ForCopy}},
		},
		"no Secret": {"{kind: GitRepository, metadata: {namespace: a}, spec: {url: 'https://x/y'}}", nil},
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(tc.object), &u.Object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, SecretUses(u)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}
