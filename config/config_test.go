package config_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenure-dev/tenure/api/v1alpha1"
	"github.com/tenure-dev/tenure/config"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// TestFluxImageTags fails when cluster/flux was upgraded and the manifests were
// not generated again: the cluster would then run other programs than it says.
func TestFluxImageTags(t *testing.T) {
	t.Parallel()
	gomod, err := os.ReadFile("../cluster/flux/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`github.com/fluxcd/([a-z-]+-controller) (v\S+)`).FindAllSubmatch(gomod, -1) {
		want = append(want, string(m[1])+":"+string(m[2]))
	}
	var got []string
	manifests := string(config.FluxComponents()) + string(config.FluxImageComponents())
	for _, m := range regexp.MustCompile(`image: \S+/fluxcd/(\S+)`).FindAllStringSubmatch(manifests, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images differ from the programs of cluster/flux (-want +got):\n%s", diff)
	}
}

func TestFluxManifestsHoldUpstreamsObjects(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason   string
		manifest []byte
		want     []string
		not      []string
	}{
		"components": {
			reason:   "the default installation is upstream's, so without a lockdown and with the RBAC that tenancy is measured against",
			manifest: config.FluxComponents(),
			want: []string{
				"cluster-reconciler-flux-system", "crd-controller-flux-system", "flux-edit-flux-system", "flux-view-flux-system",
				"kind: NetworkPolicy", "kind: ResourceQuota", "externalartifacts.source.toolkit.fluxcd.io",
			},
			not: []string{"- --no-cross-namespace-refs", "- --default-service-account", "imagepolicies.image.toolkit.fluxcd.io"},
		},
		"image components": {
			reason:   "the image controllers come on top of the others, so nothing may be there twice",
			manifest: config.FluxImageComponents(),
			want:     []string{"imagepolicies.image", "imagerepositories.image", "imageupdateautomations.image"},
			not:      []string{"kind: Namespace\n", "kind: ClusterRole", "fluxcd/source-controller:"},
		},
		"source-watcher": {
			reason:   "the account has its rights from the other components",
			manifest: config.FluxSourceWatcher(),
			want:     []string{"artifactgenerators.source.extensions.fluxcd.io", "fluxcd/source-watcher:", "kind: ServiceAccount", "kind: Service\n"},
			not:      []string{"kind: Namespace\n", "kind: ClusterRole", "--no-cross-namespace-refs"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, s := range tt.want {
				if !strings.Contains(string(tt.manifest), s) {
					t.Errorf("%s\nmissing: %s", tt.reason, s)
				}
			}
			for _, s := range tt.not {
				if strings.Contains(string(tt.manifest), s) {
					t.Errorf("%s\nunwanted: %s", tt.reason, s)
				}
			}
		})
	}
}

func TestFluxArtifactComponents(t *testing.T) {
	t.Parallel()
	gates := map[string]int{}
	for document := range strings.SplitSeq(string(config.FluxArtifactComponents()), "\n---\n") {
		var deployment struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(document, "- --feature-gates=ExternalArtifact=true\n"); n > 0 {
			gates[deployment.Kind+"/"+deployment.Metadata.Name] = n
		}
	}
	want := map[string]int{"Deployment/kustomize-controller": 1, "Deployment/helm-controller": 1}
	if !maps.Equal(gates, want) {
		t.Errorf("the gate is set in %v, want %v", gates, want)
	}
}

// TestMetricsOfTenants checks that no policy of Tenure's programs lets the Pods of tenants reach metrics, which name tenants.
func TestMetricsOfTenants(t *testing.T) {
	t.Parallel()
	checked := 0
	for document := range strings.SplitSeq(string(config.Manager())+"\n---\n"+string(config.Proxy())+"\n---\n"+string(config.Check()), "\n---\n") {
		var policy networkingv1.NetworkPolicy
		if err := yaml.Unmarshal([]byte(document), &policy); err != nil || policy.Kind != "NetworkPolicy" {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if !slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.String() == "http-prom" }) {
				continue
			}
			checked++
			for _, label := range []string{v1alpha1.LabelTenant, v1alpha1.LabelFluxTenant, v1alpha1.LabelCapsuleTenant} {
				if len(rule.From) == 0 || slices.ContainsFunc(rule.From, func(peer networkingv1.NetworkPolicyPeer) bool {
					namespaces, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
					return err != nil || namespaces.Matches(labels.Set{label: "any"})
				}) {
					t.Errorf("%s lets namespaces with the label %s reach the metrics", policy.Name, label)
				}
			}
		}
	}
	if checked != 2 {
		t.Errorf("%d rules are about metrics, want those of the manager and of the proxy", checked)
	}
}
