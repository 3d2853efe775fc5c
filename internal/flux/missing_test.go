package flux

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// To whoever has no rights in all namespaces, lists of kinds that are not served are
// forbidden as well.
func TestListForbidden(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
		var answer any = status
		switch {
		case r.URL.Path == "/apis/kustomize.toolkit.fluxcd.io/v1":
			status.Code = http.StatusOK
			answer = metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: "kustomize.toolkit.fluxcd.io/v1",
				APIResources: []metav1.APIResource{{Name: "kustomizations", Namespaced: true, Kind: "Kustomization"}},
			}
		case strings.Count(r.URL.Path, "/") == 3: // the discovery of another group
			status.Code, status.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
			answer = status
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := List(t.Context(), c, Selection{Kinds: []Kind{HelmRelease}}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("a kind that is not served: %v", err)
	}
	if _, err := List(t.Context(), c, Selection{Kinds: []Kind{Kustomization}}); !apierrors.IsForbidden(err) || errors.Is(err, ErrNotInstalled) {
		t.Errorf("a kind that is served: %v", err)
	}
}

// A Secret, ConfigMap or namespace that does not exist is named once, with all that need it, and so are a field that
// the kind does not have and a webhook whose program does not run.
func TestLacking(t *testing.T) {
	t.Parallel()
	fails := func(kind Kind, name, reason string) Finding {
		return Finding{Row: Row{Kind: kind, Namespace: "flux-system", Name: name}, Reason: reason}
	}
	got := Lacking([]Finding{
		fails(Kustomization, "apps", `failed to get secret 'flux-system/age': secrets "age" not found`),
		fails(Kustomization, "infra", `secrets "age" not found`),
		fails(Kustomization, "crds", `no matches for kind "X" in version "example.com/v1"`),
		fails(Kustomization, "other", `post build failed for 'other': substitute from 'ConfigMap/vars' error: configmaps "vars" not found`),
		fails(Kustomization, "crossplane", `Kustomization/flux-system/aws dry-run failed: failed to create typed patch object (flux-system/aws; kustomize.toolkit.fluxcd.io/v1, Kind=Kustomization): .spec.validation: field not declared in schema`),
		fails(Kustomization, "flux-system", `Kustomization "apps" is invalid: [metadata.labels: Invalid value: "${CLUSTER_NAME}": a valid label, spec.timeout: Invalid value: "${RECONCILE_TIMEOUT:=5m}", metadata.labels: Invalid value: "${CLUSTER_NAME}"]`),
		fails(Kustomization, "nodes", `ClusterClass/a/b dry-run failed (InternalError): Internal error occurred: failed calling webhook "validation.x-k8s.io": failed to call webhook: Post "https://capi.capi-system.svc:443/validate?timeout=10s": 502 cannot reach 10.96.20.141:443: the Pod 198.18.0.7:9443 behind the Service capi-system/capi: cannot reach port 9443 of Pod capi-system/capi-1: the Pod is simulated: no program listens there`),
		fails(Kustomization, "radix", `post build failed for 'HelmRelease.v2.helm.toolkit.fluxcd.io/radix': envsubst error: variable substitution failed: variable not set (strict mode): "ZONE"`),
		fails(Kustomization, "crashed", `failed calling webhook "x.example.com": failed to call webhook: Post "https://x.x.svc:443/": connection refused`),
		fails(Kustomization, "settings", `ConfigMap/legacy/settings not found: namespaces "legacy" not found`),
		fails(ResourceSetInputProvider, "pulls", `failed to read secret 'flux-system/github': secrets "github" not found`),
		fails(ResourceSetInputProvider, "tags", `failed to call OCI provider: Get "https://ghcr.io/v2/": ghcr.io is not mapped`),
		fails(ResourceSet, "previews", `failed to build resources: template: resource:1:2: executing "resource" at <inputs.sha>: map has no entry for key "sha"`),
		fails(Kustomization, "eks", `failed to get access token for cluster: failed to create provider access token for the controller: no EC2 IMDS role found`),
		fails(OCIRepository, "range", `failed to determine the artifact tag for 'oci://registry.example.com/range': no match found for semver: 1.x`),
		fails(GitRepository, "pinned", `failed to checkout and determine revision: unable to clone 'https://git.example.com/pinned': couldn't find remote ref "refs/tags/v1.0.0"`),
		fails(GitRepository, "newest", "failed to checkout and determine revision: no match found for semver: >=1.0.0\n"),
		fails(GitRepository, "branch", `failed to checkout and determine revision: unable to clone 'https://git.example.com/branch': couldn't find remote ref "refs/heads/live"`),
		fails(Kustomization, "old", `GitRepository/red/red dry-run failed: no matches for kind "GitRepository" in version "source.toolkit.fluxcd.io/v1beta1" CronJob/red/red dry-run failed: no matches for kind "CronJob" in version "batch/v1beta1"`),
		fails(Bucket, "store", `failed to confirm existence of 'store' bucket: minio.example.com is not mapped`),
		{Row: Row{Kind: Kustomization, Namespace: "flux-system", Name: "stored", Needs: []Ref{{Bucket, "flux-system", "store"}}}, Reason: "waits for it"},
		fails(HelmRelease, "legacy", `Helm install failed: create: failed to create: namespaces "legacy" not found`),
		fails(HelmRelease, "web", `template: ${CLUSTER_NAME} is not defined`),
		fails(Kustomization, "spoke", `unable to read KubeConfig secret 'flux-system/spoke' error: secrets "spoke" not found`),
	})
	want := []string{
		"API group example.com (X.v1) is not served here: Kustomization/flux-system/crds needs it; a chart or an operator brings its CRDs: map the chart with --map, or give the CRDs with --crds DIR",
		"Secret flux-system/age is not there: Kustomization/flux-system/apps, Kustomization/flux-system/infra need it; give it with --apply FILE, or have it made with invented content by --fake-secrets",
		"Secret flux-system/github is not there: ResourceSetInputProvider/flux-system/pulls needs it; give it with --apply FILE, or take what needs it as ready with --assume ResourceSetInputProvider/flux-system/pulls, since it reads from an address outside of the cluster",
		"Secret flux-system/spoke is not there: Kustomization/flux-system/spoke needs it; give it with --apply FILE, or take what needs it as ready with --assume Kustomization/flux-system/spoke, since no other cluster can be invented",
		"ResourceSetInputProvider/flux-system/tags reads from an address outside of the cluster, which no --map serves: take it as ready, with spec.defaultValues as its input, with --assume ResourceSetInputProvider/flux-system/tags",
		"Bucket/flux-system/store is a bucket, which no --map serves: take it and what needs it as ready with --assume Bucket/flux-system/store --assume Kustomization/flux-system/stored",
		"ResourceSet/flux-system/previews uses the input sha, which it does not have: if a provider gives it that is assumed, add sha to the provider's spec.defaultValues, in the fleet or in a copy",
		"Kustomization/flux-system/eks applies into another cluster with the identity of a cloud, and neither is here: take it as ready with --assume Kustomization/flux-system/eks",
		"OCIRepository/flux-system/range selects a version in 1.x, and its folder has none: add a version of this range to the address in --map, as in oci://registry.example.com/range:VERSION=DIR",
		"GitRepository/flux-system/pinned selects the tag v1.0.0, which the folder of its address in --map does not have: map a Git work tree that has it, for instance after git fetch --tags",
		"GitRepository/flux-system/newest selects the tag in the range >=1.0.0, which the folder of its address in --map does not have: map a Git work tree that has it, for instance after git fetch --tags",
		"GitRepository/flux-system/branch selects the branch live, which the folder of its address in --map does not have: map a Git work tree that has it, or a folder as URL#live=DIR",
		"CronJob is not served in version batch/v1beta1: Kustomization/flux-system/old needs it; change its apiVersion to one that kubectl api-resources lists",
		"GitRepository is not served in version source.toolkit.fluxcd.io/v1beta1: Kustomization/flux-system/old needs it; change its apiVersion, as flux migrate -f DIR does in a folder",
		"ConfigMap flux-system/vars is not there: Kustomization/flux-system/other needs it; if it is not in the repository, such as one that a script makes, give it with --apply FILE",
		"namespace legacy is not there: Kustomization/flux-system/settings, HelmRelease/flux-system/legacy need it; if it is not in the repository, such as one that a script or a chart makes, give a manifest of the Namespace with --apply FILE",
		"nothing replaces ${CLUSTER_NAME}, ${RECONCILE_TIMEOUT} in what Kustomization/flux-system/flux-system applies: add spec.postBuild to it; if a script replaces them, such as with envsubst, give --fleet a copy in which it has",
		"${ZONE} has no value in spec.postBuild of Kustomization/flux-system/radix, which Flux refuses since version 2.9, unless the gate StrictPostBuildSubstitutions is off: give it one there, in a ConfigMap that it names, or as ${ZONE:=value}",
		"Kustomization has no field .spec.validation in kustomize.toolkit.fluxcd.io/v1: delete it from flux-system/aws, and from all objects that Flux has not tried yet, in what Kustomization/flux-system/crossplane applies",
		"the webhook validation.x-k8s.io of Service capi-system/capi gets no answer, since its program does not run here: Kustomization/flux-system/nodes needs it; take that as ready with --assume Kustomization/flux-system/nodes, or give --fleet a copy without the webhook",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
