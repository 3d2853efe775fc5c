package flux

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestTemplates checks which objects are in the templates of a ResourceSet.
func TestTemplates(t *testing.T) {
	t.Parallel()
	const set = `kind: ResourceSet
spec:
  resources:
    - {kind: Namespace, metadata: {name: << inputs.tenant >>}}
  resourcesTemplate: |
    ---
    <<- range $k, $v := inputs.apps >>
    apiVersion: v1
    kind: Secret
    metadata:
      name: << $v.name | quote >>
      labels:
        << toYaml inputs.labels | nindent 8 >>
    <<- end >>
    ---
    <<- if inputs.branch >>
    kind: << if inputs.branch >>GitRepository<< else >>OCIRepository<< end >>
    metadata: {name: "apps-<< printf "%s: %s" "a" inputs.tenant >>"}
    ---
    <<- else >>
    kind: HelmRelease
    metadata: {name: app}
    <<- end >>
    ---
    kind: [no object
    ---
    # a comment
`
	var u unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(set), &u.Object); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range Templates(&u) {
		got = append(got, fmt.Sprint(object["kind"], " ", object["metadata"].(map[string]any)["name"]))
	}
	want := []string{
		"Namespace << inputs.tenant >>", "Secret << v.name quote >>",
		"<< if inputs.branch >>GitRepository<< else >>OCIRepository<< end >> apps-<< printf s s a inputs.tenant >>", "HelmRelease app",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
