package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"sigs.k8s.io/yaml"
)

// testReleaseByFlux installs the released chart with the HelmRelease of the page, unchanged: Flux verifies
// the signatures of the chart and of the manifests. It upgrades and uninstalls with commits.
func testReleaseByFlux(t *testing.T, published releases) {
	const page, host = "docs/how-to/install.md", "registry.example.com"
	programs := published.programs(t)
	published.pull(t, programs, earlierVersion)
	var manifests strings.Builder
	for _, o := range documentation(t)[page] {
		if o.GetName() != "tenure" && (o.GetName() != "tenure-manifests" || o.GetKind() != "OCIRepository") {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&manifests, "---\n%s", text)
	}
	dir, _ := newFleet(t, map[string]string{"clusters/test/tenure.yaml": manifests.String()})
	file := filepath.Join(dir, "clusters/test/tenure.yaml")
	a := admin{releases: published, t: t, folder: t.TempDir()}
	write(t, published.public, a.folder, "cosign.pub")
	a.succeeds(earlierVersion, "kubectl -n flux-system create secret generic tenure-cosign", "--dry-run=client", "-o", "yaml", ">", "secret.yaml")
	r := run{testcluster.Start(t, localcluster.Options{
		BinDir: programs, Fleet: dir, Path: "clusters/test", Apply: []string{filepath.Join(a.folder, "secret.yaml")},
	}), t}
	r.Network.Handle(host, "/v2", published.registry)

	image := func(version string) {
		t.Helper()
		for _, source := range []string{"tenure", "tenure-manifests"} {
			r.isVerified("flux-system", "ocirepository/"+source, true)
			if got := r.field("flux-system", "ocirepository/"+source, ".spec.verify.secretRef.name"); got != "tenure-cosign" {
				t.Errorf("%s is verified with %q", source, got)
			}
		}
		testwait.For(t, "the manager of "+version, patience, func() (bool, string) {
			got := r.field("flux-system", "deployment/tenure-manager", ".spec.template.spec.containers[0].image")
			return got == published.host+"/acme/tenure-server:"+version, got
		})
		r.kubectl("", "-n", "flux-system", "wait", "helmrelease/tenure", "--for=condition=Ready", atMost)
	}
	image(earlierVersion)
	r.installed()

	published.pull(t, programs, laterVersion)
	edit(t, "semver: 0.1.x", "semver: 0.2.x", file)
	image(laterVersion)
	r.refusesAttack()

	edit(t, "  values:\n", "  values:\n    manager:\n      release: true\n", file)
	testwait.For(t, "the manager to remove its finalizers", patience, func() (bool, string) {
		left := r.field("", "tenants.tenure.dev/team", ".metadata.finalizers")
		return left == "", left
	})
	r.kubectl("", "-n", "flux-system", "wait", "helmrelease/tenure", "--for=condition=Ready", atMost)
	write(t, "# uninstalled\n", file)
	testwait.For(t, "Flux to uninstall the chart", patience, func() (bool, string) {
		left := r.kubectl("", "get", "validatingadmissionpolicies,mutatingwebhookconfigurations,deployments", "-A", "-o", "name", "-l", "app.kubernetes.io/name=tenure")
		return left == "", left
	})
	for _, object := range []string{"tenants.tenure.dev/team", "tenancyprofile/default", "namespace/team-apps"} {
		if r.field("", object, ".metadata.name") == "" {
			t.Errorf("uninstalling has deleted %s", object)
		}
	}
}
