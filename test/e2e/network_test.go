package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-dev/tenure/internal/localcluster"
	"github.com/tenure-dev/tenure/internal/localcluster/network"
	"github.com/tenure-dev/tenure/internal/localcluster/network/githost"
	"github.com/tenure-dev/tenure/test/fixtures/testcluster"
	"github.com/tenure-dev/tenure/test/fixtures/testwait"
	"golang.org/x/crypto/ssh"
)

// newFolder returns a folder with files.
func newFolder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	return dir
}

// The fleet of TestNetwork: Flux's system folder and objects that fetch from every kind of
// mapped folder.
var networkFleet = map[string]string{
	"clusters/test/flux-system/gotk-components.yaml": "# our own are used\n",
	"clusters/test/flux-system/kustomization.yaml":   "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [gotk-components.yaml, gotk-sync.yaml]\n",
	"clusters/test/flux-system/gotk-sync.yaml": `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, ref: {branch: main}, url: "https://git.example.com/acme/fleet"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 10m, path: ./clusters/test, prune: true, sourceRef: {kind: GitRepository, name: flux-system}}
`,
	"clusters/test/sources.yaml": `
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: app, namespace: flux-system}
spec: {interval: 10m, url: "oci://oci.example.com/acme/app", ref: {tag: v1}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: flux-system}
spec: {interval: 10m, path: ./, prune: true, sourceRef: {kind: OCIRepository, name: app}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: flux-system}
spec: {interval: 10m, type: oci, url: "oci://oci.example.com/charts"}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: hello, namespace: flux-system}
spec:
  interval: 10m
  chart: {spec: {chart: hello, version: 1.x, sourceRef: {kind: HelmRepository, name: charts}}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: unmapped, namespace: flux-system}
spec: {interval: 10m, url: "https://git.elsewhere.example/acme/app"}
`,
}

// TestNetwork checks that a fleet fetches OCI artifacts, charts from an OCI registry and a
// repository over SSH, and that missing addresses are reported with the flag that maps them.
func TestNetwork(t *testing.T) {
	t.Parallel()
	app := newFolder(t, map[string]string{"app.yaml": configMap("from-oci", "one")})
	git := func(path string, dir string) network.Map {
		return network.Map{Kind: network.KindGit, URL: "https://git.example.com/acme/" + path, Branch: "main", Dir: dir}
	}
	oci := func(url string, dir string) network.Map {
		return network.Map{Kind: network.KindOCI, URL: url, Dir: dir}
	}
	cluster := testcluster.Start(t, localcluster.Options{
		Fleet: newFolder(t, networkFleet), Path: "clusters/test",
		Maps: []network.Map{
			git("ssh", newFolder(t, map[string]string{"ssh.yaml": configMap("from-ssh", "one")})),
			oci("oci://oci.example.com/acme/app:v1", app),
			oci("oci://oci.example.com/charts/hello", newFolder(t, map[string]string{
				"Chart.yaml":        "apiVersion: v2\nname: hello\nversion: 1.2.3+build.4\n",
				"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-chart}\n",
			})),
		},
	})
	get := func(args ...string) string {
		out, err := kubectl(t, cluster, "", append([]string{"get"}, args...)...)
		if err != nil {
			return err.Error() + ": " + out
		}
		return out
	}
	wait := func(reason, want string, args ...string) {
		t.Helper()
		testwait.For(t, reason, patience, func() (bool, string) {
			out := get(args...)
			return strings.Contains(out, want), out
		})
	}
	const message = `-o=jsonpath={.status.conditions[?(@.type=="Ready")].message}`
	wait("what the OCI artifact holds to be applied", "one", "-n=default", "configmap/from-oci", "-o=jsonpath={.data.value}")
	wait("the chart from the registry to be installed", "from-chart", "-n=flux-system", "configmap/from-chart", "-o=name")
	wait("the message of a source that is not mapped", "git.elsewhere.example is not mapped (there is no network here: add --map https://git.elsewhere.example/...=DIR",
		"-n=flux-system", "gitrepository/unmapped", message)

	if err := os.WriteFile(filepath.Join(app, "app.yaml"), []byte(configMap("from-oci", "two")), 0o600); err != nil {
		t.Fatal(err)
	}
	wait("a change of the OCI artifact's folder to be applied", "two", "-n=default", "configmap/from-oci", "-o=jsonpath={.data.value}")

	t.Run("ssh", func(t *testing.T) {
		right, wrong := mustKey(t), mustKey(t)
		protect(t, cluster, "https://git.example.com/acme/ssh", right)
		mustKubectl(t, cluster, sshSecret(t, cluster, wrong)+`
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: ssh, namespace: flux-system}
spec: {interval: 10m, url: "ssh://git@git.example.com/acme/ssh", ref: {branch: main}, secretRef: {name: ssh}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: ssh, namespace: flux-system}
spec: {interval: 10m, path: ./, prune: true, sourceRef: {kind: GitRepository, name: ssh}}
`, "apply", "-f", "-")
		wait("a wrong key to be refused", "Permission denied (publickey)", "-n=flux-system", "gitrepository/ssh", message)
		mustKubectl(t, cluster, sshSecret(t, cluster, right), "apply", "-f", "-")
		wait("what the repository over SSH holds to be applied", "one", "-n=default", "configmap/from-ssh", "-o=jsonpath={.data.value}")
	})
	t.Run("egress", func(t *testing.T) { testEgress(t, cluster) })
}

const webhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
  - name: %[1]s.example.com
    admissionReviewVersions: [v1]
    sideEffects: None
    timeoutSeconds: 5
    failurePolicy: Fail
    clientConfig: {service: {namespace: %[2]s, name: %[3]s, port: %[4]d}}
    rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
    matchConditions: [{name: mine, expression: 'object.metadata.name == "%[1]s"'}]
---
`

// protect makes a local repository private: only the key can read it.
func protect(t *testing.T, cluster *localcluster.Cluster, url string, key []byte) {
	t.Helper()
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Git.Protect(url, githost.Credentials{Key: string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}); err != nil {
		t.Fatal(err)
	}
}

// sshSecret returns the manifest of the Secret flux-system/ssh, with which Flux reads the
// local repositories over SSH.
func sshSecret(t *testing.T, cluster *localcluster.Cluster, key []byte) string {
	t.Helper()
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "ssh", "namespace": "flux-system"},
		"data": map[string]string{
			"identity":    base64.StdEncoding.EncodeToString(key),
			"known_hosts": base64.StdEncoding.EncodeToString(cluster.Git.KnownHosts("git.example.com")),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(secret) + "\n"
}

// testEgress checks that the API server reaches Services by their names: one with a process
// behind it, which does not speak TLS, and one with a simulated Pod.
func testEgress(t *testing.T, cluster *localcluster.Cluster) {
	mustKubectl(t, cluster, fmt.Sprintf(webhooks, "real", "flux-system", "source-controller", 80)+
		fmt.Sprintf(webhooks, "simulated", "default", "hook", 443)+
		fmt.Sprintf(webhooks, "missing", "default", "nobody", 443)+`
apiVersion: v1
kind: Service
metadata: {name: hook, namespace: default}
spec: {selector: {app: hook}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: hook, namespace: default}
spec:
  selector: {matchLabels: {app: hook}}
  template:
    metadata: {labels: {app: hook}}
    spec: {containers: [{name: hook, image: images.example.com/hook:1}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.real.example.com}
spec:
  group: real.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {namespace: flux-system, name: source-controller, port: 80}
`, "apply", "-f", "-")
	mustKubectl(t, cluster, "", "-n=default", "rollout", "status", "deployment/hook", atMost)
	for _, tc := range []struct{ reason, name, want string }{
		{"a process that speaks HTTP answers a TLS greeting in its own way", "real", "server gave HTTP response to HTTPS client"},
		{"a simulated Pod says that it is one", "simulated", "simulated"},
		{"a Service that is missing", "missing", "not found"},
	} {
		testwait.For(t, tc.reason, patience, func() (bool, string) {
			out, err := kubectl(t, cluster, "", "-n=default", "create", "configmap", tc.name, "--dry-run=server")
			return err != nil && strings.Contains(out, tc.want), out
		})
	}
	testwait.For(t, "the aggregated API to be called", patience, func() (bool, string) {
		out, err := kubectl(t, cluster, "", "get", "apiservice", "v1.real.example.com", `-o=jsonpath={.status.conditions[?(@.type=="Available")].message}`)
		return err == nil && strings.Contains(out, "server gave HTTP response to HTTPS client"), out
	})
}

// mustKey returns a new private key in the format of OpenSSH.
func mustKey(t *testing.T) []byte {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}
